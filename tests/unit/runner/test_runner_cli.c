/* SPDX-License-Identifier: BSD-3-Clause */
/* The runner's command line, and what it writes in each format. */
#include "runner_run.h"

#include <dirent.h>
#include <time.h>

static bool leaves_nothing_in(const char *directory, const char *prefix) {
    DIR *open_directory = opendir(directory);
    const struct dirent *entry;
    bool clean = true;

    while (open_directory != NULL && (entry = readdir(open_directory)) != NULL)
        clean = clean && strncmp(entry->d_name, prefix, strlen(prefix)) != 0;
    if (open_directory != NULL)
        closedir(open_directory);
    return clean;
}

TEST("good cases pass") {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*,kit.*' --seed 7"), 0);
    CU_ASSERT(says("seed 7"));
    CU_ASSERT(says("16 cases planned, 2 not planned"));
    CU_ASSERT(says("good.skipped (0.00 s): needs capability MULTICAST\n"));
    CU_ASSERT(says("not planned: good.many_ranks (needs 1024 ranks)\n"));
    CU_ASSERT(says("not planned: good.threads (needs ranks as threads)\n"));
    CU_ASSERT(closes_with("15 passed, 0 failed, 1 skipped\n"));
}

TEST("good cases pass with threads") {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*,kit.*' --rank-mode thread"), 0);
    CU_ASSERT(says("not planned: good.dies_as_announced (needs ranks as processes)\n"));
    CU_ASSERT(closes_with("15 passed, 0 failed, 1 skipped\n"));
}

