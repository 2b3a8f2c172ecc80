/* SPDX-License-Identifier: BSD-3-Clause */
/* The runner's command line, and what it writes in each format. */
#include "runner_run.h"

#include <dirent.h>

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
    RUN_SAYS(0, "--backend fake --filter 'good.*,kit.*' --seed 7", "seed 7",
             "16 cases planned, 2 not planned",
             "good.skipped (0.00 s): needs capability MULTICAST\n",
             "not planned: good.many_ranks (needs 1024 ranks)\n",
             "not planned: good.threads (needs ranks as threads)\n",
             LAST "15 passed, 0 failed, 1 skipped\n");
}

TEST("good cases pass with threads") {
    RUN_SAYS(0, "--backend fake --filter 'good.*,kit.*' --rank-mode thread",
             "not planned: good.dies_as_announced (needs ranks as processes)\n",
             LAST "15 passed, 0 failed, 1 skipped\n");
}

/* Kept ranks see the same; one that ends is replaced, one that ends badly in the end is told of. */
TEST("kept ranks") {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*,alone.*,kit.*,walk.*' --keep-ranks"), 0);
    CU_ASSERT_EQUAL(
        run("--backend fake --filter 'good.*,kit.*' --keep-ranks --rank-mode thread --repeat 2"),
        0);
    RUN_SAYS(1,
             "--backend fake --ranks 3 --keep-ranks --repeat 2 --no-color --timeout 5 "
             "--filter 'good.passes,bad.fails,bad.crashes,bad.leaks_socket'",
             LAST "2 passed, 6 failed, 0 skipped\n");
    RUN_SAYS(0, "--backend fake --keep-ranks --verbose --filter good.dies_as_announced --repeat 3",
             "case 3 of its process");
    RUN_SAYS(1, "--backend fake --keep-ranks --filter bad.exit_status 2>&1",
             "error: bad.exit_status: 4 kept rank(s) did not end as they should: rank 0 ended "
             "with status 66\n",
             LAST "0 passed, 1 failed, 0 skipped\n");
}

/* An engine starts once in a process, with those of all ranks: who stays alone, or met others, is
 * replaced. */
TEST("kept ranks start together") {
    for (int ranks = 2; ranks <= 4; ranks++) {
        CU_ASSERT_EQUAL(run("--backend world --ranks %d --keep-ranks --no-color --repeat 2 "
                            "--filter 'met.*' 2>&1",
                            ranks),
                        0);
        CU_ASSERT(says_all((const char *const[]){" s): 3 meetings\n", " s): 4 meetings\n",
                                                 LAST "12 passed, 0 failed, 0 skipped\n", NULL}));
    }
}

/* The time that ends of ranks may take grows with all limits. An unrequested end is reported as
 * well. */
TEST("ends of kept ranks") {
    CU_ASSERT_EQUAL(run("--backend fake --keep-ranks --filter kept.ends_slowly 2>&1"), 0);
    setenv("SYMMEM_TIMEOUT_SCALE", "0.1", 1);
    CU_ASSERT_EQUAL(run("--backend fake --keep-ranks --filter kept.ends_slowly 2>&1"), 1);
    unsetenv("SYMMEM_TIMEOUT_SCALE");
    CU_ASSERT(says("4 kept rank(s) did not end as they should: rank 0 was ended by signal 9 "
                   "(Killed), for it ran on for 500 ms\n"));
    RUN_SAYS(1, "--backend fake --keep-ranks --filter 'kept.waits_*,kept.*_kept' 2>&1",
             "4 kept rank(s) did not end as they should: rank ",
             " was ended by signal 14 (Alarm clock) while it waited for a case\n");
}

TEST("many and few ranks") {
    RUN_SAYS(0, "--backend fake --ranks 128 --filter 'good.passes,kit.*'",
             LAST "10 passed, 0 failed, 0 skipped\n");
    RUN_SAYS(0, "--backend fake --ranks 1 --filter 'good.*,kit.*' --no-large",
             "not planned: good.large (large, left out by --no-large)\n",
             LAST "12 passed, 0 failed, 1 skipped\n");
}

/* One line suffices for cases that this rank mode can never run. */
TEST("many of the other mode") {
    const char *arguments =
        "--backend fake --rank-mode thread --filter 'good.dies*,walk.ch*,bad.stops,"
        "bad.is_killed_*,bad.leaks_name,bad.leaks_held_*,bad.leaks_thread,bad.changes_limit,"
        "bad.changes_mask,bad.changes_locale,good.passes'";
    char verbose[512];
    snprintf(verbose, sizeof(verbose), "%s --verbose", arguments);
    CU_ASSERT_EQUAL(run("%s", arguments), 0);
    CU_ASSERT(says("not planned: 10 cases (needs ranks as processes), named by --verbose\n"));
    CU_ASSERT(strstr(output, "bad.stops") == NULL);
    CU_ASSERT_EQUAL(run("%s", verbose), 0);
    CU_ASSERT(says("not planned: bad.stops (needs ranks as processes)\n"));
}

