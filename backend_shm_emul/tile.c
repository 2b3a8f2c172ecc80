/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/tile.h"
#include "op.h"
#include "signals.h"
#include "tile.h"

static symmem_status run_reduce_tile(const shm_op *op, symmem_error_record *record_p) {
    const symmem_peers *peers = op->u.tile.peers;
    symmem_status status = shm_op_failpoint(op, "shm.reduce_tile", op->operation, record_p);
    if (status == SYMMEM_OK)
        symmem_cpu_reduce_tile(&op->u.tile.tile, peers->buffers, peers->world_size,
                               op->instance->isa);
    return status;
}

symmem_status shm_reduce_tile(void *instance, const symmem_peers *peers,
                              const symmem_tile_reduction *tile, const symmem_exec *exec) {
    shm_op op;
    shm_op_init(&op, instance, run_reduce_tile);
    op.u.tile.peers = peers;
    op.u.tile.tile = *tile;
    return shm_submit(&op, exec, shm_operation(exec, "reduce_tile"));
}
