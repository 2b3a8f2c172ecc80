/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-alls with splits in memory: what comes out, and when the splits are read. */
#include "case_help.h"
#include "split_help.h"

#define BELOW 6

static void split_once(struct tk *t, struct split_case *x, uint32_t generation) {
    split_load(t, x, generation);
    bool held = TK_OK(t, split_run(x, NULL)) && split_expect(t, x, "rows, splits and offsets");
    TK_CHECK_MSG(t, held, "%s, generation %u: rows of %zu %s, %zu experts, alignment %d",
                 split_name(x), generation, x->row, symmem_dtype_name(x->dtype), x->experts,
                 (int)x->align);
}

static void on_shape(struct tk *t, symmem_group *group, int32_t count, enum split_form form) {
    struct split_case *x = split_begin(t, group);
    uint64_t state = t->seed + (uint64_t)count;
    for (uint32_t i = 0; i < (tk_suite_is_long() ? 100 : 6); i++) {
        split_draw_all(x, &state, form);
        x->channel = i % 2 == 0 ? 1 : 5;
        split_once(t, x, i);
    }
}

ON_EACH_SHAPE(all_to_all_v, rows_for_ranks, "SM-SPLIT-01,SM-SPLIT-02,SM-SPLIT-10", .needs = SPLITS,
              .max_ranks = SPLIT_RANKS) {
    on_shape(t, group, shape->count, SPLIT_FLAT);
}

ON_EACH_SHAPE(all_to_all_v, rows_for_experts, "SM-SPLIT-02,SM-SPLIT-03", .needs = SPLITS,
              .max_ranks = SPLIT_RANKS) {
    on_shape(t, group, shape->count, SPLIT_2D);
}

ON_EACH_SHAPE(all_to_all_v, rows_back_from_experts, "SM-SPLIT-02,SM-SPLIT-04", .needs = SPLITS,
              .max_ranks = SPLIT_RANKS) {
    on_shape(t, group, shape->count, SPLIT_BACK);
}

/* Rows of 16, 32 or 48 bytes, which begin at multiples of 16 in three of four inputs. */
static void draw_units(struct split_case *x, uint64_t *state, enum split_form form) {
    x->form = form;
    x->experts = form == SPLIT_FLAT ? 1 : 1 + draw(state, SPLIT_EXPERTS);
    x->align = 1 + draw(state, 4);
    x->row = 4 * (1 + draw(state, 3));
    split_draw(x, state, 7);
    for (int32_t r = 0; r < x->size; r++)
        x->ranks[r].in_at = 16 * draw(state, 20) + (draw(state, 4) == 0 ? 4 : 0);
}

/* One rank sends another one 9 KiB. */
static void draw_much(struct split_case *x, uint64_t *state) {
    struct split_rank *sender = &x->ranks[draw(state, (uint32_t)x->size)];
    draw_units(x, state, SPLIT_FLAT);
    const size_t rows = 9216 / split_row_bytes(x);
    for (int32_t r = 0; r < x->size; r++)
        sender->in[0][r] /= 4;
    sender->in[0][draw(state, (uint32_t)x->size)] = (int64_t)rows;
    sender->in_rows = 0;
    for (int32_t r = 0; r < x->size; r++)
        sender->in_rows += (size_t)sender->in[0][r];
    for (int32_t r = 0; r < x->size; r++)
        x->ranks[r].out_rows = split_need(x, r);
}

/* What a backend may move in larger units. */
ON_EACH_SHAPE(all_to_all_v, rows_of_whole_units, "SM-SPLIT-01,SM-SPLIT-03,SM-SPLIT-04",
              .needs = SPLITS, .max_ranks = SPLIT_RANKS) {
    struct split_case *x = split_begin(t, group);
    uint64_t state = t->seed + (uint64_t)shape->count;
    for (uint32_t i = 0; i < 16; i++) {
        if (i % 4 == 3)
            draw_much(x, &state);
        else
            draw_units(x, &state, (enum split_form)(i % 4 % SPLIT_FORMS));
        x->channel = (int32_t)(i / 4 % 2);
        split_once(t, x, i);
    }
}

/* Written down by hand: one rank sends r + e + 1 rows to expert e of rank r, but none to expert 1.
 */
