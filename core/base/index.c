/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects by a number of 64 bits: a hash table whose entries lie in the objects, so that adding
 * cannot fail. It grows with what it holds: finding, adding and removing one cost the same with ten
 * as with any number. For objects in the order of their keys see treap.c.
 */
#include "base/index.h"

#include <stdlib.h>

#define FEW 4u /* need no table */

/* Numbers that were given one after the other, and addresses, go to different places. */
static uint64_t mix(uint64_t key) {
    key = (key ^ key >> 32) * 0xd6e8feb86659fd93u;
    key = (key ^ key >> 32) * 0xd6e8feb86659fd93u;
    return key ^ key >> 32;
}

static sm_index_node **chain_of(sm_index *index, uint64_t key) {
    return index->room == 0 ? &index->few : &index->chains[mix(key) & (index->room - 1)];
}

static void move_all(sm_index *index, sm_index_node *from) {
    while (from != NULL) {
        sm_index_node *node = from, **chain = chain_of(index, node->key);
        from = node->next;
        node->next = *chain;
        *chain = node;
    }
}

/* Without memory it stays as it is, and is slower. */
static void grow(sm_index *index) {
    const size_t room = index->room == 0 ? (size_t)4 * FEW : 2 * index->room;
    sm_index_node **chains = calloc(room, sizeof(*chains));
    if (chains == NULL)
        return;
    sm_index before = *index;
    index->chains = chains;
    index->room = room;
    index->few = NULL;
    move_all(index, before.few);
    for (size_t i = 0; i < before.room; i++)
        move_all(index, before.chains[i]);
    free(before.chains);
}

void sm_index_add(sm_index *index, sm_index_node *node, uint64_t key) {
    if (index->count >= (index->room == 0 ? FEW : index->room))
        grow(index);
    sm_index_node **chain = chain_of(index, key);
    *node = (sm_index_node){.next = *chain, .key = key};
    *chain = node;
    index->count++;
}

void sm_index_remove(sm_index *index, sm_index_node *node) {
    sm_index_node **place = chain_of(index, node->key);
    while (*place != NULL && *place != node)
        place = &(*place)->next;
    if (*place == NULL)
        return;
    *place = node->next;
    if (--index->count > 0)
        return;
    free(index->chains);
    *index = (sm_index){.count = 0};
}

static sm_index_node *with_key(sm_index_node *node, uint64_t key) {
    while (node != NULL && node->key != key)
        node = node->next;
    return node;
}

sm_index_node *sm_index_first(const sm_index *index, uint64_t key) {
    return with_key(index->room == 0 ? index->few : index->chains[mix(key) & (index->room - 1)],
                    key);
}

sm_index_node *sm_index_next(const sm_index_node *node) {
    return with_key(node->next, node->key);
}

sm_index_node *sm_index_empty(sm_index *index) {
    sm_index all = {.few = index->few};
    for (size_t i = 0; i < index->room; i++)
        move_all(&all, index->chains[i]);
    free(index->chains);
    *index = (sm_index){.count = 0};
    return all.few;
}

uint64_t sm_index_key(const void *object, uint64_t number) {
    return mix((uint64_t)(uintptr_t)object) ^ number * 0x9e3779b97f4a7c15u;
}
