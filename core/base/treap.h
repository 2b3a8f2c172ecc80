/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects in the order of a key: see treap.c. */
#ifndef SYMMEM_CORE_TREAP_H
#define SYMMEM_CORE_TREAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Under a lock of the owner's. All zeros is none. */
typedef struct sm_treap_node {
    struct sm_treap_node *lower, *higher;
    uint64_t key, order, weight;
} sm_treap_node;
typedef struct sm_treap {
    sm_treap_node *root;
    uint64_t last_order;
} sm_treap;
void sm_treap_add(sm_treap *treap, sm_treap_node *node, uint64_t key);
void sm_treap_remove(sm_treap *treap, sm_treap_node *node); /* if it is there */
/* The last one up to the key, and the first one from it on, or NULL. Of those with one key the one
 * that was added last comes first. */
sm_treap_node *sm_treap_at_or_below(const sm_treap *treap, uint64_t key);
sm_treap_node *sm_treap_at_or_above(const sm_treap *treap, uint64_t key);

#endif
