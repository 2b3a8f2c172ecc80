/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves of sizes near 10^3, 10^5 and 2^20 elements, which pieces and lines do not divide. */
#include "case_help.h"
#include "move_help.h"
#include "reduce_help.h"

enum kind {
    PULL,
    PUSH,
    IN_PLACE,
    STAGED,
    LOW_CONTENTION,
    BROADCAST,
    ALL_TO_ALL,
    ALL_TO_ALL_SPLITS,
    KIND_COUNT
};

static const char *const names[KIND_COUNT] = {"all-gather by reading",
                                              "all-gather by writing",
                                              "all-gather in place",
                                              "staged all-gather",
                                              "low-contention all-gather",
                                              "broadcast",
                                              "all-to-all",
                                              "all-to-all with splits"};

/* Symmetric and other memory, each as large as all ranks' inputs together; behind the latter, one
 * input more. */
struct hall {
    symmem_handle *handle;
    int32_t rank, size;
    uint32_t limit_ms;
    size_t room;
    char *own, *far;
    uint8_t *host, *expected;
};

static struct hall hall_begin(struct tk *t, size_t room) {
    struct hall h = {.handle = tk_handle(t, room, tk_world_group(t)),
                     .limit_ms = LONG_MS,
                     .room = room,
                     .far = tk_alloc(t, 2 * room),
                     .host = malloc(room),
                     .expected = malloc(room)};
    symmem_handle_info info = info_of(t, h.handle);
    TK_REQUIRE(t, h.host != NULL && h.expected != NULL);
    h.rank = info.rank;
    h.size = info.world_size;
    h.own = ops_own(t, h.handle);
    return h;
}

static void hall_end(struct tk *t, struct hall *h) {
    free(h->host);
    free(h->expected);
    tk_free(t, h->far);
    tk_release(t, h->handle);
}

static bool is_exchange(int kind) {
    return kind == ALL_TO_ALL || kind == ALL_TO_ALL_SPLITS;
}

/* Elements that go from one rank to another: `count` in all, the parts as unequal as they can be
 * for the one and equal for the other; what does not divide is left out there. */
static size_t split(int kind, size_t count, int32_t size, int32_t from, int32_t to) {
    size_t part = count / (size_t)size;
    if (kind == ALL_TO_ALL)
        return part;
    if ((from + to) % size != 0)
        return part - part / 3 - (size_t)to;
    size_t others = 0;
    for (int32_t r = 0; r < size; r++)
        others += r == to ? 0 : part - part / 3 - (size_t)r;
    return count - others;
}

/* Fills h->expected; returns the elements of the output. */
static size_t expect(const struct hall *h, int kind, size_t count, size_t width,
                     uint32_t generation) {
    size_t bytes = count * width, at = 0;
    if (kind == BROADCAST) {
        move_fill(h->expected, bytes, h->size - 1, generation);
        return count;
    }
    for (int32_t r = 0; r < h->size && !is_exchange(kind); r++)
        move_fill(h->expected + (size_t)r * bytes, bytes, r, generation);
    if (!is_exchange(kind))
        return count * (size_t)h->size;
    for (int32_t r = 0; r < h->size; r++) {
        size_t before = 0, part = split(kind, count, h->size, r, h->rank);
        for (int32_t to = 0; to < h->rank; to++)
            before += split(kind, count, h->size, r, to);
        move_fill(h->host, bytes, r, generation);
        memcpy(h->expected + at * width, h->host + before * width, part * width);
        at += part;
    }
    return at;
}

static size_t input_count(const struct hall *h, int kind, size_t count) {
    return kind == ALL_TO_ALL ? count / (size_t)h->size * (size_t)h->size : count;
}

static symmem_status run(const struct hall *h, int kind, char *in_at, char *out_at,
                         symmem_dtype dtype, size_t count, size_t out_count) {
    size_t in_splits[SYMMEM_MAX_WORLD_SIZE], out_splits[SYMMEM_MAX_WORLD_SIZE];
    const DLTensor *in = FLAT(in_at, dtype, input_count(h, kind, count));
    const DLTensor *out = FLAT(out_at, dtype, out_count);
    for (int32_t r = 0; r < h->size; r++) {
        in_splits[r] = split(kind, count, h->size, h->rank, r);
        out_splits[r] = split(kind, count, h->size, r, h->rank);
    }
    switch (kind) {
    case BROADCAST:
        return symmem_broadcast(h->handle, in, h->size - 1, 0, h->limit_ms, NULL);
    case ALL_TO_ALL:
        return symmem_all_to_all_out(h->handle, in, NULL, out, NULL, 0, h->limit_ms, NULL);
    case ALL_TO_ALL_SPLITS:
        return symmem_all_to_all_out(h->handle, in, in_splits, out, out_splits, 0, h->limit_ms,
                                     NULL);
    case LOW_CONTENTION:
    case STAGED:
        return symmem_low_contention_all_gather_out(h->handle, in, out, 0, h->limit_ms, NULL);
    default:
        return symmem_all_gather_out(h->handle, in, out, 0, h->limit_ms, NULL);
    }
}

