/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Capturing: one lane of operations for each stream that takes part. Waits for events are the only
 * edges between lanes; a lane other than the origin's begins with one.
 */
#include <stdlib.h>

#include "shm.h"

void shm_capture_append_locked(shm_stream *stream, shm_op *op) {
    shm_capture *capture = stream->capture;
    shm_lane *lane = &capture->lanes[stream->lane];
    if (op->run == shm_run_record) {
        op->mark->capture_id = capture->id;
        op->mark->lane = stream->lane;
        op->mark->index = lane->count;
        op->mark->record = capture->record_count++;
    }
    if (lane->last)
        lane->last->next = op;
    else
        lane->first = op;
    lane->last = op;
    lane->count++;
}

/* A lane for `stream`. */
static bool add_lane(shm_capture *capture, shm_stream *stream) {
    size_t count = (size_t)capture->lane_count + 1;
    shm_lane *lanes = realloc(capture->lanes, count * sizeof *lanes);
    if (!lanes)
        return false;
    capture->lanes = lanes;
    lanes[capture->lane_count] = (shm_lane){.stream = stream};
    stream->capture = capture;
    stream->lane = capture->lane_count++;
    return true;
}

symmem_status shm_capture_join_locked(shm_stream *stream, uint64_t id) {
    shm_capture *capture = stream->instance->captures;
    while (capture && capture->id != id)
        capture = capture->next;
    if (!capture)
        return SYMMEM_CAPTURE;
    return add_lane(capture, stream) ? SYMMEM_OK : SYMMEM_OUT_OF_MEMORY;
}

/* The streams run again; nobody else can see the capture any more. */
static void end_locked(shm_instance *instance, shm_capture *capture) {
    shm_capture **link = &instance->captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    for (int32_t i = 0; i < capture->lane_count; i++)
        if (capture->lanes[i].stream)
            capture->lanes[i].stream->capture = NULL;
}

static void discard(shm_capture *capture) {
    for (int32_t i = 0; i < capture->lane_count; i++)
        shm_op_free_list(capture->lanes[i].first);
    free(capture->lanes);
    free(capture);
}

void shm_capture_abandon(shm_stream *stream) {
    pthread_mutex_lock(&stream->instance->lock);
    shm_capture *capture = stream->capture;
    bool origin = capture && stream->lane == 0;
    if (origin) {
        end_locked(stream->instance, capture);
    } else if (capture) {
        capture->lanes[stream->lane].stream = NULL;
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
    symmem_status status = shm_point(self->host, "shm.capture.begin");
    if (status != SYMMEM_OK)
        return status;
    shm_capture *capture = calloc(1, sizeof *capture);
    if (!capture)
        return shm_out_of_memory(self->host, "stream_begin_capture");
    pthread_mutex_lock(&self->lock);
    if (origin->capture)
        status = SYMMEM_CAPTURE;
    else if (!add_lane(capture, origin))
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

/* Whether every operation is waited for by the origin lane, directly or through other lanes.
 * `reached` has room for one number per lane: how many of its operations are. */
static bool is_joined(const shm_capture *capture, int32_t *reached) {
    reached[0] = capture->lanes[0].count;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = 0; i < capture->lane_count; i++) {
            const shm_op *op = capture->lanes[i].first;
            for (int32_t k = 0; k < reached[i]; k++, op = op->next) {
                if (op->run != shm_run_wait || reached[op->mark->lane] > op->mark->index)
                    continue;
                reached[op->mark->lane] = op->mark->index + 1;
                changed = true;
            }
        }
    }
    for (int32_t i = 0; i < capture->lane_count; i++) {
        const shm_op *op = capture->lanes[i].first;
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
    int32_t *reached = calloc((size_t)capture->lane_count, sizeof *reached);
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
    bool origin = ended->lane == 0;
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
