/* SPDX-License-Identifier: BSD-3-Clause */
/* The second stream of an operation beside the caller's. Each stream has its own. */
#include "stream/stream.h"
#include "stream/second_stream.h"
#include "backend/instance.h"
#include "backend/query.h"

#include <stdlib.h>

/* Returns the stream's second stream, or one whose first stream was destroyed and which it takes
 * over. context->lock held. */
static symmem_stream *find_second(symmem_context *context, const symmem_stream *first) {
    sm_second_stream *found = NULL;
    for (sm_second_stream *second = context->second_streams; second != NULL; second = second->next)
        if (second->first == first ||
            (second->first == NULL && second->stream->device == first->device)) {
            found = second;
            if (second->first == first)
                break;
        }
    if (found == NULL)
        return NULL;
    found->first = first;
    return found->stream;
}

/* Keeps a new stream, unless another thread was faster. The context owns the shell, so the shell
 * must not count as a user of the context. */
static symmem_stream *keep_second(symmem_context *context, sm_second_stream *second) {
    pthread_mutex_lock(&context->lock);
    symmem_stream *found = find_second(context, second->first);
    if (found == NULL) {
        second->next = context->second_streams;
        context->second_streams = second;
    }
    pthread_mutex_unlock(&context->lock);
    if (found == NULL)
        sm_context_release(context);
    return found;
}

symmem_status sm_second_stream_get(symmem_context *context, const symmem_stream *first,
                                   const symmem_stream **stream_p) {
    pthread_mutex_lock(&context->lock);
    *stream_p = find_second(context, first);
    pthread_mutex_unlock(&context->lock);
    if (*stream_p != NULL)
        return SYMMEM_OK;
    sm_second_stream *second = calloc(1, sizeof *second);
    if (second == NULL)
        return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, "stream_create", "", "no memory");
    second->first = first;
    symmem_status status = symmem_stream_create(context, first->device, &second->stream);
    if (status != SYMMEM_OK) {
        free(second);
        return status;
    }
    symmem_stream *found = keep_second(context, second);
    *stream_p = second->stream;
    if (found != NULL) {
        *stream_p = found;
        status = symmem_stream_destroy(second->stream);
        free(second);
    }
    return status;
}

/* Takes the second stream out of the list. context->lock held. */
static symmem_stream *take_second(symmem_context *context, const symmem_stream *first) {
    sm_second_stream **link = &context->second_streams;
    while (*link != NULL && (*link)->first != first)
        link = &(*link)->next;
    sm_second_stream *second = *link;
    if (second == NULL)
        return NULL;
    *link = second->next;
    symmem_stream *stream = second->stream;
    free(second);
    return stream;
}

void sm_second_stream_leave(symmem_context *context, const symmem_stream *first, bool at_rest) {
    symmem_stream *busy = NULL;
    pthread_mutex_lock(&context->lock);
    if (!at_rest)
        busy = take_second(context, first);
    for (sm_second_stream *second = context->second_streams; second != NULL; second = second->next)
        if (second->first == first)
            second->first = NULL;
    pthread_mutex_unlock(&context->lock);
    if (busy != NULL)
        sm_stream_give_up(busy);
}

void sm_second_streams_free(symmem_context *context) {
    while (context->second_streams != NULL) {
        sm_second_stream *second = context->second_streams;
        context->second_streams = second->next;
        free(second->stream); /* ended by finalize */
        free(second);
    }
}
