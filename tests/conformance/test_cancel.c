/* SPDX-License-Identifier: BSD-3-Clause */
/* What holds for calls one by one: a thread that is canceled in one gets its result first, and
 * needs little stack. */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "case_help.h"
#include <symmem/ops.h>

#ifndef SYMMEM_INSTRUMENTED
#define SYMMEM_INSTRUMENTED 0
#endif

#define BLOCK_BYTES (1 << 20)

/* What the calls work on; one makes what later ones use. */
struct works {
    struct tk *t;
    symmem_store *store;
    symmem_context *context;
    symmem_group *group;
    symmem_handle *handle;
    symmem_pool *pool;
    symmem_stream *stream;
    symmem_event *event;
    void *memory, *block;
    int fd; /* what was passed */
    char path[4096];
};

/* One call as a function of what it works on. */
#define CALL(name_, ...)                                                                           \
    static symmem_status name_(struct works *w) {                                                  \
        return symmem_##__VA_ARGS__;                                                               \
    }
CALL(open_store, store_open_file(w->path, &w->store))
CALL(set_key, store_set(w->store, w->t->rank == 0 ? "zero" : "other", "x", 1, LONG_MS))
CALL(wait_for_key, store_wait(w->store, "zero", LONG_MS))
CALL(get_key, store_get(w->store, "zero", (char[4]){""}, 4, &(size_t){0}, LONG_MS))
CALL(add_key, store_add(w->store, "count", 1, &(int64_t){0}, LONG_MS))
CALL(remove_key, store_remove(w->store, "absent", LONG_MS))
CALL(create_group, group_create(w->context, "canceled", NULL, 0, NULL, &w->group))
CALL(group_barrier, group_barrier(w->group, LONG_MS))
CALL(pass_descriptor, group_broadcast_fds(w->group, 0, STDIN_FILENO, &w->fd, LONG_MS))
CALL(allocate, alloc(w->context, BLOCK_BYTES, -1, NULL, &w->memory))
CALL(rendezvous, rendezvous(w->context, w->memory, w->group, LONG_MS, &w->handle))
CALL(barrier, barrier(w->handle, 0, LONG_MS, NULL))
CALL(put_signal, put_signal(w->handle, w->t->next, 0, LONG_MS, NULL))
CALL(wait_signal, wait_signal(w->handle, w->t->previous, 0, LONG_MS, NULL))
CALL(put_with_signal, put_with_signal(w->handle, w->t->next, 0, "x", 1, 1, LONG_MS, NULL))
CALL(wait_for_put, wait_signal(w->handle, w->t->previous, 1, LONG_MS, NULL))
CALL(put, put(w->handle, w->t->next, 0, "x", 1, NULL))
CALL(get, get(w->handle, w->t->next, 0, &(char){0}, 1, NULL))
CALL(reset, handle_reset(w->handle, LONG_MS))
CALL(synchronize_event, event_synchronize(w->event, LONG_MS))
CALL(synchronize_stream, stream_synchronize(w->stream, LONG_MS))
CALL(destroy_group, group_destroy(w->group))
CALL(finalize, finalize(w->context))
#undef CALL

static symmem_status init(struct works *w) {
    symmem_context_options options = tk_options(w->t);
    options.store = w->store;
    symmem_status status = symmem_init(&options, &w->context);
    return status == SYMMEM_OK ? symmem_join(w->context, NULL, LONG_MS) : status;
}

/* Words of this rank's buffer from `first` on. */
static symmem_status words_at(const struct works *w, int64_t first, int64_t count,
                              DLManagedTensor **made_p) {
    return symmem_get_buffer(w->handle, w->t->rank, 1, &count, SYMMEM_INT32, first, made_p);
}

static void let_go(DLManagedTensor *tensor) {
    if (tensor != NULL)
        tensor->deleter(tensor);
}

/* What a tensor's deleter does is a call, too. */
static symmem_status view(struct works *w) {
    DLManagedTensor *made = NULL;
    symmem_status status = words_at(w, 0, 16, &made);
    let_go(made);
    return status;
}

