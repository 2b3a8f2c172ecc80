/* SPDX-License-Identifier: BSD-3-Clause */
/* What neither descriptors nor shared mappings show: address space, heap, threads, exec, and one
 * address for ranks of one process. */
#include <sys/resource.h>
#include <sys/stat.h>

#include "case_help.h"

#define DEVICE_TYPE_CPU 1 /* kDLCPU */
#define BIG_BYTES ((size_t)4 << 20)

/* A sanitizer needs address space of its own, and would end the process without. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* With a group of its own, if `named`. */
static void one_cycle(struct tk *t, int cycle, size_t bytes, bool named) {
    symmem_group *group = tk_world_group(t);
    char name[24];
    snprintf(name, sizeof(name), "cycle-%d", cycle);
    if (named)
        TK_REQUIRE_OK(t, symmem_group_create(t->context, name, NULL, 0, NULL, &group));
    void *memory = tk_alloc(t, bytes);
    symmem_handle *handle = tk_rendezvous(t, memory, group);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_release(t, handle);
    tk_free(t, memory);
    if (named)
        TK_OK(t, symmem_group_destroy(group));
}

/* What `cycles` of them keep, at the least, in each of some windows: what is kept once only, like a
 * thread's own variables of a library that was loaded late, or its part of the heap's address
 * space, is in one window of several. */
static uint64_t least_kept(struct tk *t, uint64_t (*measure)(void), int cycles, size_t bytes,
                           bool named) {
    enum { WINDOWS = 4 };
    uint64_t least = UINT64_MAX;
    for (int window = 0; window < WINDOWS; window++) {
        uint64_t before = measure();
        for (int cycle = 0; cycle < cycles; cycle++)
            one_cycle(t, window * cycles + cycle, bytes, named);
        uint64_t after = measure();
        uint64_t kept = after <= before ? 0 : after - before;
        if (window > 0 && kept < least)
            least = kept;
    }
    return least;
}

/* Mappings of every kind: were any of them kept, it would be 40 MiB or more. */
TK_TEST(life, address_space_is_bounded, "SM-LIFE-01,SM-LIFE-05", .max_ranks = 2,
        .flags = TK_PROCESS_ONLY,
        .timeout_s = 60 /* forty groups, of which each may take a second to open */) {
    enum { CYCLES = 10 };
    TK_CHECK_MSG(t, resources_address_space_bytes() > 0, "the address space cannot be measured");
    uint64_t kept = least_kept(t, resources_address_space_bytes, CYCLES, BIG_BYTES, true);
    TK_CHECK_MSG(t, kept < CYCLES / 2 * BIG_BYTES, "each %d cycles kept %llu MiB of address space",
                 (int)CYCLES, (unsigned long long)(kept >> 20));
}

/* Nothing that belongs to a cycle. On one group: a destroyed group's object stays until the context
 * ends. Where there is no driver, which has a heap of its own in there, all that is in use counts,
 * too: there threads keep a little for their next call. */
TK_TEST(life, heap_is_bounded, "SM-LIFE-01", .max_ranks = 2, .flags = TK_PROCESS_ONLY) {
    enum { CYCLES = 20 };
    uint64_t kept = least_kept(t, tk_heap_bytes, CYCLES, 64, false);
    TK_CHECK_MSG(t, tk_heap_bytes() != UINT64_MAX, "there are too many blocks to be followed");
    TK_CHECK_MSG(t, kept < sizeof(void *) * CYCLES,
                 "%llu bytes of heap were kept by each %d cycles", (unsigned long long)kept,
                 (int)CYCLES);
    if (t->device_type != DEVICE_TYPE_CPU)
        return;
    kept = least_kept(t, resources_heap_bytes, CYCLES, 64, false);
    TK_CHECK_MSG(t, kept <= 16 * CYCLES, "%llu bytes of the heap were kept by each %d cycles",
                 (unsigned long long)kept, (int)CYCLES);
}

/* Memory and sockets, of which a program that the user starts would get a copy. Devices are the
 * driver's, and what a library beneath the backend opens is that library's. */
static bool is_inherited(int fd) {
    struct stat status;
    int flags = fcntl(fd, F_GETFD);
    return flags >= 0 && (flags & FD_CLOEXEC) == 0 && fstat(fd, &status) == 0 &&
           !S_ISCHR(status.st_mode) && !tk_is_foreign_socket(fd);
}

struct exec_watch {
    bool before[1024];
    char found[320]; /* the first one that a program would inherit, and where it was seen */
};

static void look_for_inherited(struct exec_watch *watch, const char *where) {
    for (int fd = 3; fd < 1024 && watch->found[0] == 0; fd++) {
        char link[64], target[200] = "";
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        if (!watch->before[fd] && is_inherited(fd) &&
            readlink(link, target, sizeof(target) - 1) >= 0)
            snprintf(watch->found, sizeof(watch->found), "descriptor %d (%s), seen at %s", fd,
                     target, where);
    }
}

/* Another thread of the program may start one at any moment: so those count, too, that live for a
 * few steps only. */
static symmem_status look_at_point(void *arg, const char *point) {
    look_for_inherited(arg, point);
    return SYMMEM_OK;
}

