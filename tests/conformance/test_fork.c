/* SPDX-License-Identifier: BSD-3-Clause */
/* Children of fork: they leave the parent's objects alone, and may make their own. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "case_help.h"

#ifndef SYMMEM_INSTRUMENTED
#define SYMMEM_INSTRUMENTED 0
#endif

/* --- the parent's objects --------------------------------------------------------------------- */

/* What a rank has at the fork. Streams and what goes with them only where there are any. */
struct family {
    symmem_store *store;
    symmem_context *context;
    symmem_group *group;
    symmem_handle *handle,
        *last; /* the last one has outlived its memory, and alone keeps it mapped */
    symmem_pool *pool;
    symmem_stream *stream;
    symmem_event *event;
    DLManagedTensor *view, *result; /* the second one only where there are collectives */
    void *memory, *const *buffers;
    char socket_dir[64];
};

static bool is_in(const struct sockaddr_un *address, const char *folder) {
    return address->sun_family == AF_UNIX &&
           strncmp(address->sun_path, folder, strlen(folder)) == 0;
}

/* Sockets at an end of which stands a file of that folder. A backend's engine may have others. */
static int count_sockets(const char *folder) {
    DIR *listing = opendir("/proc/self/fd");
    int count = 0;
    for (const struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        struct sockaddr_un own = {0}, peer = {0};
        socklen_t own_bytes = sizeof own - 1, peer_bytes = sizeof peer - 1;
        const int fd = atoi(entry->d_name);
        (void)getsockname(fd, (struct sockaddr *)&own, &own_bytes);
        (void)getpeername(fd, (struct sockaddr *)&peer, &peer_bytes);
        count += is_in(&own, folder) || is_in(&peer, folder);
    }
    if (listing != NULL)
        closedir(listing);
    return count;
}

static void make_tensors(struct tk *t, struct family *f) {
    int64_t words = 16;
    TK_REQUIRE_OK(t, symmem_get_buffer(f->handle, t->rank, 1, &words, SYMMEM_INT32, 0, &f->view));
    if ((t->capabilities & SYMMEM_CAP_COLLECTIVES) != 0)
        TK_REQUIRE_OK(t, symmem_one_shot_all_reduce(f->handle, &f->view->dl_tensor, SYMMEM_SUM, 0,
                                                    LONG_MS, NULL, &f->result));
}

static void begin_family(struct tk *t, struct family *f) {
    symmem_context_options options = tk_options(t);
    char path[4096];
    void *memory = NULL;
    tk_end_context(t);
    tk_short_path(t, "fork", t->rank, f->socket_dir);
    TK_REQUIRE(t, mkdir(f->socket_dir, 0700) == 0);
    snprintf(path, sizeof path, "%s/family", t->scratch_dir);
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &f->store));
    options.store = f->store;
    options.socket_dir = f->socket_dir;
    TK_REQUIRE_OK(t, symmem_init(&options, &f->context));
    TK_REQUIRE_OK(t, symmem_group_create(f->context, "family", NULL, 0, NULL, &f->group));
    TK_REQUIRE_OK(t, symmem_alloc(f->context, 4096, -1, NULL, &f->memory));
    TK_REQUIRE_OK(t, symmem_rendezvous(f->context, f->memory, f->group, LONG_MS, &f->handle));
    TK_REQUIRE_OK(t, symmem_alloc(f->context, 4096, -1, NULL, &memory));
    TK_REQUIRE_OK(t, symmem_rendezvous(f->context, memory, f->group, LONG_MS, &f->last));
    TK_REQUIRE_OK(t, symmem_free(f->context, memory));
    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs(f->last, &f->buffers));
    make_tensors(t, f);
    if ((t->capabilities & SYMMEM_CAP_POOL) != 0)
        TK_REQUIRE_OK(t, symmem_pool_create(f->context, -1, 1 << 20, &f->pool));
    if ((t->capabilities & SYMMEM_CAP_STREAMS) == 0)
        return;
    TK_REQUIRE_OK(t, symmem_stream_create(f->context, -1, &f->stream));
    TK_REQUIRE_OK(t, symmem_event_create(f->context, -1, &f->event));
}

