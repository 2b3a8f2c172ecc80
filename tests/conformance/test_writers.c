/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who wrote: threads that have joined before a rank's barrier or collective, several ranks within
 * one word, puts that lie close together in a queue, and ranks that are gone by the time it is
 * read.
 */
#include "gathers.h"

/* --- threads that joined ------------------------------------------------------------- */

#define WRITERS 3
#define PART_WORDS 96u

struct writer {
    struct tk *t;
    symmem_handle *handle;
    uint32_t *words; /* the part's */
    int32_t peer;
    size_t at; /* in the peer's buffer */
};

static void *write_one_part(void *arg) {
    struct writer *own = arg;
    TK_OK(own->t, symmem_put(own->handle, own->peer, own->at, own->words, PART_WORDS * 4, NULL));
    return NULL;
}

/* Threads write a message of `generation` into the peer's buffer, a part each, and have joined. */
static bool write_by_threads(struct tk *t, symmem_handle *handle, int32_t peer, uint32_t *words,
                             uint32_t generation) {
    struct writer writers[WRITERS];
    fill_words(words, (size_t)WRITERS * PART_WORDS, t->rank, generation);
    for (size_t i = 0; i < WRITERS; i++)
        writers[i] = (struct writer){t, handle, words + i * PART_WORDS, peer, i * PART_WORDS * 4};
    tk_in_threads(t, write_one_part, writers, sizeof(writers[0]), WRITERS);
    return !tk_failed(t);
}

TK_TEST(writers, joined_before_a_barrier, "SM-BARRIER-02,SM-THREAD-01", .ranks = {2, 8}) {
    enum { WORDS = WRITERS * PART_WORDS, ROUNDS = 12 };
    symmem_handle *handle = tk_handle(t, WORDS * 4, tk_world_group(t));
    uint32_t words[WORDS];
    for (uint32_t g = 1; g <= ROUNDS; g++) {
        if (!write_by_threads(t, handle, t->next, words, g))
            return;
        TK_REQUIRE_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        tk_read(t, handle, t->rank, 0, words, sizeof(words));
        TK_EQ_SIZE(t, WORDS, first_wrong_word(words, WORDS, t->previous, g));
        TK_REQUIRE_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

/* The inputs were written by a peer's threads, which have joined before that peer's own call. */
TK_TEST(writers, joined_before_a_collective, "SM-COLL-01", .needs = COLLECTIVES, .ranks = {2, 8}) {
    enum { WORDS = WRITERS * PART_WORDS, ROUNDS = 12 };
    symmem_handle *handle = tk_handle(t, WORDS * 4, tk_world_group(t));
    size_t size = (size_t)t->world_size;
    uint32_t words[WORDS], *got = tk_scratch(t, size * sizeof(words));
    char *own = ops_own(t, handle), *out = tk_alloc(t, size * sizeof(words));
    for (uint32_t g = 1; g <= ROUNDS; g++) {
        if (!write_by_threads(t, handle, t->next, words, g))
            break;
        if (!TK_OK(t,
                   symmem_all_gather_out(handle, FLAT(own, SYMMEM_UINT32, WORDS),
                                         FLAT(out, SYMMEM_UINT32, WORDS * size), 0, LONG_MS, NULL)))
            break;
        ops_download(t, got, out, size * sizeof(words));
        for (int32_t r = 0; r < t->world_size; r++) { /* what rank r put in came from before it */
            int32_t writer = (r + t->world_size - 1) % t->world_size;
            TK_EQ_SIZE(t, WORDS, first_wrong_word(got + (size_t)r * WORDS, WORDS, writer, g));
        }
        if (!TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL)))
            break;
    }
}

/* --- small pieces -------------------------------------------------------------------- */

/* Lengths of 1 to 7 bytes that follow one another, so that words have several writers and pieces
 * reach over the ends of words. The same on all ranks. */
static size_t piece_bytes(size_t index, uint32_t round) {
    return 1 + (index * 5 + index / 7 + round) % 7;
}

/* Which rank writes piece `index`; none writes every fifth. */
static int32_t piece_writer(const struct tk *t, size_t index, uint32_t round) {
    return index % 5 == 4 ? -1 : (int32_t)((index + round) % (size_t)t->world_size);
}

