/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Graphs: the branches of a capture. A launch pushes fresh copies of branch 0 into the launching
 * stream and of the others into streams of the graph, with fresh marks for the edges between them.
 */
#include <stdlib.h>

#include "graph.h"
#include "capture.h"
#include "error.h"
#include "event.h"
#include "op.h"
#include "stream.h"

typedef struct shm_graph {
    shm_instance *instance;
    /* ended; only the branches matter, their streams belong to the graph now */
    shm_capture *capture;
    shm_mark *last; /* the end of the previous launch; launches are serialized */
} shm_graph;

/* A copy of one branch, not yet enqueued. */
typedef struct shm_chain {
    shm_op *first;
    shm_op *last;
    uint64_t count;
} shm_chain;

static void destroy_streams(shm_instance *instance, shm_capture *capture) {
    for (int32_t i = 1; i < capture->branch_count; i++)
        if (capture->branches[i].stream)
            shm_stream_destroy(instance, capture->branches[i].stream);
}

symmem_status shm_graph_create(shm_instance *instance, int32_t device, shm_capture *capture,
                               void **graph_p) {
    for (int32_t i = 0; i < capture->branch_count; i++)
        capture->branches[i].stream = NULL;
    symmem_status made = shm_failpoint(instance->host, "shm.graph.create");
    if (made != SYMMEM_OK)
        return made;
    shm_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return shm_out_of_memory(instance->host, "stream_end_capture");
    for (int32_t i = 1; i < capture->branch_count; i++) {
        void *stream;
        symmem_status status = shm_stream_create(instance, device, &stream);
        if (status != SYMMEM_OK) {
            destroy_streams(instance, capture);
            free(graph);
            return status;
        }
        capture->branches[i].stream = stream;
    }
    graph->instance = instance;
    graph->capture = capture;
    *graph_p = graph;
    return SYMMEM_OK;
}

static void append(shm_chain *chain, shm_op *op) {
    if (chain->last)
        chain->last->next = op;
    else
        chain->first = op;
    chain->last = op;
    chain->count++;
}

static bool append_event(shm_chain *chain, shm_graph *graph, shm_mark *mark,
                         symmem_status (*run)(const shm_op *, symmem_error_record *)) {
    shm_op event = {.run = run, .instance = graph->instance, .mark = mark};
    shm_op *op = shm_op_clone(&event);
    if (op)
        append(chain, op);
    return op != NULL;
}

/* Copies a branch. marks[record] replaces the capture's own mark. */
static bool copy_branch(const shm_branch *branch, shm_stream *report, shm_mark **marks,
                        shm_chain *chain) {
    for (const shm_op *op = branch->first; op; op = op->next) {
        shm_op *copy = shm_op_clone(op);
        if (!copy)
            return false;
        append(chain, copy);
        copy->report = report;
        if (!copy->mark)
            continue;
        shm_mark_release(copy->mark);
        copy->mark = shm_mark_retain(marks[op->mark->record]);
    }
    return true;
}

static bool create_marks(shm_mark **marks, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (!(marks[i] = shm_mark_create()))
            return false;
    return true;
}

/* Builds a whole launch before anything is enqueued. */
static bool build(shm_graph *graph, shm_stream *stream, shm_mark **marks, shm_mark *end,
                  shm_chain *chains) {
    const shm_capture *capture = graph->capture;
    if (!create_marks(marks, capture->record_count))
        return false;
    /* The core serializes launches, so `last` does not change meanwhile. */
    if (graph->last && !append_event(&chains[0], graph, graph->last, shm_run_wait))
        return false;
    for (int32_t i = 0; i < capture->branch_count; i++)
        if (!copy_branch(&capture->branches[i], stream, marks, &chains[i]))
            return false;
    return append_event(&chains[0], graph, end, shm_run_record);
}

/* Returns false if the stream captures. */
static bool enqueue(shm_graph *graph, shm_stream *stream, shm_chain *chains) {
    bool allowed;
    pthread_mutex_lock(&graph->instance->lock);
    allowed = stream->capture == NULL;
    for (int32_t i = 0; allowed && i < graph->capture->branch_count; i++) {
        shm_stream *target = i == 0 ? stream : graph->capture->branches[i].stream;
        shm_stream_push(target, chains[i].first, chains[i].last, chains[i].count);
    }
    pthread_mutex_unlock(&graph->instance->lock);
    return allowed;
}

static symmem_status launch(shm_graph *graph, shm_stream *stream, shm_mark **marks,
                            shm_chain *chains) {
    const symmem_host *host = graph->instance->host;
    symmem_status status = shm_failpoint(host, "shm.graph.launch");
    if (status != SYMMEM_OK)
        return status;
    shm_mark *end = shm_mark_create();
    if (!end || !build(graph, stream, marks, end, chains)) {
        shm_mark_release(end);
        return shm_out_of_memory(host, "graph_launch");
    }
    status = shm_failpoint(host, "shm.graph.built");
    if (status != SYMMEM_OK) {
        shm_mark_release(end);
        return status;
    }
    if (!enqueue(graph, stream, chains)) {
        shm_mark_release(end);
        return host->fail(host, SYMMEM_CAPTURE, 0, "graph_launch", "the stream captures");
    }
    shm_mark_release(graph->last);
    graph->last = end;
    return SYMMEM_OK;
}

symmem_status shm_graph_launch(void *instance, void *graph, void *stream) {
    shm_instance *self = instance;
    shm_graph *launched = graph;
    int32_t branch_count = launched->capture->branch_count;
    int32_t record_count = launched->capture->record_count;
    shm_mark **marks = calloc((size_t)record_count + 1, sizeof(shm_mark *));
    shm_chain *chains = calloc((size_t)branch_count, sizeof *chains);
    symmem_status status = marks && chains ? launch(launched, stream, marks, chains)
                                           : shm_out_of_memory(self->host, "graph_launch");
    if (chains && status != SYMMEM_OK)
        for (int32_t i = 0; i < branch_count; i++)
            shm_op_free_list(chains[i].first);
    if (marks)
        for (int32_t i = 0; i < record_count; i++)
            shm_mark_release(marks[i]);
    free(chains);
    free(marks);
    return status;
}

void shm_graph_destroy(void *instance, void *graph) {
    shm_graph *self = graph;
    shm_failpoint_notify(((shm_instance *)instance)->host, "shm.graph.destroy*");
    destroy_streams(instance, self->capture);
    for (int32_t i = 0; i < self->capture->branch_count; i++)
        shm_op_free_list(self->capture->branches[i].first);
    free(self->capture->branches);
    free(self->capture);
    shm_mark_release(self->last);
    free(self);
}
