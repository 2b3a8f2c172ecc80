/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided copies: exact bytes, no part of the peer, ranges, order with signals. */
#include "case_help.h"

enum { REGION = 16384 };

/* A byte pattern without a short period, distinct for each rank and salt. */
static void fill_pattern(uint8_t *bytes, size_t count, int32_t rank, uint32_t salt) {
    for (size_t i = 0; i < count; i++)
        bytes[i] =
            (uint8_t)((i * 131 + (i >> 8) * 17 + salt * 29 + (uint32_t)rank * 71) ^ (i >> 3));
}

/* --- exact bytes ------------------------------------------------------------------------------ */

static const size_t sizes[] = {0,   1,   2,   3,   4,    5,    7,    8,   9,   15,
                               16,  17,  31,  32,  33,   63,   64,   65,  127, 128,
                               129, 255, 256, 257, 4095, 4096, 4097, 8191};
static const size_t offsets[] = {0, 1, 2, 3, 4, 7, 8, 13, 63, 64, 4095, 4097};

TK_TEST(onesided, put_moves_exactly, "SM-ONESIDED-01", .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, REGION, tk_world_group(t));
    uint8_t *source = tk_scratch(t, REGION);
    uint8_t *expected = tk_scratch(t, REGION);
    uint32_t salt = 0;
    fill_pattern(source, REGION, t->rank, 1);
    for (size_t s = 0; s < TK_COUNT(sizes) && !tk_failed(t); s++)
        for (size_t o = 0; o < TK_COUNT(offsets) && !tk_failed(t); o++) {
            size_t from = salt++ % 17; /* alignments of the two ends vary apart */
            memset(expected, 0xA0 + (int)(salt % 64), REGION);
            tk_write(t, handle, t->next, 0, expected, REGION);
            memcpy(expected + offsets[o], source + from, sizes[s]);
            TK_OK(t, symmem_put(handle, t->next, offsets[o], source + from, sizes[s], NULL));
            tk_expect_data(t, handle, t->next, 0, expected, REGION);
        }
}

TK_TEST(onesided, get_moves_exactly, "SM-ONESIDED-01", .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, REGION, tk_world_group(t));
    uint8_t *remote = tk_scratch(t, REGION);
    uint8_t *target = tk_scratch(t, REGION);
    uint8_t *expected = tk_scratch(t, REGION);
    uint32_t salt = 0;
    fill_pattern(remote, REGION, t->next, 2);
    tk_write(t, handle, t->next, 0, remote, REGION);
    for (size_t s = 0; s < TK_COUNT(sizes) && !tk_failed(t); s++)
        for (size_t o = 0; o < TK_COUNT(offsets) && !tk_failed(t); o++) {
            size_t to = salt++ % 17;
            memset(target, 0xC5, REGION);
            memset(expected, 0xC5, REGION);
            memcpy(expected + to, remote + offsets[o], sizes[s]);
            TK_OK(t, symmem_get(handle, t->next, offsets[o], target + to, sizes[s], NULL));
            TK_CHECK_MSG(t, memcmp(target, expected, REGION) == 0, "get of %zu bytes at %zu",
                         sizes[s], offsets[o]);
        }
    tk_out_of_band_barrier(t);
    tk_expect_data(t, handle, t->next, 0, remote, REGION); /* reading changes nothing */
}

