/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the conformance runner and checks its output. runner-selfcheck, which is the runner with
 * cases that misbehave on purpose, lies beside the program that includes this. */
#ifndef SYMMEM_RUNNER_RUN_H
#define SYMMEM_RUNNER_RUN_H

#include "unit.h"

#include <libgen.h>
#include <stdarg.h>

static char program[512];
static char output[1 << 20];

/* Runs the self-check under a limit; its exit status, with standard output (and error) in output.
 */
__attribute__((format(printf, 1, 2))) static inline int run(const char *format, ...) {
    char command[1400];
    size_t used = 0, got;
    va_list arguments;
    va_start(arguments, format);
    int length = snprintf(command, sizeof(command), "timeout -k 5 60 %s ", program);
    vsnprintf(command + length, sizeof(command) - (size_t)length, format, arguments);
    va_end(arguments);
    output[0] = '\0';
    FILE *pipe_end = popen(command, "r");
    if (pipe_end == NULL)
        return -1;
    while ((got = fread(output + used, 1, sizeof(output) - 1 - used, pipe_end)) > 0)
        used += got;
    output[used] = '\0';
    int status = pclose(pipe_end);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline bool says(const char *text) {
    bool found = strstr(output, text) != NULL;
    if (!found)
        fprintf(stderr, "not found: '%s' in:\n%s\n", text, output);
    return found;
}

static inline bool closes_with(const char *line) {
    size_t length = strlen(line), all = strlen(output);
    bool found = all >= length && strcmp(output + all - length, line) == 0 &&
                 (all == length || output[all - length - 1] == '\n');
    if (!found)
        fprintf(stderr, "does not close with: '%s':\n%s\n", line, output);
    return found;
}

#define LAST "\1" /* before a text: that is how it closes */
#define NOT "\2"  /* before a text: that is not said */

static inline bool says_all(const char *const *texts) {
    bool right = true;
    for (; *texts != NULL; texts++) {
        const bool is_marked = **texts == LAST[0] || **texts == NOT[0];
        const char *text = *texts + is_marked;
        const bool holds = **texts == LAST[0]  ? closes_with(text)
                           : **texts == NOT[0] ? strstr(output, text) == NULL
                                               : says(text);
        if (!holds && **texts == NOT[0])
            fprintf(stderr, "found: '%s' in:\n%s\n", text, output);
        right = right && holds;
    }
    return right;
}

/* The exit status, the arguments, and the texts, one at least. */
#define RUN_SAYS(status, arguments, ...)                                                           \
    do {                                                                                           \
        CU_ASSERT_EQUAL(run(arguments), status);                                                   \
        CU_ASSERT(says_all((const char *const[]){__VA_ARGS__, NULL}));                             \
    } while (0)

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
