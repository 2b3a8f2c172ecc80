/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors as arguments. */
#ifndef SYMMEM_CORE_TENSOR_H
#define SYMMEM_CORE_TENSOR_H

#include "rendezvous/link.h"
#include <symmem/ops.h>

/* A DLTensor argument that was found to be usable. */
typedef struct sm_tensor {
    const char *what; /* the argument's name */
    char *data;
    symmem_dtype dtype;
    size_t count; /* elements */
    size_t bytes;
    int32_t ndim;
    const int64_t *shape; /* the caller's */
} sm_tensor;

/* What every DLTensor argument must be, whatever its layout: dimensions that can be read,
 * and of a device of the context's. context NULL: of any. INVALID_ARGUMENT, OUT_OF_RANGE. */
symmem_status sm_tensor_form(symmem_context *context, const DLTensor *from, const char *operation,
                             const char *what);
/* Where its elements begin; the last one of `extent` bytes has an address, too. INVALID_ARGUMENT,
 * OVERFLOW, MISALIGNED. */
symmem_status sm_tensor_locate(const DLTensor *from, const char *operation, const char *what,
                               size_t element, size_t extent, char **data_p);
/* Reads a contiguous, aligned tensor of a known dtype. What those two answer. */
symmem_status sm_tensor_read(symmem_context *context, const DLTensor *from, const char *operation,
                             const char *what, sm_tensor *tensor_p);
/* INVALID_ARGUMENT unless both have the same dtype. */
symmem_status sm_tensor_same_dtype(const sm_tensor *a, const sm_tensor *b, const char *operation);
/* INVALID_ARGUMENT if they overlap. */
symmem_status sm_tensor_disjoint(const sm_tensor *a, const sm_tensor *b, const char *operation);
/* The same dtype, and `out` of `in`'s shape, the first dimension world_size times as long; that
 * dimension alone for a scalar. */
symmem_status sm_tensor_gathers(const sm_tensor *in, const sm_tensor *out, int32_t world_size,
                                const char *operation);
/* The same dtype and shape. */
symmem_status sm_tensor_alike(const sm_tensor *a, const sm_tensor *b, const char *operation);
/* The dtype of a DLPack type; false if there is none. */
bool sm_dtype_of(DLDataType type, symmem_dtype *dtype_p);
DLDataType sm_dtype_to_dl(symmem_dtype dtype);

/* "one_shot_all_reduce" and so on; "?" for others. */
const char *sm_call_name(uint32_t kind);
const char *sm_reduce_op_name(uint32_t op);

#endif
