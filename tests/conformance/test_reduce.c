/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions: every dtype, op, size and group against the scalar reference. */
#include "ops_help.h"

static void one_shot_on_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                              void *arg) {
    enum { COUNT = 1000 };
    float own[COUNT], sums[COUNT], got[COUNT];
    struct ops_tensor input, out;
    (void)arg;
    symmem_handle *handle = tk_handle(t, sizeof own, group);
    char *result = tk_alloc(t, sizeof own);
    memset(sums, 0, sizeof sums);
    for (int32_t r = 0; r < shape->count; r++) {
        ops_fill(own, SYMMEM_FLOAT32, COUNT, r, 1);
        for (int i = 0; i < COUNT; i++)
            sums[i] += own[i];
    }
    ops_fill(own, SYMMEM_FLOAT32, COUNT, shape->rank, 1);
    ops_upload(t, ops_own(t, handle), own, sizeof own);
    TK_OK(t, symmem_one_shot_all_reduce_out(
                 handle, ops_flat(&input, ops_own(t, handle), SYMMEM_FLOAT32, COUNT), SYMMEM_SUM,
                 ops_flat(&out, result, SYMMEM_FLOAT32, COUNT), 0, tk_scaled_ms(LONG_MS), NULL));
    ops_download(t, got, result, sizeof got);
    ops_expect(t, sums, got, SYMMEM_FLOAT32, COUNT, "out");
    tk_expect_data(t, handle, shape->rank, 0, own, sizeof own);
}

static void one_shot_all_reduce(struct tk *t) {
    TK_REQ(t, "SM-REDUCE-01");
    tk_for_each_group_shape(t, one_shot_on_shape, NULL);
}

static const struct tk_case cases[] = {
    {.name = "test_one_shot_all_reduce",
     .requirements = "SM-REDUCE-01,SM-COLL-01",
     .needs = COLLECTIVES,
     .body = one_shot_all_reduce},
};
TK_SUITE(reduce, cases);