/* The tools for walks over failpoints, and the line that they print. */
TEST("tools of walks") {
    RUN_SAYS(0, "--backend fake --filter 'walk.*'", " s): a line beside the verdict\n",
             LAST "2 passed, 0 failed, 0 skipped\n");
    RUN_SAYS(0, "--backend fake --filter 'walk.*' --rank-mode thread",
             "not planned: walk.children_are_ranks (needs ranks as processes)\n",
             LAST "1 passed, 0 failed, 0 skipped\n");
}

/* Every fifth of the sixteen cases that are planned. */
TEST("part") {
    RUN_SAYS(0, "--backend fake --filter 'good.*,kit.*' --seed 7 --part 2/5",
             "4 ranks (process), seed 7, part 2/5, 3 at a time\n",
             "3 cases planned, 2 not planned\n", "\nprofiles passed in part: core (3, ",
             "\nclaim: none, because profile core was run in part only\n",
             LAST "3 passed, 0 failed, 0 skipped, part 2/5\n");
    RUN_SAYS(0, "--backend fake --filter good.passes --repeat 3 --part 1/1",
             LAST "3 passed, 0 failed, 0 skipped, part 1/1\n");
    /* More parts than cases: one that has none is no failure, for the others have them. */
    RUN_SAYS(0, "--backend fake --filter good.passes --part 2/2",
             LAST "0 passed, 0 failed, 0 skipped, part 2/2\n");
}

/* The lists of the parts together have each case of a run without parts, once. */
TEST("part: lists") {
    static const char options[] = "--filter 'good.*,bad.fails*,walk.*' --no-large";
    char whole[4096], parts[4096] = "";
    for (int part = 1; part <= 3; part++) {
        CU_ASSERT_EQUAL(run("--list %s --part %d/3", options, part), 0);
        const size_t used = strlen(parts), bytes = strlen(output);
        CU_ASSERT_FATAL(bytes > 0 && used + bytes < sizeof(parts));
        memcpy(parts + used, output, bytes + 1);
    }
    CU_ASSERT_EQUAL(run("--list %s", options), 0);
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
    RUN_SAYS(0, "--backend fake --filter 'good.*' --part 2/3 --format json 2>&1",
             "  \"part\": \"2/3\",\n", "{\"name\": \"multicast\", \"standing\": \"not declared\", ",
             "\"left_out\": 1, \"other_parts\": 1, ");
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*' --format json 2>&1"), 0);
    CU_ASSERT(strstr(output, "\"part\"") == NULL && strstr(output, "other_parts") == NULL);
    RUN_SAYS(0, "--backend fake --filter 'good.*' --part 2/3 --format html 2>&1",
             "part 2/3 of a run");
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
                 {"bad.changes_locale", "SM-LIFE-10: "},    {"bad.leaks_timer", "SM-LIFE-10: "}};
    for (size_t i = 0; i < sizeof(leaks) / sizeof(leaks[0]); i++) {
        CU_ASSERT_EQUAL(run("--backend fake --filter %s", leaks[i].test), 1);
        CU_ASSERT(says("leak: "));
        CU_ASSERT(says(leaks[i].quoted));
        CU_ASSERT(strstr(output, "SM-SELF-") == NULL);
    }
    RUN_SAYS(1, "--backend fake --filter bad.changes_mask --format json",
             "\"requirement\": \"SM-LIFE-10\"");
}

/* A leak says nothing of what the case is about. */
TEST("passed but for leaks") {
    RUN_SAYS(1, "--backend fake --filter 'bad.leaks_eventfd,good.passes' 2>&1",
             "s): passed but for SM-LIFE-01: rank 0: leak: eventfd ",
             "profiles passed but for SM-LIFE-01: core (1 of 2)\n",
             "claim: none, because profile core passed but for SM-LIFE-01\n",
             LAST "1 passed, 1 failed, 0 skipped\n");
    RUN_SAYS(1, "--backend fake --filter 'bad.leaks_eventfd,bad.fails_and_leaks' 2>&1",
             "bad.fails_and_leaks (", "profiles failed: core (2 of 2)\n",
             NOT "profiles passed but for");
    RUN_SAYS(1, "--backend fake --filter bad.fails_and_leaks 2>&1", NOT "but for SM-LIFE-01");
    RUN_SAYS(1, "--backend fake --filter bad.changes_umask 2>&1", NOT "but for SM-LIFE-01");
    RUN_SAYS(1, "--backend fake --filter bad.crashes 2>&1", NOT "but for SM-LIFE-01");
    RUN_SAYS(1, "--backend fake --filter bad.leaks_eventfd --format json 2>/dev/null",
             "\"standing\": \"but for SM-LIFE-01\"", "\"leaked\": 1",
             "\"reason\": \"passed but for SM-LIFE-01: ");
}