TK_TEST(life, descriptors_end_at_exec, "SM-LIFE-12", .max_ranks = 2,
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT) {
    struct exec_watch watch = {.found = ""};
    for (int fd = 0; fd < 1024; fd++)
        watch.before[fd] = is_inherited(fd);
    symmem_context_options options = tk_options(t);
    options.point = look_at_point;
    options.point_arg = &watch;
    struct own_world w = own_world_begin(t, &options, 4096);
    look_for_inherited(&watch, "the end of rendezvous");
    TK_CHECK_MSG(t, watch.found[0] == 0, "%s, is not close-on-exec", watch.found);
    TK_OK(t, symmem_barrier(w.handle, 0, LONG_MS, NULL));
    own_world_end(t, &w);
}

/* --- too little of it ------------------------------------------------------------------ */

/* No more address space than now and a little; *before gets the limit to be set again. */
static void limit_address_space(struct tk *t, struct rlimit *before) {
    TK_REQUIRE(t, getrlimit(RLIMIT_AS, before) == 0);
    struct rlimit narrow = *before;
    narrow.rlim_cur = resources_address_space_bytes() + BIG_BYTES;
    if (!SANITIZED && narrow.rlim_cur < narrow.rlim_max)
        TK_REQUIRE(t, setrlimit(RLIMIT_AS, &narrow) == 0);
}

/* Where a backend maps memory, there is a step behind the one that gets it. What fails there must
 * give back what the step before took; the ledger looks. */
TK_TEST(rendezvous, no_room_to_map, "SM-ALLOC-15", .max_ranks = 2, .flags = TK_PROCESS_ONLY) {
    symmem_handle *handle = NULL;
    symmem_group *group = tk_world_group(t);
    struct rlimit limit;
    void *own = tk_alloc(t, 4 * BIG_BYTES), *more = NULL;
    limit_address_space(t, &limit);
    symmem_status allocated = symmem_alloc(t->context, 4 * BIG_BYTES, -1, NULL, &more);
    symmem_status met = symmem_rendezvous(t->context, own, group, LONG_MS, &handle);
    TK_REQUIRE(t, setrlimit(RLIMIT_AS, &limit) == 0);
    tk_share_u64(t, 0, (uint64_t)met);
    tk_out_of_band_barrier(t);
    for (int32_t r = 0; r < t->world_size; r++)
        TK_EQ_INT(t, (int64_t)met, (int64_t)tk_read_u64(t, r, 0));
    if (allocated == SYMMEM_OK)
        TK_OK(t, symmem_free(t->context, more));
    symmem_handle_release(handle);
    tk_free(t, own);
    symmem_handle *fresh = tk_handle(t, BIG_BYTES, group);
    TK_OK(t, symmem_barrier(fresh, 0, LONG_MS, NULL));
}

/* A context that ends while its stream's shell is kept; once to warm up. */
TK_TEST(life, context_takes_its_threads, "SM-LIFE-09", .needs = SYMMEM_CAP_STREAMS,
        .max_ranks = 1) {
    for (int round = 0; round < 2; round++) {
        symmem_context_options options = tk_options(t);
        symmem_context *context = NULL;
        symmem_stream *stream = NULL;
        options.store = NULL;
        TK_REQUIRE_OK(t, symmem_init(&options, &context));
        int before = resources_threads();
        TK_OK(t, symmem_stream_create(context, -1, &stream));
        TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
        TK_OK(t, symmem_finalize(context));
        /* A thread that was joined may still be listed for a moment. */
        uint64_t end_ms = tk_now_ms() + tk_limit_ms(t, 1000);
        while (resources_threads() > before && tk_now_ms() < end_ms)
            tk_sleep_ms(5);
        TK_CHECK(t, before > 0);
        if (round > 0)
            TK_EQ_INT(t, before, resources_threads());
        TK_OK(t, symmem_stream_destroy(stream));
        symmem_context_free(context);
    }
}

/* Each rank's memory is what its owner sees, and where the CPU reaches it at the same address. */
TK_TEST(handle, one_address_for_threads, "SM-HANDLE-13", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .ranks = {2, 8}, .flags = TK_THREAD_ONLY | TK_WRITES_PADS | TK_PLAIN_MEMORY) {
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    bool by_host = (t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0;
    void *const *pads = NULL;
    int32_t words[2] = {t->rank + 1, 0}, pad_words[2] = {-t->rank - 1, 0};
    void *const *buffers = buffers_of(t, handle);
    TK_REQUIRE_OK(t, symmem_handle_signal_pad_ptrs(handle, &pads));
    tk_share_u64(t, 0, (uint64_t)(uintptr_t)buffers[t->rank]);
    tk_share_u64(t, 1, (uint64_t)(uintptr_t)pads[t->rank]);
    TK_OK(t, symmem_copy(t->context, buffers[t->rank], &words[0], 4, NULL));
    TK_OK(t, symmem_copy(t->context, pads[t->rank], &pad_words[0], 4, NULL));
    tk_out_of_band_barrier(t);
    for (int32_t r = 0; r < t->world_size; r++) {
        TK_OK(t, symmem_copy(t->context, &words[1], buffers[r], 4, NULL));
        TK_OK(t, symmem_copy(t->context, &pad_words[1], pads[r], 4, NULL));
        TK_CHECK(t, words[1] == r + 1 && pad_words[1] == -r - 1);
        if (!by_host)
            continue;
        TK_EQ_PTR(t, (const void *)(uintptr_t)tk_read_u64(t, r, 0), buffers[r]);
        TK_EQ_PTR(t, (const void *)(uintptr_t)tk_read_u64(t, r, 1), pads[r]);
    }
    tk_out_of_band_barrier(t);
}
