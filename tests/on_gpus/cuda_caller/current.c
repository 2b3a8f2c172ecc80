/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread with a context of the program's own current, of another device where there is one, and
 * the device's primary one beneath: after every call of the library's, failing ones too, both are
 * there as before, nothing else is, and the thread's capture mode is the program's.
 */

#include "caller.h"

enum { DEPTH = 2, MOST = 8, SIDE = 4 };

struct watch {
    struct caller *c;
    CUcontext stack[DEPTH]; /* from the bottom */
    int calls, bad;
    symmem_context *context; /* a world of one, and all of it */
    symmem_group *group;
    symmem_handle *handle;
    symmem_stream *stream;
    float *memory;
};

static void push(struct watch *w) {
    for (int i = 0; i < DEPTH; i++)
        need_driver(w->c, "a context", w->c->driver.CtxPushCurrent(w->stack[i]));
}

/* Takes all of it down to look, and puts it back as it was. */
static bool is_as_before(struct watch *w) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUcontext current = NULL, popped;
    bool good = true;
    int depth = 0;
    need_driver(w->c, "its mode", w->c->driver.ThreadExchangeStreamCaptureMode(&mode));
    for (; depth < MOST; depth++) {
        need_driver(w->c, "current", w->c->driver.CtxGetCurrent(&current));
        if (current == NULL || w->c->driver.CtxPopCurrent(&popped) != CUDA_SUCCESS)
            break;
        good = good && depth < DEPTH && current == w->stack[DEPTH - 1 - depth];
    }
    push(w);
    return good && depth == DEPTH && mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static void look(struct watch *w, const char *call, bool as_wanted, symmem_status status) {
    const bool untouched = is_as_before(w);
    w->calls++;
    w->bad += !untouched || !as_wanted;
    if (!untouched)
        expect(w->c, call, false, "the thread's contexts are not as before it");
    if (!as_wanted)
        expect(w->c, call, false, "%s", symmem_status_name(status));
}

