/* SPDX-License-Identifier: BSD-3-Clause */
/* Ops whose time is that of a synchronization of the ranks, and ops that move bytes and wait for no
 * other rank. */
#include "rank.h"

BENCH_ONCE(barrier, symmem_barrier(self->handle, BENCH_ON_CHANNEL))
BENCH_ONCE(host_barrier, symmem_group_barrier(self->group, BENCH_TIMEOUT_MS))

/* After a barrier every rank sees what all ranks wrote before it. */
static bool check_barrier(bench_rank *self) {
    uint32_t number = (uint32_t)self->rank + 1;
    size_t own = (size_t)self->rank * sizeof number;
    bool right = true;
    for (int peer = 0; peer < self->ranks; peer++)
        if (symmem_put(self->handle, peer, own, &number, sizeof number, NULL) != SYMMEM_OK)
            return bench_failed(self, "put");
    if (self->op->once(self) != SYMMEM_OK)
        return bench_failed(self, "barrier");
    for (int peer = 0; peer < self->ranks; peer++) {
        if (symmem_get(self->handle, self->rank, (size_t)peer * sizeof number, &number,
                       sizeof number, NULL) != SYMMEM_OK)
            return bench_failed(self, "get");
        right = right && number == (uint32_t)peer + 1;
    }
    return right;
}

/* Ping-pong of ranks 0 and 1. The receiver reads every cache line that arrived. */
static symmem_status send(bench_rank *self, int peer) {
    symmem_status status = SYMMEM_OK;
    if (self->bytes > 0)
        status = symmem_put(self->handle, peer, self->out_offset, self->in, self->bytes, NULL);
    return status != SYMMEM_OK ? status
                               : symmem_put_signal(self->handle, peer, 0, BENCH_TIMEOUT_MS, NULL);
}

static symmem_status receive(bench_rank *self, int peer) {
    symmem_status status = symmem_wait_signal(self->handle, peer, 0, BENCH_TIMEOUT_MS, NULL);
    bench_read(self->out, self->bytes);
    return status;
}

static symmem_status put_wait(bench_rank *self) {
    if (self->rank > 1)
        return SYMMEM_OK;
    symmem_status status = self->rank == 0 ? send(self, 1) : receive(self, 0);
    if (status != SYMMEM_OK)
        return status;
    return self->rank == 0 ? receive(self, 1) : send(self, 0);
}

BENCH_EXPECTED(put_wait_expected, self->rank > 1 ? 0 : bench_pattern(1 - self->rank, index))

/* The same by one call for the bytes and the signal, and by a window's counted signals. */
static symmem_status send_together(bench_rank *self, int peer) {
    return symmem_put_with_signal(self->handle, peer, self->out_offset, self->in, self->bytes, 0,
                                  BENCH_TIMEOUT_MS, NULL);
}

static symmem_status put_with_signal(bench_rank *self) {
    if (self->rank > 1)
        return SYMMEM_OK;
    symmem_status status = self->rank == 0 ? send_together(self, 1) : receive(self, 0);
    if (status != SYMMEM_OK)
        return status;
    return self->rank == 0 ? receive(self, 1) : send_together(self, 0);
}

static symmem_status send_counted(bench_rank *self, int peer) {
    return symmem_window_put_signal(self->handle, peer, self->out_offset, self->in, self->bytes, 0,
                                    BENCH_TIMEOUT_MS, NULL);
}

static symmem_status receive_counted(bench_rank *self, int peer) {
    const symmem_window_wait wait = {.rank = peer, .count = 1};
    symmem_status status =
        symmem_window_wait_signal(self->handle, 1, &wait, 0, BENCH_TIMEOUT_MS, NULL);
    bench_read(self->out, self->bytes);
    return status;
}

static symmem_status window_put_signal(bench_rank *self) {
    if (self->rank > 1)
        return SYMMEM_OK;
    symmem_status status = self->rank == 0 ? send_counted(self, 1) : receive_counted(self, 0);
    if (status != SYMMEM_OK)
        return status;
    return self->rank == 0 ? receive_counted(self, 1) : send_counted(self, 0);
}