/* Kept ranks see the same; one that ends is replaced, one that ends badly in the end is told of. */
TEST("kept ranks") {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*,alone.*,kit.*,walk.*' --keep-ranks"), 0);
    CU_ASSERT_EQUAL(
        run("--backend fake --filter 'good.*,kit.*' --keep-ranks --rank-mode thread --repeat 2"),
        0);
    CU_ASSERT_EQUAL(run("--backend fake --ranks 3 --keep-ranks --repeat 2 --no-color --timeout 5 "
                        "--filter 'good.passes,bad.fails,bad.crashes,bad.leaks_socket'"),
                    1);
    CU_ASSERT(closes_with("2 passed, 6 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(
        run("--backend fake --keep-ranks --verbose --filter good.dies_as_announced --repeat 3"), 0);
    CU_ASSERT(says("case 3 of its process"));
    CU_ASSERT_EQUAL(run("--backend fake --keep-ranks --filter bad.exit_status 2>&1"), 1);
    CU_ASSERT(
        says("error: bad.exit_status: 4 kept rank(s) did not end as they should: rank 0 ended "
             "with status 66\n"));
    CU_ASSERT(closes_with("0 passed, 1 failed, 0 skipped\n"));
}

/* How long an end may take grows with all limits; an end that nobody asked for is told of, too. */
TEST("ends of kept ranks") {
    CU_ASSERT_EQUAL(run("--backend fake --keep-ranks --filter kept.ends_slowly 2>&1"), 0);
    setenv("SYMMEM_TIMEOUT_SCALE", "0.1", 1);
    CU_ASSERT_EQUAL(run("--backend fake --keep-ranks --filter kept.ends_slowly 2>&1"), 1);
    unsetenv("SYMMEM_TIMEOUT_SCALE");
    CU_ASSERT(says("4 kept rank(s) did not end as they should: rank 0 was ended by signal 9 "
                   "(Killed), for it ran on for 500 ms\n"));
    CU_ASSERT_EQUAL(run("--backend fake --keep-ranks --filter 'kept.waits_*,kept.*_kept' 2>&1"), 1);
    CU_ASSERT(says("4 kept rank(s) did not end as they should: rank "));
    CU_ASSERT(says(" was ended by signal 14 (Alarm clock) while it waited for a case\n"));
}

TEST("many and few ranks") {
    CU_ASSERT_EQUAL(run("--backend fake --ranks 128 --filter 'good.passes,kit.*'"), 0);
    CU_ASSERT(closes_with("10 passed, 0 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend fake --ranks 1 --filter 'good.*,kit.*' --no-large"), 0);
    CU_ASSERT(says("not planned: good.large (large, left out by --no-large)\n"));
    CU_ASSERT(closes_with("12 passed, 0 failed, 1 skipped\n"));
}

/* Of cases that this rank mode can never run a line is enough. */
TEST("many of the other mode") {
    const char *arguments =
        "--backend fake --rank-mode thread --filter 'good.dies*,walk.ch*,bad.stops,"
        "bad.is_killed_*,bad.leaks_name,bad.leaks_held_*,bad.leaks_thread,bad.changes_limit,"
        "bad.changes_mask,good.passes'";
    char verbose[512];

    snprintf(verbose, sizeof(verbose), "%s --verbose", arguments);
    CU_ASSERT_EQUAL(run(arguments), 0);
    CU_ASSERT(says("not planned: 9 cases (needs ranks as processes), named by --verbose\n"));
    CU_ASSERT(strstr(output, "bad.stops") == NULL);
    CU_ASSERT_EQUAL(run(verbose), 0);
    CU_ASSERT(says("not planned: bad.stops (needs ranks as processes)\n"));
}

/* What the walks of test points are made of, and the line that they say. */
TEST("tools of walks") {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'walk.*'"), 0);
    CU_ASSERT(says(" s): a line beside the verdict\n"));
    CU_ASSERT(closes_with("2 passed, 0 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend fake --filter 'walk.*' --rank-mode thread"), 0);
    CU_ASSERT(says("not planned: walk.children_are_ranks (needs ranks as processes)\n"));
    CU_ASSERT(closes_with("1 passed, 0 failed, 0 skipped\n"));
}

/* Every fifth of the sixteen cases that are planned. */
TEST("part") {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*,kit.*' --seed 7 --part 2/5"), 0);
    CU_ASSERT(says("4 ranks (process), seed 7, part 2/5, 3 at a time\n"));
    CU_ASSERT(says("3 cases planned, 2 not planned\n"));
    CU_ASSERT(says("\nprofiles passed in part: core (3, "));
    CU_ASSERT(says("\nclaim: none, because profile core was run in part only\n"));
    CU_ASSERT(closes_with("3 passed, 0 failed, 0 skipped, part 2/5\n"));
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --repeat 3 --part 1/1"), 0);
    CU_ASSERT(closes_with("3 passed, 0 failed, 0 skipped, part 1/1\n"));
    /* More parts than cases: one that has none is no failure, for the others have them. */
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --part 2/2"), 0);
    CU_ASSERT(closes_with("0 passed, 0 failed, 0 skipped, part 2/2\n"));
}

/* What a run without parts lists and plans is in the parts' lists, each once. */
TEST("part: lists") {
    static const char options[] = "--filter 'good.*,bad.fails*,walk.*' --no-large";
    char arguments[128], whole[4096], parts[4096] = "";

    for (int part = 1; part <= 3; part++) {
        snprintf(arguments, sizeof(arguments), "--list %s --part %d/3", options, part);
        CU_ASSERT_EQUAL(run(arguments), 0);
        const size_t used = strlen(parts), bytes = strlen(output);
        CU_ASSERT_FATAL(bytes > 0 && used + bytes < sizeof(parts));
        memcpy(parts + used, output, bytes + 1);
    }
    snprintf(arguments, sizeof(arguments), "--list %s", options);
    CU_ASSERT_EQUAL(run(arguments), 0);
    snprintf(whole, sizeof(whole), "%.4000s", output);
    for (char *rest = whole, *line; (line = strsep(&rest, "\n")) != NULL;) {
        bool planned = strncmp(line, "good.many_ranks\t", 16) != 0 &&
                       strncmp(line, "good.threads\t", 13) != 0 &&
                       strncmp(line, "good.large\t", 11) != 0;
        const char *found = strstr(parts, line);

        if (line[0] == '\0')
            continue;
        CU_ASSERT_EQUAL(found != NULL, planned);
        CU_ASSERT(found == NULL || strstr(found + 1, line) == NULL);
    }
}

TEST("part: JSON") {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*' --part 2/3 --format json 2>&1"), 0);
    CU_ASSERT(says("  \"part\": \"2/3\",\n"));
    CU_ASSERT(says("{\"name\": \"multicast\", \"standing\": \"not declared\", "));
    CU_ASSERT(says("\"left_out\": 1, \"other_parts\": 1, "));
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*' --format json 2>&1"), 0);
    CU_ASSERT(strstr(output, "\"part\"") == NULL && strstr(output, "other_parts") == NULL);
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*' --part 2/3 --format html 2>&1"), 0);
    CU_ASSERT(says("part 2/3 of a run"));
}

TEST("failure quotes requirement") {
    run("--backend fake --filter bad.fails");
    CU_ASSERT(says("SM-SELF-02: A bad case MUST NOT pass.\n"));
    CU_ASSERT(says("(test_bad.c:"));
    CU_ASSERT(says("\nfailed: bad.fails (4 ranks, "));
    CU_ASSERT(says("\nfailed: bad.fails: rank 3: a message with "));
    CU_ASSERT(says("last seen: ranks 0-3: done, checkpoint \"before the check\"\n"));
}

/* A leak breaks a sentence of its own, whatever its case is for. */
TEST("leaks quote requirements") {
    static const struct {
        const char *test, *quoted;
    } leaks[] = {{"bad.leaks_descriptor", "SM-LIFE-01: "},  {"bad.leaks_mapping", "SM-LIFE-01: "},
                 {"bad.leaks_key", "SM-LIFE-01: "},         {"bad.changes_flags", "SM-LIFE-01: "},
                 {"bad.changes_directory", "SM-LIFE-10: "}, {"bad.changes_mask", "SM-LIFE-10: "},
                 {"bad.leaks_timer", "SM-LIFE-10: "}};
    char arguments[128];

    for (size_t i = 0; i < sizeof(leaks) / sizeof(leaks[0]); i++) {
        snprintf(arguments, sizeof(arguments), "--backend fake --filter %s", leaks[i].test);
        CU_ASSERT_EQUAL(run(arguments), 1);
        CU_ASSERT(says("leak: "));
        CU_ASSERT(says(leaks[i].quoted));
        CU_ASSERT(strstr(output, "SM-SELF-") == NULL);
    }
    CU_ASSERT_EQUAL(run("--backend fake --filter bad.changes_mask --format json"), 1);
    CU_ASSERT(says("\"requirement\": \"SM-LIFE-10\""));
}

TEST("worst exit status wins") {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'bad.lacks_memory,bad.vacuous,good.passes'"), 1);
    CU_ASSERT(closes_with("1 passed, 2 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend fake --filter 'bad.lacks_memory,good.passes'"), 2);
    CU_ASSERT(closes_with("1 passed, 1 failed, 0 skipped\n"));
}

/* --- backends and options --------------------------------------------------------------- */

TEST("backends") {
    CU_ASSERT_EQUAL(run("--backend unloadable 2>&1"), 3);
    CU_ASSERT(says("backend unloadable cannot be loaded: LOAD"));
    CU_ASSERT_EQUAL(run("--backend crashing 2>&1"), 3);
    CU_ASSERT(says("signal 11"));
    CU_ASSERT_EQUAL(run("--backend hanging --timeout 1 2>&1"), 3);
    CU_ASSERT(says("backend hanging cannot be loaded: opening it hangs: no end within 1.0 s"));
    CU_ASSERT_EQUAL(run("--backend processes --rank-mode thread 2>&1"), 3);
    CU_ASSERT(says("does not declare THREAD_RANKS: run it with --rank-mode process\n"));
    CU_ASSERT_EQUAL(run("--backend device --ranks 2 --filter 'good.passes,kit.try*'"), 2);
    CU_ASSERT(says("good.passes (0.00 s): needs 2 devices, the machine has 1"));
    CU_ASSERT(closes_with("1 passed, 1 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend device --ranks 1 --filter good.passes"), 0);
}

TEST("profiles") {
    CU_ASSERT_EQUAL(run("--backend fake --profile core --filter 'good.*,kit.*'"), 0);
    CU_ASSERT(strstr(output, "good.skipped ") == NULL);
    CU_ASSERT(says("\nprofiles passed in part: core (15, "));
    CU_ASSERT(says("\nprofiles not declared: multicast\n"));
    CU_ASSERT(says("\nclaim: none, because profile core was run in part only\n"));
    CU_ASSERT(closes_with("15 passed, 0 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend fake --filter bad.fails"), 1);
    CU_ASSERT(says("\nclaim: none, because profile core failed\n"));
    /* Not to have what was asked for is no pass. */
    CU_ASSERT_EQUAL(run("--backend fake --profile core,multicast 2>&1"), 1);
    CU_ASSERT(says("symmem-conformance: profile multicast: backend fake does not declare "
                   "MULTICAST\n"));
    CU_ASSERT(closes_with("0 passed, 1 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--profile cores 2>&1"), 1);
    CU_ASSERT(says("unknown profile 'cores'; there are: core direct-access"));
    CU_ASSERT_EQUAL(run("--list-profiles"), 0);
    CU_ASSERT(says("\nmulticast\tMULTICAST\t1\n"));
    CU_ASSERT_EQUAL(run("--list --profile multicast"), 0);
    CU_ASSERT_STRING_EQUAL(output, "good.skipped\tSM-SELF-01,SM-SELF-02\tMULTICAST\n");
}

TEST("wrong usage") {
    static const char *const wrong[] = {
        "--ranks 0",
        "--ranks 1025",
        "--ranks x",
        "--ranks -1",
        "--seed 1x",
        "--repeat 0",
        "--timeout 0",
        "--format xml",
        "--rank-mode y",
        "--frobnicate",
        "word",
        "--report json",
        "--report json=",
        "--report text=f",
        "--report xml=f",
        "--slowest 0",
        "--part 0/3",
        "--part 4/3",
        "--part 1/0",
        "--part 2",
        "--part 1/",
        "--part /3",
        "--part -1/3",
        "--part 1/3x",
        "--part ' 1/3'",
        "--part 1/12345678901",
        "--part one",
        ("--report tap=a --report tap=b --report tap=c --report tap=d --report tap=e --report "
         "tap=f "
         "--report tap=g --report tap=h --report tap=i"),
        "--ranks",
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char arguments[256];

        snprintf(arguments, sizeof(arguments), "%s 2>&1", wrong[i]);
        CU_ASSERT_EQUAL(run(arguments), 1);
        CU_ASSERT(says("\nusage: symmem-conformance [options], all of them by --help\n"));
        CU_ASSERT(strlen(output) < 300); /* the whole list would hide what was wrong */
    }
    CU_ASSERT_EQUAL(run("--backend fake --filter nothing 2>&1"), 1);
    CU_ASSERT(says("no test matches"));
    CU_ASSERT(closes_with("0 passed, 1 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--help"), 0);
    CU_ASSERT(says("usage: symmem-conformance"));
}

TEST("list and trace") {
    CU_ASSERT_EQUAL(run("--list --filter 'good.passes,good.skipped'"), 0);
    CU_ASSERT_STRING_EQUAL(output, "good.passes\tSM-SELF-01\t-\n"
                                   "good.skipped\tSM-SELF-01,SM-SELF-02\tMULTICAST\n");
    CU_ASSERT_EQUAL(run("--check-trace"), 0);
    CU_ASSERT_EQUAL(run("--trace"), 0);
    CU_ASSERT(says("SM-SELF-01\tgood.passes,"));
    CU_ASSERT(says("SM-SELF-03\t(withdrawn)\n"));
}

TEST("broken trace") {
    static const char *const wanted[] = {
        "test untraced.twice is there 2 times",
        "test untraced.cites_nothing cites no requirement",
        "test untraced.unknown cites SM-SELF-99, which SPEC.md does not have",
        "test untraced.withdrawn cites SM-SELF-03, which is withdrawn",
        "test untraced.ranks wants at least 3 and at most 2 ranks",
        "test 'untraced two words' has no proper name or no body",
        "requirement SM-SELF-04 has no test",
    };

    strcat(program, "-trace");
    CU_ASSERT_EQUAL(run("--check-trace 2>&1"), 1);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        CU_ASSERT(says(wanted[i]));
    CU_ASSERT_EQUAL(run("--backend fake 2>&1"), 1);
    CU_ASSERT(strstr(output, "planned") == NULL);
    program[strlen(program) - strlen("-trace")] = '\0';
}

TEST("repeat and seed") {
    char first[65536];

    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --repeat 3 --verbose"), 0);
    CU_ASSERT(says("3 cases planned"));
    CU_ASSERT(says("[SM-SELF-01]"));
    CU_ASSERT(closes_with("3 passed, 0 failed, 0 skipped\n"));
    run("--backend fake --filter good.passes --seed 9 --format tap");
    snprintf(first, sizeof(first), "%.65000s", output);
    run("--backend fake --filter good.passes --seed 9 --format tap");
    CU_ASSERT_STRING_EQUAL(first, output);
}

TEST("timeout option") {
    time_t start = time(NULL);

    CU_ASSERT_EQUAL(run("--backend fake --filter bad.hangs --timeout 1"), 1);
    CU_ASSERT(says("no end within 1.0 s"));
    CU_ASSERT(time(NULL) - start < 10);
    setenv("SYMMEM_TIMEOUT_SCALE", "1.5", 1);
    CU_ASSERT_EQUAL(run("--backend fake --filter bad.hangs --timeout 1"), 1);
    CU_ASSERT(says("no end within 1.5 s"));
    unsetenv("SYMMEM_TIMEOUT_SCALE");
}

/* A backend that hangs in every case costs only so much time. */
TEST("stop after") {
    CU_ASSERT_EQUAL(run("--backend fake --stop-after 2 --filter "
                        "'bad.fails,bad.vacuous,bad.hangs,bad.stops,good.passes'"),
                    1);
    CU_ASSERT(says("error: 2 of 5 planned cases did not run, because of --stop-after\n"));
    CU_ASSERT(says("claim: none"));
    CU_ASSERT(closes_with("1 passed, 4 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --stop-after 1"), 0);
    CU_ASSERT_EQUAL(run("--backend fake --filter bad.fails --stop-after 5"), 1);
    CU_ASSERT(strstr(output, "did not run") == NULL);
    CU_ASSERT_EQUAL(run("--stop-after 0 2>&1"), 1);
}

static void test_interrupt(void) {
    char command[700];
    int status;

    snprintf(command, sizeof(command),
             "timeout --foreground -k 5 -s TERM 1 %s --backend fake --filter bad.hangs --timeout "
             "50 >/dev/null 2>&1",
             program);
    status = system(command);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 124);
}

