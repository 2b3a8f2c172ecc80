/* SPDX-License-Identifier: BSD-3-Clause */
/* One line for each result. */
#include "bench.h"

#include <sys/utsname.h>

#ifndef SYMMEM_COMMIT
#define SYMMEM_COMMIT "unknown"
#endif

/* The kernel's name of the processor. */
static void find_processor(char *text, size_t capacity) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    snprintf(text, capacity, "unknown processor");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(text, capacity, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (file != NULL)
        fclose(file);
}

/* As the content of a JSON string; what would need an escape becomes a blank. */
static void print_text(const char *key, const char *text, const char *end) {
    printf("\"%s\":\"", key);
    for (; *text != '\0'; text++) {
        unsigned char letter = (unsigned char)*text;
        putchar(letter < ' ' || letter >= 127 || letter == '"' || letter == '\\' ? ' ' : letter);
    }
    printf("\"%s", end);
}

static void print_json(const bench_options *options, const bench_line *line,
                       const bench_result *result) {
    struct utsname names = {.machine = "unknown"};
    char processor[128];
    uname(&names);
    find_processor(processor, sizeof processor);
    putchar('{');
    print_text("op", line->op, ",");
    printf("\"bytes\":%zu,", line->bytes);
    print_text("dtype", line->dtype, ",");
    printf("\"median_us\":%.4f,\"min_us\":%.4f,\"max_us\":%.4f,\"samples\":%lld,\"batch\":%lld,",
           result->median_us, result->min_us, result->max_us, (long long)result->samples,
           (long long)result->batch);
    print_text("library", line->library, ",");
    print_text("backend", line->backend, ",");
    printf("\"ranks\":%d,", line->ranks);
    print_text("rank_mode", options->threads ? "thread" : "process", ",");
    print_text("input", options->rewrite ? "rewritten" : "reused", ",");
    if (line->checking >= 0)
        printf("\"checking\":%s,", line->checking ? "true" : "false");
    if (line->graph > 0)
        printf("\"graph\":%d,\"clock\":\"%s\",", line->graph, line->by_device ? "device" : "host");
    printf("\"pinned\":%s,", options->pin ? "true" : "false");
    print_text("device", line->device != NULL ? line->device : processor, ",");
    print_text("arch", names.machine, ",");
    printf("\"commit\":\"%s\"}\n", SYMMEM_COMMIT);
}

static void print_row(const bench_line *line, const bench_result *result) {
    static const char *const checking[] = {"", "  checking off", "  checking on"};
    printf("%-28s %10zu B  %12.3f us  [%.3f .. %.3f]  %lld samples of %lld%s\n", line->op,
           line->bytes, result->median_us, result->min_us, result->max_us,
           (long long)result->samples, (long long)result->batch, checking[line->checking + 1]);
}

void bench_print_error(const char *text) {
    putchar('{');
    print_text("error", text, "}\n");
    fflush(stdout);
}

int bench_printed(int status) {
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return status;
    fputs("the results could not be written\n", stderr);
    return status == BENCH_DONE ? BENCH_FAILED : status;
}

void bench_print(const bench_options *options, const bench_line *line, const bench_result *result) {
    if (options->json)
        print_json(options, line, result);
    else
        print_row(line, result);
    fflush(stdout);
}