/* Every rank writes its piece at every rank; each place gets its own writer's data. */
ON_EACH_SHAPE(onesided, put_and_get_on_every_group_shape, "SM-ONESIDED-01,SM-GROUP-02",
              .max_ranks = 8) {
    enum { PIECE = 77 };
    symmem_handle *handle = tk_handle(t, (size_t)shape->count * PIECE + 9, group);
    uint8_t piece[PIECE];
    uint8_t seen[PIECE];
    for (int32_t peer = 0; peer < shape->count; peer++) {
        fill_pattern(piece, PIECE, t->rank, (uint32_t)peer);
        TK_OK(t, symmem_put(handle, peer, (size_t)shape->rank * PIECE, piece, PIECE, NULL));
    }
    tk_group_barrier(t, group);
    for (int32_t peer = 0; peer < shape->count; peer++) {
        fill_pattern(piece, PIECE, shape->ranks[peer], (uint32_t)shape->rank);
        tk_expect_data(t, handle, shape->rank, (size_t)peer * PIECE, piece, PIECE);
        int32_t other = (shape->rank + 1) % shape->count; /* what another rank received */
        fill_pattern(piece, PIECE, shape->ranks[peer], (uint32_t)other);
        TK_OK(t, symmem_get(handle, other, (size_t)peer * PIECE, seen, PIECE, NULL));
        TK_CHECK(t, memcmp(seen, piece, PIECE) == 0);
    }
    tk_expect_bytes(t, handle, shape->rank, (size_t)shape->count * PIECE, 9, 0);
}

/* --- PyTorch's get ---------------------------------------------------------------------------- */