static uint8_t byte_of(int32_t rank, uint32_t generation, size_t at) {
    return (uint8_t)(word_of(rank, generation, at) >> 8);
}

/* Pieces of one rank's buffer. This rank's are written, or read again if `check`: no other rank may
 * have touched their bytes. */
static void own_pieces(struct tk *t, symmem_handle *handle, int32_t peer, uint8_t *bytes,
                       size_t count, uint32_t round, bool check, symmem_stream *stream) {
    for (size_t index = 0, at = 0; at < count; index++) {
        size_t length = piece_bytes(index, round);
        length = length < count - at ? length : count - at;
        if (piece_writer(t, index, round) == t->rank && check)
            tk_expect_data(t, handle, peer, at, bytes + at, length);
        else if (piece_writer(t, index, round) == t->rank)
            TK_OK(t, symmem_put(handle, peer, at, bytes + at, length, stream));
        at += length;
    }
}

#define ROUND_MS 1000u

/* All ranks write their pieces of one rank's buffer at the same time, then those of the next. Where
 * a copy takes long, as on a device that other processes use, they do so less often. */
static void write_pieces(struct tk *t, symmem_handle *handle, uint8_t *bytes, size_t count,
                         uint32_t round, symmem_stream *stream) {
    const uint32_t times = stream != NULL ? 1 : 160; /* so that several ranks write a word */
    for (int32_t peer = 0; peer < t->world_size; peer++) {
        const uint64_t until_ms = tk_now_ms() + ROUND_MS / (uint32_t)t->world_size;
        for (uint32_t left = times; left-- > 0;) {
            if (left > 0 && tk_now_ms() > until_ms)
                continue; /* only what is written last is compared below */
            /* What is queued for one peer still reads these bytes, the same for all. */
            for (size_t i = 0; i < count && (stream == NULL || peer == 0); i++)
                bytes[i] = byte_of(t->rank, round + 7 * left, i);
            own_pieces(t, handle, peer, bytes, count, round, false, stream);
            if (stream == NULL)
                own_pieces(t, handle, peer, bytes, count, round, true, stream);
        }
    }
}

static void expect_pieces(struct tk *t, struct area *area, uint32_t round) {
    area_clear(area);
    for (size_t index = 0, at = 0; at < area->bytes; index++) {
        size_t length = piece_bytes(index, round);
        int32_t writer = piece_writer(t, index, round);
        for (size_t i = at; writer >= 0 && i < at + length && i < area->bytes; i++)
            area->expected[i] = byte_of(writer, round, i);
        at += length;
    }
    area_check(t, area, "pieces of several ranks");
}

