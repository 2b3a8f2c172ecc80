/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of tensor arguments. */
#ifndef SYMMEM_CORE_TENSOR_H
#define SYMMEM_CORE_TENSOR_H

#include "rendezvous/link.h"
#include <symmem/ops.h>

/* A DLTensor argument that has passed the checks. */
typedef struct sm_tensor {
    const char *what; /* the argument's name */
    char *data;
    symmem_dtype dtype;
    size_t count; /* elements */
    size_t bytes;
    int32_t ndim;
    const int64_t *shape; /* the caller's */
} sm_tensor;

/* Checks what every DLTensor argument must fulfill, whatever its layout: readable dimensions, and a
 * device of the context, or any device if `context` is NULL. Answers INVALID_ARGUMENT or
 * OUT_OF_RANGE. */
symmem_status sm_tensor_form(symmem_context *context, const DLTensor *from, const char *operation,
                             const char *what);
/* Finds the address of the tensor's first element. The last of its `extent` bytes must have an
 * address, too. Answers INVALID_ARGUMENT, OVERFLOW or MISALIGNED. */
symmem_status sm_tensor_locate(const DLTensor *from, const char *operation, const char *what,
                               size_t element, size_t extent, char **data_p);
/* Reads a contiguous, aligned tensor of a known dtype. Answers what the two functions above do. */
symmem_status sm_tensor_read(symmem_context *context, const DLTensor *from, const char *operation,
                             const char *what, sm_tensor *tensor_p);
/* Answers INVALID_ARGUMENT unless both have the same dtype. */
symmem_status sm_tensor_same_dtype(const sm_tensor *a, const sm_tensor *b, const char *operation);
/* Answers INVALID_ARGUMENT if they overlap. */
symmem_status sm_tensor_disjoint(const sm_tensor *a, const sm_tensor *b, const char *operation);
/* Checks that the dtypes are equal and that `out` has the shape of `in` with the first dimension
 * world_size times as long. For a scalar `in`, `out` has that dimension only. */
symmem_status sm_tensor_gathers(const sm_tensor *in, const sm_tensor *out, int32_t world_size,
                                const char *operation);
/* Checks that dtypes and shapes are equal. */
symmem_status sm_tensor_alike(const sm_tensor *a, const sm_tensor *b, const char *operation);
/* Finds the dtype of a DLPack type. False if there is none. */
bool sm_dtype_of(DLDataType type, symmem_dtype *dtype_p);
DLDataType sm_dtype_to_dl(symmem_dtype dtype);

/* Returns "one_shot_all_reduce" and so on, or "?" for an unknown value. */
const char *sm_call_name(uint32_t kind);
const char *sm_reduce_op_name(uint32_t op);

#endif
