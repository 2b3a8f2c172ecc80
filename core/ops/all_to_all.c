/* SPDX-License-Identifier: BSD-3-Clause */
/* The public all-to-all: its splits outlive the call, and the checks of its arguments. */
#include "ops/collective.h"

#include <stdlib.h>

/* The splits of one call, for as long as it may run. */
typedef struct splits {
    atomic_int references;
    size_t numbers[]; /* world_size of the input, world_size of the output */
} splits;

static void retain_splits(void *object) {
    splits *kept = object;
    /* relaxed: who retains has a reference already */
    atomic_fetch_add_explicit(&kept->references, 1, memory_order_relaxed);
}

static void release_splits(void *object) {
    splits *kept = object;
    /* release, acquire: pairs with the other releases; the last one frees what all have read */
    if (atomic_fetch_sub_explicit(&kept->references, 1, memory_order_acq_rel) == 1)
        free(kept);
}

static symmem_status wrong_sum(const char *name, const sm_tensor *tensor, size_t sum) {
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, name, "",
                  "the splits of %s add up to %zu elements, it has %zu", tensor->what, sum,
                  tensor->count);
    return sm_error_sizes(tensor->count, sum);
}

/* What the user gave for one tensor, or equal parts. */
static symmem_status take_splits(const char *name, const sm_tensor *tensor, const size_t *given,
                                 int32_t world_size, size_t *numbers) {
    size_t sum = 0;
    if (given == NULL && tensor->count % (size_t)world_size != 0) {
        (void)sm_fail(SYMMEM_INVALID_ARGUMENT, name, "",
                      "%zu elements of %s cannot be cut into %d equal parts", tensor->count,
                      tensor->what, world_size);
        return sm_error_sizes((uint64_t)world_size, tensor->count);
    }
    for (int32_t rank = 0; rank < world_size; rank++) {
        numbers[rank] = given != NULL ? given[rank] : tensor->count / (size_t)world_size;
        if (!sm_add(sum, numbers[rank], &sum))
            return sm_fail(SYMMEM_OVERFLOW, name, "", "the sum of the splits of %s overflows",
                           tensor->what);
    }
    return sum == tensor->count ? SYMMEM_OK : wrong_sum(name, tensor, sum);
}

/* INVALID_ARGUMENT if out overlaps this rank's input, or a peer's block. This rank does not know
 * where in its block a peer's input lies. */
static symmem_status check_disjoint(const sm_collective_op *call, const sm_tensor *in,
                                    const sm_tensor *out) {
    symmem_status status = sm_tensor_disjoint(out, in, call->name);
    if (status != SYMMEM_OK || sm_collective_inside(call, out))
        return status;
    return sm_collective_disjoint(call, out, call->link->block_offset, call->link->block_bytes);
}

static symmem_status run_all_to_all(sm_collective_op *call, const sm_tensor *in,
                                    const size_t *in_splits, const sm_tensor *out,
                                    const size_t *out_splits) {
    size_t world_size = (size_t)call->link->group->world_size;
    splits *kept = malloc(sizeof *kept + 2 * world_size * sizeof kept->numbers[0]);
    if (kept == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, call->name, "", "no memory for the splits");
    atomic_init(&kept->references, 1);
    symmem_status status =
        take_splits(call->name, in, in_splits, (int32_t)world_size, kept->numbers);
    if (status == SYMMEM_OK)
        status = take_splits(call->name, out, out_splits, (int32_t)world_size,
                             kept->numbers + world_size);
    if (status == SYMMEM_OK) {
        call->call.dtype = in->dtype;
        call->call.in = in->count > 0 ? in->data : NULL;
        call->call.out = out->data;
        call->call.in_splits = kept->numbers;
        call->call.out_splits = kept->numbers + world_size;
        call->keep = (symmem_ref){retain_splits, release_splits, kept};
        status = sm_collective_run(call, NULL, out);
    }
    release_splits(kept);
    return status;
}

symmem_status symmem_all_to_all_out(symmem_handle *handle, const DLTensor *input,
                                    const size_t *in_splits, const DLTensor *out,
                                    const size_t *out_splits, int32_t channel, uint32_t timeout_ms,
                                    symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char name[] = "all_to_all_out";
    sm_collective_op call;
    sm_tensor in, result;
    size_t offset; /* the ranks' need not be the same */
    symmem_status status = sm_collective_begin(&call, name, handle, SYMMEM_CALL_ALL_TO_ALL, channel,
                                               timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, input, name, "input", &in);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, out, name, "out", &result);
    if (status == SYMMEM_OK)
        status = sm_tensor_same_dtype(&in, &result, name);
    if (status == SYMMEM_OK)
        status = sm_collective_symmetric(&call, &in, &offset);
    if (status == SYMMEM_OK)
        status = check_disjoint(&call, &in, &result);
    return status == SYMMEM_OK ? run_all_to_all(&call, &in, in_splits, &result, out_splits)
                               : status;
}
