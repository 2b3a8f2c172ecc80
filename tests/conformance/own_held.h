/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process holds where ranks fail or die in the middle of anything: descriptors and shared
 * mappings, but for sockets and mappings that a library beneath a backend keeps for itself, which
 * is not the backend's to give back.
 */
#ifndef SYMMEM_CONFORMANCE_OWN_HELD_H
#define SYMMEM_CONFORMANCE_OWN_HELD_H

#include <stdio.h>

#include "kit.h"
#include "resources_open.h"

struct own_held {
    struct resources_open descriptors;
    int mappings;
};

static inline void own_held_take(struct own_held *held) {
    resources_take_open(&held->descriptors);
    resources_leave_out(&held->descriptors, tk_is_foreign_socket);
    held->mappings = tk_own_mappings();
}

/* `text` says what has changed: 512 bytes are enough for some. */
static inline bool own_held_is(const struct own_held *now, const struct own_held *before,
                               char *text, size_t capacity) {
    if (!resources_are_like(&before->descriptors, &now->descriptors, text, capacity))
        return false;
    snprintf(text, capacity, "%d shared mappings, before %d", now->mappings, before->mappings);
    return now->mappings == before->mappings;
}

#endif
