/* SPDX-License-Identifier: BSD-3-Clause */
/* An enqueued operation reads an argument where the caller's frame was. */
#include <stdlib.h>

#include "decorator.h"

struct kept {
    void *dst;
    const uint32_t *value; /* into the caller's frame */
    size_t count;
};

static void late_memset(void *arg) {
    struct kept *kept = arg;
    for (size_t i = 0; i < kept->count; i++)
        ((uint32_t *)kept->dst)[i] = *kept->value;
    free(kept);
}

/* What other calls leave where the frame was. */
static void __attribute__((noinline)) reuse_stack(void) {
    volatile char other[512];
    for (size_t i = 0; i < sizeof other; i++)
        other[i] = 0x5a;
}

static symmem_status __attribute__((noinline))
enqueue(void *instance, void *dst, uint32_t value, size_t count, const symmem_exec *exec) {
    volatile uint32_t frame = value;
    struct kept *kept = malloc(sizeof *kept);
    if (!kept)
        return SYMMEM_OUT_OF_MEMORY;
    *kept = (struct kept){.dst = dst, .count = count};
    kept->value = (const uint32_t *)(uintptr_t)&frame;
    return real->host_fn(instance, exec->stream, late_memset, kept);
}

static symmem_status memset32(void *instance, int32_t device, void *dst, uint32_t value,
                              size_t count, const symmem_exec *exec) {
    if (!exec->stream || !real->host_fn)
        return real->memset32(instance, device, dst, value, count, exec);
    symmem_status status = enqueue(instance, dst, value, count, exec);
    reuse_stack();
    return status;
}

void mutate(symmem_backend *table) {
    table->memset32 = memset32;
}
