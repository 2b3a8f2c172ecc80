/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives: the CPU kernels on the emulation's peers, with its barrier as their meeting. */
#include <string.h>

#include "cpu/team.h"
#include "shm.h"

/* One collective that runs. */
typedef struct run_state {
    symmem_cpu_team team; /* first: meet() gets it */
    shm_wait wait;
    symmem_call_id called;
    symmem_call_id id; /* the same, zero after the first meeting */
    symmem_fault fault;
} run_state;

static symmem_status meet(symmem_cpu_team *team) {
    run_state *state = (run_state *)team;
    symmem_call_id id = state->id;
    memset(&state->id, 0, sizeof state->id);
    return shm_meet(&state->wait, &id, &state->fault);
}

static uint64_t *board(const symmem_cpu_team *team, int32_t rank) {
    const run_state *state = (const run_state *)team;
    return shm_board(state->wait.peers, rank, state->wait.channel);
}

static symmem_status mismatch(symmem_cpu_team *team, int32_t rank, uint64_t own, uint64_t other) {
    run_state *state = (run_state *)team;
    shm_wait_fault(&state->wait, SYMMEM_MISMATCH, rank, -1, &state->fault);
    state->fault.own = state->fault.other = state->called;
    state->fault.own.count = own;
    state->fault.other.count = other;
    return SYMMEM_MISMATCH;
}

static symmem_status run_collective(const shm_op *op, symmem_error_record *record_p) {
    const symmem_peers *peers = op->u.collective.peers;
    run_state state = {
        .team = {.rank = peers->rank,
                 .world_size = peers->world_size,
                 .buffers = peers->buffers,
                 .checking = op->u.collective.id.kind != SYMMEM_CALL_NONE,
                 .meet = meet,
                 .board = board,
                 .mismatch = mismatch},
        .called = op->u.collective.id,
        .id = op->u.collective.id,
    };
    shm_meet_prepare(op->instance, peers, op->u.collective.call.name, op->u.collective.channel,
                     op->u.collective.timeout_ms, &state.wait);
    symmem_status status = symmem_cpu_collective(&op->u.collective.call, &state.team);
    shm_observe(peers->host, "shm.collective.done*");
    if (status != SYMMEM_OK)
        peers->host->signal_failed(peers, &state.fault, record_p);
    return status;
}

symmem_status shm_collective(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_collective *call, const symmem_exec *exec) {
    shm_op op = {.run = run_collective, .instance = instance};
    op.u.collective.peers = peers;
    op.u.collective.channel = channel;
    op.u.collective.timeout_ms = exec->timeout_ms;
    op.u.collective.id = exec->call;
    op.u.collective.call = *call;
    return shm_submit(&op, exec, call->name);
}
