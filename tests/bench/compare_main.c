/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench-compare [--json FILE] [--bars] < LINES: a table of the results that run.sh has
 * collected, with ratios. LINES are those of symmem-bench, the MPI programs and bench-limits, each
 * with the number of its round.
 */
#include "compare.h"

static bool write_json(const compare_data *data, const char *path) {
    FILE *out = fopen(path, "we");
    if (out == NULL) {
        perror(path);
        return false;
    }
    compare_print_json(data, out);
    bool good = ferror(out) == 0;
    good = fclose(out) == 0 && good;
    if (!good)
        fprintf(stderr, "%s could not be written\n", path);
    return good;
}

int main(int argc, char **argv) {
    const char *json = NULL;
    bool bars = false, good = true;
    compare_data data;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bars") == 0) {
            bars = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--json") == 0) {
            json = argv[++i];
        } else {
            fprintf(stderr, "usage: %s [--json FILE] [--bars] < LINES\n", argv[0]);
            return BENCH_USAGE;
        }
    }
    if (!compare_read(stdin, &data)) {
        fputs("no results to compare\n", stderr);
        compare_finish(&data);
        return BENCH_FAILED;
    }
    compare_print_table(&data, stdout);
    if (bars)
        compare_print_bars(&data, stdout);
    if (json != NULL)
        good = write_json(&data, json);
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        fputs("the table could not be written\n", stderr);
        good = false;
    }
    compare_finish(&data);
    return good ? BENCH_DONE : BENCH_FAILED;
}