/* Each is looked after by itself, with the status that it is to have. */
#define GIVES(wanted, call)                                                                        \
    do {                                                                                           \
        const symmem_status status_ = (call);                                                      \
        look(w, #call, status_ == (wanted), status_);                                              \
    } while (0)
#define GOOD(call) GIVES(SYMMEM_OK, call)
#define FAILS(call)                                                                                \
    do {                                                                                           \
        const symmem_status status_ = (call);                                                      \
        look(w, #call, status_ != SYMMEM_OK, status_);                                             \
    } while (0)
#define DONE(call)                                                                                 \
    do {                                                                                           \
        call;                                                                                      \
        look(w, #call, true, SYMMEM_OK);                                                           \
    } while (0)

static void begin(struct watch *w, struct caller *c) {
    *w = (struct watch){.c = c};
    need_driver(c, "current", c->driver.CtxGetCurrent(&w->stack[0]));
    need_driver(c, "a context of the caller's",
                c->driver.CtxCreate(&w->stack[1], 0, (c->device + 1) % c->devices));
}

static void end(struct watch *w, const char *what) {
    expect(w->c, what, w->bad == 0, "%d of %d calls leave the thread's contexts alone",
           w->calls - w->bad, w->calls);
    need_driver(w->c, "its end", w->c->driver.CtxDestroy(w->stack[1]));
}

/* --- a world of one ------------------------------------------------------------------------ */

static void open_world(struct watch *w, symmem_store *store) {
    symmem_context_options options;
    void *memory = NULL, *none = NULL;
    int32_t devices = 0;
    symmem_context_options_init(&options);
    options.store = store;
    options.rank = options.local_rank = 0;
    options.world_size = 1;
    options.backend = backend_wanted();
    options.multicast = 0;
    GOOD(symmem_init(&options, &w->context));
    GOOD(symmem_device_count(w->context, &devices));
    GOOD(symmem_group_create(w->context, "one", NULL, 0, NULL, &w->group));
    GOOD(symmem_alloc(w->context, 4096, w->c->device, NULL, &memory));
    FAILS(symmem_alloc(w->context, (size_t)1 << 50, w->c->device, NULL, &none));
    FAILS(symmem_alloc(w->context, 4096, devices, NULL, &none));
    GOOD(symmem_rendezvous(w->context, memory, w->group, LIMIT_MS, &w->handle));
    w->memory = memory;
}

static void close_world(struct watch *w) {
    DONE(symmem_handle_release(w->handle));
    GOOD(symmem_free(w->context, w->memory));
    GOOD(symmem_group_destroy(w->group));
    GOOD(symmem_finalize(w->context));
    DONE(symmem_context_free(w->context));
}

/* Everything that takes a stream, with one and without. */
static void operations(struct watch *w, symmem_stream *stream) {
    struct vector in, out;
    float values[4] = {1, 2, 3, 4};
    GOOD(symmem_copy(w->context, w->memory, values, sizeof values, stream));
    GOOD(symmem_put(w->handle, 0, 64, values, sizeof values, stream));
    GOOD(symmem_barrier(w->handle, 0, LIMIT_MS, stream));
    GOOD(symmem_put_signal(w->handle, 0, 1, LIMIT_MS, stream));
    GOOD(symmem_wait_signal(w->handle, 0, 1, LIMIT_MS, stream));
    GOOD(symmem_one_shot_all_reduce_out(w->handle, vector(&in, w->memory, 4), SYMMEM_SUM,
                                        vector(&out, w->memory + 512, 4), 2, LIMIT_MS, stream));
    GOOD(symmem_get(w->handle, 0, 2048, values, sizeof values, stream));
    FAILS(symmem_put(w->handle, 0, 4090, values, sizeof values, stream));
    FAILS(symmem_barrier(w->handle, -1, LIMIT_MS, stream));
    FAILS(symmem_one_shot_all_reduce_out(w->handle, vector(&in, w->memory, 4), SYMMEM_SUM,
                                         vector(&out, w->memory + 512, 3), 2, LIMIT_MS, stream));
    if (stream != NULL)
        GOOD(symmem_stream_synchronize(stream, LIMIT_MS));
}

static const DLTensor *square(struct vector *tensor, float *data) {
    (void)vector(tensor, data, SIDE);
    tensor->shape[1] = SIDE;
    tensor->dl.ndim = 2;
    return &tensor->dl;
}

/* A fill, and a product whose second chunk does not come at once. */
static void products(struct watch *w, symmem_stream *stream) {
    struct vector words, a, b, out;
    (void)vector(&words, w->memory + 256, 2);
    words.dl.dtype.code = kDLUInt;
    words.dl.device = (DLDevice){kDLCUDA, w->c->device};
    for (int count = 1; count <= 2; count++) {
        const symmem_status wanted = count == 1 ? SYMMEM_TIMEOUT : SYMMEM_OK;
        const uint32_t limit_ms = count == 1 ? 50 : LIMIT_MS;
        GOOD(symmem_memset32(w->context, &words.dl, 0, 0, 2, stream));
        GOOD(symmem_memset32(w->context, &words.dl, 0, 1, count, stream));
        GIVES(stream == NULL ? wanted : SYMMEM_OK,
              symmem_async_input_mm(w->context, square(&a, w->memory), square(&b, w->memory + 32),
                                    &words.dl, 0, square(&out, w->memory + 64), limit_ms, stream));
        if (stream != NULL)
            GIVES(wanted, symmem_stream_synchronize(stream, LIMIT_MS));
    }
}

/* A limit that is over, what follows from it, and the reset. */
static void expiry(struct watch *w, symmem_stream *stream) {
    GIVES(stream == NULL ? SYMMEM_TIMEOUT : SYMMEM_OK,
          symmem_wait_signal(w->handle, 0, 3, 30, stream));
    if (stream != NULL)
        GIVES(SYMMEM_TIMEOUT, symmem_stream_synchronize(stream, LIMIT_MS));
    GIVES(SYMMEM_TIMEOUT, symmem_handle_status(w->handle, NULL));
    GIVES(SYMMEM_POISONED, symmem_barrier(w->handle, 0, LIMIT_MS, stream));
    GOOD(symmem_handle_reset(w->handle, LIMIT_MS));
}

static void events(struct watch *w) {
    symmem_event *event = NULL;
    bool reached = false;
    GOOD(symmem_event_create(w->context, w->c->device, &event));
    GOOD(symmem_event_record(event, w->stream));
    GOOD(symmem_stream_wait_event(w->stream, event));
    GOOD(symmem_event_synchronize(event, LIMIT_MS));
    GOOD(symmem_event_query(event, &reached));
    if (w->c->driver.is_fake) {
        w->c->driver.fail_calls("cuEventQuery", 0, 1, CUDA_ERROR_UNKNOWN);
        FAILS(symmem_event_query(event, &reached));
    }
    GOOD(symmem_wait_signal(w->handle, 0, 4, 1000, w->stream));
    GOOD(symmem_event_record(event, w->stream));
    GIVES(SYMMEM_TIMEOUT, symmem_event_synchronize(event, 20));
    GIVES(SYMMEM_TIMEOUT, symmem_stream_synchronize(w->stream, 20));
    GIVES(SYMMEM_TIMEOUT, symmem_stream_synchronize(w->stream, LIMIT_MS));
    GOOD(symmem_handle_reset(w->handle, LIMIT_MS));
    DONE(symmem_event_destroy(event));
}

static void graphs(struct watch *w) {
    symmem_graph *graph = NULL;
    bool capturing = false;
    float value = 1;
    GIVES(SYMMEM_CAPTURE, symmem_stream_end_capture(w->stream, &graph));
    GOOD(symmem_stream_begin_capture(w->stream));
    GOOD(symmem_put(w->handle, 0, 0, &value, sizeof value, w->stream));
    GOOD(symmem_wait_signal(w->handle, 0, 5, 30, w->stream));
    GIVES(SYMMEM_CAPTURE, symmem_stream_synchronize(w->stream, LIMIT_MS));
    GOOD(symmem_stream_is_capturing(w->stream, &capturing));
    GOOD(symmem_stream_end_capture(w->stream, &graph));
    GOOD(symmem_graph_launch(graph, w->stream));
    GIVES(SYMMEM_TIMEOUT, symmem_stream_synchronize(w->stream, LIMIT_MS));
    GOOD(symmem_handle_reset(w->handle, LIMIT_MS));
    GOOD(symmem_put_signal(w->handle, 0, 5, LIMIT_MS, NULL));
    GOOD(symmem_graph_launch(graph, w->stream));
    GOOD(symmem_stream_synchronize(w->stream, LIMIT_MS));
    GOOD(symmem_graph_destroy(graph));
}

static void nothing(void *unused) {
    (void)unused;
}

static void streams(struct watch *w) {
    symmem_stream *busy = NULL;
    bool idle = false;
    GOOD(symmem_stream_create(w->context, w->c->device, &w->stream));
    operations(w, w->stream);
    products(w, w->stream);
    expiry(w, w->stream);
    events(w);
    graphs(w);
    GOOD(symmem_stream_host_fn(w->stream, nothing, NULL));
    GOOD(symmem_stream_query(w->stream, &idle));
    GOOD(symmem_stream_destroy(w->stream));
    GOOD(symmem_stream_wrap(w->context, w->c->device, w->c->native, &busy));
    GOOD(symmem_wait_signal(w->handle, 0, 6, 30, busy));
    GIVES(SYMMEM_TIMEOUT, symmem_stream_destroy(busy));
    GOOD(symmem_handle_reset(w->handle, LIMIT_MS));
}

static void world_of_one(struct watch *w) {
    symmem_store *store = NULL;
    need(w->c, "a store", symmem_store_open_memory(&store));
    open_world(w, store);
    operations(w, NULL);
    products(w, NULL);
    expiry(w, NULL);
    streams(w);
    close_world(w);
    symmem_store_close(store);
}

/* --- with others ---------------------------------------------------------------------------- */

/* The last rank does not come. */
static void without_a_rank(struct watch *w) {
    const struct caller *c = w->c;
    host_barrier(w->c);
    GOOD(symmem_barrier(c->handle, 0, LIMIT_MS, NULL));
    GOOD(symmem_barrier(c->handle, 0, LIMIT_MS, c->stream));
    GOOD(symmem_stream_synchronize(c->stream, LIMIT_MS));
    host_barrier(w->c);
    if (c->rank != c->world - 1) {
        FAILS(symmem_barrier(c->handle, 0, 50, NULL));
        GIVES(SYMMEM_POISONED, symmem_barrier(c->handle, 0, 50, c->stream));
    }
    host_barrier(w->c);
    GOOD(symmem_handle_reset(c->handle, LIMIT_MS));
}

void check_current(struct caller *c) {
    struct watch w;
    begin(&w, c);
    world_of_one(&w);
    if (c->world > 1)
        without_a_rank(&w);
    end(&w, "what the thread has current");
}

void check_current_lost(struct caller *c) {
    struct watch watch, *const w = &watch;
    symmem_handle *none = NULL;
    void *memory = NULL;
    begin(w, c);
    GIVES(SYMMEM_POISONED, symmem_barrier(c->handle, 0, LIMIT_MS, NULL));
    GOOD(symmem_alloc(c->context, 4096, c->device, NULL, &memory));
    GIVES(SYMMEM_PEER_LOST, symmem_rendezvous(c->context, memory, c->group, LIMIT_MS, &none));
    GIVES(SYMMEM_PEER_LOST, symmem_group_barrier(c->group, LIMIT_MS));
    GOOD(symmem_free(c->context, memory));
    end(w, "what the thread has current after a loss");
}
