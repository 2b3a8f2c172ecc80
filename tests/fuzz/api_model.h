/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The API target's model of a world of one: what is allocated, captured, signaled and poisoned. It
 * predicts the status of a call where it knows enough.
 */
#ifndef SYMMEM_TESTS_API_MODEL_H
#define SYMMEM_TESTS_API_MODEL_H

#include "fuzz.h"

#define SLOTS 4
#define CHANNELS 4
#define PLAIN_MAX 65536u /* larger allocations only of sizes that no machine has */

typedef struct model_memory {
    char *ptr; /* NULL: free slot */
    size_t bytes, pad;
    uint64_t id; /* persistent, if not 0 */
    bool active; /* persistent and freed: false */
    bool pooled;
    unsigned char *shadow; /* what it must hold; NULL: unknown, work on streams has written */
    bool met;              /* there is a handle's state, see below */
    bool pending[CHANNELS];
    bool poisoned;
    bool vague; /* signals on streams: pending and poisoned are unknown */
} model_memory;

typedef struct model_handle {
    symmem_handle *handle;
    int memory; /* slot; -1: that was freed meanwhile */
    size_t offset, block_bytes, pad;
} model_handle;

typedef struct model {
    fuzz_input *in;
    symmem_context *context;
    symmem_group *group;
    symmem_pool *pool;
    model_memory memory[SLOTS];
    model_handle handles[SLOTS];
    symmem_stream *streams[2];
    bool forked;   /* events have joined streams into a capture: who captures is unknown */
    int capturing; /* stream that began a capture, or -1 */
    symmem_event *events[2];
    symmem_graph *graph;
    DLManagedTensor *tensor;
    size_t pad; /* for later allocations */
    bool finalized;
    char foreign[64];
} model;

/* The status must be `expected`, or, where that is a failure too, the record must be in order. */
#define EXPECT(call, expected) model_expect((call), (expected), __LINE__)
void model_expect(symmem_status status, symmem_status expected, int line);
/* The slot of live memory that covers ptr, or -1. */
int model_find(const model *m, const void *ptr);
bool model_captures(const model *m);
/* [offset, offset + bytes) of a handle: OK, OVERFLOW or OUT_OF_RANGE. */
symmem_status model_bounds(const model_handle *handle, size_t offset, size_t bytes);
/* A pointer that may be a base, interior, one past the end, foreign or NULL. */
void *model_any_pointer(model *m);
/* Work on streams may have written anywhere. */
void model_forget_contents(model *m);
void model_check_contents(const model *m);
void model_drop_memory(model *m, int slot);

/* The calls: api_memory.c, api_streams.c. Each takes its arguments from the input. */
void call_alloc(model *m);
void call_free(model *m);
void call_query(model *m);
void call_pad_size(model *m);
void call_pool(model *m);
void call_rendezvous(model *m);
void call_handle(model *m);
void call_transfer(model *m);
void call_view(model *m);
void call_signal(model *m);
void call_stream(model *m);
void call_event(model *m);
void call_capture(model *m);

#endif
