/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance runner judged from outside: runner-selfcheck, which is the runner on cases that
 * misbehave on purpose, lies beside the program that includes this. */
#ifndef SYMMEM_RUNNER_RUN_H
#define SYMMEM_RUNNER_RUN_H

#include "unit.h"

#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char program[512];
static char output[1 << 20];

/* Runs the self-check under a limit; its exit status, with standard output (and error) in output.
 */
static inline int run(const char *arguments) {
    char command[1200];
    size_t used = 0, got;
    FILE *pipe_end;
    int status;

    snprintf(command, sizeof(command), "timeout -k 5 60 %s %s", program, arguments);
    output[0] = '\0';
    pipe_end = popen(command, "r");
    if (pipe_end == NULL)
        return -1;
    while ((got = fread(output + used, 1, sizeof(output) - 1 - used, pipe_end)) > 0)
        used += got;
    output[used] = '\0';
    status = pclose(pipe_end);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline bool says(const char *text) {
    bool found = strstr(output, text) != NULL;

    if (!found)
        fprintf(stderr, "not found: '%s' in:\n%s\n", text, output);
    return found;
}

__attribute__((unused)) static bool closes_with(const char *line) {
    size_t length = strlen(line), all = strlen(output);
    bool found = all >= length && strcmp(output + all - length, line) == 0 &&
                 (all == length || output[all - length - 1] == '\n');

    if (!found)
        fprintf(stderr, "does not close with: '%s':\n%s\n", line, output);
    return found;
}

int unit_setup(void) {
    char self[400] = "";

    /* The limits of the self-check's cases are part of what is expected here, and its cases do no
     * work that a slow build makes slower. */
    if (unsetenv("SYMMEM_TIMEOUT_SCALE") != 0 ||
        readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return 1;
    snprintf(program, sizeof(program), "%s/runner-selfcheck", dirname(self));
    return access(program, X_OK);
}

#endif
