/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on more bytes than 31 bits count. One case on one block of each rank: most of its time
 * is the system's, which clears every page that is touched for the first time. */
#include "case_help.h"
#include "move_help.h"
#include "reduce_help.h"

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
#define MARK_COUNT (LENGTH(marks))

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
