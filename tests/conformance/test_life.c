/* SPDX-License-Identifier: BSD-3-Clause */
/* The release of memory and objects: what is given back, when, and that no rank has to wait for
 * it. */
#include <sys/stat.h>

#include "case_help.h"
#include "counting_store.h"
#include "life_help.h"
#include "resources.h"

#define LIMIT_MS 15000u
#define BYTES 4096

TK_TEST(life, repeated_rendezvous_adds_nothing, "SM-LIFE-05,SM-RDV-02", .max_ranks = 4,
        .flags = TK_PROCESS_ONLY) {
    void *memory = tk_alloc(t, BYTES);
    symmem_handle *kept = tk_rendezvous(t, memory, tk_world_group(t));
    int mappings = resources_shared_mappings();
    uint64_t bytes = resources_shared_bytes();
    struct resources_open descriptors;
    TK_REQ(t, "SM-LIFE-05");
    resources_take_open(&descriptors);
    for (int round = 0; round < 2000; round++) {
        symmem_handle *handle = tk_rendezvous(t, memory, tk_world_group(t));
        if (round % 1000 == 999) { /* while it is held, too */
            expect_as_many_open(t, &descriptors);
            TK_EQ_INT(t, mappings, resources_shared_mappings());
            TK_EQ_SIZE(t, bytes, resources_shared_bytes());
        }
        tk_release(t, handle);
    }
    expect_as_many_open(t, &descriptors);
    TK_EQ_INT(t, mappings, resources_shared_mappings());
    TK_OK(t, symmem_barrier(kept, 0, LIMIT_MS, NULL));
}

/* --- the store behind a rendezvous ------------------------------------------------------------ */

TK_PORTED(test_rendezvous_custom_backend, "SM-STORE-08,SM-RDV-02", .max_ranks = 8) {
    struct counting_store *counting = counting_store_begin(t->store);
    symmem_context_options options = tk_options(t);
    symmem_store *store = NULL;
    symmem_handle *handle;
    void *memory;
    int calls;
    TK_REQ(t, "SM-STORE-08");
    TK_REQUIRE_OK(t, symmem_store_open_custom(&counting_store_ops, counting, &store));
    options.store = store;
    tk_reinit(t, &options);
    memory = tk_alloc(t, 256);
    handle = tk_rendezvous(t, memory, tk_world_group(t));
    TK_CHECK(t, t->world_size == 1 || counting_store_writes(counting) > 0);
    tk_fill(t, handle, t->rank, 0, 256, (uint8_t)(t->rank + 1));
    TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
    for (int32_t rank = 0; rank < t->world_size; rank++)
        tk_expect_bytes(t, handle, rank, 0, 256, (uint8_t)(rank + 1));
    TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
    TK_REQ(t, "SM-RDV-02");
    tk_out_of_band_barrier(t);
    calls = counting_store_calls(counting);
    (void)tk_rendezvous(t, memory, tk_world_group(t));
    TK_EQ_INT(t, calls, counting_store_calls(counting));
    tk_out_of_band_barrier(t);
    tk_end_context(t);
    symmem_store_close(store);
}

/* --- local, in any order ---------------------------------------------------------------------- */

TK_PORTED(test_pg_rendezvous_abort_after, "SM-RDV-18,SM-GROUP-07", .max_ranks = 8) {
    symmem_handle *handle;
    void *memory = tk_alloc(t, 256);
    TK_REQ(t, "SM-RDV-18");
    symmem_group *group = tk_group(t, "aborted", NULL, 0);
    handle = tk_rendezvous(t, memory, group);
    tk_fill(t, handle, t->rank, 0, 256, (uint8_t)(t->rank + 1));
    TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
    TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
    tk_group_destroy(t, group);
    for (int32_t rank = 0; rank < t->world_size; rank++)
        tk_expect_bytes(t, handle, rank, 0, 256, (uint8_t)(rank + 1));
    TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
    TK_FAILS(t, STALE, symmem_handle_reset(handle, LIMIT_MS));
    TK_OK(t, symmem_barrier(handle, 1, LIMIT_MS, NULL));
}

