/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations that a capture holds. Their links are noted for the capture while it lasts, and
 * then for its graph. */
#include <stdlib.h>

#include "stream/stream.h"
#include "stream/capture.h"
#include "backend/query.h"

typedef struct sm_captured {
    sm_node node;
    sm_index_node by_link;   /* context->noted */
    uint64_t capture, graph; /* of the graph, or 0 during the capture */
    const sm_link *link;     /* for comparisons only; the graph keeps what its operations use */
} sm_captured;

/* Returns the key of a note: the graph's once there is one, because backends may reuse the numbers
 * of captures while graphs last. */
static uint64_t key_of(const sm_link *link, uint64_t capture, uint64_t graph) {
    return sm_index_key(link, graph != 0 ? ~graph : capture);
}

/* context->lock held. */
static bool is_noted(const symmem_context *context, const sm_link *link, uint64_t capture,
                     uint64_t graph) {
    for (sm_index_node *node = sm_index_first(&context->noted, key_of(link, capture, graph));
         node != NULL; node = sm_index_next(node)) {
        const sm_captured *noted = SM_CONTAINER(node, sm_captured, by_link);
        if (noted->link == link && noted->graph == graph &&
            (graph != 0 || noted->capture == capture))
            return true;
    }
    return false;
}

symmem_status sm_capture_note(const sm_link *link, uint64_t capture, const char *operation) {
    symmem_context *context = link->context;
    if (capture == 0)
        return SYMMEM_OK;
    pthread_mutex_lock(&context->lock);
    /* Otherwise the program began it itself, and the context does not know its graph. */
    bool ours = atomic_load_explicit(&context->captures, memory_order_relaxed) > 0;
    bool known = !ours || is_noted(context, link, capture, 0);
    sm_captured *noted = known ? NULL : malloc(sizeof *noted);
    if (noted != NULL) {
        noted->capture = capture;
        noted->graph = 0;
        noted->link = link;
        sm_list_add(&context->captured, &noted->node);
        sm_index_add(&context->noted, &noted->by_link, key_of(link, capture, 0));
    }
    pthread_mutex_unlock(&context->lock);
    return known || noted != NULL
               ? SYMMEM_OK
               : sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, operation, "", "no memory");
}

uint64_t sm_capture_of(const symmem_context *context, void *native) {
    uint64_t capture = 0;
    /* If this fails, so does the capture's end. */
    if (context->backend->capture_id(context->instance, native, &capture) != SYMMEM_OK)
        return 0;
    return capture;
}

/* Moves a note from the capture to its graph. context->lock held. */
static void pass_on(symmem_context *context, sm_captured *noted, uint64_t graph) {
    sm_index_remove(&context->noted, &noted->by_link);
    noted->graph = graph;
    sm_index_add(&context->noted, &noted->by_link, key_of(noted->link, noted->capture, graph));
}

uint64_t sm_capture_take(symmem_context *context, uint64_t capture, sm_node *links) {
    sm_node nobodys; /* of the program's own captures at the same time */
    sm_list_init(&nobodys);
    pthread_mutex_lock(&context->lock);
    const uint64_t graph = ++context->last_graph;
    bool last = atomic_fetch_sub_explicit(&context->captures, 1, memory_order_relaxed) == 1;
    for (sm_node *node = context->captured.next, *next; node != &context->captured; node = next) {
        sm_captured *noted = SM_CONTAINER(node, sm_captured, node);
        bool own = noted->capture == capture;
        next = node->next;
        if (!own && !last)
            continue;
        sm_list_remove(node);
        sm_list_add(own ? links : &nobodys, node);
        if (own)
            pass_on(context, noted, graph);
    }
    pthread_mutex_unlock(&context->lock);
    sm_capture_forget(context, &nobodys);
    return graph;
}

void sm_capture_forget(symmem_context *context, sm_node *links) {
    pthread_mutex_lock(&context->lock);
    while (!sm_list_empty(links)) {
        sm_captured *noted = SM_CONTAINER(links->next, sm_captured, node);
        sm_list_remove(&noted->node);
        sm_index_remove(&context->noted, &noted->by_link);
        free(noted);
    }
    pthread_mutex_unlock(&context->lock);
}

bool sm_capture_has(symmem_context *context, uint64_t number, const sm_link *link) {
    pthread_mutex_lock(&context->lock);
    const bool has = is_noted(context, link, 0, number);
    pthread_mutex_unlock(&context->lock);
    return has;
}