static symmem_status reduce(struct works *w) {
    DLManagedTensor *in = NULL, *made = NULL;
    symmem_status status = words_at(w, 0, 16, &in);
    if (status == SYMMEM_OK)
        status = symmem_one_shot_all_reduce(w->handle, &in->dl_tensor, SYMMEM_SUM, 0, LONG_MS, NULL,
                                            &made);
    let_go(in);
    let_go(made);
    return status;
}

/* Where the block has a multicast address; on the ranks of some devices it has none. */
static symmem_status gather_by_multicast(struct works *w) {
    symmem_handle_info info;
    const int64_t all = 16 * w->t->world_size;
    DLManagedTensor *in = NULL, *out = NULL;
    symmem_status status = symmem_handle_get_info(w->handle, &info);
    if (status != SYMMEM_OK || info.multicast_ptr == NULL)
        return status;
    status = words_at(w, 0, all, &out);
    if (status == SYMMEM_OK)
        status = words_at(w, all, 16, &in);
    if (status == SYMMEM_OK)
        status = symmem_low_contention_all_gather_ce_multicast_out(
            w->handle, &in->dl_tensor, &out->dl_tensor, 0, LONG_MS, NULL);
    let_go(in);
    let_go(out);
    return status;
}

/* The same into memory of its own. */
static symmem_status gather_into_new_memory(struct works *w) {
    symmem_handle_info info;
    DLManagedTensor *in = NULL, *made = NULL;
    symmem_status status = symmem_handle_get_info(w->handle, &info);
    if (status != SYMMEM_OK || info.multicast_ptr == NULL)
        return status;
    status = words_at(w, 0, 16, &in);
    if (status == SYMMEM_OK)
        status = symmem_low_contention_all_gather_ce_multicast(w->handle, &in->dl_tensor, 0,
                                                               LONG_MS, NULL, &made);
    let_go(in);
    let_go(made);
    return status;
}

/* Words of this rank's buffer; the first `count` of the second half, if `second`. */
static DLTensor words_of(const struct works *w, int64_t *count, bool second) {
    char *words = w->memory;
    return (DLTensor){.data = words + (second ? BLOCK_BYTES / 2 : 0),
                      .device = {kDLCPU, 0},
                      .ndim = 1,
                      .dtype = {kDLInt, 32, 1},
                      .shape = count};
}

/* A row of them, for the first rank. */
static symmem_status tile_of(struct works *w, int64_t few, int32_t *to) {
    int64_t shape[2] = {1, few};
    DLTensor in = words_of(w, shape, false), out;
    const DLTensor *tiles[1] = {&in};
    const int32_t root = 0;
    in.ndim = 2;
    out = in;
    out.data = to;
    symmem_status status =
        symmem_tile_reduce(w->handle, &in, SYMMEM_SUM, root, &out, 0, LONG_MS, NULL);
    return status == SYMMEM_OK ? symmem_multi_root_tile_reduce(w->handle, 1, tiles, &root,
                                                               SYMMEM_SUM, &out, 0, LONG_MS, NULL)
                               : status;
}

/* A word less of the first rank, and for it. */
static symmem_status uneven_ones(struct works *w, int64_t few, int32_t *from, int32_t *to) {
    size_t counts[4]; /* as many ranks as there are */
    int64_t all = few * w->t->world_size - 1, own = few - (w->t->rank == 0);
    DLTensor in = words_of(w, &all, false), part = words_of(w, &own, false);
    DLTensor out = words_of(w, &all, true), far = part;
    for (int32_t rank = 0; rank < w->t->world_size; rank++)
        counts[rank] = (size_t)few - (rank == 0);
    far.data = from;
    symmem_status status = symmem_all_gather_v(w->handle, &far, counts, &out, 0, LONG_MS, NULL);
    far.data = to;
    if (status != SYMMEM_OK || (w->t->capabilities & SYMMEM_CAP_TILES) == 0)
        return status;
    status = symmem_reduce_scatter_v(w->handle, &in, SYMMEM_SUM, counts, &far, 0, LONG_MS, NULL);
    return status == SYMMEM_OK ? tile_of(w, few, to) : status;
}

