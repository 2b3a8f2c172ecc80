/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the measurements that lines on standard input request. A script that compares programs with
 * a slow start starts each once and interleaves their measurements. All ranks sleep between
 * requests. */
#include "rank.h"

#define NAME_BYTES 40

/* Handles one line. A measurement that is impossible is reported in a line of its own. */
static bool answer(bench_rank *self, const char *line) {
    bench_options own = *self->options;
    const bench_options *options = self->options;
    char name[NAME_BYTES] = "";
    size_t bytes = 0;
    bool read = sscanf(line, "%39s %zu %d", name, &bytes, &own.graph) == 3 &&
                bytes <= BENCH_MAX_BYTES && own.graph >= 0 && own.graph <= BENCH_MAX_GRAPH;
    const bench_op *op = read ? bench_find_op(name) : NULL;
    if (op == NULL || self->ranks < op->min_ranks) {
        if (self->rank == 0)
            fprintf(stderr, "not to be measured: '%s'; it should be: OP BYTES GRAPH\n", line);
        return true;
    }
    self->options = &own;
    bool good = bench_run_one(self, op, bytes);
    if (!good)
        bench_tell_end(self);
    self->options = options;
    return good;
}

int bench_serve(bench_rank *self) {
    char line[WORLD_LINE];
    uint32_t count = 0;
    while (world_read_line(self->world, self->rank, &count, line)) {
        if (!answer(self, line))
            return BENCH_FAILED;
        if (self->rank == 0) {
            puts("{\"done\":true}");
            fflush(stdout);
        }
    }
    return BENCH_DONE;
}