static void use_in_child(struct tk *t, void *arg) {
    struct family *f = arg;
    symmem_handle *handle = f->handle;
    symmem_handle_info info;
    symmem_group *group;
    void *memory;
    char byte = 1;
    int32_t rank;
    size_t bytes;
    TK_EQ_INT(t, 0, count_sockets(f->socket_dir));
    TK_FAILS(t, NOT_INITIALIZED, symmem_context_rank(f->context, &rank));
    TK_EQ_STR(t, "fork", last_record().stage);
    TK_FAILS(t, NOT_INITIALIZED, symmem_alloc(f->context, 64, -1, NULL, &memory));
    TK_FAILS(t, NOT_INITIALIZED, symmem_group_create(f->context, "new", NULL, 0, NULL, &group));
    TK_FAILS(t, NOT_INITIALIZED, symmem_group_barrier(f->group, LONG_MS));
    TK_FAILS(t, NOT_INITIALIZED,
             symmem_rendezvous(f->context, f->memory, f->group, LONG_MS, &handle));
    TK_FAILS(t, NOT_INITIALIZED, symmem_handle_get_info(f->handle, &info));
    TK_FAILS(t, NOT_INITIALIZED, symmem_barrier(f->handle, 0, LONG_MS, NULL));
    TK_FAILS(t, NOT_INITIALIZED, symmem_put(f->handle, t->next, 0, &byte, 1, NULL));
    TK_FAILS(t, NOT_INITIALIZED, symmem_put_signal(f->handle, t->next, 0, LONG_MS, NULL));
    TK_FAILS(t, NOT_INITIALIZED, symmem_handle_reset(f->handle, LONG_MS));
    if (f->pool != NULL)
        TK_FAILS(t, NOT_INITIALIZED, symmem_pool_alloc(f->pool, 64, &memory));
    TK_OK(t, symmem_store_set(f->store, "child", "x", 1, LONG_MS)); /* a store is inherited */
    TK_OK(t, symmem_store_get(f->store, "child", &byte, 1, &bytes, LONG_MS));
    if (f->stream != NULL) {
        TK_FAILS(t, NOT_INITIALIZED, symmem_barrier(f->handle, 0, LONG_MS, f->stream));
        TK_FAILS(t, NOT_INITIALIZED, symmem_stream_synchronize(f->stream, LONG_MS));
        TK_FAILS(t, NOT_INITIALIZED, symmem_event_record(f->event, f->stream));
        TK_FAILS(t, NOT_INITIALIZED, symmem_stream_destroy(f->stream));
        symmem_event_destroy(f->event);
    }
    f->view->deleter(f->view);
    if (f->result != NULL) {
        const volatile char *place = f->result->dl_tensor.data;
        f->result->deleter(f->result);
        if ((t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0)
            TK_EQ_INT(t, 0, place[0]);
    }
    symmem_handle_release(f->handle);
    symmem_handle_release(f->last);
    if ((t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0) /* what is mapped stays so */
        TK_EQ_INT(t, 0, ((const volatile char *)f->buffers[t->next])[4095]);
    if (f->pool != NULL)
        TK_FAILS(t, NOT_INITIALIZED, symmem_pool_destroy(f->pool));
    TK_FAILS(t, NOT_INITIALIZED, symmem_free(f->context, f->memory));
    TK_FAILS(t, NOT_INITIALIZED, symmem_group_destroy(f->group));
    TK_FAILS(t, NOT_INITIALIZED, symmem_finalize(f->context));
    symmem_context_free(f->context);
    symmem_store_close(f->store);
}

/* After a child that has tried all of it, ranks work on, also with a new exchange. */
TK_TEST(fork, child_leaves_the_parents_objects, "SM-THREAD-05", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_FORKS | TK_WRITES_PADS) {
    struct family f = {0};
    symmem_handle *handle = NULL;
    void *memory = NULL;
    begin_family(t, &f);
    TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, use_in_child, &f, LONG_MS));
    TK_OK(t, symmem_barrier(f.handle, 0, LONG_MS, NULL));
    TK_OK(t, symmem_put_signal(f.handle, t->next, 0, LONG_MS, NULL));
    TK_OK(t, symmem_wait_signal(f.handle, t->previous, 0, LONG_MS, NULL));
    TK_OK(t, symmem_alloc(f.context, 8192, -1, NULL, &memory));
    TK_OK(t, symmem_rendezvous(f.context, memory, f.group, LONG_MS, &handle));
    if (f.stream != NULL) {
        TK_OK(t, symmem_barrier(f.handle, 1, LONG_MS, f.stream));
        TK_OK(t, symmem_event_record(f.event, f.stream));
        TK_OK(t, symmem_stream_synchronize(f.stream, LONG_MS));
        symmem_event_destroy(f.event);
        TK_OK(t, symmem_stream_destroy(f.stream));
    }
    f.view->deleter(f.view);
    if (f.result != NULL)
        f.result->deleter(f.result);
    symmem_handle_release(handle);
    symmem_handle_release(f.handle);
    symmem_handle_release(f.last);
    TK_OK(t, symmem_pool_destroy(f.pool));
    tk_out_of_band_barrier(t);
    symmem_context_free(f.context);
    symmem_store_close(f.store);
    TK_CHECK_MSG(t, rmdir(f.socket_dir) == 0, "%s is not empty", f.socket_dir);
}

/* --- its own ---------------------------------------------------------------------------------- */

/* Keeps the locks of library and backend in use. */
struct busy {
    struct tk *t;
    atomic_bool end;
    atomic_int threads;
};

