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
    size_t count;   /* elements */
    size_t bytes;   /* of the memory */
    char *memory;   /* of the device */
    double *values; /* put in, or expected */
};

/* Makes one in memory of its own, in the layout of `dim` (0: contiguous). Its values are zero. */
void fused_make(struct tk *t, struct fused_tensor *tensor, symmem_dtype dtype, int32_t ndim,
                const int64_t *shape, int32_t dim);
/* Of two dimensions, column-major. */
void fused_make_columns(struct tk *t, struct fused_tensor *tensor, symmem_dtype dtype, int64_t rows,
                        int64_t columns);
/* Values that `rank` puts in, which the dtype can hold: small whole numbers, or (floats) numbers
 * with as many digits as it has. */
void fused_fill(struct fused_tensor *tensor, int32_t rank, uint32_t generation, bool whole);
/* Puts the values into the memory. */
void fused_upload(struct tk *t, struct fused_tensor *tensor);
/* The memory's values into an array in logical order, which is scratch. */
double *fused_download(struct tk *t, const struct fused_tensor *tensor);
/* All bytes of the memory. */
void fused_set_bytes(struct tk *t, const struct fused_tensor *tensor, uint8_t byte);
bool fused_expect_bytes(struct tk *t, const struct fused_tensor *tensor, uint8_t byte,
                        const char *what);

/* One check: what lies in the memory differs from the values by no more than bounds[i] (by nothing
 * if NULL). */
bool fused_expect(struct tk *t, const struct fused_tensor *tensor, const double *bounds,
                  const char *what);

/* Whether the default run has case `i` on a group of that shape: all of them on the world, some on
 * others. With SYMMEM_SUITE_LONG=1: all. */
bool fused_wanted(const struct tk_shape *shape, int i);

/* What a product is expected to be: for each element its value and that of the magnitudes. */
struct fused_sum {
    double *values, *magnitudes;
    size_t count;
};
void fused_sum_make(struct tk *t, struct fused_sum *sum, size_t count);
/* rows x k, and k rows of b of b_row elements each, of which n are taken: both arrays of float64 in
 * row-major order. Adds the product. a_scale has one a row, b_scale one a column, or NULL. */
void fused_sum_add(struct fused_sum *sum, const double *a, int64_t rows, int64_t k, const double *b,
                   int64_t n, int64_t b_row, const double *a_scale, const double *b_scale);
/* One check: the tensor holds the sum, exactly, or if not within (terms + 4) * eps * magnitude and
 * so many roundings to its dtype. */
bool fused_sum_expect(struct tk *t, const struct fused_sum *sum, struct fused_tensor *tensor,
                      bool exact, int64_t terms, int roundings, const char *what);

/* A family of operations with inputs of its own. What `begin` makes is one run of its case
 * `number`, on that group; `put_in` gives it the inputs of a generation, `check` compares the
 * results. */
struct fused_place {
    const struct tk_shape *shape;
    symmem_handle *workspace; /* NULL: one of the run's own */
    symmem_stream *stream, *second;
};
struct fused_family {
    void *(*begin)(struct tk *t, symmem_group *group, const struct fused_place *place, int number);
    void (*put_in)(struct tk *t, void *run, uint32_t generation);
    symmem_status (*call)(void *run);
    void (*check)(struct tk *t, void *run, uint32_t generation);
    void (*end)(struct tk *t, void *run);
};
#define FUSED_WORKSPACE_BYTES 32768 /* more than any case needs */

/* Cases [first, first + count) on each shape of groups, as far as they are wanted there. */
void fused_run_cases(struct tk *t, const struct fused_family *family, int first, int count,
                     bool on_stream);
/* Captured once, replayed with other data each time; then eagerly on the same streams. */
void fused_replay(struct tk *t, const struct fused_family *family, int number, bool has_second);

/* The shards of one shape, one after the other, as one tensor gathered along `dim`. */
double *fused_gather(struct tk *t, const double *const *shards, int32_t count, int32_t ndim,
                     const int64_t *shape, int32_t dim);

#endif
