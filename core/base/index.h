/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects by a number. See index.c. All zeros is an empty index; empty, it holds no memory. */
#ifndef SYMMEM_CORE_INDEX_H
#define SYMMEM_CORE_INDEX_H

#include <stddef.h>
#include <stdint.h>

typedef struct sm_index_node {
    struct sm_index_node *next;
    uint64_t key;
} sm_index_node;

typedef struct sm_index {
    sm_index_node **chains;
    size_t room, count;
    sm_index_node *few; /* while there is no table */
} sm_index;

/* Several may have one key. */
void sm_index_add(sm_index *index, sm_index_node *node, uint64_t key);
/* If it is there; one that never was has key 0. */
void sm_index_remove(sm_index *index, sm_index_node *node);
/* Those with this key; NULL: no more. */
sm_index_node *sm_index_first(const sm_index *index, uint64_t key);
sm_index_node *sm_index_next(const sm_index_node *node);
/* Empties it: all that was in it, as a chain by `next`. */
sm_index_node *sm_index_empty(sm_index *index);
/* Of a number within an object. */
uint64_t sm_index_key(const void *object, uint64_t number);

#endif
