/* SPDX-License-Identifier: BSD-3-Clause */
/* A small one_shot_all_reduce, by which the tests of test_coll*.c show what holds for every
 * collective. */
#ifndef SYMMEM_CONFORMANCE_COLL_HELP_H
#define SYMMEM_CONFORMANCE_COLL_HELP_H

#include "ops_help.h"

enum { COUNT = 64 };

/* float32 sum of COUNT elements over the handle's group; out lies in memory of its own. */
struct sum {
    symmem_handle *handle;
    char *own;
    char *out;
    int32_t rank, size;
    uint32_t limit_ms;
};

static inline struct sum sum_begin(struct tk *t, symmem_group *group) {
    struct sum s = {.handle = tk_handle(t, COUNT * sizeof(float), group),
                    .out = tk_alloc(t, COUNT * sizeof(float)),
                    .limit_ms = LONG_MS};
    symmem_handle_info info = info_of(t, s.handle);
    s.own = ops_own(t, s.handle);
    s.rank = info.rank;
    s.size = info.world_size;
    return s;
}

static inline void sum_load(struct tk *t, const struct sum *s, uint32_t generation) {
    float values[COUNT];
    ops_fill(values, SYMMEM_FLOAT32, COUNT, s->rank, generation);
    ops_upload(t, s->own, values, sizeof(values));
}

static inline void sum_expect(struct tk *t, const struct sum *s, uint32_t generation,
                              const char *what) {
    float expected[COUNT] = {0}, values[COUNT], got[COUNT];
    for (int32_t r = 0; r < s->size; r++) {
        ops_fill(values, SYMMEM_FLOAT32, COUNT, r, generation);
        for (int i = 0; i < COUNT; i++)
            expected[i] += values[i];
    }
    ops_download(t, got, s->out, sizeof(got));
    ops_expect(t, expected, got, SYMMEM_FLOAT32, COUNT, what);
}

/* Bytes that no result can have. */
static inline void out_mark(struct tk *t, const struct sum *s) {
    uint8_t bytes[COUNT * sizeof(float)];
    memset(bytes, 0xEE, sizeof(bytes));
    ops_upload(t, s->out, bytes, sizeof(bytes));
}

static inline void out_untouched(struct tk *t, const struct sum *s) {
    uint8_t expected[COUNT * sizeof(float)], got[COUNT * sizeof(float)];
    memset(expected, 0xEE, sizeof(expected));
    ops_download(t, got, s->out, sizeof(got));
    ops_expect(t, expected, got, SYMMEM_UINT8, sizeof(got), "out after a refusal");
}

static inline symmem_status sum_count(const struct sum *s, symmem_dtype dtype, size_t count,
                                      symmem_reduce_op op, int32_t channel, uint32_t limit_ms,
                                      symmem_stream *stream) {
    return symmem_one_shot_all_reduce_out(s->handle, FLAT(s->own, dtype, count), op,
                                          FLAT(s->out, dtype, count), channel, limit_ms, stream);
}

static inline symmem_status sum_run(const struct sum *s, int32_t channel, uint32_t limit_ms,
                                    symmem_stream *stream) {
    return sum_count(s, SYMMEM_FLOAT32, COUNT, SYMMEM_SUM, channel, limit_ms, stream);
}

#endif
