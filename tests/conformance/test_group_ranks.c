/* SPDX-License-Identifier: BSD-3-Clause */
/* Group ranks are not world ranks: where data goes, and whose end counts. */
#include "case_help.h"

/* --- data ------------------------------------------------------------------------------------- */

static uint32_t tag(int32_t from, int32_t to) {
    return (uint32_t)(1000 * (from + 1) + to + 1);
}

/* Each rank puts to each; the receiver looks at its own memory without naming a rank. What is put
 * and got by the same wrong rank would look right. */
ON_EACH_SHAPE(group_ranks, transfers, "SM-ONESIDED-01,SM-GROUP-02", .max_ranks = 16) {
    size_t bytes = (size_t)shape->count * sizeof(uint32_t);
    uint32_t *memory = tk_alloc(t, bytes);
    symmem_handle *handle = tk_rendezvous(t, memory, group);
    for (int32_t rank = 0; rank < shape->count; rank++) {
        uint32_t word = tag(t->rank, shape->ranks[rank]);
        size_t offset = (size_t)shape->rank * sizeof(word);
        TK_OK(t, symmem_put(handle, rank, offset, &word, sizeof(word), NULL));
    }
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    for (int32_t rank = 0; rank < shape->count; rank++) {
        uint32_t word = 0;
        TK_OK(t, symmem_copy(t->context, &word, memory + rank, sizeof(word), NULL));
        TK_EQ_INT(t, tag(shape->ranks[rank], t->rank), word);
        TK_OK(t, symmem_get(handle, rank, 0, &word, sizeof(word), NULL));
        TK_EQ_INT(t, tag(shape->ranks[0], shape->ranks[rank]), word);
    }
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* --- ends ------------------------------------------------------------------------------------- */

#define SLOT_INSIDE 5

/* Waits long enough for whoever looks after the wrong ranks to find one that has ended. */
static void late_barrier(struct tk *t, symmem_handle *handle, int32_t late) {
    if (t->rank == late)
        tk_sleep_ms(500);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* The pair of the last two ranks, turned: group ranks 0 and 1 are neither's world rank. The world
 * ranks 0 and 1 end, which are none of the pair; then one of the pair. */
TK_TEST(group_ranks, ends, "SM-TIMEOUT-08,SM-GROUP-02,SM-TIMEOUT-14", .ranks = {4, 8},
        .flags = TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK) {
    int32_t ranks[2] = {t->last, t->last - 1};
    TK_REQUIRE(t, t->last >= 3);
    for (int32_t victim = 0; victim < 2; victim++)
        tk_expect_death(t, victim);
    tk_expect_death(t, t->last - 1);
    tk_out_of_band_barrier(t);
    if (t->rank < 2)
        tk_kill_self(t);
    if (t->rank != t->last && t->rank != t->last - 1)
        return;
    symmem_group *pair = tk_group(t, "pair", ranks, 2);
    symmem_handle *handle = tk_handle(t, 64, pair);
    for (int32_t victim = 0; victim < 2; victim++)
        TK_CHECK(t, tk_wait_death(t, victim, LONG_MS));
    late_barrier(t, handle, t->last);
    late_barrier(t, handle, t->last - 1);
    if (t->rank == t->last - 1) {
        (void)await_shared(t, t->last, SLOT_INSIDE, 1);
        tk_sleep_ms(30);
        tk_kill_self(t);
    }
    tk_share_u64(t, SLOT_INSIDE, 1);
    TK_FAILS(t, PEER_LOST, symmem_barrier(handle, 0, LONG_MS, NULL));
    symmem_error_record record = last_record();
    TK_EQ_INT(t, 1, record.failed_rank);
    check_missing_one(t, &record, 1, 2);
    TK_FAILS(t, PEER_LOST, symmem_group_barrier(pair, LONG_MS));
    TK_EQ_INT(t, 1, last_record().failed_rank);
    work_after_loss(t, NULL, 0, t->last, NULL); /* alone */
}
