/* SPDX-License-Identifier: BSD-3-Clause */
/* The multicast load-reduce. It reduces in rank order, so every rank gets the same bits. */
#include "cpu/float_mode.h"
#include "cpu/reduce.h"
#include "reference/reduce.h"
#include "shm.h"

size_t shm_reduce_element_bytes(symmem_dtype dtype, symmem_reduce_op op) {
    return symmem_reference_element_bytes(dtype, op);
}

symmem_status shm_run_reduce(const shm_op *op, symmem_error_record *record_p) {
    symmem_status status = shm_op_failpoint(op, "shm.reduce", "multimem_ld_reduce", record_p);
    if (status != SYMMEM_OK)
        return status;
    const symmem_peers *peers = op->u.reduce.peers;
    const void *from[SYMMEM_MAX_WORLD_SIZE];
    for (int32_t rank = 0; rank < peers->world_size; rank++)
        from[rank] = (const char *)peers->buffers[rank] + op->u.reduce.offset;
    void *to = op->u.reduce.dst;
    symmem_cpu_reduce_args args = {.dsts = &to,
                                   .dst_count = 1,
                                   .srcs = from,
                                   .src_count = peers->world_size,
                                   .count = op->u.reduce.count};
    uint64_t mode = symmem_cpu_float_begin();
    symmem_cpu_reduce_find(op->instance->isa, op->u.reduce.dtype, op->u.reduce.op)(&args);
    symmem_cpu_float_end(mode);
    return SYMMEM_OK;
}
