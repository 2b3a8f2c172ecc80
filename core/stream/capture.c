/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose operations a capture holds: links are noted while it lasts, and are then the graph's. */
#include <stdlib.h>

#include "stream/stream.h"

typedef struct sm_captured {
    sm_node node;
    uint64_t capture;
    const sm_link *link; /* to be compared only; the graph keeps what its operations use */
} sm_captured;

/* context->lock held. */
static bool is_noted(const symmem_context *context, uint64_t capture, const sm_link *link) {
    for (sm_node *node = context->captured.next; node != &context->captured; node = node->next) {
        const sm_captured *noted = SM_CONTAINER(node, sm_captured, node);
        if (noted->capture == capture && noted->link == link)
            return true;
    }
    return false;
}

symmem_status sm_capture_note(const sm_link *link, uint64_t capture, const char *operation) {
    symmem_context *context = link->context;
    if (capture == 0)
        return SYMMEM_OK;
    pthread_mutex_lock(&context->lock);
    /* Else it is the program's own, of whose graph the context knows nothing. */
    bool ours = atomic_load_explicit(&context->captures, memory_order_relaxed) > 0;
    bool known = !ours || is_noted(context, capture, link);
    sm_captured *noted = known ? NULL : malloc(sizeof *noted);
    if (noted != NULL) {
        noted->capture = capture;
        noted->link = link;
        sm_list_add(&context->captured, &noted->node);
    }
    pthread_mutex_unlock(&context->lock);
    return known || noted != NULL
               ? SYMMEM_OK
               : sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, operation, "", "no memory");
}

uint64_t sm_capture_of(const symmem_context *context, void *native) {
    uint64_t capture = 0;
    /* Where that fails the capture's end does, too. */
    if (context->backend->capture_id(context->instance, native, &capture) != SYMMEM_OK)
        return 0;
    return capture;
}

void sm_capture_take(symmem_context *context, uint64_t capture, sm_node *links) {
    sm_node nobodys; /* of captures of the program's at the same time */
    sm_list_init(&nobodys);
    pthread_mutex_lock(&context->lock);
    bool last = atomic_fetch_sub_explicit(&context->captures, 1, memory_order_relaxed) == 1;
    for (sm_node *node = context->captured.next, *next; node != &context->captured; node = next) {
        bool own = SM_CONTAINER(node, sm_captured, node)->capture == capture;
        next = node->next;
        if (!own && !last)
            continue;
        sm_list_remove(node);
        sm_list_add(own ? links : &nobodys, node);
    }
    pthread_mutex_unlock(&context->lock);
    sm_capture_forget(&nobodys);
}

void sm_capture_forget(sm_node *links) {
    while (!sm_list_empty(links)) {
        sm_captured *noted = SM_CONTAINER(links->next, sm_captured, node);
        sm_list_remove(&noted->node);
        free(noted);
    }
}

bool sm_capture_has(const sm_node *links, const sm_link *link) {
    for (const sm_node *node = links->next; node != links; node = node->next)
        if (SM_CONTAINER(node, const sm_captured, node)->link == link)
            return true;
    return false;
}
