/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends past 4 GiB: whatever is computed in 32 bits wraps to a place inside a small block. */
#include "sync_help.h"

#define BYTES 4096u
#define FOUR_GIB ((size_t)1 << 32)

static void views(struct tk *t, symmem_handle *handle) {
    static const symmem_dtype dtypes[] = {SYMMEM_UINT8, SYMMEM_FLOAT16, SYMMEM_INT32,
                                          SYMMEM_FLOAT64};
    const int32_t rank = (t->capabilities & SYMMEM_CAP_DIRECT_ACCESS) != 0 ? 0 : t->rank;
    TK_REQ(t, "SM-VIEW-03");
    for (size_t i = 0; i < TK_COUNT(dtypes); i++) {
        int64_t wrap = (int64_t)(FOUR_GIB / symmem_dtype_size(dtypes[i]));
        const int64_t some = 8, many = wrap + 8, rows[2] = {65536, wrap / 65536};
        DLManagedTensor *tensor = NULL;
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_get_buffer(handle, rank, 1, &some, dtypes[i], wrap, &tensor));
        TK_FAILS(t, OUT_OF_RANGE, symmem_get_buffer(handle, rank, 1, &many, dtypes[i], 0, &tensor));
        TK_FAILS(t, OUT_OF_RANGE, symmem_get_buffer(handle, rank, 2, rows, dtypes[i], 0, &tensor));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_get_remote_tensor(handle, rank, 1, &some, dtypes[i], wrap, &tensor));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_get_signal_pad(handle, rank, 1, &some, dtypes[i], wrap, &tensor));
        TK_EQ_PTR(t, NULL, tensor);
    }
}

/* Nothing is moved at first: a library that lets the end wrap says OK before it does harm. */
static void transfers(struct tk *t, symmem_handle *handle) {
    static const size_t sizes[] = {0, 1, 64};
    uint8_t data[64] = {0};
    TK_REQ(t, "SM-ONESIDED-03");
    for (size_t i = 0; i < TK_COUNT(sizes) && !tk_failed(t); i++) {
        TK_FAILS(t, OUT_OF_RANGE, symmem_put(handle, 0, FOUR_GIB + 16, data, sizes[i], NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_get(handle, 0, FOUR_GIB, data, sizes[i], NULL));
    }
    if (!tk_failed(t))
        TK_FAILS(t, OUT_OF_RANGE, symmem_get(handle, 0, 0, data, FOUR_GIB + 16, NULL));
}

TK_TEST(bounds, past_4_gib, "SM-VIEW-03,SM-ONESIDED-03", .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    views(t, handle);
    transfers(t, handle);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, BYTES, 0);
}
