/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies, fills, multicast stores and load-reduces that move less than they should, or later. */
#include "decorator.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* --- less ------------------------------------------------------------------------- */

static symmem_status copy_whole_words(void *instance, int32_t device, void *dst, const void *src,
                                      size_t bytes, const symmem_exec *exec) {
    return real->copy(instance, device, dst, src, bytes / 8 * 8, exec);
}

static symmem_status fill_fours(void *instance, int32_t device, void *dst, uint32_t value,
                                size_t count, const symmem_exec *exec) {
    return real->memset32(instance, device, dst, value, count / 4 * 4, exec);
}

static symmem_status store_16_bytes(void *instance, const symmem_peers *peers, void *address,
                                    const void *src, size_t bytes, const symmem_exec *exec) {
    return real->multimem_store(instance, peers, address, src, bytes / 16 * 16, exec);
}

ON_REDUCE(reduce_eights, *count = *count / 8 * 8)

/* --- another kind of element ------------------------------------------------------ */

ON_REDUCE(bfloat16_as_float16, if (*dtype == SYMMEM_BFLOAT16) *dtype = SYMMEM_FLOAT16)
ON_REDUCE(unsigned_as_signed,
          if (*dtype == SYMMEM_UINT64 && *op != SYMMEM_SUM) *dtype = SYMMEM_INT64)
ON_REDUCE(min_as_max, if (*op == SYMMEM_MIN &&
                          (*dtype == SYMMEM_FLOAT32 || *dtype == SYMMEM_FLOAT64)) *op = SYMMEM_MAX)

/* --- what is written to a peer follows what announces it -------------------------- */

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

static symmem_status copy_pending(void *instance, int32_t device, void *dst, const void *src,
                                  size_t bytes, const symmem_exec *exec) {
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

static void make_pending_late(symmem_status status, const symmem_peers *peers) {
    (void)status, (void)peers;
    mutant_sleep_ms(1);
    make_pending();
}

static void close_without_pending(void *instance, symmem_peers *peers) {
    make_pending(); /* while its memory is there */
    real->peers_close(instance, peers);
}

/* --- another thread copies -------------------------------------------------------- */

struct job {
    void *dst;
    size_t count;
    unsigned char bytes[];
};

static void *late_copy(void *arg) {
    struct job *job = arg;
    mutant_sleep_ms(1);
    memcpy(job->dst, job->bytes, job->count);
    free(job);
    return NULL;
}

/* Of a copy to a peer what lies behind `first`; false: nothing was begun. */
static bool copy_late(void *dst, const void *src, size_t first, size_t bytes,
                      const symmem_exec *exec) {
    pthread_t thread;
    struct job *job =
        exec->stream || !mutant_is_a_peers(dst) ? NULL : malloc(sizeof *job + bytes - first);
    if (!job)
        return false;
    job->dst = (char *)dst + first;
    job->count = bytes - first;
    memcpy(job->bytes, (const char *)src + first, job->count);
    if (pthread_create(&thread, NULL, late_copy, job) == 0)
        pthread_detach(thread);
    else
        free(job);
    return true;
}

/* Data and signals take different paths: nothing orders a signal after the copy before it. */
static symmem_status copy_on_helper(void *instance, int32_t device, void *dst, const void *src,
                                    size_t bytes, const symmem_exec *exec) {
    return copy_late(dst, src, 0, bytes, exec)
               ? SYMMEM_OK
               : real->copy(instance, device, dst, src, bytes, exec);
}

/* A copy is shared among workers; the caller goes on before the last one has written. */
static symmem_status copy_in_parts(void *instance, int32_t device, void *dst, const void *src,
                                   size_t bytes, const symmem_exec *exec) {
    size_t first = bytes - bytes / 4;
    symmem_status status = real->copy(instance, device, dst, src, first, exec);
    return status == SYMMEM_OK && copy_late(dst, src, first, bytes, exec)
               ? SYMMEM_OK
               : real->copy(instance, device, dst, src, bytes, exec);
}

static void close_after_late_copies(void *instance, symmem_peers *peers) {
    mutant_sleep_ms(20); /* nothing is written after the memory is gone: that is not the point */
    real->peers_close(instance, peers);
}

const struct mutant copy_mutants[] = {
    {"copy_drops_tail", .entries.copy = copy_whole_words},
    {"fill_drops_tail", .entries.memset32 = fill_fours},
    {"store_drops_tail", .entries.multimem_store = store_16_bytes},
    {"reduce_drops_tail", .reduce = reduce_eights},
    {"bfloat16_as_float16", .reduce = bfloat16_as_float16},
    {"unsigned_compared_signed", .reduce = unsigned_as_signed},
    {"min_is_max", .reduce = min_as_max},
    {"flag_before_payload", .entries = {.copy = copy_pending, .peers_close = close_without_pending},
     .on = ON_PUT | ON_BARRIER, .after = make_pending_late, .watches_imports = true},
    {"copy_on_helper_thread",
     .entries = {.copy = copy_on_helper, .peers_close = close_after_late_copies},
     .watches_imports = true},
    {"last_worker_not_awaited",
     .entries = {.copy = copy_in_parts, .peers_close = close_after_late_copies},
     .watches_imports = true},
    {.name = NULL},
};