TEST("leak lists are whole") {
    RUN_SAYS(1, "--backend fake --filter bad.leaks_many 2>&1",
             "left behind, in full:\n    | rank 0: ", " 200 (", " 203 (");
    RUN_SAYS(1, "--backend fake --filter bad.leaks_many --jobs 2 --repeat 2 2>&1", " 203 (");
}

TEST("two runs do not write one report") {
    char command[1400], first[] = "/tmp/symmem-report-XXXXXX";
    int fd = mkstemp(first);
    CU_ASSERT_FATAL(fd >= 0);
    close(fd);
    snprintf(command, sizeof(command),
             "timeout 20 %s --backend fake --filter bad.hangs --report json=%s >/dev/null 2>&1 & "
             "sleep 1; "
             "timeout 20 %s --backend fake --filter good.passes --report json=%s 2>&1; echo "
             "\"status $?\"; "
             "wait; grep -c bad.hangs %s",
             program, first, program, first, first);
    FILE *pipe_end = popen(command, "r");
    CU_ASSERT_FATAL(pipe_end != NULL);
    output[fread(output, 1, sizeof(output) - 1, pipe_end)] = '\0';
    pclose(pipe_end);
    CU_ASSERT(says(": another run writes there\n"));
    CU_ASSERT(says("status 1\n"));
    CU_ASSERT(!closes_with("\n0\n"));
    CU_ASSERT(strstr(output, "good.passes (") == NULL);
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --report json=%s", first), 0);
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --report json=/dev/null"), 0);
    unlink(first);
}

TEST("worst exit status wins") {
    RUN_SAYS(1, "--backend fake --filter 'bad.lacks_memory,bad.vacuous,good.passes'",
             LAST "1 passed, 2 failed, 0 skipped\n");
    RUN_SAYS(2, "--backend fake --filter 'bad.lacks_memory,good.passes'",
             LAST "1 passed, 1 failed, 0 skipped\n");
}

/* --- backends and options --------------------------------------------------------------- */

TEST("backends") {
    RUN_SAYS(3, "--backend unloadable 2>&1", "backend unloadable cannot be loaded: LOAD");
    RUN_SAYS(3, "--backend crashing 2>&1", "signal 11");
    RUN_SAYS(3, "--backend hanging --timeout 1 2>&1",
             "backend hanging cannot be loaded: opening it hangs: no end within 1.0 s");
    RUN_SAYS(3, "--backend processes --rank-mode thread 2>&1",
             "does not declare THREAD_RANKS: run it with --rank-mode process\n");
    RUN_SAYS(2, "--backend device --ranks 2 --filter 'good.passes,kit.try*'",
             "good.passes (0.00 s): needs 2 devices, the machine has 1",
             LAST "1 passed, 1 failed, 0 skipped\n");
    CU_ASSERT_EQUAL(run("--backend device --ranks 1 --filter good.passes"), 0);
}

TEST("profiles") {
    RUN_SAYS(0, "--backend fake --profile core --filter 'good.*,kit.*'", NOT "good.skipped ",
             "\nprofiles passed in part: core (15, ", "\nprofiles not declared: multicast\n",
             "\nclaim: none, because profile core was run in part only\n",
             LAST "15 passed, 0 failed, 0 skipped\n");
    RUN_SAYS(1, "--backend fake --filter bad.fails",
             "\nclaim: none, because profile core failed\n");
    /* A missing profile that was asked for is a failure. */
    RUN_SAYS(1, "--backend fake --profile core,multicast 2>&1",
             "symmem-conformance: profile multicast: backend fake does not declare "
             "MULTICAST\n",
             LAST "0 passed, 1 failed, 0 skipped\n");
    RUN_SAYS(1, "--profile cores 2>&1",
             "unknown profile 'cores'; there are: core one-sided direct-access");
    RUN_SAYS(0, "--list-profiles", "\nmulticast\tMULTICAST\t1\n");
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
        CU_ASSERT_EQUAL(run("%s 2>&1", wrong[i]), 1);
        CU_ASSERT(says("\nusage: symmem-conformance [options], all of them by --help\n"));
        CU_ASSERT(strlen(output) < 300); /* the whole list would hide what was wrong */
    }
    RUN_SAYS(1, "--backend fake --filter nothing 2>&1", "no test matches",
             LAST "0 passed, 1 failed, 0 skipped\n");
    RUN_SAYS(0, "--help", "usage: symmem-conformance");
}

