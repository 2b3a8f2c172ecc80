/* SPDX-License-Identifier: BSD-3-Clause */
/* A product that waits for chunks of its input: how its failure is reported. No peer is known
 * here. */
#include <stdio.h>
#include <string.h>

#include "inflight/chunk_wait.h"

symmem_status cuda_take_chunk_fault(const cuda_signal_op *signal, symmem_error_record *record_p) {
    symmem_cuda_fault *found = signal->fault;
    /* acquire; pairs with: the fence before the kernel's store. The kernel has ended. */
    uint32_t code = __atomic_load_n(&found->code, __ATOMIC_ACQUIRE);
    /* The next launch of the same graph, on another stream, is not canceled. */
    __atomic_store_n(&found->missing[0], 0, __ATOMIC_RELAXED);
    if (code == 0)
        return SYMMEM_OK;
    memset(record_p, 0, sizeof *record_p);
    record_p->status = (symmem_status)(-(int32_t)code);
    record_p->rank = signal->instance->rank;
    record_p->world_size = signal->instance->world_size;
    record_p->channel = -1;
    record_p->failed_rank = -1;
    record_p->elapsed_ns = found->elapsed_ns;
    snprintf(record_p->operation, sizeof record_p->operation, "%s", signal->operation);
    snprintf(record_p->stage, sizeof record_p->stage, "matmul");
    snprintf(record_p->message, sizeof record_p->message, "chunk %d of %d did not arrive in time",
             (int)found->actual, (int)signal->chunk_count);
    /* From now on the next launch of the same graph may write there. */
    __atomic_store_n(&found->code, 0, __ATOMIC_RELEASE);
    return record_p->status;
}

void cuda_cancel_chunk_waits(const cuda_signal_op *signal) {
    __atomic_store_n(&signal->fault->missing[0], 1, __ATOMIC_RELEASE);
}

void cuda_allow_chunk_waits(const cuda_signal_op *signal) {
    __atomic_store_n(&signal->fault->missing[0], 0, __ATOMIC_RELEASE);
}