/* --- formats ---------------------------------------------------------------------------- */

#define MIXED                                                                                      \
    "--backend fake --filter 'good.passes,good.skipped,bad.fails,bad.lacks_memory' --seed 3 "

TEST("json") {
    CU_ASSERT_EQUAL(run(MIXED "--format json 2>/dev/null"), 1);
    CU_ASSERT(says("\"backend\": \"fake\""));
    CU_ASSERT(says("\"rank_mode\": \"process\""));
    CU_ASSERT(says("{\"test\": \"good.passes\", \"requirements\": [\"SM-SELF-01\"], "
                   "\"status\": \"passed\", \"reason\": \"\", \"seconds\": "));
    CU_ASSERT(says("\"requirements\": [\"SM-SELF-01\", \"SM-SELF-02\"], \"status\": \"skipped\""));
    CU_ASSERT(says("a message with <&\\\"\\n]]> # \\\\ in it: ?\\u0001"));
    CU_ASSERT(says("\"summary\": {\"passed\": 1, \"failed\": 1, \"skipped\": 1, \"errors\": 0, "
                   "\"unresolved\": 1}\n}\n"));
    CU_ASSERT(strstr(output, "1 passed, 2 failed") == NULL);
    /* The claim, in words and for a program. */
    CU_ASSERT(says("\"claim\": \"profiles failed: core (1 of 3)\\n"));
    CU_ASSERT(says("claim: none, because profile core failed\\n\""));
    CU_ASSERT(says("{\"name\": \"core\", \"standing\": \"failed\", \"passed\": 1, "));
    CU_ASSERT(says("{\"name\": \"multicast\", \"standing\": \"not declared\", \"passed\": 0, "
                   "\"failed\": 0, \"undecided\": 0, \"left_out\": 0, \"claimed\": false}"));
}