TK_TEST(all_to_all_v, offsets_by_hand, "SM-SPLIT-02,SM-SPLIT-03", .needs = SPLITS,
        .ranks = {2, 2}) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    int64_t found[12];
    const int64_t splits[2][6] = {{1, 0, 3, 2, 0, 4}, {2, 0, 1, 1, 0, 3}};
    const int64_t expected[2][12] = {{1, 2, 0, 0, 3, 1, 0, 1, 4, 4, 8, 11},
                                     {2, 1, 0, 0, 4, 3, 0, 2, 4, 4, 8, 12}};
    x->form = SPLIT_2D;
    x->experts = 3;
    x->align = 4;
    for (int32_t r = 0; r < 2; r++) {
        memcpy(x->ranks[r].in[0], splits[r], sizeof(splits[r]));
        x->ranks[r].in_rows = 10;
        x->ranks[r].out_rows = 15;
    }
    split_load(t, x, 1);
    TK_OK(t, split_run(x, NULL));
    ops_download(t, found, x->to_place, sizeof(found));
    for (int i = 0; i < 12; i++)
        TK_EQ_INT(t, expected[x->rank][i], found[i]);
    split_expect(t, x, "an alignment of 4");
}

/* What one call gives is what the other one takes. */
TK_TEST(all_to_all_v, there_and_back, "SM-SPLIT-03,SM-SPLIT-04", .needs = SPLITS,
        .max_ranks = SPLIT_RANKS) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    uint8_t back[AREA_BYTES / 4];
    int64_t numbers[2 * SPLIT_PARTS];
    x->form = SPLIT_2D;
    x->experts = SPLIT_EXPERTS;
    x->align = 4;
    split_draw(x, &state, 4);
    x->out_place = x->own.at + AREA_BYTES / 2; /* from where the way back begins */
    split_load(t, x, 1);
    TK_OK(t, split_run(x, NULL));
    struct split_tensors s;
    split_tensors_set(x, &s);
    const struct ops_tensor out = s.out;
    const size_t bytes = x->ranks[x->rank].in_rows * split_row_bytes(x);
    (void)ops_shaped(&s.splits, x->far.at + SPLIT_TO_AT + 1024, SYMMEM_INT64, 2,
                     (const int64_t[]){2, (int64_t)split_parts(x)});
    (void)ops_shaped(&s.in, x->far.at, x->dtype, 2,
                     (const int64_t[]){(int64_t)x->ranks[x->rank].in_rows, (int64_t)x->row});
    (void)ops_shaped(&s.out, out.dl.data, x->dtype, 2, out.shape);
    TK_OK(t, symmem_all_to_all_v_2d_offset(x->handle, &s.out.dl, &s.to.dl, &s.in.dl, &s.splits.dl,
                                           0, LONG_MS, NULL));
    ops_download(t, back, x->far.at, bytes);
    ops_download(t, numbers, x->far.at + SPLIT_TO_AT + 1024,
                 2 * split_parts(x) * sizeof(numbers[0]));
    size_t sent = 0;
    for (size_t i = 0; i < split_parts(x); i++) {
        TK_EQ_INT(t, x->ranks[x->rank].in[0][i], numbers[i]);
        TK_EQ_INT(t, sent, numbers[split_parts(x) + i]);
        sent += (size_t)numbers[i];
    }
    TK_CHECK(t, memcmp(back, x->inputs[x->rank], sent * split_row_bytes(x)) == 0);
}

/* --- places --------------------------------------------------------------------------------- */

TK_TEST(all_to_all_v, everything_in_the_block, "SM-SPLIT-10", .needs = SPLITS,
        .max_ranks = SPLIT_RANKS) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    for (int form = 0; form < SPLIT_FORMS; form++) {
        x->form = (enum split_form)form;
        x->experts = form == SPLIT_FLAT ? 1 : 2;
        x->align = 2;
        split_draw(x, &state, 4);
        x->out_place = x->own.at + AREA_BYTES / 2;
        x->in_place = x->own.at + AREA_BYTES - 1024;
        x->to_place = x->own.at + AREA_BYTES - 2048;
        split_once(t, x, (uint32_t)form);
    }
}

