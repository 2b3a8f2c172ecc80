/* SPDX-License-Identifier: BSD-3-Clause */
/* What callers of collectives may bring along: empty tensors, options, a state of their floats. */
#include "../strange_floats.h"
#include "reduce_help.h"

/* Everybody sends to rank 0 alone; what the others receive, nothing, lies inside of their input, or
 * of a peer's. */
TK_TEST(coll, empty_tensors_overlap_nothing, "SM-COLL-13", .needs = COLLECTIVES, .min_ranks = 2,
        .flags = TK_PLAIN_MEMORY) {
    enum { COUNT = 64 };
    symmem_handle *handle = tk_handle(t, COUNT * sizeof(float), tk_world_group(t));
    char *own = ops_own(t, handle);
    struct ops_tensor in, out;
    size_t to[SYMMEM_MAX_WORLD_SIZE] = {COUNT}, from[SYMMEM_MAX_WORLD_SIZE] = {0};
    void *const *buffers = NULL;
    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs(handle, &buffers));
    size_t offset = info_of(t, handle).offset;
    char *all = tk_alloc(t, COUNT * sizeof(float) * (size_t)t->world_size);
    for (int32_t r = 0; r < t->world_size; r++)
        from[r] = t->rank == 0 ? COUNT : 0;
    for (int32_t r = 0; r < t->world_size; r++) {
        char *inside = (char *)buffers[r] + offset + 8;
        (void)ops_flat(&in, own, SYMMEM_FLOAT32, COUNT);
        (void)ops_flat(&out, t->rank == 0 ? all : inside, SYMMEM_FLOAT32,
                       t->rank == 0 ? COUNT * (size_t)t->world_size : 0);
        TK_OK(t, symmem_all_to_all_out(handle, &in.dl, to, &out.dl, from, 0, LONG_MS, NULL));
    }
}

TK_TEST(coll, some_ranks_check, "SM-COLL-14", .needs = COLLECTIVES, .min_ranks = 2) {
    int32_t odd = 1 + (int32_t)(t->seed % (uint64_t)(t->last));
    symmem_handle *handle = NULL;
    TK_REINIT(t, options.check_collectives = t->rank == odd);
    void *memory = tk_alloc(t, 64);
    TK_FAILS(t, MISMATCH,
             symmem_rendezvous(t->context, memory, tk_world_group(t), LONG_MS, &handle));
    TK_EQ_INT(t, odd, last_record().failed_rank);
    TK_EQ_PTR(t, NULL, handle);
}

/* One rank's thread, or its stream's, has such an environment. */
TK_TEST(coll, float_environment, "SM-COLL-11", .needs = COLLECTIVES, .min_ranks = 2) {
    enum { MANY = 300 };
    symmem_handle *handle = tk_handle(t, MANY * sizeof(double), tk_world_group(t));
    char *own = ops_own(t, handle), *out = tk_alloc(t, MANY * sizeof(double));
    int32_t odd = (int32_t)(t->seed % (uint64_t)t->world_size);
    for (int i = 0; i < 8; i++) {
        struct reduce_data data;
        symmem_dtype dtype = (symmem_dtype)(SYMMEM_FLOAT16 + i % 4);
        bool strange = t->rank == odd;
        reduce_data_begin(t, &data, dtype, i < 4 ? SYMMEM_SUM : SYMMEM_AVG, MANY, t->world_size,
                          (uint32_t)i);
        ops_upload(t, own, data.inputs + (size_t)t->rank * data.bytes, data.bytes);
        const DLTensor *from = FLAT(own, dtype, MANY);
        const DLTensor *to = FLAT(out, dtype, MANY);
        uint32_t usual = strange ? strange_floats(STRANGE_TRAPS) : 0;
        symmem_status status =
            symmem_one_shot_all_reduce_out(handle, from, data.op, to, 0, LONG_MS, NULL);
        TK_CHECK_MSG(t, !strange || usual_floats(STRANGE_TRAPS, usual),
                     "the environment was changed");
        char got[MANY * sizeof(double)];
        if (TK_OK(t, status)) {
            ops_download(t, got, out, data.bytes);
            TK_CHECK_MSG(t, memcmp(got, data.expected, data.bytes) == 0, "%s: other bits",
                         symmem_dtype_name(dtype));
        }
        reduce_data_end(&data);
    }
}
