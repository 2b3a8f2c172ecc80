/* SPDX-License-Identifier: BSD-3-Clause */
/* What is written to a peer follows the signal, or the barrier, that announces it. */
#include <stdlib.h>
#include <string.h>

#include "decorator.h"

#define RANGES 64

/* The peers' memory in this process; ranks are processes here. */
static symmem_memory peers_memory[RANGES];

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

static bool is_a_peers(const void *ptr) {
    for (int i = 0; i < RANGES; i++) {
        const char *base = peers_memory[i].ptr;
        if (base && (const char *)ptr >= base && (const char *)ptr < base + peers_memory[i].bytes)
            return true;
    }
    return false;
}

static symmem_status copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                          const symmem_exec *exec) {
    make_pending();
    void *kept = exec->stream || bytes == 0 || !is_a_peers(dst) ? NULL : malloc(bytes);
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

static symmem_status memory_import(void *instance, int32_t device, const symmem_share *share,
                                   size_t bytes, symmem_memory *memory) {
    symmem_status status = real->memory_import(instance, device, share, bytes, memory);
    for (int i = 0; i < RANGES && status == SYMMEM_OK; i++)
        if (!peers_memory[i].ptr) {
            peers_memory[i] = *memory;
            break;
        }
    return status;
}

static void memory_release(void *instance, symmem_memory *memory) {
    make_pending();
    for (int i = 0; i < RANGES; i++)
        if (peers_memory[i].ptr == memory->ptr)
            peers_memory[i].ptr = NULL;
    real->memory_release(instance, memory);
}

void mutate(symmem_backend *table) {
    table->copy = copy;
    table->put_signal = put_signal;
    table->barrier = barrier;
    table->memory_import = memory_import;
    table->memory_release = memory_release;
}