/* Rows without elements, no rows at all, and tensors that are nowhere. */
TK_TEST(all_to_all_v, nothing_to_move, "SM-SPLIT-01,SM-SPLIT-02,SM-COLL-07", .needs = SPLITS,
        .max_ranks = 4) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    split_draw(x, &state, 5);
    x->row = 0;
    split_once(t, x, 1);
    x->row = 3;
    for (int32_t r = 0; r < x->size; r++) {
        memset(x->ranks[r].in[0], 0, sizeof(x->ranks[r].in[0]));
        x->ranks[r].in_rows = x->ranks[r].out_rows = 0;
    }
    split_once(t, x, 2);
    struct split_tensors s;
    split_load(t, x, 3);
    split_tensors_set(x, &s);
    if (x->rank == 0)
        s.in.dl.data = s.out.dl.data = NULL;
    TK_OK(t, split_call(x, &s, NULL));
    split_expect(t, x, "tensors that are nowhere");
}

/* More than any exchange takes at a time. */
static void many_experts(struct tk *t, int32_t channel, size_t experts) {
    symmem_handle *handle = tk_handle(t, 65536, tk_world_group(t));
    symmem_handle_info info = info_of(t, handle);
    const size_t ranks = (size_t)info.world_size, parts = ranks * experts;
    int64_t *in = tk_scratch(t, parts * sizeof(*in)), *to = tk_scratch(t, 2 * parts * sizeof(*to));
    uint8_t rows[4096], got[4096];
    char *numbers = tk_alloc(t, 3 * parts * sizeof(*in)), *out = tk_alloc(t, 4096);
    const size_t step = experts / 7; /* these experts get a row of each rank */
    size_t sent = 0;
    for (size_t i = 0; i < parts; i++) {
        in[i] = i % experts % step == 1;
        rows[sent] = (uint8_t)(16 * (size_t)info.rank + i % 13);
        sent += (size_t)in[i];
    }
    ops_upload(t, numbers, in, parts * sizeof(*in));
    ops_upload(t, ops_own(t, handle), rows, sent);
    TK_OK(t, symmem_all_to_all_v_2d(handle, FLAT(ops_own(t, handle), SYMMEM_UINT8, sent),
                                    FLAT(numbers, SYMMEM_INT64, parts), 1,
                                    FLAT(out, SYMMEM_UINT8, 4096),
                                    SHAPED(numbers + parts * sizeof(*in), SYMMEM_INT64, 2,
                                           ((const int64_t[]){2, (int64_t)parts})),
                                    channel, LONG_MS, NULL));
    ops_download(t, to, numbers + parts * sizeof(*in), 2 * parts * sizeof(*to));
    ops_download(t, got, out, 4096);
    size_t at = 0, wrong = 0;
    for (size_t e = 0; e < experts; e++) {
        const bool has_rows = e % step == 1;
        for (size_t r = 0; r < ranks; r++, at += has_rows) {
            const size_t number = (size_t)info.rank * experts + e;
            wrong += to[e * ranks + r] != has_rows || to[parts + e * ranks + r] != (int64_t)at;
            wrong += has_rows && got[at] != (uint8_t)(16 * r + number % 13);
        }
        at += !has_rows;
    }
    TK_CHECK_MSG(t, wrong == 0, "%zu parts of %zu on channel %d are wrong", wrong, parts,
                 (int)channel);
}

TK_TEST(all_to_all_v, many_experts, "SM-SPLIT-11", .needs = SPLITS, .max_ranks = 4) {
    many_experts(t, 0, 300);
    many_experts(t, 3, 101);
}

TK_TEST(all_to_all_v, last_channel, "SM-SPLIT-11", .needs = SPLITS, .max_ranks = 4) {
    symmem_handle_info info = info_of(t, tk_handle(t, 64, tk_world_group(t)));
    many_experts(t, info.channel_count - 1, 14);
}

/* --- when splits are read --------------------------------------------------------------------- */