/* The ranks release their memory one after the other. The remaining ranks still read the memory of
 * all. */
TK_TEST(life, free_and_release_are_local, "SM-LIFE-04", .max_ranks = 4) {
    uint8_t other[BYTES], found[BYTES];
    void *next = NULL;
    memset(other, 0xA5, sizeof(other));
    for (int order = 0; order < 2; order++) {
        void *memory = tk_alloc(t, BYTES);
        symmem_handle *handle = tk_rendezvous(t, memory, tk_world_group(t));
        tk_fill(t, handle, t->rank, 0, BYTES, (uint8_t)(t->rank + 1));
        TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
        for (int32_t first = 0; first < t->world_size; first++) {
            if (t->rank == first && order == 0) {
                tk_free(t, memory);
                tk_release(t, handle);
            } else if (t->rank == first) {
                tk_release(t, handle);
                tk_free(t, memory);
            }
            if (t->rank == first) /* what it allocates next is other memory, for peers map this */
                TK_OK(t, symmem_copy(t->context, next = tk_alloc(t, BYTES), other, BYTES, NULL));
            tk_out_of_band_barrier(t);
            for (int32_t rank = 0; t->rank > first && rank < t->world_size; rank++) {
                tk_expect_bytes(t, handle, rank, 0, 1, (uint8_t)(rank + 1));
                tk_expect_bytes(t, handle, rank, BYTES - 1, 1, (uint8_t)(rank + 1));
            }
            tk_out_of_band_barrier(t);
            if (t->rank == first + 1)
                tk_fill(t, handle, first, 0, BYTES, (uint8_t)(first + 1));
            tk_out_of_band_barrier(t);
            if (t->rank == first) {
                TK_OK(t, symmem_copy(t->context, found, next, BYTES, NULL));
                TK_CHECK_MSG(t, memcmp(found, other, BYTES) == 0,
                             "a peer's write to memory that was freed is in what came next");
                tk_free(t, next);
            }
            tk_out_of_band_barrier(t);
        }
        TK_CHECK(t, !tk_failed(t));
    }
}

/* --- after finalize ----------------------------------------------------------------- */

TK_TEST(life, released_after_finalize, "SM-LIFE-06", .max_ranks = 4, .flags = TK_PROCESS_ONLY) {
    symmem_context_options options = tk_options(t);
    struct resources_open descriptors = {0};
    const int32_t viewed = (t->capabilities & SYMMEM_CAP_DIRECT_ACCESS) != 0 ? t->next : t->rank;
    int mappings = 0;
    tk_end_context(t);
    for (int round = 0; round < 3; round++) {
        const int64_t size = BYTES;
        if (round == 1) {
            resources_take_open(&descriptors);
            mappings = resources_shared_mappings();
        }
        tk_out_of_band_barrier(t);
        struct own_world w = own_world_begin(t, &options, BYTES);
        DLManagedTensor *view =
            view_by(t, symmem_get_buffer, w.handle, viewed, 1, &size, SYMMEM_UINT8, 0);
        tk_out_of_band_barrier(t);
        TK_OK(t, symmem_finalize(w.context));
        tk_out_of_band_barrier(t);
        if (round == 1) { /* in every order, also after the context itself */
            symmem_context_free(w.context);
            symmem_handle_release(w.handle);
            view->deleter(view);
        } else {
            view->deleter(view);
            symmem_handle_release(w.handle);
            symmem_context_free(w.context);
        }
    }
    expect_as_many_open(t, &descriptors);
    TK_EQ_INT(t, mappings, resources_shared_mappings());
}