TEST("list and trace") {
    CU_ASSERT_EQUAL(run("--list --filter 'good.passes,good.skipped'"), 0);
    CU_ASSERT_STRING_EQUAL(output, "good.passes\tSM-SELF-01\t-\n"
                                   "good.skipped\tSM-SELF-01,SM-SELF-02\tMULTICAST\n");
    CU_ASSERT_EQUAL(run("--check-trace"), 0);
    RUN_SAYS(0, "--trace", "SM-SELF-01\tgood.passes,", "SM-SELF-03\t(withdrawn)\n");
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
    RUN_SAYS(1, "--backend fake 2>&1", NOT "planned");
    program[strlen(program) - strlen("-trace")] = '\0';
}

TEST("repeat and seed") {
    char first[65536];
    RUN_SAYS(0, "--backend fake --filter good.passes --repeat 3 --verbose", "3 cases planned",
             "[SM-SELF-01]", LAST "3 passed, 0 failed, 0 skipped\n");
    run("--backend fake --filter good.passes --seed 9 --format tap");
    snprintf(first, sizeof(first), "%.65000s", output);
    run("--backend fake --filter good.passes --seed 9 --format tap");
    CU_ASSERT_STRING_EQUAL(first, output);
}

TEST("timeout option") {
    time_t start = time(NULL);
    RUN_SAYS(1, "--backend fake --filter bad.hangs --timeout 1", "no end within 1.0 s");
    CU_ASSERT(time(NULL) - start < 10);
    setenv("SYMMEM_TIMEOUT_SCALE", "1.5", 1);
    RUN_SAYS(1, "--backend fake --filter bad.hangs --timeout 1", "no end within 1.5 s");
    unsetenv("SYMMEM_TIMEOUT_SCALE");
}

/* A backend that hangs in every case costs only so much time. */
TEST("stop after") {
    RUN_SAYS(1,
             "--backend fake --stop-after 2 --filter "
             "'bad.fails,bad.vacuous,bad.hangs,bad.stops,good.passes'",
             "error: 2 of 5 planned cases did not run, because of --stop-after\n", "claim: none",
             LAST "1 passed, 4 failed, 0 skipped\n");
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --stop-after 1"), 0);
    RUN_SAYS(1, "--backend fake --filter bad.fails --stop-after 5", NOT "did not run");
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
    RUN_SAYS(1, MIXED "--format json 2>/dev/null", "\"backend\": \"fake\"",
             "\"rank_mode\": \"process\"",
             "{\"test\": \"good.passes\", \"requirements\": [\"SM-SELF-01\"], "
             "\"status\": \"passed\", \"reason\": \"\", \"seconds\": ",
             "\"requirements\": [\"SM-SELF-01\", \"SM-SELF-02\"], \"status\": \"skipped\"",
             "a message with <&\\\"\\n]]> # \\\\ in it: ?\\u0001",
             "\"summary\": {\"passed\": 1, \"failed\": 1, \"skipped\": 1, \"errors\": 0, "
             "\"unresolved\": 1}\n}\n",
             NOT "1 passed, 2 failed");
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
    RUN_SAYS(1, MIXED "--format junit 2>/dev/null",
             "tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\"",
             "a message with &lt;&amp;&quot;&#10;]]&gt; # \\ in it: ??",
             "<error type=\"unresolved\"");
}

TEST("html") {
    RUN_SAYS(1, MIXED "--format html 2>/dev/null",
             "A good case MUST pass, whatever &lt;characters&gt; &amp; &quot;signs&quot;",
             "[brackets], back\\slashes and semicolons too.",
             "<span class=\"s failed\">failed</span> <code>bad.fails</code>",
             "a message with &lt;&amp;&quot;", LAST "</html>\n");
}

TEST("output file") {
    char directory[] = "/tmp/test-runner-XXXXXX";
    char path[64];
    FILE *report;
    char line[64] = "";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/report", directory);
    CU_ASSERT_EQUAL(run(MIXED "--format tap --output %s 2>/dev/null", path), 1);
    CU_ASSERT_STRING_EQUAL(output, "1 passed, 2 failed, 1 skipped\n");
    report = fopen(path, "re");
    CU_ASSERT_PTR_NOT_NULL_FATAL(report);
    CU_ASSERT(fgets(line, sizeof(line), report) != NULL && strcmp(line, "TAP version 14\n") == 0);
    fclose(report);
    CU_ASSERT_EQUAL(run(MIXED "--output %s", path), 1);
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