static void pieces(struct tk *t, size_t count, symmem_stream *stream) {
    enum { MOST = 520, ROUNDS = 7 };
    symmem_handle *handle = tk_handle(t, count, tk_world_group(t));
    struct area area;
    uint8_t bytes[MOST];
    area_init(&area, ops_own(t, handle), count);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        area_clear(&area);
        area_upload(t, &area);
        TK_REQUIRE_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
        write_pieces(t, handle, bytes, count, round, stream);
        TK_REQUIRE_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
        tk_synchronize(t, stream);
        expect_pieces(t, &area, round);
        TK_REQUIRE_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

TK_TEST(writers, pieces_of_a_word, "SM-ONESIDED-01", .ranks = {2, 8}) {
    pieces(t, 72, NULL);
}

/* A queue may not make one put of several, for what lies between them is others'. */
TK_TEST(writers, queued_pieces_with_gaps, "SM-ONESIDED-01,SM-STREAM-01",
        .needs = SYMMEM_CAP_STREAMS, .ranks = {2, 8}) {
    pieces(t, 520, tk_stream(t));
}

/* --- gathers of odd chunks ----------------------------------------------------------- */

/* Each chunk but the first begins at an address that no word has. */
static void gather_odd_chunks(struct tk *t, gather_fn gather) {
    static const size_t counts[] = {1, 3, 5, 7, 9, 15, 17, 31, 33, 63, 65, 127, 129, 1001};
    const struct gather_way way = {"odd chunks", gather, FROM_BLOCK_BEHIND, .to_block = true};
    struct places *p = places_on(t, tk_world_group(t));
    for (uint32_t i = 0; i < TK_COUNT(counts) && !tk_failed(t); i++)
        if (counts[i] * (size_t)p->size <= 9000)
            gather_once(t, p, &way, SYMMEM_UINT8, counts[i], 3, 3, i);
}

TK_TEST(writers, odd_chunks, "SM-MOVE-01,SM-MOVE-09", .needs = COLLECTIVES, .ranks = {2, 8}) {
    gather_odd_chunks(t, symmem_all_gather_out);
    gather_odd_chunks(t, symmem_low_contention_all_gather_out);
}

ON_MULTICAST(writers, odd_chunks_by_multicast, "SM-MMEM-03,SM-MMEM-05",
             .needs = COLLECTIVES | SYMMEM_CAP_MULTICAST, .ranks = {2, 8}) {
    gather_odd_chunks(t, symmem_multimem_all_gather_out);
    gather_odd_chunks(t, symmem_low_contention_all_gather_ce_multicast_out);
}

/* --- multicast, deep in a segment ---------------------------------------------------- */

/* A block far behind its segment's beginning, between neighbors that must stay as they are. */
ON_MULTICAST(writers, multicast_deep_in_a_pool, "SM-MCAST-07,SM-MCAST-03,SM-MCAST-04",
             .needs = SYMMEM_CAP_MULTICAST | SYMMEM_CAP_POOL, .ranks = {2, 8}) {
    enum { SEGMENT = 1 << 20, FAR = 700 * 1024 + 256, BYTES = 4096, AT = 1040, COUNT = 40 };
    static const size_t sizes[3] = {FAR, BYTES, BYTES};
    symmem_pool *pool = NULL;
    symmem_handle *handles[3];
    void *blocks[3];
    uint32_t words[COUNT], sums[COUNT] = {0};
    TK_REQUIRE_OK(t, symmem_pool_create(t->context, own_device(t), SEGMENT, &pool));
    for (int i = 0; i < 3; i++) {
        TK_REQUIRE_OK(t, symmem_pool_alloc(pool, sizes[i], &blocks[i]));
        handles[i] = tk_rendezvous(t, blocks[i], tk_world_group(t));
        tk_fill(t, handles[i], t->rank, 0, sizes[i], (uint8_t)(0x51 + i));
    }
    TK_CHECK(t, info_of(t, handles[1]).multicast_ptr != NULL);
    for (uint32_t i = 0; i < COUNT; i++)
        words[i] = word_of(0, 1, i);
    TK_OK(t, symmem_barrier(handles[1], 0, LONG_MS, NULL));
    if (t->rank == 0)
        TK_OK(t, symmem_multimem_store(handles[1], AT, words, sizeof(words), NULL));
    TK_OK(t, symmem_barrier(handles[1], 0, LONG_MS, NULL));
    tk_expect_data(t, handles[1], t->rank, AT, words, sizeof(words));
    TK_OK(t,
          symmem_multimem_ld_reduce(handles[1], AT, sums, COUNT, SYMMEM_UINT32, SYMMEM_SUM, NULL));
    for (uint32_t i = 0; i < COUNT; i++)
        TK_EQ_INT(t, words[i] * (uint32_t)t->world_size, sums[i]);
    tk_expect_bytes(t, handles[1], t->rank, 0, AT, 0x52);
    tk_expect_bytes(t, handles[1], t->rank, AT + sizeof(words), BYTES - AT - sizeof(words), 0x52);
    tk_expect_bytes(t, handles[0], t->rank, 0, FAR, 0x51);
    tk_expect_bytes(t, handles[2], t->rank, 0, BYTES, 0x53);
    TK_OK(t, symmem_barrier(handles[1], 0, LONG_MS, NULL));
    for (int i = 0; i < 3; i++) {
        tk_release(t, handles[i]);
        TK_OK(t, symmem_pool_free(pool, blocks[i]));
    }
    TK_OK(t, symmem_pool_destroy(pool));
}

/* --- ranks that are gone ------------------------------------------------------------- */

enum { LEFT_BYTES = 4096 };

/* The others still reach what the rank that is gone has left: they read it, and write it one after
 * the other. */
static void use_what_is_left(struct tk *t, symmem_handle *handle, int32_t gone) {
    uint8_t byte = (uint8_t)(0x21 + gone);
    tk_expect_bytes(t, handle, gone, 0, LEFT_BYTES / 2, byte);
    size_t own = LEFT_BYTES / 2 + (size_t)t->rank * 64;
    tk_fill(t, handle, gone, own, 64, (uint8_t)(0x81 + t->rank));
    tk_expect_bytes(t, handle, gone, own, 64, (uint8_t)(0x81 + t->rank));
    tk_expect_bytes(t, handle, gone, 0, LEFT_BYTES / 2, byte);
}

/* One rank after the other finalizes; the rest go on with its memory, and with each other's.
 * PASSIVE: a rank that has finalized makes no call any more. */
TK_TEST(writers, memory_of_finalized_ranks, "SM-LIFE-04,SM-ONESIDED-02",
        .needs = SYMMEM_CAP_PASSIVE, .ranks = {2, 8}) {
    symmem_handle *handle = tk_handle(t, LEFT_BYTES, tk_world_group(t));
    tk_fill(t, handle, t->rank, 0, LEFT_BYTES / 2, (uint8_t)(0x21 + t->rank));
    tk_group_barrier(t, tk_world_group(t));
    for (int32_t gone = 0; gone + 1 < t->world_size; gone++) {
        if (t->rank == gone)
            tk_end_context(t);
        tk_out_of_band_barrier(t);
        for (int32_t r = 0; r <= gone && t->rank > gone; r++)
            use_what_is_left(t, handle, r);
        if (t->rank > gone)
            tk_expect_bytes(t, handle, t->last, 0, LEFT_BYTES / 2,
                            (uint8_t)(0x21 + t->world_size - 1));
        tk_out_of_band_barrier(t);
    }
}

/* Killed: it had no time to leave anything behind on purpose. PASSIVE: the dead make no call. */
TK_TEST(writers, memory_of_a_killed_rank, "SM-TIMEOUT-06,SM-ONESIDED-02",
        .needs = SYMMEM_CAP_PASSIVE, .ranks = {2, 8},
        .flags = TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK) {
    symmem_handle *handle = tk_handle(t, LEFT_BYTES, tk_world_group(t));
    int32_t gone = t->world_size / 2;
    tk_expect_death(t, gone);
    tk_fill(t, handle, t->rank, 0, LEFT_BYTES / 2, (uint8_t)(0x21 + t->rank));
    tk_group_barrier(t, tk_world_group(t));
    tk_out_of_band_barrier(t);
    if (t->rank == gone)
        tk_kill_self(t);
    TK_CHECK(t, tk_wait_death(t, gone, LONG_MS));
    use_what_is_left(t, handle, gone);
}

/* In a process of the rank's own: the last one ends by itself, and the others look after that. */
static void leave_by_exit(struct tk *t, void *arg) {
    (void)arg;
    symmem_context_options options = tk_options(t);
    symmem_context *context = NULL;
    int32_t gone = t->last;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    tk_join(t, context);
    tk_use_context(t, context);
    symmem_handle *handle = tk_handle(t, LEFT_BYTES, tk_world_group(t));
    tk_fill(t, handle, t->rank, 0, LEFT_BYTES / 2, (uint8_t)(0x21 + t->rank));
    tk_group_barrier(t, tk_world_group(t));
    if (t->rank == gone)
        return; /* nothing is given back */
    if (await_shared(t, gone, TK_ENDED_SLOT, 1))
        use_what_is_left(t, handle, gone);
}

/* PASSIVE: who has exited makes no call. */
TK_TEST(writers, memory_of_a_rank_that_exited, "SM-LIFE-04,SM-ONESIDED-02",
        .needs = SYMMEM_CAP_PASSIVE, .ranks = {2, 8},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK) {
    TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, leave_by_exit, NULL, LONG_MS));
}
