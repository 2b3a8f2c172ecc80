/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Capture. Each stream that takes part records one branch of operations. Waits for events are the
 * only edges between branches. Every branch but the origin's begins with one.
 */
#include <stdlib.h>

#include "capture.h"
#include "error.h"
#include "event.h"
#include "graph.h"
#include "op.h"
#include "stream.h"

void shm_capture_append_locked(shm_stream *stream, shm_op *op) {
    shm_capture *capture = stream->capture;
    shm_branch *branch = &capture->branches[stream->branch];
    if (op->run == shm_run_record) {
        op->mark->capture_id = capture->id;
        op->mark->branch = stream->branch;
        op->mark->index = branch->count;
        op->mark->record = capture->record_count++;
    }
    if (branch->last)
        branch->last->next = op;
    else
        branch->first = op;
    branch->last = op;
    branch->count++;
}

/* Adds a branch for `stream`. */
static bool add_branch(shm_capture *capture, shm_stream *stream) {
    size_t count = (size_t)capture->branch_count + 1;
    shm_branch *branches = realloc(capture->branches, count * sizeof *branches);
    if (!branches)
        return false;
    capture->branches = branches;
    branches[capture->branch_count] = (shm_branch){.stream = stream};
    stream->capture = capture;
    stream->branch = capture->branch_count++;
    return true;
}

symmem_status shm_capture_join_locked(shm_stream *stream, uint64_t id) {
    shm_capture *capture = stream->instance->captures;
    while (capture && capture->id != id)
        capture = capture->next;
    if (!capture)
        return SYMMEM_CAPTURE;
    return add_branch(capture, stream) ? SYMMEM_OK : SYMMEM_OUT_OF_MEMORY;
}

/* The streams run again. No other thread can see the capture any more. */
static void end_locked(shm_instance *instance, shm_capture *capture) {
    shm_capture **link = &instance->captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    for (int32_t i = 0; i < capture->branch_count; i++)
        if (capture->branches[i].stream)
            capture->branches[i].stream->capture = NULL;
}

static void discard(shm_capture *capture) {
    for (int32_t i = 0; i < capture->branch_count; i++)
        shm_op_free_list(capture->branches[i].first);
    free(capture->branches);
    free(capture);
}

void shm_capture_abandon(shm_stream *stream) {
    pthread_mutex_lock(&stream->instance->lock);
    shm_capture *capture = stream->capture;
    bool origin = capture && stream->branch == 0;
    if (origin) {
        end_locked(stream->instance, capture);
    } else if (capture) {
        capture->branches[stream->branch].stream = NULL;
        capture->broken = true;
        stream->capture = NULL;
    }
    pthread_mutex_unlock(&stream->instance->lock);
    if (origin)
        discard(capture);
}

symmem_status shm_capture_begin(void *instance, void *stream) {
    shm_instance *self = instance;
    shm_stream *origin = stream;
    symmem_status status = shm_failpoint(self->host, "shm.capture.begin");
    if (status != SYMMEM_OK)
        return status;
    shm_capture *capture = calloc(1, sizeof *capture);
    if (!capture)
        return shm_out_of_memory(self->host, "stream_begin_capture");
    pthread_mutex_lock(&self->lock);
    if (origin->capture)
        status = SYMMEM_CAPTURE;
    else if (!add_branch(capture, origin))
        status = SYMMEM_OUT_OF_MEMORY;
    if (status == SYMMEM_OK) {
        capture->id = ++self->last_capture_id;
        capture->next = self->captures;
        self->captures = capture;
    }
    pthread_mutex_unlock(&self->lock);
    if (status == SYMMEM_OK)
        return status;
    free(capture);
    return self->host->fail(self->host, status, 0, "stream_begin_capture",
                            status == SYMMEM_CAPTURE ? "the stream captures already"
                                                     : "out of host memory");
}

/* Returns whether the origin branch waits for every operation, directly or through other branches.
 * `reached` has one entry for each branch, the number of its operations that are waited for. */
static bool is_joined(const shm_capture *capture, int32_t *reached) {
    reached[0] = capture->branches[0].count;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = 0; i < capture->branch_count; i++) {
            const shm_op *op = capture->branches[i].first;
            for (int32_t k = 0; k < reached[i]; k++, op = op->next) {
                if (op->run != shm_run_wait || reached[op->mark->branch] > op->mark->index)
                    continue;
                reached[op->mark->branch] = op->mark->index + 1;
                changed = true;
            }
        }
    }
    for (int32_t i = 0; i < capture->branch_count; i++) {
        const shm_op *op = capture->branches[i].first;
        for (int32_t k = 0; op; k++, op = op->next)
            if (k >= reached[i] && op->run != shm_run_record)
                return false;
    }
    return true;
}

static symmem_status check_capture(shm_instance *self, const shm_capture *capture, bool origin) {
    const symmem_host *host = self->host;
    if (!origin)
        return host->fail(host, SYMMEM_CAPTURE, 0, "stream_end_capture",
                          "another stream began the capture");
    if (capture->broken)
        return host->fail(host, SYMMEM_CAPTURE, 0, "stream_end_capture",
                          "a stream of the capture was destroyed");
    int32_t *reached = calloc((size_t)capture->branch_count, sizeof *reached);
    if (!reached)
        return shm_out_of_memory(host, "stream_end_capture");
    bool joined = is_joined(capture, reached);
    free(reached);
    if (!joined)
        return host->fail(host, SYMMEM_CAPTURE, 0, "stream_end_capture",
                          "work of a forked stream was not joined back");
    return SYMMEM_OK;
}

symmem_status shm_capture_end(void *instance, void *stream, void **graph_p) {
    shm_instance *self = instance;
    shm_stream *ended = stream;
    pthread_mutex_lock(&self->lock);
    shm_capture *capture = ended->capture;
    bool origin = ended->branch == 0;
    if (capture)
        end_locked(self, capture);
    pthread_mutex_unlock(&self->lock);
    if (!capture)
        return self->host->fail(self->host, SYMMEM_CAPTURE, 0, "stream_end_capture",
                                "the stream does not capture");
    symmem_status status = check_capture(self, capture, origin);
    if (status == SYMMEM_OK)
        status = shm_graph_create(self, ended->device, capture, graph_p);
    if (status != SYMMEM_OK)
        discard(capture);
    return status;
}

symmem_status shm_capture_id(void *instance, void *stream, uint64_t *id_p) {
    shm_instance *self = instance;
    shm_stream *asked = stream;
    pthread_mutex_lock(&self->lock);
    *id_p = asked->capture ? asked->capture->id : 0;
    pthread_mutex_unlock(&self->lock);
    return SYMMEM_OK;
}
