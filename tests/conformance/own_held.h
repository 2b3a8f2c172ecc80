/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process holds before and after a step at which a rank dies: descriptors and shared
 * mappings of the library's and the backend's. A library beneath the backend may keep a few more
 * sockets and mappings of its own when it has to give up in the middle, which the backend cannot
 * give back for it; more than those are something that the backend has not ended.
 */
#ifndef SYMMEM_CONFORMANCE_OWN_HELD_H
#define SYMMEM_CONFORMANCE_OWN_HELD_H

#include "kit.h"
#include "resources_open.h"

struct own_held {
    struct resources_open descriptors;
    int sockets; /* the library's beneath, which are not among those */
    struct tk_mappings mappings;
    bool known;
};

void own_held_take(struct own_held *held);
/* Whether `now` is what was there before. If not, `text` says what is not: 512 bytes are enough for
 * some. */
bool own_held_is(const struct own_held *now, const struct own_held *before, char *text,
                 size_t capacity);

#endif
