/* SPDX-License-Identifier: BSD-3-Clause */
#include "move_ops.h"

#include "ops_calls.h"

#define BYTES ((size_t)MOVER_COUNT * 4)
#define OUT_BYTES (BYTES * MOVER_MAX_RANKS)

void mover_memory_init(struct tk *t, struct mover_memory *memory, symmem_group *group) {
    memory->handle = tk_handle(t, BYTES + OUT_BYTES, group);
    memory->own = ops_own(t, memory->handle);
    memory->far = tk_alloc(t, BYTES + OUT_BYTES);
}

static bool output_is_symmetric(enum mover_kind kind) {
    return kind == MOVER_PUSH || kind == MOVER_MULTIMEM_ALL_GATHER || kind == MOVER_CE_MULTICAST;
}

bool mover_in_place(const struct mover *mover) {
    return mover->kind == MOVER_BROADCAST || mover->kind == MOVER_MULTIMEM_ALL_REDUCE;
}

void mover_init(struct tk *t, struct mover *mover, const struct mover_memory *memory, int kind,
                int32_t channel) {
    symmem_handle_info info = info_of(t, memory->handle);
    bool far_input = output_is_symmetric((enum mover_kind)kind) || kind == MOVER_STAGED;
    *mover = (struct mover){
        .kind = (enum mover_kind)kind,
        .handle = memory->handle,
        .rank = info.rank,
        .size = info.world_size,
        .channel = channel,
        .limit_ms = LONG_MS,
        .in = far_input ? memory->far : memory->own,
        .out = (output_is_symmetric((enum mover_kind)kind) ? memory->own : memory->far) + BYTES};
    if (mover_in_place(mover))
        mover->out = mover->in;
}

const char *mover_name(const struct mover *mover) {
    static const char *const names[MOVER_ALL_KINDS] = {"all_gather, pull",
                                                       "all_gather, push",
                                                       "broadcast",
                                                       "all_to_all",
                                                       "low_contention_all_gather",
                                                       "low_contention_all_gather, staged",
                                                       "multimem_all_reduce",
                                                       "multimem_one_shot_all_reduce",
                                                       "multimem_one_shot_reduce",
                                                       "multimem_all_gather",
                                                       "ce_multicast"};
    return names[mover->kind];
}

static int32_t root_of(const struct mover *mover) {
    return mover->size - 1;
}

static bool is_reduction(enum mover_kind kind) {
    return kind == MOVER_MULTIMEM_ALL_REDUCE || kind == MOVER_MULTIMEM_ONE_SHOT ||
           kind == MOVER_MULTIMEM_REDUCE;
}

static void input_of(int32_t *words, int32_t rank, uint32_t generation) {
    fill_words((uint32_t *)words, MOVER_COUNT, rank, generation);
}

void mover_load(struct tk *t, const struct mover *mover, uint32_t generation) {
    int32_t words[MOVER_COUNT];
    uint8_t canaries[OUT_BYTES];
    memset(canaries, CANARY, sizeof(canaries));
    if (!mover_in_place(mover))
        ops_upload(t, mover->out, canaries, BYTES * (size_t)mover->size);
    input_of(words, mover->rank, generation);
    ops_upload(t, mover->in, words, sizeof(words));
}

void mover_overwrite(struct tk *t, const struct mover *mover) {
    int32_t words[MOVER_COUNT];
    memset(words, 0x5A, sizeof(words));
    ops_upload(t, mover->in, words, sizeof(words));
}

symmem_status mover_run(const struct mover *m, uint32_t limit_ms, symmem_stream *stream) {
    static const ops_fn kinds[MOVER_ALL_KINDS] = {row_all_gather,
                                                  row_all_gather,
                                                  row_broadcast,
                                                  row_all_to_all,
                                                  row_low_contention_all_gather,
                                                  row_low_contention_all_gather,
                                                  row_multimem_all_reduce,
                                                  row_multimem_one_shot,
                                                  row_multimem_reduce,
                                                  row_multimem_all_gather,
                                                  row_ce_multicast};
    bool same = m->kind == MOVER_ALL_TO_ALL || is_reduction(m->kind);
    const struct ops_call call = {
        .handle = m->handle,
        .input = FLAT(m->in, SYMMEM_INT32, MOVER_COUNT),
        .out = FLAT(m->out, SYMMEM_INT32, MOVER_COUNT * (same ? 1 : (size_t)m->size)),
        .op = SYMMEM_SUM,
        .root = root_of(m),
        .channel = m->channel,
        .limit_ms = limit_ms,
        .stream = stream};
    return kinds[m->kind](&call);
}

/* The bytes of the output that the operation writes; 0: none on this rank. */
static size_t model(const struct mover *m, uint32_t generation, int32_t *out) {
    int32_t words[MOVER_COUNT];
    size_t part = MOVER_COUNT / (size_t)m->size;
    memset(out, 0, OUT_BYTES);
    for (int32_t r = 0; r < m->size; r++) {
        input_of(words, r, generation);
        if (is_reduction(m->kind)) {
            for (int i = 0; i < MOVER_COUNT; i++)
                out[i] = (int32_t)((uint32_t)out[i] + (uint32_t)words[i]);
        } else if (m->kind == MOVER_BROADCAST) {
            if (r == root_of(m))
                memcpy(out, words, BYTES);
        } else if (m->kind == MOVER_ALL_TO_ALL) {
            memcpy(out + part * (size_t)r, words + part * (size_t)m->rank, part * 4);
        } else {
            memcpy(out + MOVER_COUNT * (size_t)r, words, BYTES);
        }
    }
    if (m->kind == MOVER_MULTIMEM_REDUCE && m->rank != root_of(m))
        return 0;
    bool gathers = !is_reduction(m->kind) && m->kind != MOVER_BROADCAST;
    return gathers && m->kind != MOVER_ALL_TO_ALL ? BYTES * (size_t)m->size : BYTES;
}

bool mover_expect(struct tk *t, const struct mover *mover, uint32_t generation, const char *what) {
    int32_t expected[OUT_BYTES / 4], got[OUT_BYTES / 4];
    size_t bytes = model(mover, generation, expected);
    size_t all = mover_in_place(mover) ? BYTES : BYTES * (size_t)mover->size;
    memset((char *)expected + bytes, CANARY, all - bytes);
    ops_download(t, got, mover->out, all);
    size_t wrong = 0;
    while (wrong < all / 4 && got[wrong] == expected[wrong])
        wrong++;
    return TK_CHECK_MSG(t, wrong == all / 4, "%s, %s: word %zu of %zu is wrong", mover_name(mover),
                        what, wrong, all / 4);
}

bool mover_untouched(struct tk *t, const struct mover *mover, uint32_t generation,
                     const char *what) {
    int32_t expected[OUT_BYTES / 4], got[OUT_BYTES / 4];
    size_t all = mover_in_place(mover) ? BYTES : BYTES * (size_t)mover->size;
    memset(expected, CANARY, sizeof(expected));
    if (mover_in_place(mover))
        input_of(expected, mover->rank, generation);
    ops_download(t, got, mover->out, all);
    return TK_CHECK_MSG(t, memcmp(got, expected, all) == 0, "%s, %s: the output was written",
                        mover_name(mover), what);
}
