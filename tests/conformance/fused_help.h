/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of fused products share: tensors of any layout in the device's memory with their
 * values in float64 on the host, in logical (row-major) order. All state is the caller's.
 */
#ifndef SYMMEM_CONFORMANCE_FUSED_HELP_H
#define SYMMEM_CONFORMANCE_FUSED_HELP_H

#include "ops_help.h"
#include "reference/matmul.h"

#define PRODUCTS (COLLECTIVES | SYMMEM_CAP_MATMUL)
#define FUSED_MAX_NDIM 4

/* Do not copy: dl points into it. */
struct fused_tensor {
    DLTensor dl;
    int64_t shape[FUSED_MAX_NDIM], strides[FUSED_MAX_NDIM];
    symmem_dtype dtype;
    size_t count;  /* elements */
    size_t bytes;  /* of the memory */
    char *memory;  /* of the device, where data begins */
    double *values; /* expected, or put in; the caller's, see fused_values */
};


/* Makes one in memory of its own, in the layout of `dim` (0: contiguous). Its values are zero. */
void fused_make(struct tk *t, struct fused_tensor *tensor, symmem_dtype dtype, int32_t ndim,
                const int64_t *shape, int32_t dim);
/* Of two dimensions, column-major. */
void fused_make_columns(struct tk *t, struct fused_tensor *tensor, symmem_dtype dtype, int64_t rows,
                        int64_t columns);
/* Gives the host's memory back. NULL values are allowed. */
void fused_free(struct fused_tensor *tensor);

/* Values that `rank` puts in: small whole numbers, or (scaled by 2^-k) numbers that need rounding. */
void fused_fill(struct fused_tensor *tensor, int32_t rank, uint32_t generation, bool whole);
/* Puts the values into the memory, rounded to the dtype; they are then as rounded. */
void fused_upload(struct tk *t, struct fused_tensor *tensor);
/* The memory's values into an array in logical order, which the caller frees. */
double *fused_download(struct tk *t, const struct fused_tensor *tensor);
/* All bytes of the memory. */
void fused_set_bytes(struct tk *t, const struct fused_tensor *tensor, uint8_t byte);
bool fused_expect_bytes(struct tk *t, const struct fused_tensor *tensor, uint8_t byte,
                        const char *what);

/* One check: what lies in the memory differs from the values by no more than bounds[i] (NULL: by
 * nothing). */
bool fused_expect(struct tk *t, const struct fused_tensor *tensor, const double *bounds,
                  const char *what);

/* rows x k, and k x n: both row-major arrays of float64. out[i][j] += the product; bounds[i][j] +=
 * (k + 4) * eps * its magnitude. Scales may be NULL; a_scale has one a row, b_scale one a column.
 */
void fused_multiply(const double *a, const double *b, int64_t rows, int64_t k, int64_t n,
                    const double *a_scale, const double *b_scale, symmem_dtype dtype, double *out,
                    double *bounds);

#endif
