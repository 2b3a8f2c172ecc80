/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs of the conformance runner that end short: what was planned and did not come to its end is
 * never left out of the count. */
#include "unit.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[400];

/* The last line of the self-check's report under the command `before`. */
static bool closes_with(const char *before, const char *arguments, const char *line) {
    char command[1400];
    snprintf(command, sizeof(command),
             "timeout -k 5 30 %s '%s/runner-selfcheck' --backend fake %s 2>/dev/null | tail -n 1 | "
             "grep -qx '%s'",
             before, folder, arguments, line);
    int status = system(command);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* In the foreground, or timeout sends SIGCONT as well, which takes away the stop that
 * LeakSanitizer's end of a process waits for. */
TEST("an interrupted run counts what it did not run") {
    CU_ASSERT_TRUE(closes_with("timeout --foreground -s TERM 4",
                               "--filter bad.hangs --repeat 2 --timeout 50",
                               "0 passed, 2 failed, 0 skipped"));
}

/* The rank, which takes no SIGTERM, is given two seconds after its limit of one. */
TEST("a hang is told, whatever interrupts the run then") {
    char command[1000];
    snprintf(
        command, sizeof(command),
        "timeout --foreground -k 5 -s TERM 2.9 '%s/runner-selfcheck' --backend fake "
        "--filter bad.hangs_hard --timeout 1 2>/dev/null | grep -q 'hang: no end within 1.0 s'",
        folder);
    int status = system(command);
    CU_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST("a rank that leaves early is an error") {
    CU_ASSERT_TRUE(closes_with("", "--filter bad.leaves_by_exit", "0 passed, 1 failed, 0 skipped"));
    CU_ASSERT_TRUE(closes_with("", "--filter bad.exit_status", "0 passed, 1 failed, 0 skipped"));
}

TEST("a case that makes no check is a failure") {
    CU_ASSERT_TRUE(closes_with("", "--filter bad.vacuous", "0 passed, 1 failed, 0 skipped"));
}

static int status_with(const char *arguments) {
    char command[1000];
    snprintf(command, sizeof(command),
             "timeout -k 5 30 '%s/runner-selfcheck' --backend fake --filter good.passes %s", folder,
             arguments);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST("a report that cannot be written is a failure") {
    static const char *const formats[] = {"text", "tap", "junit", "json", "html"};
    char arguments[100];
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        snprintf(arguments, sizeof(arguments), "--format %s >/dev/full 2>&1", formats[i]);
        CU_ASSERT_EQUAL(status_with(arguments), 1);
        snprintf(arguments, sizeof(arguments), "--format %s --output /dev/full >/dev/null 2>&1",
                 formats[i]);
        CU_ASSERT_EQUAL(status_with(arguments), 1);
    }
    /* Who closes them wants no text; nothing of the run's own may come to lie in their places. */
    CU_ASSERT_EQUAL(status_with("<&- >&- 2>&-"), 0);
}

int unit_setup(void) {
    char self[400] = "";
    /* The limits of the self-check's cases are part of what is expected here. */
    if (unsetenv("SYMMEM_TIMEOUT_SCALE") != 0 ||
        readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return 1;
    snprintf(folder, sizeof(folder), "%s", dirname(self));
    return 0;
}