TK_TEST(life, streams_and_graphs_after_finalize, "SM-LIFE-06",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, .max_ranks = 3,
        .flags = TK_PROCESS_ONLY) {
    symmem_context_options options = tk_options(t);
    symmem_stream *stream = NULL;
    symmem_event *event = NULL;
    symmem_graph *graph = NULL;
    tk_end_context(t);
    int mappings = resources_shared_mappings();
    struct own_world w = own_world_begin(t, &options, BYTES);
    TK_REQUIRE_OK(t, symmem_stream_create(w.context, -1, &stream));
    TK_REQUIRE_OK(t, symmem_event_create(w.context, -1, &event));
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, symmem_barrier(w.handle, 0, LIMIT_MS, stream));
    TK_REQUIRE_OK(t, symmem_stream_end_capture(stream, &graph));
    TK_OK(t, symmem_graph_launch(graph, stream));
    TK_OK(t, symmem_stream_synchronize(stream, LIMIT_MS));
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_finalize(w.context));
    symmem_context_free(w.context);
    symmem_event_destroy(event);
    TK_STATUS_EITHER(t, SYMMEM_OK, SYMMEM_NOT_INITIALIZED, symmem_graph_destroy(graph));
    TK_STATUS_EITHER(t, SYMMEM_OK, SYMMEM_NOT_INITIALIZED, symmem_stream_destroy(stream));
    symmem_handle_release(w.handle);
    TK_EQ_INT(t, mappings, resources_shared_mappings());
    tk_out_of_band_barrier(t);
}

/* --- rights ----------------------------------------------------------------------------------- */

/* Descriptors of this process that refer to files with rights for others. */
static int open_files_for_others(char *first, size_t capacity) {
    int count = 0;
    for (int fd = 3; fd < 1024; fd++) {
        struct stat status;
        char link[64], target[256] = "";
        if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || (status.st_mode & 077) == 0)
            continue;
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof(target) - 1) <= 0 ||
            (strncmp(target, "/dev/shm", 8) != 0 && strncmp(target, "/memfd:", 7) != 0))
            continue;
        if (count++ == 0)
            snprintf(first, capacity, "%s", target);
    }
    return count;
}

TK_TEST(life, rights_are_the_owners, "SM-LIFE-07,SM-STORE-07", .max_ranks = 2,
        .flags = TK_PROCESS_ONLY) {
    static const mode_t masks[] = {0, 022};
    TK_REQ(t, "SM-LIFE-07");
    for (int i = 0; i < 2; i++) {
        char path[4096], first[256] = "";
        symmem_store *store = NULL;
        mode_t mask = umask(masks[i]);
        void *memory = NULL;
        symmem_status opened, set, allocated;
        int others;
        snprintf(path, sizeof(path), "%s/rights-%d", t->scratch_dir, i);
        opened = symmem_store_open_file(path, &store);
        set = opened == SYMMEM_OK ? symmem_store_set(store, "key", "v", 1, LIMIT_MS) : opened;
        allocated = symmem_alloc(t->context, BYTES, -1, NULL, &memory);
        (void)umask(mask);
        others = open_files_for_others(first, sizeof(first));
        TK_OK(t, opened);
        TK_OK(t, set);
        TK_OK(t, allocated);
        TK_CHECK_MSG(t, others == 0, "%s is open to others", first);
        TK_EQ_INT(t, 0, resources_entries_for_others(path));
        TK_OK(t, symmem_store_remove(store, "key", LIMIT_MS));
        symmem_store_close(store);
        TK_OK(t, symmem_free(t->context, memory));
    }
}

/* Every descriptor that came with the memory is tried, and all of it is read afterwards. */
TK_TEST(life, memory_cannot_be_shortened, "SM-LIFE-15", .max_ranks = 4, .flags = TK_PROCESS_ONLY) {
    bool was_open[1024];
    struct stat file;
    TK_REQ(t, "SM-LIFE-15");
    for (int fd = 0; fd < 1024; fd++)
        was_open[fd] = fcntl(fd, F_GETFD) >= 0;
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    tk_fill(t, handle, t->rank, 0, BYTES, 0x2b);
    TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
    for (int fd = 3; fd < 1024; fd++)
        if (!was_open[fd] && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_nlink == 0)
            TK_CHECK(t, ftruncate(fd, 0) != 0);
    tk_out_of_band_barrier(t);
    for (int32_t rank = 0; rank < t->world_size; rank++)
        tk_expect_bytes(t, handle, rank, 0, BYTES, 0x2b);
    TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
}