static void move_once(struct tk *t, const struct hall *h, int kind, symmem_dtype dtype,
                      size_t count, uint32_t generation) {
    size_t width = symmem_dtype_size(dtype), bytes = count * width;
    bool to_block = kind == PUSH || kind == IN_PLACE || kind == BROADCAST;
    char *in = kind == PUSH || kind == STAGED ? h->far + h->room : h->own;
    char *out = to_block ? h->own : h->far;
    if (kind == IN_PLACE)
        in = out + (size_t)h->rank * bytes;
    tk_checkpoint(t, "%s of %zu %s", names[kind], count, symmem_dtype_name(dtype));
    move_fill(h->host, bytes, h->rank, generation);
    if (kind != BROADCAST && kind != IN_PLACE) {
        memset(h->expected, CANARY, bytes * (size_t)h->size);
        ops_upload(t, out, h->expected, bytes * (size_t)h->size);
    }
    ops_upload(t, in, h->host, bytes);
    size_t out_count = expect(h, kind, count, width, generation);
    if (!TK_OK(t, run(h, kind, in, out, dtype, count, out_count)))
        return;
    ops_download(t, h->host, out, out_count * width);
    ops_expect(t, h->expected, h->host, SYMMEM_UINT8, out_count * width, names[kind]);
    tk_out_of_band_barrier(t); /* before anybody writes where others still look */
}

/* Every kind with every size and width with SYMMEM_SUITE_LONG=1, else the small sizes, the widths
 * alternately. */
TK_TEST(move, large_counts, "SM-MOVE-01,SM-MOVE-02,SM-MOVE-04,SM-MOVE-05,SM-MOVE-09",
        .needs = COLLECTIVES, .max_ranks = 8, .timeout_s = 300) {
    static const size_t counts[] = {997, 1009, 99991, 100003, (1 << 20) - 1, (1 << 20) + 1};
    static const symmem_dtype widths[] = {SYMMEM_UINT8, SYMMEM_FLOAT16, SYMMEM_INT32,
                                          SYMMEM_FLOAT64};
    static const char *const requirements[KIND_COUNT] = {"SM-MOVE-01", "SM-MOVE-02", "SM-MOVE-02",
                                                         "SM-MOVE-09", "SM-MOVE-09", "SM-MOVE-04",
                                                         "SM-MOVE-05", "SM-MOVE-05"};
    bool all = tk_suite_is_long();
    int last = all ? 6 : 3;
    uint32_t generation = 1;
    struct hall h = hall_begin(t, counts[last - 1] * (all ? 8 : 4) * (size_t)t->world_size);
    for (int i = 0; i < last; i++)
        for (int kind = 0; kind < KIND_COUNT; kind++)
            for (int w = 0; w < (all ? 4 : 1); w++) {
                uint64_t turn = t->seed + (uint64_t)(i + kind + w);
                TK_REQ(t, requirements[kind]);
                move_once(t, &h, kind, widths[turn % (all ? 4 : 3)], counts[i], generation++);
            }
    hall_end(t, &h);
}

/* Operations on more bytes than 31 bits count. One case on one block of each rank: most of its time
 * is the system's, which clears every page that is touched for the first time. */

/* But the case's own: what a rank does behind a call that has timed out, a late one takes for a
 * wrong result, and pages are cleared slowly where others do the same. */
enum { NO_LIMIT = 0, MARK = 16 };

/* Some bytes around the places where 31 bits end, of that rank and generation. */
static const size_t marks[] = {0,
                               (1u << 30) - 8,
                               (1u << 30) + 4096,
                               (1u << 31) - 8,
                               (1u << 31) + MARK,
                               (1u << 31) + 8192 - 2 * MARK};