TK_TEST(all_to_all_v, splits_of_earlier_work, "SM-SPLIT-05,SM-COLL-09", .needs = SPLITS | STREAM_FN,
        .max_ranks = 4) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    struct gate gate = {0};
    symmem_stream *stream = tk_stream(t);
    split_draw(x, &state, BELOW);
    split_load(t, x, 1);
    const size_t bytes = split_parts(x) * sizeof(int64_t);
    char *from = tk_alloc(t, bytes);
    uint8_t no_splits[SPLIT_PARTS * sizeof(int64_t)];
    memset(no_splits, 0xFF, sizeof(no_splits));
    ops_upload(t, from, x->ranks[x->rank].in[0], bytes);
    ops_upload(t, x->in_place, no_splits, bytes);
    TK_OK(t, symmem_stream_host_fn(stream, gate_fn, &gate));
    TK_OK(t, symmem_copy(t->context, x->in_place, from, bytes, stream));
    TK_OK(t, split_run(x, stream));
    gate_open(&gate);
    tk_synchronize(t, stream);
    split_expect(t, x, "splits that the stream has copied");
}

/* One graph, launched with other splits, also wrong ones. */
TK_TEST(all_to_all_v, each_launch_has_its_splits, "SM-SPLIT-05,SM-SPLIT-09,SM-COLL-09",
        .needs = SPLITS | CAPTURE, .max_ranks = SPLIT_RANKS) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    symmem_stream *stream = tk_stream(t);
    for (int form = 0; form < SPLIT_FORMS; form++) {
        x->form = (enum split_form)form;
        x->experts = form == SPLIT_FLAT ? 1 : 2;
        x->align = 2;
        for (int32_t r = 0; r < x->size; r++) {
            x->ranks[r].in_rows = 120;
            x->ranks[r].out_rows = 300;
        }
        TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
        TK_OK(t, split_run(x, stream));
        symmem_graph *graph = tk_end_capture(t, stream);
        for (uint32_t i = 0; i < 5; i++) {
            split_draw(x, &state, BELOW);
            for (int32_t r = 0; r < x->size; r++) {
                x->ranks[r].in_rows = 120;
                x->ranks[r].out_rows = 300;
                x->ranks[r].in_at = 0;
            }
            if (i == 2)
                x->ranks[x->size - 1].in[0][0] = -1;
            split_load(t, x, i);
            TK_OK(t, symmem_graph_launch(graph, stream));
            if (i != 2) {
                tk_synchronize(t, stream);
                split_expect(t, x, "one launch");
                continue;
            }
            TK_FAILS(t, INVALID_ARGUMENT, symmem_stream_synchronize(stream, LONG_MS));
            TK_EQ_INT(t, x->size - 1, last_record().failed_rank);
            split_untouched(t, x, "a launch with a negative split");
        }
    }
}

/* The second launch is behind the first one already when that one's failure is found. */
TK_TEST(all_to_all_v, launch_behind_a_wrong_one, "SM-SPLIT-09",
        .needs = SPLITS | CAPTURE | SYMMEM_CAP_HOST_FN, .max_ranks = SPLIT_RANKS) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    struct split_rank *own = &x->ranks[x->rank];
    const size_t numbers = split_parts(x) * sizeof(int64_t);
    uint64_t state = t->seed;
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    bool idle;
    split_draw(x, &state, BELOW);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, split_run(x, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    const int64_t right = own->in[0][0];
    if (x->rank == x->size - 1)
        own->in[0][0] = -1;
    split_load(t, x, 1);
    own->in[0][0] = right;
    TK_OK(t, symmem_graph_launch(graph, stream));
    hold(t, stream, &gate);
    TK_OK(t, symmem_copy(t->context, x->in_place, own->in[0], numbers, stream));
    TK_OK(t, symmem_graph_launch(graph, stream));
    TK_CHECK(t, await_flag(&gate.entered, LONG_MS));
    TK_OK(t, symmem_stream_query(stream, &idle)); /* finds the first launch's failure */
    gate_open(&gate);
    TK_FAILS(t, INVALID_ARGUMENT, symmem_stream_synchronize(stream, LONG_MS));
    TK_EQ_INT(t, x->size - 1, last_record().failed_rank);
    tk_synchronize(t, stream);
    memcpy(split_model(x, x->in_place), own->in[0], numbers);
    split_expect(t, x, "the launch behind");
    TK_OK(t, symmem_barrier(x->handle, x->channel, LONG_MS, NULL));
}

/* --- what holds for all collectives ----------------------------------------------------------- */