/* All other collectives on so many words a rank. */
static symmem_status collectives_on(struct works *w, int64_t few, int32_t *from, int32_t *to) {
    int64_t all = few * w->t->world_size;
    symmem_handle *h = w->handle;
    DLTensor in = words_of(w, &few, false), wide = words_of(w, &all, false), here = in, there = in;
    DLTensor out = words_of(w, &all, true);
    here.data = from;
    there.data = to;
    symmem_status status = symmem_two_shot_all_reduce(h, &in, SYMMEM_SUM, 0, LONG_MS, NULL);
#define THEN(name, ...)                                                                            \
    if (status == SYMMEM_OK)                                                                       \
    status = symmem_##name(h, __VA_ARGS__, 0, LONG_MS, NULL)
    THEN(two_shot_all_reduce_out, &in, SYMMEM_SUM, &there);
    THEN(all_reduce, &here, SYMMEM_MAX, &there);
    THEN(all_reduce, &in, SYMMEM_MAX, &in);
    THEN(one_shot_all_reduce_out, &in, SYMMEM_MIN, &there);
    THEN(one_shot_all_reduce_copy_out, &in, &here, SYMMEM_SUM, &there);
    THEN(reduce_scatter_out, &wide, SYMMEM_SUM, false, &there);
    THEN(low_contention_reduce_scatter, &wide, SYMMEM_SUM, &there);
    THEN(all_gather_out, &in, &out);
    THEN(low_contention_all_gather_out, &in, &out);
    THEN(broadcast, &in, 0);
#undef THEN
    return status == SYMMEM_OK ? uneven_ones(w, few, from, to) : status;
}

/* Sizes for each of their ways. */
static symmem_status collectives(struct works *w) {
    enum { MOST = 6000 };
    int32_t *words = calloc(2 * MOST, sizeof *words);
    symmem_status status = words == NULL ? SYMMEM_OUT_OF_MEMORY : SYMMEM_OK;
    for (int64_t count = 1; status == SYMMEM_OK && count <= MOST; count = 20 * count - 1)
        status = collectives_on(w, count + 1, words, words + MOST);
    free(words);
    return status;
}

static DLTensor floats_of(float *numbers, int32_t ndim, int64_t *shape) {
    return (DLTensor){.data = numbers,
                      .device = {kDLCPU, 0},
                      .ndim = ndim,
                      .dtype = {kDLFloat, 32, 1},
                      .shape = shape};
}

/* Scaled ones, which no library makes. */
static symmem_status products(struct works *w) {
    int64_t world = w->t->world_size, one = 1, a_shape[2] = {world, 40}, b_shape[2] = {40, 8},
            all_shape[2] = {world * world, 8}, part_shape[2] = {1, 8};
    enum { MOST = 8 * 8 * 8 };
    float scale = 1, *a = calloc(3 * MOST, sizeof *a), *b = a + MOST, *results = b + MOST;
    if (a == NULL || world > 8) {
        free(a);
        return a == NULL ? SYMMEM_OUT_OF_MEMORY : SYMMEM_OK;
    }
    const DLTensor left = floats_of(a, 2, a_shape), right = floats_of(b, 2, b_shape),
                   all = floats_of(results, 2, all_shape), part = floats_of(results, 2, part_shape),
                   by = floats_of(&scale, 1, &one), *bs = &right, *scales = &by, *outs = &all;
    symmem_status status = symmem_fused_all_gather_scaled_matmul(
        w->handle, &left, &by, 0, 1, &bs, &scales, NULL, &outs, 0, LONG_MS, NULL, NULL);
    if (status == SYMMEM_OK)
        status = symmem_fused_scaled_matmul_reduce_scatter(
            w->handle, &left, &right, &by, &by, SYMMEM_SUM, 0, &part, 0, LONG_MS, NULL, NULL);
    free(a);
    return status;
}

static symmem_status create_pool(struct works *w) {
    symmem_status status = symmem_pool_create(w->context, -1, 1 << 20, &w->pool);
    return status == SYMMEM_OK ? symmem_pool_alloc(w->pool, 64, &w->block) : status;
}

