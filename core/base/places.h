/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects by a key, found by the key of the last one up to it. */
#ifndef SYMMEM_CORE_PLACES_H
#define SYMMEM_CORE_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Objects by a key, under context->lock. */
typedef struct sm_place {
    uint64_t key;
    void *object;
} sm_place;
typedef struct sm_places {
    sm_place *sorted;
    size_t count, room;
} sm_places;
bool sm_places_add(sm_places *places, uint64_t key, void *object);          /* false: no memory */
void sm_places_remove(sm_places *places, uint64_t key, const void *object); /* if it is there */
/* The last one up to the key, or NULL. */
void *sm_places_find(const sm_places *places, uint64_t key);

#endif
