/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions of a few MiB, where implementations begin to go past the caches: each element is
 * looked at, with beginnings and ends that are no multiple of a line.
 */
#include "ops_help.h"

enum { WORDS = (8 << 20) / 4 + 1029, LESS = (4 << 20) / 4 + 77, AT = 3 };

struct room {
    symmem_handle *handle;
    char *own, *input, *out; /* the last two elsewhere */
    uint32_t *words;
    uint32_t limit_ms;
};

static uint32_t input_word(int32_t rank, uint32_t generation, size_t i) {
    return (uint32_t)(rank + 1) * 0x01000193u + generation * 0x9e3779b1u + (uint32_t)i;
}

static void lay(struct tk *t, const struct room *room, char *at, size_t count,
                uint32_t generation) {
    for (size_t i = 0; i < count; i++)
        room->words[i] = input_word(t->rank, generation, i);
    ops_upload(t, at, room->words, count * 4);
}

/* `count` sums from element `first` on; the words around them were zero and still are. */
static void expect_sums(struct tk *t, const struct room *room, char *at, size_t first, size_t count,
                        uint32_t generation, const char *what) {
    size_t i = 0;
    ops_download(t, room->words, at - AT * 4, (AT + count + 1) * 4);
    for (; i < count; i++) {
        uint32_t sum = 0;
        for (int32_t r = 0; r < t->world_size; r++)
            sum += input_word(r, generation, first + i);
        if (room->words[AT + i] != sum)
            break;
    }
    TK_CHECK_MSG(t, i == count, "%s: element %zu of %zu is wrong", what, i, count);
    TK_EQ_INT(t, 0, room->words[AT - 1]);
    TK_EQ_INT(t, 0, room->words[AT + count]);
}

static void clear(struct tk *t, const struct room *room, char *at) {
    memset(room->words, 0, (WORDS + 16) * 4);
    ops_upload(t, at, room->words, (WORDS + 16) * 4);
}

static void all_reduces(struct tk *t, const struct room *room) {
    char *own = room->own + AT * 4, *far = room->out + AT * 4;
    lay(t, room, own, LESS, 1);
    TK_OK(t,
          symmem_one_shot_all_reduce_out(room->handle, FLAT(own, SYMMEM_UINT32, LESS), SYMMEM_SUM,
                                         FLAT(far, SYMMEM_UINT32, LESS), 0, room->limit_ms, NULL));
    expect_sums(t, room, far, 0, LESS, 1, "one_shot_all_reduce_out");
    clear(t, room, room->out);
    TK_OK(t,
          symmem_two_shot_all_reduce_out(room->handle, FLAT(own, SYMMEM_UINT32, LESS), SYMMEM_SUM,
                                         FLAT(far, SYMMEM_UINT32, LESS), 0, room->limit_ms, NULL));
    expect_sums(t, room, far, 0, LESS, 1, "two_shot_all_reduce_out");
    clear(t, room, room->own);
    lay(t, room, room->input, WORDS, 2);
    TK_OK(t, symmem_all_reduce(room->handle, FLAT(room->input, SYMMEM_UINT32, WORDS), SYMMEM_SUM,
                               FLAT(own, SYMMEM_UINT32, WORDS), 0, room->limit_ms, NULL));
    expect_sums(t, room, own, 0, WORDS, 2, "all_reduce into symmetric memory");
    clear(t, room, room->out);
    TK_OK(t, symmem_all_reduce(room->handle, FLAT(room->input, SYMMEM_UINT32, WORDS), SYMMEM_SUM,
                               FLAT(far, SYMMEM_UINT32, WORDS), 0, room->limit_ms, NULL));
    expect_sums(t, room, far, 0, WORDS, 2, "all_reduce elsewhere");
}

static void reduce_scatters(struct tk *t, const struct room *room) {
    const size_t size = (size_t)t->world_size, part = WORDS / size;
    char *own = room->own + AT * 4, *far = room->out + AT * 4;
    for (uint32_t symmetric = 0; symmetric < 2; symmetric++) {
        char *from = symmetric ? own : room->input;
        clear(t, room, room->out);
        lay(t, room, from, part * size, 3 + symmetric);
        TK_OK(t, symmem_low_contention_reduce_scatter(
                     room->handle, FLAT(from, SYMMEM_UINT32, part * size), SYMMEM_SUM,
                     FLAT(far, SYMMEM_UINT32, part), 0, room->limit_ms, NULL));
        expect_sums(t, room, far, (size_t)t->rank * part, part, 3 + symmetric,
                    symmetric ? "pulled parts" : "pushed parts");
        TK_OK(t, symmem_barrier(room->handle, 0, room->limit_ms, NULL));
    }
}

TK_TEST(reduce, past_the_caches, "SM-REDUCE-01,SM-REDUCE-02,SM-REDUCE-10", .needs = COLLECTIVES,
        .ranks = {2, 2}, .timeout_s = 40) {
    struct room room = {.handle = tk_handle(t, (WORDS + 16) * 4, tk_world_group(t)),
                        .input = tk_alloc(t, (WORDS + 16) * 4),
                        .out = tk_alloc(t, (WORDS + 16) * 4),
                        .words = tk_scratch(t, (WORDS + 16) * 4),
                        .limit_ms = tk_scaled_ms(LONG_MS)};
    room.own = ops_own(t, room.handle);
    all_reduces(t, &room);
    reduce_scatters(t, &room);
}
