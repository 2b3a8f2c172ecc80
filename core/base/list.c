/* SPDX-License-Identifier: BSD-3-Clause */
/* The intrusive ring list. A removed node is a ring of its own, so that removing it again is
 * harmless and "is it in a list" can be asked of the node itself. */
#include "base/base.h"

void sm_list_init(sm_node *head) {
    head->previous = head;
    head->next = head;
}

void sm_list_add(sm_node *head, sm_node *node) {
    node->previous = head->previous;
    node->next = head;
    head->previous->next = node;
    head->previous = node;
}

void sm_list_remove(sm_node *node) {
    node->previous->next = node->next;
    node->next->previous = node->previous;
    sm_list_init(node);
}

bool sm_list_empty(const sm_node *head) {
    return head->next == head;
}

void sm_list_move(sm_node *head, sm_node *from) {
    while (!sm_list_empty(from)) {
        sm_node *node = from->next;
        sm_list_remove(node);
        sm_list_add(head, node);
    }
}
