/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects in the order of a key: see places.c. */
#ifndef SYMMEM_CORE_PLACES_H
#define SYMMEM_CORE_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Under a lock of the owner's. All zeros is none. */
typedef struct sm_place {
    struct sm_place *lower, *higher;
    uint64_t key, order, weight;
} sm_place;
typedef struct sm_places {
    sm_place *root;
    uint64_t last_order;
} sm_places;
void sm_places_add(sm_places *places, sm_place *place, uint64_t key);
void sm_places_remove(sm_places *places, sm_place *place); /* if it is there */
/* The last one up to the key, and the first one from it on, or NULL. Of those with one key the one
 * that was added last comes first. */
sm_place *sm_places_find(const sm_places *places, uint64_t key);
sm_place *sm_places_from(const sm_places *places, uint64_t key);

#endif
