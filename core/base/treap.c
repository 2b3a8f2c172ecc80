/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects in the order of their keys: a context's allocations by address, those with an id by that,
 * an allocation's blocks by offset, a pool's gaps by size. Every operation asks for its tensors,
 * most of which lie in none, so it must not take longer for every object that there is; nor may
 * adding one, wherever it goes: a sorted array would move half of the others. So it is a search
 * tree that chance keeps shallow (a treap), with its nodes in the objects: adding cannot fail.
 * The owner's lock is held throughout.
 */
#include "base/treap.h"

/* Of those with one key the one that was added last comes first. */
static bool comes_before(const sm_treap_node *one, const sm_treap_node *other) {
    return one->key != other->key ? one->key < other->key : one->order > other->order;
}

/* Pseudo-random is enough: a caller that provokes a deep tree slows down only itself. */
static uint64_t weight_of(uint64_t order) {
    uint64_t weight = order * 0x9e3779b97f4a7c15u;
    weight = (weight ^ weight >> 31) * 0xd6e8feb86659fd93u;
    return weight ^ weight >> 32;
}

void sm_treap_add(sm_treap *treap, sm_treap_node *node, uint64_t key) {
    sm_treap_node **at = &treap->root;
    const uint64_t order = ++treap->last_order;
    *node = (sm_treap_node){.key = key, .order = order, .weight = weight_of(order)};
    while (*at != NULL && (*at)->weight >= node->weight)
        at = comes_before(*at, node) ? &(*at)->higher : &(*at)->lower;
    /* It takes the place of a tree, whose parts go below it. */
    sm_treap_node *tree = *at, **lower = &node->lower, **higher = &node->higher;
    *at = node;
    while (tree != NULL) {
        if (comes_before(tree, node)) {
            *lower = tree;
            lower = &tree->higher;
            tree = *lower;
        } else {
            *higher = tree;
            higher = &tree->lower;
            tree = *higher;
        }
    }
    *lower = *higher = NULL;
}

/* All of `low` come before all of `high`. */
static void join(sm_treap_node **at, sm_treap_node *low, sm_treap_node *high) {
    while (low != NULL && high != NULL) {
        if (low->weight >= high->weight) {
            *at = low;
            at = &low->higher;
            low = *at;
        } else {
            *at = high;
            at = &high->lower;
            high = *at;
        }
    }
    *at = low != NULL ? low : high;
}

void sm_treap_remove(sm_treap *treap, sm_treap_node *node) {
    sm_treap_node **at = &treap->root;
    while (*at != NULL && *at != node)
        at = comes_before(*at, node) ? &(*at)->higher : &(*at)->lower;
    if (*at == NULL)
        return;
    join(at, node->lower, node->higher);
    *node = (sm_treap_node){.key = 0};
}

sm_treap_node *sm_treap_at_or_below(const sm_treap *treap, uint64_t key) {
    sm_treap_node *found = NULL;
    for (sm_treap_node *at = treap->root; at != NULL;) {
        if (at->key <= key)
            found = at;
        at = at->key <= key ? at->higher : at->lower;
    }
    return found;
}

sm_treap_node *sm_treap_at_or_above(const sm_treap *treap, uint64_t key) {
    sm_treap_node *found = NULL;
    for (sm_treap_node *at = treap->root; at != NULL;) {
        if (at->key >= key)
            found = at;
        at = at->key >= key ? at->lower : at->higher;
    }
    return found;
}
