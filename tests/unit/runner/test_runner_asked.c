/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance runner where it cannot do what it was asked for: that is said, before anything is
 * run if possible, and never looks like a pass. */
#include "runner_run.h"

/* A name that is not right is said, whatever else is run: its tests were wanted, too. */
TEST("mistyped pattern") {
    RUN_SAYS(1, "--backend fake --filter 'good.passes,god.*' 2>&1",
             "symmem-conformance: no test matches 'god.*'\n",
             LAST "0 passed, 1 failed, 0 skipped\n");
    RUN_SAYS(1, "--list --filter 'good.passes,god.*' 2>&1",
             "symmem-conformance: no test matches 'god.*'\n");
    /* That a profile or part has none of a pattern's tests is another matter. */
    RUN_SAYS(0, "--backend fake --profile core --filter 'good.passes,good.skipped'",
             LAST "1 passed, 0 failed, 0 skipped\n");
}

/* None of the tests that were asked for can run so: that is no pass. */
TEST("nothing to run") {
    RUN_SAYS(1, "--backend fake --filter good.many_ranks",
             "not planned: good.many_ranks (needs 1024 ranks)\n",
             "error: of the cases asked for none can be run so\nNOT PASSED in ",
             LAST "0 passed, 1 failed, 0 skipped\n");
    CU_ASSERT_EQUAL(run("--backend fake --filter walk.children_are_ranks --rank-mode thread"), 1);
    RUN_SAYS(1, "--backend fake --filter good.many_ranks --part 1/2",
             LAST "0 passed, 1 failed, 0 skipped, part 1/2\n");
}

/* What programs read from it must not be cut short without a word. */
TEST("unwritten lists") {
    static const char *const lists[] = {"--list", "--trace", "--list-profiles", "--help",
                                        "--check-trace"};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        CU_ASSERT_EQUAL(run("%s 2>&1 >/dev/full", lists[i]), 1);
        CU_ASSERT_STRING_EQUAL(output,
                               "symmem-conformance: standard output could not be written\n");
    }
}

static bool is_empty(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 && facts.st_size == 0;
}

/* Reports are made at the end of a run that may take an hour. */
TEST("reports ahead") {
    char directory[] = "/tmp/test-runner-XXXXXX";
    char path[64];
    FILE *old;
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/report", directory);
    /* One that cannot be written is told before, and no case is run. */
    RUN_SAYS(1, "--backend fake --filter good.passes --report tap=/nowhere/r 2>&1",
             "symmem-conformance: /nowhere/r: No such file", NOT "good.passes",
             LAST "0 passed, 1 failed, 0 skipped\n");
    RUN_SAYS(1, "--backend fake --filter good.passes --format json --output /nowhere/r 2>&1",
             NOT "good.passes");
    /* Two in one file: one of them would be lost. */
    CU_ASSERT_EQUAL(run("--list --report tap=%s --report json=%s 2>&1", path, path), 1);
    CU_ASSERT(says("two reports are to be one file: "));
    CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
    CU_ASSERT_EQUAL(run("--list --output %s --report json=%s 2>&1", path, path), 1);
    /* That of an earlier run is not taken for this one's, whatever ends it. */
    old = fopen(path, "we");
    CU_ASSERT_PTR_NOT_NULL_FATAL(old);
    fputs("old results\n", old);
    fclose(old);
    CU_ASSERT_EQUAL(run("--backend unloadable --report json=%s 2>&1", path), 3);
    CU_ASSERT(is_empty(path));
    unlink(path);
    CU_ASSERT_EQUAL(rmdir(directory), 0);
}

/* What a run reads and writes there is not hidden by the one that it gets for itself. */
TEST("files in /dev/shm") {
    char directory[] = "/dev/shm/test-runner-XXXXXX";
    char path[64];
    char *setting = getenv("SYMMEM_PRIVATE_SHM"); /* what is asked for out here is another matter */
    setting = setting == NULL ? NULL : strdup(setting);
    unsetenv("SYMMEM_PRIVATE_SHM");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/report", directory);
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --format json --output %s 2>&1", path),
                    0);
    CU_ASSERT(access(path, F_OK) == 0 && !is_empty(path));
    unlink(path);
    setenv("TMPDIR", directory, 1);
    RUN_SAYS(0, "--backend fake --filter 'good.*' 2>&1",
             "symmem-conformance: TMPDIR is in /dev/shm, so the run has none of its own: ");
    unsetenv("TMPDIR");
    if (setting != NULL)
        setenv("SYMMEM_PRIVATE_SHM", setting, 1);
    free(setting);
    CU_ASSERT_EQUAL(rmdir(directory), 0);
}

/* nohup starts what it starts so. */
TEST("ignored hangup") {
    char command[700];
    int status;
    snprintf(
        command, sizeof(command),
        "trap '' HUP; %s --backend fake --filter bad.hangs --timeout 2 >/tmp/o.$$ 2>&1 & sleep "
        "0.5; kill -HUP $!; wait $!; grep -q 'no end within 2.0 s' /tmp/o.$$; r=$?; rm -f "
        "/tmp/o.$$; exit $r",
        program);
    status = system(command);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A shell that becomes the runner leaves it children, such as those that read its output. They are
 * not the ranks' and not the runner's to end. */
TEST("children of others") {
    char command[900];
    int status;
    snprintf(command, sizeof(command),
             "(sleep 50 & echo $! >/tmp/p.$$; exec %s --backend fake --keep-ranks --filter "
             "'good.*' >/dev/null); r=$?; kill $(cat /tmp/p.$$) || r=9; rm -f /tmp/p.$$; exit $r",
             program);
    status = system(command);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What is no number, or no sensible one, is not taken for another. */
TEST("scale") {
    static const char *const bad[] = {"5000", "0", "-1", "0,5", "2x", "nan", "fast"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char said[96];
        setenv("SYMMEM_TIMEOUT_SCALE", bad[i], 1);
        snprintf(said, sizeof(said), "SYMMEM_TIMEOUT_SCALE wants 0.01 to 1000, not '%s'\n", bad[i]);
        CU_ASSERT_EQUAL(run("--backend fake --filter good.passes 2>&1"), 1);
        CU_ASSERT(says(said));
    }
    setenv("SYMMEM_TIMEOUT_SCALE", "", 1);
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes"), 0);
    unsetenv("SYMMEM_TIMEOUT_SCALE");
}