TK_PORTED(test_get, "SM-ONESIDED-01,SM-ONESIDED-03", .ranks = {2, 4}) {
    enum { COUNT = 2048 };
    symmem_handle *handle = tk_handle(t, COUNT * sizeof(float), tk_world_group(t));
    size_t block = info_of(t, handle).block_size;
    float *values = tk_scratch(t, COUNT * sizeof(float));
    int32_t peer = 1;
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(COUNT * t->rank + i);
    tk_write(t, handle, t->rank, 0, values, COUNT * sizeof(float));
    tk_out_of_band_barrier(t);
    for (int i = 0; i < COUNT; i++)
        values[i] = -1.0f;
    TK_OK(t, symmem_get(handle, peer, 512 * sizeof(float), values, 1024 * sizeof(float), NULL));
    int wrong = 0;
    for (int i = 0; i < 1024; i++)
        wrong += values[i] != (float)(COUNT * peer + 512 + i);
    TK_EQ_INT(t, 0, wrong);
    TK_CHECK_MSG(t, values[1024] == -1.0f, "the element after the destination was changed");
    TK_OK(t, symmem_get(handle, peer, 0, values, COUNT * sizeof(float), NULL));
    for (int i = 0; i < COUNT; i++)
        wrong += values[i] != (float)(COUNT * peer + i);
    TK_EQ_INT(t, 0, wrong);
    TK_FAILS(t, OUT_OF_RANGE, symmem_get(handle, peer, block, values, 4, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_get(handle, t->world_size, 0, values, 4, NULL));
    TK_FAILS(t, OVERFLOW, symmem_get(handle, peer, SIZE_MAX - 3, values, 8, NULL));
}

/* --- no part of the peer ---------------------------------------------------------------------- */

TK_TEST(onesided, peer_makes_no_call, "SM-ONESIDED-02", .max_ranks = 4) {
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    uint8_t data[4096];
    uint8_t seen[4096];
    for (int32_t active = 0; active < t->world_size; active++) {
        if (t->rank == active)
            for (int32_t peer = 0; peer < t->world_size; peer++) {
                fill_pattern(data, sizeof(data), active, (uint32_t)peer);
                TK_OK(t, symmem_put(handle, peer, 0, data, sizeof(data), NULL));
                TK_OK(t, symmem_get(handle, peer, 0, seen, sizeof(seen), NULL));
                TK_CHECK(t, memcmp(data, seen, sizeof(data)) == 0);
            }
        tk_out_of_band_barrier(t);
    }
}

/* --- ranges ----------------------------------------------------------------------------------- */

/* With an interior pointer offsets count from there and the bound is still the block's end. */
TK_TEST(onesided, ranges_with_an_offset, "SM-ONESIDED-03,SM-HANDLE-05", .max_ranks = 2) {
    enum { BYTES = 1024, AT = 256 };
    uint8_t *ptr = tk_alloc(t, BYTES);
    symmem_handle *whole = tk_rendezvous(t, ptr, tk_world_group(t));
    symmem_handle *part = tk_rendezvous(t, ptr + AT, tk_world_group(t));
    uint8_t data[BYTES];
    memset(data, 0x9A, sizeof(data));
    TK_EQ_SIZE(t, AT, info_of(t, part).offset);
    TK_OK(t, symmem_put(part, t->next, 0, data, BYTES - AT, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_put(part, t->next, 0, data, BYTES - AT + 1, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_get(part, t->next, BYTES - AT, data, 1, NULL));
    tk_expect_bytes(t, whole, t->next, 0, AT, 0);
    tk_expect_bytes(t, whole, t->next, AT, BYTES - AT, 0x9A);
}

/* --- order ------------------------------------------------------------------------------------ */

/* Data, signal and wait, on the stream if there is one. */
static void pass_data(struct tk *t, size_t count, symmem_stream *stream) {
    const size_t bytes = count * sizeof(uint32_t);
    symmem_handle *handle = tk_handle(t, bytes, tk_world_group(t));
    uint32_t *words = tk_scratch(t, 2 * bytes), *seen = words + count;
    for (uint32_t g = 1; g <= 6; g++) {
        fill_words(words, count, t->rank, g);
        TK_OK(t, symmem_put(handle, t->next, 0, words, bytes, stream));
        TK_OK(t, symmem_put_signal(handle, t->next, 0, LONG_MS, stream));
        TK_OK(t, symmem_wait_signal(handle, t->previous, 0, LONG_MS, stream));
        TK_OK(t, symmem_get(handle, t->rank, 0, seen, bytes, stream));
        if (stream == NULL)
            ring_signal(t, handle, 1); /* the buffer may be written again: said backwards and on */
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
        tk_synchronize(t, stream);
        TK_EQ_SIZE(t, count, first_wrong_word(seen, count, t->previous, g));
    }
}

TK_TEST(onesided, data_before_signal, "SM-ONESIDED-04", .max_ranks = 4) {
    pass_data(t, 1 << 16, NULL);
}

TK_TEST(onesided, data_before_signal_on_streams, "SM-ONESIDED-04,SM-STREAM-01",
        .needs = SYMMEM_CAP_STREAMS, .max_ranks = 4) {
    pass_data(t, 1 << 14, tk_stream(t));
}

/* --- past 2^32 -------------------------------------------------------------------------------- */

TK_TEST(onesided, past_four_gib, "SM-ONESIDED-05", .max_ranks = 2, .flags = TK_LARGE,
        .timeout_s = 120) {
    const size_t four = (size_t)1 << 32;
    const size_t at[] = {0,    4096,       ((size_t)1 << 31) - 16, (size_t)1 << 31, four - 16,
                         four, four + 4096};
    const size_t bytes = four + 8192;
    void *ptr = NULL;
    symmem_status status = symmem_alloc(t->context, bytes, -1, NULL, &ptr);
    TK_CHECK(t, status == SYMMEM_OK || status == SYMMEM_NO_SPACE);
    if (!tk_all_agree(t, 0, status == SYMMEM_OK)) {
        tk_unresolved(t, "no room for %d blocks of 4 GiB", (int)t->world_size);
        TK_OK(t, symmem_free(t->context, ptr));
        return;
    }
    symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
    for (size_t i = 0; i < TK_COUNT(at); i++) {
        uint8_t data[13];
        fill_pattern(data, sizeof(data), t->rank, (uint32_t)i + 3);
        TK_OK(t, symmem_put(handle, t->next, at[i] + 1, data, sizeof(data), NULL));
    }
    for (size_t i = 0; i < TK_COUNT(at); i++) {
        uint8_t expected[13];
        uint8_t seen[13];
        fill_pattern(expected, sizeof(expected), t->rank, (uint32_t)i + 3);
        TK_OK(t, symmem_get(handle, t->next, at[i] + 1, seen, sizeof(seen), NULL));
        TK_CHECK_MSG(t, memcmp(seen, expected, sizeof(seen)) == 0, "data at %zu", at[i]);
    }
    uint8_t byte = 1;
    TK_OK(t, symmem_put(handle, t->next, bytes - 1, &byte, 1, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_put(handle, t->next, bytes, &byte, 1, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_put(handle, t->next, 1, &byte, bytes, NULL));
    tk_release(t, handle);
    TK_OK(t, symmem_free(t->context, ptr));
}

/* --- copy ------------------------------------------------------------------------------------- */

TK_TEST(onesided, copy_in_any_direction, "SM-ONESIDED-06", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .max_ranks = 4, .flags = TK_PLAIN_MEMORY) {
    enum { BYTES = 3001 };
    symmem_handle *handle = tk_handle(t, 2 * BYTES, tk_world_group(t));
    uint8_t *host = tk_scratch(t, 2 * (size_t)BYTES);
    void *const *buffers = buffers_of(t, handle);
    uint8_t *own = buffers[t->rank];
    uint8_t *peer = buffers[t->next];
    fill_pattern(host, BYTES, t->rank, 5);
    memset(host + BYTES, 0, BYTES);
    TK_OK(t, symmem_copy(t->context, own, host, BYTES, NULL)); /* host to own */
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_copy(t->context, peer + BYTES, own, BYTES, NULL)); /* own to peer */
    tk_expect_data(t, handle, t->next, BYTES, host, BYTES);
    TK_OK(t, symmem_copy(t->context, host + BYTES, peer + BYTES, BYTES, NULL)); /* peer to host */
    TK_CHECK(t, memcmp(host, host + BYTES, BYTES) == 0);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_copy(t->context, peer, peer + BYTES + 1, BYTES - 1, NULL)); /* peer to peer */
    tk_expect_data(t, handle, t->next, 0, host + 1, BYTES - 1);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_copy(t->context, own, peer + BYTES, BYTES, NULL));  /* peer to own */
    TK_OK(t, symmem_copy(t->context, host + BYTES, host, BYTES, NULL)); /* host to host */
    TK_CHECK(t, memcmp(host, host + BYTES, BYTES) == 0);
    TK_OK(t, symmem_copy(t->context, own, host, 0, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_copy(t->context, NULL, host, 1, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_copy(t->context, own, NULL, 1, NULL));
}

/* Each rank writes a piece of its own again and again; its ends share words with others' pieces, of
 * which nothing is lost. */
TK_TEST(onesided, neighbors_write_at_once, "SM-ONESIDED-01", .ranks = {2, 4}) {
    enum { PIECE = 4097 };
    symmem_handle *handle = tk_handle(t, PIECE * (size_t)t->world_size, tk_world_group(t));
    size_t at = PIECE * (size_t)t->rank;
    uint64_t end_ms = tk_now_ms() + 100;
    uint8_t data[PIECE];
    tk_out_of_band_barrier(t);
    for (uint32_t i = 1; !tk_failed(t) && (i % 16 != 0 || tk_now_ms() < end_ms); i++) {
        uint8_t ends[2] = {0};
        memset(data, (uint8_t)i, sizeof(data));
        TK_OK(t, symmem_put(handle, 0, at, data, PIECE, NULL));
        TK_OK(t, symmem_get(handle, 0, at, &ends[0], 1, NULL));
        TK_OK(t, symmem_get(handle, 0, at + PIECE - 1, &ends[1], 1, NULL));
        TK_CHECK_MSG(t, ends[0] == data[0] && ends[1] == data[0],
                     "write %u of 0x%02x: the ends are 0x%02x and 0x%02x", i, data[0], ends[0],
                     ends[1]);
    }
    tk_out_of_band_barrier(t);
}