#define MARK_COUNT (TK_COUNT(marks))

static void mark(struct tk *t, char *at, int32_t rank, uint32_t generation) {
    uint8_t bytes[MARK];
    for (uint32_t i = 0; i < MARK_COUNT; i++) {
        move_fill(bytes, sizeof(bytes), rank, generation + i);
        ops_upload(t, at + marks[i], bytes, sizeof(bytes));
    }
}

static void expect_at(struct tk *t, const char *at, const uint8_t *expected) {
    uint8_t found[MARK];
    ops_download(t, found, at, sizeof(found));
    ops_expect(t, expected, found, SYMMEM_UINT8, sizeof(found), "a place in 2 GiB");
}

static void expect_mark(struct tk *t, const char *at, uint32_t i, int32_t rank,
                        uint32_t generation) {
    uint8_t expected[MARK];
    move_fill(expected, sizeof(expected), rank, generation + i);
    expect_at(t, at + marks[i], expected);
}

static void broadcast_whole(struct tk *t, symmem_handle *handle, char *at, size_t bytes) {
    mark(t, at, t->rank, 10);
    const DLTensor *whole = FLAT(at, SYMMEM_UINT8, bytes);
    TK_REQUIRE_OK(t, symmem_broadcast(handle, whole, 1, 0, NO_LIMIT, NULL));
    for (uint32_t i = 0; i < MARK_COUNT; i++)
        expect_mark(t, at, i, 1, 10);
    TK_REQUIRE_OK(t, symmem_barrier(handle, 0, NO_LIMIT, NULL));
}

static void gather_halves(struct tk *t, symmem_handle *handle, char *at, size_t bytes) {
    const size_t half = bytes / 2;
    mark(t, at, t->rank, 20);
    const DLTensor *whole = FLAT(at, SYMMEM_UINT8, bytes);
    const DLTensor *chunk = FLAT(at + (size_t)t->rank * half, SYMMEM_UINT8, half);
    TK_REQUIRE_OK(t, symmem_all_gather_out(handle, chunk, whole, 0, NO_LIMIT, NULL));
    for (uint32_t i = 0; i < MARK_COUNT; i++)
        expect_mark(t, at, i, marks[i] >= half, 20);
    TK_REQUIRE_OK(t, symmem_barrier(handle, 0, NO_LIMIT, NULL));
}

static void reduce_odd_count(struct tk *t, symmem_handle *handle, char *at, size_t bytes) {
    uint8_t other[MARK], expected[MARK];
    mark(t, at, t->rank, 30);
    const DLTensor *whole = FLAT(at, SYMMEM_UINT8, bytes - MARK + 1);
    TK_REQUIRE_OK(t, symmem_two_shot_all_reduce(handle, whole, SYMMEM_SUM, 0, NO_LIMIT, NULL));
    for (uint32_t i = 0; i < MARK_COUNT; i++) {
        move_fill(expected, sizeof(expected), 0, 30 + i);
        move_fill(other, sizeof(other), 1, 30 + i);
        for (int k = 0; k < MARK; k++)
            expected[k] = (uint8_t)(expected[k] + other[k]);
        expect_at(t, at + marks[i], expected);
    }
}

TK_TEST(ops, past_two_gib, "SM-MOVE-02,SM-MOVE-04,SM-REDUCE-02", .needs = COLLECTIVES,
        .ranks = {2, 2}, .flags = TK_LARGE, .timeout_s = 120) {
    const size_t bytes = ((size_t)1 << 31) + 8192;
    void *ptr = NULL;
    symmem_status status = symmem_alloc(t->context, bytes, -1, NULL, &ptr);
    TK_CHECK(t, status == SYMMEM_OK || status == SYMMEM_NO_SPACE);
    tk_share_u64(t, 0, status == SYMMEM_OK);
    tk_out_of_band_barrier(t);
    if (tk_read_u64(t, 0, 0) == 0 || tk_read_u64(t, 1, 0) == 0) {
        tk_unresolved(t, "no room for 2 blocks of 2 GiB");
        if (ptr != NULL)
            TK_OK(t, symmem_free(t->context, ptr));
        return;
    }
    symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
    broadcast_whole(t, handle, ptr, bytes);
    gather_halves(t, handle, ptr, bytes);
    reduce_odd_count(t, handle, ptr, bytes);
    tk_release(t, handle);
    TK_OK(t, symmem_free(t->context, ptr));
}