static symmem_status destroy_pool(struct works *w) {
    symmem_status status = symmem_pool_free(w->pool, w->block);
    return status == SYMMEM_OK ? symmem_pool_destroy(w->pool) : status;
}

static symmem_status create_stream(struct works *w) {
    symmem_status status = symmem_stream_create(w->context, -1, &w->stream);
    return status == SYMMEM_OK ? symmem_event_create(w->context, -1, &w->event) : status;
}

static symmem_status barrier_on_stream(struct works *w) {
    symmem_status status = symmem_barrier(w->handle, 0, LONG_MS, w->stream);
    return status == SYMMEM_OK ? symmem_event_record(w->event, w->stream) : status;
}

static symmem_status destroy_stream(struct works *w) {
    symmem_event_destroy(w->event);
    return symmem_stream_destroy(w->stream);
}

static symmem_status release(struct works *w) {
    symmem_handle_release(w->handle);
    return symmem_free(w->context, w->memory);
}

static symmem_status end(struct works *w) {
    symmem_context_free(w->context);
    symmem_store_close(w->store);
    return SYMMEM_OK;
}

static const struct call {
    const char *name;
    symmem_status (*make)(struct works *w);
    uint64_t needs;
} calls[] = {
    {"store_open_file", open_store, 0},
    {"store_set", set_key, 0},
    {"store_wait", wait_for_key, 0},
    {"store_get", get_key, 0},
    {"store_add", add_key, 0},
    {"store_remove", remove_key, 0},
    {"init", init, 0},
    {"group_create", create_group, 0},
    {"group_barrier", group_barrier, 0},
    {"group_broadcast_fds", pass_descriptor, 0},
    {"alloc", allocate, 0},
    {"rendezvous", rendezvous, 0},
    {"barrier", barrier, 0},
    {"put_signal", put_signal, 0},
    {"wait_signal", wait_signal, 0},
    {"put_with_signal", put_with_signal, SYMMEM_CAP_PASSIVE},
    {"wait_signal", wait_for_put, SYMMEM_CAP_PASSIVE},
    /* PASSIVE: the suite lets the engine of its own context work, not of this one. */
    {"put", put, SYMMEM_CAP_PASSIVE},
    {"get", get, SYMMEM_CAP_PASSIVE},
    {"get_buffer and its deleter", view, 0},
    {"one_shot_all_reduce and its deleter", reduce, SYMMEM_CAP_COLLECTIVES},
    {"low_contention_all_gather_ce_multicast_out", gather_by_multicast, SYMMEM_CAP_MULTICAST},
    {"low_contention_all_gather_ce_multicast", gather_into_new_memory, SYMMEM_CAP_MULTICAST},
    {"pool_alloc", create_pool, SYMMEM_CAP_POOL},
    {"pool_free", destroy_pool, SYMMEM_CAP_POOL},
    {"stream_create", create_stream, SYMMEM_CAP_STREAMS},
    {"barrier on a stream", barrier_on_stream, SYMMEM_CAP_STREAMS},
    {"event_synchronize", synchronize_event, SYMMEM_CAP_STREAMS},
    {"second barrier on a stream", barrier_on_stream, SYMMEM_CAP_STREAMS},
    {"stream_synchronize", synchronize_stream, SYMMEM_CAP_STREAMS},
    {"stream_destroy", destroy_stream, SYMMEM_CAP_STREAMS},
    {"collectives", collectives,
     SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_DIRECT_ACCESS},
    {"scaled products", products, SYMMEM_CAP_MATMUL | SYMMEM_CAP_HOST_ACCESS},
    {"handle_reset", reset, 0},
    {"free", release, 0},
    {"group_destroy", destroy_group, 0},
    {"finalize", finalize, 0},
    {"context_free", end, 0},
};

struct attempt {
    const struct call *call;
    struct works *works;
    symmem_status status;
    bool returned;
};

