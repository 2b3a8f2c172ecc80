/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plain loads and stores through a handle's pointers, as users make them: by the CPU itself where
 * it may dereference them (HOST_ACCESS); else by a kernel of the device's, which a strided copy is
 * (MATMUL); else by copies, for there is nothing plainer.
 */
#ifndef SYMMEM_CONFORMANCE_PLAIN_HELP_H
#define SYMMEM_CONFORMANCE_PLAIN_HELP_H

#include "ops_help.h"

struct plain {
    struct tk *t;
    /* Of the stores and loads, and so of the signals between them; NULL: without a stream. */
    symmem_stream *stream;
    uint32_t *room; /* the device's memory, for words on their way; NULL: the CPU does it all */
};

/* For `count` words. on_stream: where the device does it and has streams, it does it on one. */
struct plain plain_begin(struct tk *t, size_t count, bool on_stream);
/* The device's are slower by far. */
static inline bool plain_by_cpu(const struct plain *plain) {
    return plain->room == NULL;
}
/* At `at` the room has place for `count` words which no other code uses meanwhile. */
void plain_store(const struct plain *plain, uint32_t *to, const uint32_t *words, size_t at,
                 size_t count);
/* The words are there when it returns. */
void plain_load(const struct plain *plain, const uint32_t *from, uint32_t *words, size_t at,
                size_t count);

#endif
