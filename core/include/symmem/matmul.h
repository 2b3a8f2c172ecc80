/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One matrix product, as backends and users' own hooks get it. [SM-FUSED]
 *
 * out (m, n) = a (m, k) x b (k, n), or += that. Each matrix has two strides in elements, of which
 * one is 1 (row-major: the column's; column-major: the row's) and the other no smaller than the
 * size beside it; a side of one element may have any stride.
 *
 * dtypes   a and b are of one dtype. float32, float64, float16, bfloat16: out is of the same dtype,
 *          or float32 for the 16-bit ones. With scales also int8 and uint8, which stand in for the
 *          8-bit floats that symmem_dtype does not have, but not float64; out is then float32,
 *          float16 or bfloat16, whatever the others are.
 * scales   both or neither; float32. out[i][j] (+)= a_scale[i] * b_scale[j] * (a x b)[i][j], where
 *          a scale of one element holds for all rows or columns.
 * accuracy products and sums in float32 (float64 for float64) in any order; out is rounded once.
 *          Each element is within (k + 4) * eps * (|a| x |b|)[i][j] of the exact value, scales
 *          included, plus one rounding to out's dtype; eps is 2^-23 (float64: 2^-52), and what out
 *          held before counts as one more term. Whole numbers are exact as long as all sums of
 *          magnitudes stay below 2^24 (2^53) and out can hold them.
 * m, n, k  any of them may be 0; k = 0 gives zeros, or leaves what is accumulated on.
 */
#ifndef SYMMEM_MATMUL_H
#define SYMMEM_MATMUL_H

#include <symmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmem_matmul symmem_matmul;

/*
 * A user's own product. It does what *product says. Where there are signals it is called for each
 * chunk, with those rows alone and `signals` NULL: the wait comes before it. A backend whose
 * streams are the device's own (CUDA) calls it when the product is enqueued, captures included,
 * with the native stream, and it enqueues its work there. A backend that runs streams itself, as
 * the CPU emulation does, calls it when the stream gets there, in each launch of a graph too, from
 * any thread, with NULL; it computes before it returns. *product is valid during the call. It must
 * not call symmem. Anything but OK is the operation's failure.
 */
typedef symmem_status (*symmem_matmul_fn)(void *arg, const symmem_matmul *product,
                                          void *native_stream);

struct symmem_matmul {
    size_t size;
    int64_t m, n, k;
    const void *a;
    int64_t a_row, a_column; /* strides: to the next row, to the next column */
    const void *b;
    int64_t b_row, b_column;
    void *out;
    int64_t out_row, out_column;
    symmem_dtype dtype;     /* of a and b */
    symmem_dtype out_dtype; /* of out */
    bool accumulate;        /* += */
    bool a_scale_by_row;    /* m scales rather than one */
    bool b_scale_by_column; /* n scales rather than one */
    const float *a_scale;   /* NULL: not scaled */
    const float *b_scale;
    symmem_matmul_fn fn; /* NULL: the backend's own product */
    void *fn_arg;
    /* Not NULL: a consists of signal_count chunks of m / signal_count rows each, and chunk i may be
     * read once word i is not 0 (acquire). Chunks are taken in order from signal_pivot on, wrapping
     * around; the words stay as they are. */
    const uint32_t *signals;
    int32_t signal_count;
    int32_t signal_pivot;
};

#ifdef __cplusplus
}
#endif
#endif
