/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies. memcpy does what fits in the cache, because nothing is faster there. */
#include <string.h>

#include "prefetch.h"
#include "reduce.h"
#include "stream.h"

enum {
    AT_A_TIME = 4 * VECTOR_BYTES,
    LEAST_BYTES = 4096,    /* below this the fence costs more than it saves */
    PREFETCH_BYTES = 1024, /* how far ahead of the writes cache lines are requested */
};

/* `to` is aligned to cache lines. */
static void copy_past_cache(char *to, const char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += AT_A_TIME) {
        vec a = load_vec(from + at), b = load_vec(from + at + VECTOR_BYTES);
        vec c = load_vec(from + at + 2 * VECTOR_BYTES), d = load_vec(from + at + 3 * VECTOR_BYTES);
        store_vec(to + at, a, true);
        store_vec(to + at + VECTOR_BYTES, b, true);
        store_vec(to + at + 2 * VECTOR_BYTES, c, true);
        store_vec(to + at + 3 * VECTOR_BYTES, d, true);
    }
}

void symmem_cpu_copy(void *dst, const void *src, size_t bytes, bool streaming) {
    if (!streaming || !CAN_STREAM || bytes < LEAST_BYTES) {
        memcpy(dst, src, bytes);
        return;
    }
    size_t lead = -(uintptr_t)dst % STREAM_LINE_BYTES;
    size_t whole = (bytes - lead) / AT_A_TIME * AT_A_TIME;
    memcpy(dst, src, lead);
    copy_past_cache((char *)dst + lead, (const char *)src + lead, whole);
    memcpy((char *)dst + lead + whole, (const char *)src + lead + whole, bytes - lead - whole);
    stream_fence();
}

void symmem_cpu_copy_to_readers(void *dst, const void *src, size_t bytes) {
    size_t next = 0;
    for (size_t at = 0; at < bytes; at = next) {
        next = bytes - at > PREFETCH_BYTES ? at + PREFETCH_BYTES : bytes;
        symmem_cpu_prefetch_for_write(
            (char *)dst + next, bytes - next < PREFETCH_BYTES ? bytes - next : PREFETCH_BYTES);
        memcpy((char *)dst + at, (const char *)src + at, next - at);
    }
}