TEST("tap") {
    CU_ASSERT_EQUAL(run(MIXED "--format tap 2>/dev/null"), 1);
    CU_ASSERT(strncmp(output, "TAP version 14\n1..4\n", 20) == 0);
    CU_ASSERT(
        says("\nok 1 - good.passes\nok 2 - good.skipped # SKIP needs capability MULTICAST\n"));
    CU_ASSERT(says("\nnot ok 3 - bad.fails\n  ---\n  verdict: failed\n"));
    CU_ASSERT(says("  verdict: unresolved\n"));
}

TEST("junit") {
    CU_ASSERT_EQUAL(run(MIXED "--format junit 2>/dev/null"), 1);
    CU_ASSERT(says("tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\""));
    CU_ASSERT(says("a message with &lt;&amp;&quot;&#10;]]&gt; # \\ in it: ??"));
    CU_ASSERT(says("<error type=\"unresolved\""));
}

TEST("html") {
    CU_ASSERT_EQUAL(run(MIXED "--format html 2>/dev/null"), 1);
    CU_ASSERT(says("A good case MUST pass, whatever &lt;characters&gt; &amp; &quot;signs&quot;"));
    CU_ASSERT(says("[brackets], back\\slashes and semicolons too."));
    CU_ASSERT(says("<span class=\"s failed\">failed</span> <code>bad.fails</code>"));
    CU_ASSERT(says("a message with &lt;&amp;&quot;"));
    CU_ASSERT(closes_with("</html>\n"));
}