static void *allocate_always(void *arg) {
    struct busy *busy = arg;
    struct tk *t = busy->t;
    char name[16];
    snprintf(name, sizeof name, "alone-%d", atomic_fetch_add(&busy->threads, 1));
    while (!atomic_load(&busy->end)) {
        symmem_group *group = NULL;
        symmem_handle *handle = NULL;
        void *memory = NULL;
        int32_t self = t->rank;
        TK_OK(t, symmem_group_create(t->context, name, &self, 1, NULL, &group));
        TK_OK(t, symmem_alloc(t->context, 4096, -1, NULL, &memory));
        TK_OK(t, symmem_rendezvous(t->context, memory, group, LONG_MS, &handle));
        symmem_handle_release(handle);
        TK_OK(t, symmem_free(t->context, memory));
        TK_OK(t, symmem_group_destroy(group));
    }
    return NULL;
}

static void world_of_its_own(struct tk *t, void *arg) {
    symmem_context_options options = tk_options(t);
    symmem_store *store = NULL;
    (void)arg;
    TK_OK(t, symmem_store_open_memory(&store));
    options.store = store;
    options.rank = 0;
    options.world_size = 1;
    const struct own_world w = own_world_begin(t, &options, 4096);
    TK_OK(t, symmem_barrier(w.handle, 0, LONG_MS, NULL));
    symmem_handle_release(w.handle);
    symmem_context_free(w.context);
    symmem_store_close(store);
}

/* Sanitizers' own allocators do not survive the fork of a busy process. */
enum { MOST_THREADS = SYMMEM_INSTRUMENTED ? 0 : 3, CHILDREN = 24 };

/* Children one after the other, beside `count` threads with those bodies, which go on to `end`. */
static void fork_beside(struct tk *t, void *(*const works[])(void *), int count, void *arg,
                        atomic_bool *end, void (*child)(struct tk *t, void *arg)) {
    pthread_t threads[MOST_THREADS + 1];
    int started = 0;
    for (; started < count && started < MOST_THREADS; started++)
        if (pthread_create(&threads[started], NULL, works[started], arg) != 0)
            break;
    for (int i = 0; i < CHILDREN; i++)
        if (tk_run_child(t, child, arg, LONG_MS) != TK_CHILD_DONE)
            break;
    atomic_store(end, true);
    while (started > 0)
        TK_CHECK(t, pthread_join(threads[--started], NULL) == 0);
}

TK_TEST(fork, child_makes_its_own, "SM-THREAD-06", .max_ranks = 1,
        .flags = TK_PROCESS_ONLY | TK_FORKS, .timeout_s = 60) {
    static void *(*const works[])(void *) = {allocate_always, allocate_always, allocate_always};
    struct busy busy = {.t = t};
    if (!is_emulation(t)) {
        TK_CHECK_MSG(t, true, "a device's driver does not work in a child");
        return;
    }
    fork_beside(t, works, 3, &busy, &busy.end, world_of_its_own);
}

/* --- stores ----------------------------------------------------------------------------------- */

/* Both kinds, which are inherited. */
struct inherited {
    struct tk *t;
    symmem_store *stores[2];
    atomic_bool end;
};

static void *store_always(void *arg) {
    struct inherited *inherited = arg;
    struct tk *t = inherited->t;
    for (int i = 0; !atomic_load(&inherited->end); i = !i) {
        TK_OK(t, symmem_store_set(inherited->stores[i], "always", "x", 1, LONG_MS));
        TK_OK(t, symmem_store_remove(inherited->stores[i], "always", LONG_MS));
    }
    return NULL;
}

static void *wait_always(void *arg) {
    struct inherited *inherited = arg;
    struct tk *t = inherited->t;
    while (!atomic_load(&inherited->end))
        TK_STATUS(t, SYMMEM_TIMEOUT, symmem_store_wait(inherited->stores[0], "never", 20));
    return NULL;
}

static void store_in_child(struct tk *t, void *arg) {
    const struct inherited *inherited = arg;
    char byte = 0;
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        symmem_store *store = inherited->stores[i];
        TK_OK(t, symmem_store_set(store, "child", "y", 1, LONG_MS));
        TK_OK(t, symmem_store_wait(store, "child", LONG_MS));
        TK_OK(t, symmem_store_get(store, "child", &byte, 1, &bytes, LONG_MS));
        TK_CHECK(t, bytes == 1 && byte == 'y');
        symmem_store_close(store);
    }
}

TK_TEST(fork, child_uses_a_busy_store, "SM-LIFE-26", .max_ranks = 1,
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS, .timeout_s = 60) {
    static void *(*const works[])(void *) = {store_always, wait_always};
    struct inherited inherited = {.t = t, .stores = {NULL, t->store}};
    TK_REQUIRE_OK(t, symmem_store_open_memory(&inherited.stores[0]));
    fork_beside(t, works, 2, &inherited, &inherited.end, store_in_child);
    TK_OK(t, symmem_store_remove(t->store, "child", LONG_MS));
    symmem_store_close(inherited.stores[0]);
}