/* A buffer from its allocation to its release. */
static symmem_status rendezvous(bench_rank *self) {
    symmem_handle *handle = NULL;
    void *memory = NULL;
    size_t bytes = self->bytes > 0 ? self->bytes : 1;
    symmem_status status = symmem_alloc(self->context, bytes, -1, NULL, &memory);
    if (status != SYMMEM_OK)
        return status;
    status = symmem_rendezvous(self->context, memory, self->group, BENCH_TIMEOUT_MS, &handle);
    symmem_handle_release(handle);
    symmem_status freed = symmem_free(self->context, memory);
    return status != SYMMEM_OK ? status : freed;
}

/* The same without allocation and release of the memory. */
static bool allocate(bench_rank *self) {
    symmem_handle_release(self->fresh_handle);
    self->fresh_handle = NULL;
    if (symmem_free(self->context, self->fresh) != SYMMEM_OK)
        return bench_failed(self, "free");
    self->fresh = NULL;
    size_t bytes = self->bytes > 0 ? self->bytes : 1;
    return symmem_alloc(self->context, bytes, -1, NULL, &self->fresh) == SYMMEM_OK ||
           bench_failed(self, "alloc");
}

BENCH_ONCE(meet_with_it, symmem_rendezvous(self->context, self->fresh, self->group,
                                           BENCH_TIMEOUT_MS, &self->fresh_handle))

static bool check_rendezvous(bench_rank *self) {
    return rendezvous(self) == SYMMEM_OK || bench_failed(self, "rendezvous");
}

const bench_op bench_sync_ops[] = {
    BENCH_OP("barrier", barrier, .unsized = true, .check = check_barrier),
    BENCH_OP("host_barrier", host_barrier, .flags = BENCH_NO_STREAM, .unsized = true,
             .check = check_barrier),
    BENCH_OP("put_wait", put_wait, .flags = BENCH_OUT_SYMMETRIC | BENCH_HOST_MEMORY, .divisor = 2,
             .min_ranks = 2, .expected = put_wait_expected),
    BENCH_OP("put_with_signal", put_with_signal, .flags = BENCH_OUT_SYMMETRIC | BENCH_HOST_MEMORY,
             .divisor = 2, .min_ranks = 2, .expected = put_wait_expected),
    BENCH_OP("window_put_signal", window_put_signal,
             .flags = BENCH_OUT_SYMMETRIC | BENCH_HOST_MEMORY, .divisor = 2, .min_ranks = 2,
             .expected = put_wait_expected),
    BENCH_OP("rendezvous", rendezvous, .flags = BENCH_NO_HANDLE | BENCH_NO_STREAM,
             .check = check_rendezvous),
    BENCH_OP("rendezvous_alone", meet_with_it, .flags = BENCH_NO_HANDLE | BENCH_NO_STREAM,
             .before = allocate, .check = check_rendezvous),
    {.name = NULL},
};

/* --- moves: all ranks work at once, each with its neighbor ------------------------------ */

BENCH_ONCE(put, symmem_put(self->handle, self->right, self->out_offset, self->in, self->bytes,
                           self->stream))
BENCH_ONCE(get, symmem_get(self->handle, self->right, 0, self->out, self->bytes, self->stream))
BENCH_ONCE(copy, symmem_copy(self->context, self->out, self->in, self->bytes, self->stream))
BENCH_EXPECTED(of_left, bench_pattern(self->left, index))
BENCH_EXPECTED(of_right, bench_pattern(self->right, index))
BENCH_EXPECTED(of_self, bench_pattern(self->rank, index))

const bench_op bench_move_ops[] = {
    BENCH_OP("put", put, .flags = BENCH_OUT_SYMMETRIC, .expected = of_left),
    BENCH_OP("get", get, .flags = BENCH_IN_SYMMETRIC, .keep = true, .expected = of_right),
    BENCH_OP("copy", copy, .flags = BENCH_NO_HANDLE, .expected = of_self),
    {.name = NULL},
};
