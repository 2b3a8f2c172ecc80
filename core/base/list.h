/* SPDX-License-Identifier: BSD-3-Clause */
/* Intrusive lists. */
#ifndef SYMMEM_CORE_LIST_H
#define SYMMEM_CORE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sm_node {
    struct sm_node *previous, *next; /* of a ring; the list's head is a node as well */
} sm_node;
void sm_list_init(sm_node *head);
void sm_list_add(sm_node *head, sm_node *node); /* at the end */
void sm_list_remove(sm_node *node);             /* fine on a removed node */
bool sm_list_empty(const sm_node *head);
void sm_list_move(sm_node *head, sm_node *from); /* all of them, to the end */
#define SM_CONTAINER(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

#endif
