/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops_help.h"
#include "work_after.h"

enum { WORDS = 16, OUT_AT = 2048, BYTES = 4096 };

struct work {
    struct tk *t;
    symmem_context *context;
    symmem_handle *handle;
    char *memory;
    symmem_handle_info info;
    uint32_t limit_ms;
};

/* Words of this rank's memory. Each tensor is used for one call. */
static const DLTensor *words(const struct work *work, struct ops_tensor *tensor, size_t at) {
    ops_flat(tensor, work->memory + at, SYMMEM_UINT32, WORDS);
    tensor->dl.device.device_type = (DLDeviceType)work->t->device_type;
    tensor->dl.device.device_id = work->info.device;
    return &tensor->dl;
}

static uint32_t word_in(int32_t rank, uint32_t round) {
    return 1000 * round + (uint32_t)rank + 1;
}

static uint32_t sum_in(int32_t ranks, uint32_t round) {
    uint32_t sum = 0;
    for (int32_t rank = 0; rank < ranks; rank++)
        sum += word_in(rank, round);
    return sum;
}

/* Fills this rank's words, waits for the others, hands a signal round and looks at the rank it came
 * from. */
static void signals(const struct work *work, uint32_t round, uint32_t *got, symmem_stream *stream) {
    struct tk *t = work->t;
    const int32_t rank = work->info.rank, ranks = work->info.world_size;
    const int32_t next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    struct ops_tensor in;
    TK_REQUIRE_OK(t, symmem_memset32(work->context, words(work, &in, 0), 0, word_in(rank, round),
                                     WORDS, stream));
    TK_REQUIRE_OK(t, symmem_barrier(work->handle, 0, work->limit_ms, stream));
    TK_REQUIRE_OK(t, symmem_put_signal(work->handle, next, 1, work->limit_ms, stream));
    TK_REQUIRE_OK(t, symmem_wait_signal(work->handle, previous, 1, work->limit_ms, stream));
    TK_REQUIRE_OK(t, symmem_get(work->handle, previous, 0, got, WORDS * sizeof(*got), stream));
}

static void all_reduce(const struct work *work, uint32_t *got, symmem_stream *stream) {
    struct tk *t = work->t;
    struct ops_tensor in, out;
    TK_REQUIRE_OK(t, symmem_one_shot_all_reduce_out(work->handle, words(work, &in, 0), SYMMEM_SUM,
                                                    words(work, &out, OUT_AT), 2, work->limit_ms,
                                                    stream));
    TK_REQUIRE_OK(
        t, symmem_get(work->handle, work->info.rank, OUT_AT, got, WORDS * sizeof(*got), stream));
}

static void expect_words(struct tk *t, const char *what, uint32_t expected, const uint32_t *got) {
    int wrong = 0;
    while (wrong < WORDS && got[wrong] == expected)
        wrong++;
    TK_CHECK_MSG(t, wrong == WORDS, "%s after a failure: word %d is %u, not %u", what, wrong,
                 wrong < WORDS ? got[wrong] : 0, expected);
}

/* The last barrier keeps the words until all ranks have read them. */
static void run_round(const struct work *work, uint32_t round, symmem_stream *stream) {
    struct tk *t = work->t;
    const int32_t rank = work->info.rank, ranks = work->info.world_size;
    const bool sums = (t->capabilities & COLLECTIVES) == COLLECTIVES;
    uint32_t previous[WORDS] = {0}, sum[WORDS] = {0};
    signals(work, round, previous, stream);
    if (sums)
        all_reduce(work, sum, stream);
    TK_REQUIRE_OK(t, symmem_barrier(work->handle, 0, work->limit_ms, stream));
    if (stream != NULL)
        TK_REQUIRE_OK(t, symmem_stream_synchronize(stream, work->limit_ms));
    expect_words(t, "a fill, a barrier and a signal", word_in((rank + ranks - 1) % ranks, round),
                 previous);
    if (sums)
        expect_words(t, "an all-reduce", sum_in(ranks, round), sum);
}

static void run_rounds(const struct work *work, symmem_stream *told) {
    struct tk *t = work->t;
    symmem_stream *fresh = NULL;
    run_round(work, 1, NULL);
    if (told != NULL)
        run_round(work, 2, told);
    if ((t->capabilities & SYMMEM_CAP_STREAMS) == 0)
        return;
    TK_REQUIRE_OK(t, symmem_stream_create(work->context, work->info.device, &fresh));
    run_round(work, 3, fresh);
    TK_OK(t, symmem_stream_destroy(fresh));
}

void work_after_on(struct tk *t, symmem_context *context, symmem_group *group,
                   symmem_stream *stream) {
    struct work work = {.t = t, .context = context, .limit_ms = LONG_MS};
    void *memory = NULL;
    TK_REQUIRE_OK(t, symmem_alloc(context, BYTES, -1, NULL, &memory));
    TK_REQUIRE_OK(t, symmem_rendezvous(context, memory, group, work.limit_ms, &work.handle));
    work.memory = memory;
    work.info = info_of(t, work.handle);
    run_rounds(&work, stream);
    symmem_handle_release(work.handle);
    TK_OK(t, symmem_free(context, memory));
}

void work_after_loss(struct tk *t, symmem_context *context, int32_t first, int32_t count,
                     symmem_stream *stream) {
    int32_t ranks[SYMMEM_MAX_WORLD_SIZE], left = 0;
    symmem_group *group = NULL;
    for (int32_t rank = 0; rank < t->world_size; rank++)
        if (rank < first || rank >= first + count)
            ranks[left++] = rank;
    TK_REQ(t, "SM-TIMEOUT-14");
    tk_checkpoint(t, "other work after a failure");
    if (context == NULL)
        context = t->context;
    TK_REQUIRE_OK(t, symmem_group_create(context, "after", ranks, left, NULL, &group));
    work_after_on(t, context, group, stream);
    TK_OK(t, symmem_group_destroy(group));
    TK_REQ(t, NULL);
}

void work_after(struct tk *t, symmem_stream *stream) {
    work_after_loss(t, NULL, 0, 0, stream);
}
