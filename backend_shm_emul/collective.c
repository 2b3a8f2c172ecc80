/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives: the CPU kernels on the emulation's peers, with its barrier. */
#include <string.h>

#include "cpu/comm.h"
#include "cpu/tile.h"
#include "collective.h"
#include "error.h"
#include "op.h"
#include "signals.h"
#include "wait.h"

/* One running collective. */
typedef struct run_state {
    symmem_cpu_comm comm; /* first, because sync() gets it */
    shm_wait wait;
    symmem_call_id called;
    symmem_call_id id; /* the same, zero after the first barrier */
    symmem_fault *fault_p;
} run_state;

/* Peers may still be in the operation that poisoned this rank: it publishes nothing more. */
static symmem_status run_unless_poisoned(const symmem_collective *call, run_state *state) {
    const symmem_peers *peers = state->wait.peers;
    return peers->host->is_poisoned(peers)
               ? shm_wait_fault(&state->wait, SYMMEM_POISONED, -1, -1, state->fault_p)
               : symmem_cpu_collective(call, &state->comm);
}

/* So few elements take hardly longer than their waits, which read the clock themselves. */
#define BRIEF_COUNT 16384

static symmem_status sync(symmem_cpu_comm *comm) {
    run_state *state = (run_state *)comm;
    symmem_call_id id = state->id;
    memset(&state->id, 0, sizeof state->id);
    return shm_sync(&state->wait, &id, state->fault_p);
}

static uint64_t *split_table(const symmem_cpu_comm *comm, int32_t rank) {
    const run_state *state = (const run_state *)comm;
    return shm_split_table(state->wait.peers, rank, state->wait.channel);
}

static void *eager_buffer_of(const symmem_cpu_comm *comm, int32_t rank) {
    const run_state *state = (const run_state *)comm;
    return shm_eager_buffer(state->wait.peers, rank, state->wait.channel);
}

static symmem_status mismatch(symmem_cpu_comm *comm, int32_t rank, uint64_t own, uint64_t other) {
    run_state *state = (run_state *)comm;
    symmem_fault *fault = state->fault_p;
    shm_wait_fault(&state->wait, SYMMEM_MISMATCH, rank, -1, fault);
    fault->own = fault->other = state->called;
    fault->own.count = own;
    fault->other.count = other;
    return SYMMEM_MISMATCH;
}

static symmem_status wrong_splits(symmem_cpu_comm *comm, int32_t rank, symmem_status status,
                                  const char *stage, uint64_t allowed, uint64_t found) {
    run_state *state = (run_state *)comm;
    symmem_fault *fault = state->fault_p;
    shm_wait_fault(&state->wait, status, rank, -1, fault);
    fault->stage = stage;
    fault->own = fault->other = (symmem_call_id){.kind = SYMMEM_CALL_ALL_TO_ALL_V};
    fault->own.count = allowed;
    fault->other.count = found;
    return status;
}

static symmem_status collective_corrupt(symmem_cpu_comm *comm, int32_t rank, uint64_t value) {
    run_state *state = (run_state *)comm;
    shm_wait_fault(&state->wait, SYMMEM_CORRUPT, rank, -1, state->fault_p);
    state->fault_p->actual = value;
    return SYMMEM_CORRUPT;
}

static symmem_status run_collective(const shm_op *op, symmem_error_record *record_p) {
    const symmem_peers *peers = op->u.collective.peers;
    symmem_fault fault; /* large, and filled only on a failure */
    fault.status = SYMMEM_OK;
    run_state state; /* its wait is initialized below */
    state.comm = (symmem_cpu_comm){.rank = peers->rank,
                                   .world_size = peers->world_size,
                                   .buffers = peers->buffers,
                                   .buffer_bytes = peers->buffer_bytes,
                                   .isa = op->instance->isa,
                                   .checking = op->u.collective.id.kind != SYMMEM_CALL_NONE,
                                   .barrier = sync,
                                   .split_table = split_table,
                                   .mismatch = mismatch,
                                   .wrong_splits = wrong_splits,
                                   .corrupt = collective_corrupt,
                                   .eager_bytes = shm_eager_bytes(op->u.collective.channel),
                                   .eager_buffer = eager_buffer_of};
    state.called = state.id = op->u.collective.id;
    state.fault_p = &fault;
    shm_sync_prepare(op->instance, peers, op->u.collective.call.name, op->u.collective.channel,
                     op->u.collective.timeout_ms, &state.wait);
    if (op->u.collective.call.count > BRIEF_COUNT || op->u.collective.call.in_splits != NULL ||
        op->u.collective.call.kind == SYMMEM_CALL_ALL_TO_ALL_V)
        state.wait.start_ns = shm_now_ns(op->instance->clock);
    symmem_status status = run_unless_poisoned(&op->u.collective.call, &state);
    shm_failpoint_notify(peers->host, "shm.collective.done*");
    if (status == SYMMEM_OK)
        return SYMMEM_OK;
    if (fault.status == SYMMEM_OK) /* the kernel refused, not a barrier */
        shm_wait_fault(&state.wait, status, peers->rank, -1, &fault);
    peers->host->signal_failed(peers, &fault, record_p);
    return status;
}

symmem_status shm_collective(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_collective *call, const symmem_exec *exec) {
    shm_op op;
    shm_op_init(&op, instance, run_collective);
    op.u.collective.peers = peers;
    op.u.collective.channel = channel;
    op.u.collective.timeout_ms = exec->timeout_ms;
    op.u.collective.id = exec->call;
    op.u.collective.call = *call;
    return shm_submit(&op, exec, call->name);
}

/* --- a piece of all ranks' buffers, without them -------------------------------------------- */

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