TEST("output file") {
    char directory[] = "/tmp/test-runner-XXXXXX";
    char arguments[256], path[64];
    FILE *report;
    char line[64] = "";

    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/report", directory);
    snprintf(arguments, sizeof(arguments), MIXED "--format tap --output %s 2>/dev/null", path);
    CU_ASSERT_EQUAL(run(arguments), 1);
    CU_ASSERT_STRING_EQUAL(output, "1 passed, 2 failed, 1 skipped\n");
    report = fopen(path, "re");
    CU_ASSERT_PTR_NOT_NULL_FATAL(report);
    CU_ASSERT(fgets(line, sizeof(line), report) != NULL && strcmp(line, "TAP version 14\n") == 0);
    fclose(report);
    snprintf(arguments, sizeof(arguments), MIXED "--output %s", path);
    CU_ASSERT_EQUAL(run(arguments), 1);
    CU_ASSERT(closes_with("1 passed, 2 failed, 1 skipped\n"));
    CU_ASSERT_EQUAL(strlen(output), strlen("1 passed, 2 failed, 1 skipped\n"));
    unlink(path);
    rmdir(directory);
    /* A report that cannot be written fails a run that would have passed. */
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --output /nowhere/report 2>&1"), 1);
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --format json >/dev/full 2>&1"), 1);
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --report tap=/dev/full 2>&1"), 1);
}

TEST("leaves nothing") {
    char directory[] = "/tmp/test-runner-XXXXXX";

    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    setenv("TMPDIR", directory, 1);
    run("--backend fake --filter 'bad.leaks_key,bad.hangs_hard,bad.crashes,good.*'");
    test_interrupt();
    unsetenv("TMPDIR");
    CU_ASSERT(leaves_nothing_in(directory, "symmem-"));
    CU_ASSERT_EQUAL(rmdir(directory), 0);
}