/* The cancellation is pending when the call begins: the first point in it would end the thread. */
static void *make_canceled(void *arg) {
    struct attempt *attempt = arg;
    int ignored;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ignored);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &ignored);
    attempt->status = attempt->call->make(attempt->works);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ignored);
    attempt->returned = true;
    return NULL;
}

/* --- cancellation ----------------------------------------------------------------------------- */

/* One rank comes late to each, so that the others wait in it. */
TK_TEST(thread_cancel, calls_return_first, "SM-THREAD-07", .ranks = {2, 4}, .timeout_s = 60,
        .flags = TK_WRITES_PADS) {
    struct works works = {.t = t, .fd = -1};
    snprintf(works.path, sizeof works.path, "%s/canceled", t->scratch_dir);
    for (size_t i = 0; i < TK_COUNT(calls); i++) {
        struct attempt attempt = {.call = &calls[i], .works = &works};
        pthread_t thread;
        if ((calls[i].needs & ~t->capabilities) != 0)
            continue;
        tk_checkpoint(t, "%s", calls[i].name);
        tk_out_of_band_barrier(t);
        if (t->rank == (int32_t)(i % (size_t)t->world_size))
            tk_sleep_ms(80);
        TK_REQUIRE(t, pthread_create(&thread, NULL, make_canceled, &attempt) == 0);
        TK_REQUIRE(t, pthread_join(thread, NULL) == 0);
        TK_REQUIRE(t, TK_CHECK_MSG(t, attempt.returned, "%s was canceled", calls[i].name));
        TK_STATUS(t, SYMMEM_OK, attempt.status);
    }
    close(works.fd);
}

/* --- stack ------------------------------------------------------------------------------------ */

#define STACK_BYTES ((size_t)256 << 10)
#define PAINT 0xA5

static void *make(void *arg) {
    struct attempt *attempt = arg;
    if (attempt->call != NULL)
        attempt->status = attempt->call->make(attempt->works);
    return NULL;
}

/* How much of a new thread's stack a call has written to; the thread's own part included. */
static size_t measure(struct tk *t, char *stack, struct attempt *attempt) {
    size_t untouched = 0;
    pthread_attr_t attributes;
    pthread_t thread;
    memset(stack, PAINT, STACK_BYTES);
    TK_REQUIRE(t, pthread_attr_init(&attributes) == 0);
    TK_REQUIRE(t, pthread_attr_setstack(&attributes, stack, STACK_BYTES) == 0);
    TK_REQUIRE(t, pthread_create(&thread, &attributes, make, attempt) == 0);
    pthread_attr_destroy(&attributes);
    TK_REQUIRE(t, pthread_join(thread, NULL) == 0);
    while (untouched < STACK_BYTES && (unsigned char)stack[untouched] == PAINT)
        untouched++;
    return STACK_BYTES - untouched;
}

TK_TEST(thread_stack, calls_need_little, "SM-THREAD-08", .ranks = {2, 4}, .timeout_s = 60,
        .flags = TK_WRITES_PADS) {
    struct works works = {.t = t, .fd = -1};
    if (!is_emulation(t) || SYMMEM_INSTRUMENTED) {
        TK_CHECK_MSG(t, true, "a driver, or a compiler's instruments, need more");
        return;
    }
    char *stack =
        mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TK_REQUIRE(t, stack != MAP_FAILED);
    struct attempt nothing = {.call = NULL};
    const size_t empty = measure(t, stack, &nothing);
    snprintf(works.path, sizeof works.path, "%s/on-a-stack", t->scratch_dir);
    for (size_t i = 0; i < TK_COUNT(calls); i++) {
        struct attempt attempt = {.call = &calls[i], .works = &works};
        if ((calls[i].needs & ~t->capabilities) != 0)
            continue;
        tk_checkpoint(t, "%s", calls[i].name);
        const size_t bytes = measure(t, stack, &attempt) - empty;
        TK_STATUS(t, SYMMEM_OK, attempt.status);
        TK_CHECK_MSG(t, bytes <= SYMMEM_CALL_STACK_BYTES, "%s: %zu bytes of stack", calls[i].name,
                     bytes);
    }
    close(works.fd);
    (void)munmap(stack, STACK_BYTES);
}