/* A rank that is done writes its input and splits again while another one has not begun to read. */
TK_TEST(all_to_all_v, lagging_rank, "SM-COLL-01,SM-SPLIT-01", .needs = SPLITS, .ranks = {2, 4}) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    for (uint32_t i = 0; i < 12; i++) {
        split_draw_all(x, &state, (enum split_form)(i % SPLIT_FORMS));
        split_load(t, x, i);
        if (x->rank == (int32_t)(i % (uint32_t)x->size))
            tk_on_point(t, "shm.barrier.after_arrive", 1 + (int)(i / 3 % 3),
                        (struct tk_action){.delay_ms = 3});
        TK_OK(t, split_run(x, NULL));
        tk_forget_points(t);
        split_expect(t, x, "rows while a rank lags");
    }
}

TK_TEST(all_to_all_v, on_two_channels, "SM-COLL-10,SM-SPLIT-01",
        .needs = SPLITS | SYMMEM_CAP_STREAMS, .ranks = {2, 4}) {
    struct split_case *x[2];
    symmem_stream *streams[2];
    uint64_t state = t->seed;
    for (int i = 0; i < 2; i++) {
        x[i] = split_begin(t, tk_world_group(t));
        x[i]->channel = i;
        streams[i] = tk_stream(t);
    }
    x[1]->handle = x[0]->handle;
    area_init(&x[1]->own, x[0]->own.at + AREA_BYTES / 2, AREA_BYTES / 2);
    area_init(&x[0]->own, x[0]->own.at, AREA_BYTES / 2);
    for (uint32_t round = 0; round < 6; round++) {
        for (int i = 0; i < 2; i++) {
            x[i]->form = SPLIT_2D;
            x[i]->experts = 2;
            x[i]->align = 1;
            split_draw(x[i], &state, BELOW);
            split_load(t, x[i], round);
        }
        for (int i = 0; i < 2; i++)
            TK_OK(t, split_run(x[i], streams[i]));
        for (int i = 0; i < 2; i++) {
            tk_synchronize(t, streams[i]);
            split_expect(t, x[i], "one of two channels");
        }
    }
}

TK_TEST(all_to_all_v, missing_rank, "SM-COLL-08", .needs = SPLITS, .ranks = {2, 4}) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    split_draw(x, &state, BELOW);
    split_load(t, x, 1);
    x->limit_ms = 40;
    if (x->rank != 1) {
        TK_FAILS(t, TIMEOUT, split_run(x, NULL));
        symmem_error_record record = last_record();
        TK_EQ_STR(t, split_name(x), record.operation);
        check_missing_one(t, &record, 1, x->size);
        TK_CHECK(t, info_of(t, x->handle).poisoned);
        TK_FAILS(t, POISONED, split_run(x, NULL));
        split_untouched(t, x, "a rank is missing");
    }
    TK_OK(t, symmem_handle_reset(x->handle, LONG_MS));
    x->limit_ms = LONG_MS;
    TK_OK(t, split_run(x, NULL));
    split_expect(t, x, "after a reset");
}

/* Barriers around an operation that fails, or in which a rank fails at any of its steps. */
TK_TEST(all_to_all_v, fails_at_each_meeting, "SM-COLL-12", .needs = SPLITS, .ranks = {2, 4}) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    const bool emulated = is_emulation(t);
    x->form = SPLIT_2D;
    x->experts = 2;
    x->align = 1;
    for (int meeting = 1; meeting <= 3 && emulated; meeting++) {
        const int32_t odd = (int32_t)draw(&state, (uint32_t)x->size);
        split_draw(x, &state, BELOW);
        split_load(t, x, (uint32_t)meeting);
        if (x->rank == odd)
            tk_on_point(t, "shm.barrier.before_arrive", meeting,
                        (struct tk_action){.status = SYMMEM_SYSTEM});
        symmem_status status = split_run(x, NULL);
        TK_CHECK_MSG(t,
                     status == (x->rank == odd ? SYMMEM_SYSTEM : SYMMEM_POISONED) ||
                         (x->rank != odd && status == SYMMEM_OK),
                     "meeting %d: %s", meeting, symmem_status_name(status));
        tk_forget_points(t);
        TK_OK(t, symmem_handle_reset(x->handle, LONG_MS));
        split_once(t, x, 10 + (uint32_t)meeting);
    }
    split_draw(x, &state, BELOW);
    split_once(t, x, 20);
}
