/* SPDX-License-Identifier: BSD-3-Clause */
/* What is written to a peer follows the signal, or the barrier, that announces it. */
#include <stdlib.h>
#include <string.h>

#include "decorator.h"

/* The thread's copy that was not made yet. */
static _Thread_local struct {
    void *dst;
    void *bytes;
    size_t count;
} pending;

static void make_pending(void) {
    if (!pending.bytes)
        return;
    memcpy(pending.dst, pending.bytes, pending.count);
    free(pending.bytes);
    pending.bytes = NULL;
}

static symmem_status copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                          const symmem_exec *exec) {
    make_pending();
    void *kept = exec->stream || bytes == 0 || !mutant_is_a_peers(dst) ? NULL : malloc(bytes);
    if (!kept)
        return real->copy(instance, device, dst, src, bytes, exec);
    memcpy(kept, src, bytes);
    pending.dst = dst;
    pending.bytes = kept;
    pending.count = bytes;
    return SYMMEM_OK;
}

static symmem_status put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, const symmem_exec *exec) {
    symmem_status status = real->put_signal(instance, peers, dst_rank, channel, exec);
    mutant_sleep_ms(1);
    make_pending();
    return status;
}

static symmem_status barrier(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_exec *exec) {
    symmem_status status = real->barrier(instance, peers, channel, exec);
    mutant_sleep_ms(1);
    make_pending();
    return status;
}

static void peers_close(void *instance, symmem_peers *peers) {
    make_pending(); /* while its memory is there */
    real->peers_close(instance, peers);
}

void mutate(symmem_backend *table) {
    table->copy = copy;
    table->put_signal = put_signal;
    table->barrier = barrier;
    table->peers_close = peers_close;
    mutant_watch_imports(table);
}
