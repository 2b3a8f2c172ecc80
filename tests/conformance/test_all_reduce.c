/* SPDX-License-Identifier: BSD-3-Clause */
/* symmem_all_reduce and its table, tensors that an all-reduce makes, and what is refused. */
#include "case_help.h"
#include "reduce_help.h"

static void set_table(struct tk *t, symmem_all_reduce_algorithm algorithm) {
    const symmem_all_reduce_entry entry = {
        .symmetric = -1, .max_bytes = UINT64_MAX, .algorithm = algorithm};
    TK_REQUIRE_OK(t, symmem_set_all_reduce_table(t->context, &entry, 1));
}

/* Either algorithm, between all kinds of memory, gives the same. */
ON_EACH_SHAPE(all_reduce, every_shape, "SM-REDUCE-11", .needs = COLLECTIVES) {
    struct reduce_desk desk = reduce_desk_begin(t, group, (size_t)1 << 18);
    const size_t most = desk.size <= 8    ? 40000
                        : desk.size <= 64 ? 4000
                                          : 1000; /* each rank computes what all have */
    for (int algorithm = 0; algorithm < SYMMEM_ALL_REDUCE_ALGORITHM_COUNT; algorithm++) {
        set_table(t, (symmem_all_reduce_algorithm)algorithm);
        for (int form = FORM_CHOSEN_IN_PLACE; form <= FORM_CHOSEN_TO_SYMMETRIC; form++) {
            const struct reduce_call call = {.form = (enum reduce_form)form,
                                             .dtype = SYMMEM_FLOAT32,
                                             .op = form % 2 ? SYMMEM_SUM : SYMMEM_MAX,
                                             .count = form % 2 ? 321 : most,
                                             .at = 1};
            tk_checkpoint(t, "%s, algorithm %d, form %d", shape->name, algorithm, form);
            reduce_check(t, &desk, &call);
        }
    }
    TK_OK(t, symmem_set_all_reduce_table(t->context, NULL, 0));
}

/* From private to private memory by way of a block that is smaller than the data, down to three
 * elements, and not more of it is written than is there. */
TK_TEST(all_reduce, small_way, "SM-REDUCE-11", .needs = COLLECTIVES, .max_ranks = 4,
        .flags = TK_PLAIN_MEMORY) {
    enum { COUNT = 500 };
    static const size_t rooms[] = {3, 4, 5, 16, 62, 499};
    char *input = tk_alloc(t, COUNT * 2 + 2 * REDUCE_MARGIN);
    char *out = tk_alloc(t, COUNT * 2 + 2 * REDUCE_MARGIN);
    for (int i = 0; i < 6; i++) {
        struct reduce_data data;
        size_t room = rooms[i] * 2 + 1;
        symmem_handle *whole = tk_handle(t, 64 + room, tk_world_group(t));
        symmem_handle *handle = tk_rendezvous(t, ops_own(t, whole) + 64, tk_world_group(t));
        set_table(t, (symmem_all_reduce_algorithm)(i % 2));
        reduce_data_begin(t, &data, SYMMEM_BFLOAT16, SYMMEM_SUM, COUNT, t->world_size, (uint32_t)i);
        reduce_lay(t, input + REDUCE_MARGIN, data.inputs + (size_t)t->rank * data.bytes,
                   data.bytes);
        /* On the last channel, too: a backend may do more for the first ones. */
        int32_t last = info_of(t, handle).channel_count - 1;
        for (int k = 0; k < 2; k++) {
            reduce_lay(t, out + REDUCE_MARGIN, NULL, data.bytes);
            TK_OK(t,
                  symmem_all_reduce(handle, FLAT(input + REDUCE_MARGIN, SYMMEM_BFLOAT16, COUNT),
                                    SYMMEM_SUM, FLAT(out + REDUCE_MARGIN, SYMMEM_BFLOAT16, COUNT),
                                    k == 0 ? 0 : last, LONG_MS, NULL));
            reduce_expect_laid(t, out + REDUCE_MARGIN, data.expected, SYMMEM_BFLOAT16, COUNT,
                               "out");
            tk_expect_bytes(t, whole, t->rank, 0, 64, 0);
        }
        reduce_data_end(&data);
        tk_release(t, handle);
        tk_release(t, whole);
    }
}

TK_TEST(all_reduce, too_small_way, "SM-REDUCE-13", .needs = COLLECTIVES, .max_ranks = 2) {
    char *input = tk_alloc(t, 400), *out = tk_alloc(t, 400);
    char *memory = tk_alloc(t, 64 + 11);
    symmem_handle *handle = tk_rendezvous(t, memory + 64, tk_world_group(t));
    uint32_t limit_ms = LONG_MS;
    reduce_lay(t, out + REDUCE_MARGIN, NULL, 200);
    TK_FAILS(t, OUT_OF_RANGE,
             symmem_all_reduce(handle, FLAT(input, SYMMEM_FLOAT32, 50), SYMMEM_SUM,
                               FLAT(out + REDUCE_MARGIN, SYMMEM_FLOAT32, 50), 0, limit_ms, NULL));
    TK_EQ_SIZE(t, 3, last_record().expected);
    TK_EQ_SIZE(t, 2, last_record().actual);
    reduce_expect_laid(t, out + REDUCE_MARGIN, NULL, SYMMEM_UINT8, 200, "out");
    TK_OK(t, symmem_all_reduce(handle, FLAT(input, SYMMEM_FLOAT32, 2), SYMMEM_SUM,
                               FLAT(out, SYMMEM_FLOAT32, 2), 0, limit_ms, NULL));
}

TK_TEST(all_reduce, tables_are_checked, "SM-REDUCE-12", .needs = COLLECTIVES, .max_ranks = 1) {
    symmem_all_reduce_entry entry = {.symmetric = -1, .max_bytes = 8};
    symmem_all_reduce_entry many[SYMMEM_ALL_REDUCE_MAX_ENTRIES + 1];
    symmem_context *context = t->context;
    TK_OK(t, symmem_set_all_reduce_table(context, &entry, 1));
    TK_OK(t, symmem_set_all_reduce_table(context, &entry, 0));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_set_all_reduce_table(context, NULL, 1));
    TK_FAILS(t, OUT_OF_RANGE, symmem_set_all_reduce_table(context, &entry, -1));
    for (size_t i = 0; i < TK_COUNT(many); i++)
        many[i] = entry;
    TK_OK(t, symmem_set_all_reduce_table(context, many, SYMMEM_ALL_REDUCE_MAX_ENTRIES));
    TK_FAILS(t, OUT_OF_RANGE,
             symmem_set_all_reduce_table(context, many, SYMMEM_ALL_REDUCE_MAX_ENTRIES + 1));
    TK_EQ_SIZE(t, SYMMEM_ALL_REDUCE_MAX_ENTRIES, last_record().expected);
    many[3].algorithm = SYMMEM_ALL_REDUCE_ALGORITHM_COUNT;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_set_all_reduce_table(context, many, 4));
    entry.symmetric = 2;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_set_all_reduce_table(context, &entry, 1));
    entry.symmetric = -2;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_set_all_reduce_table(context, &entry, 1));
    entry.symmetric = 0;
    entry.max_world_size = -1;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_set_all_reduce_table(context, &entry, 1));
    TK_FAILS(t, NOT_INITIALIZED, symmem_set_all_reduce_table(NULL, &entry, 0));
}

/* The first of so many entries, and as text. */
static void write_entries(symmem_all_reduce_entry *entries, char *text, size_t capacity,
                          int count) {
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        entries[i] =
            (symmem_all_reduce_entry){.symmetric = i % 3 - 1,
                                      .max_world_size = i % 5,
                                      .max_bytes = i % 7 == 6 ? UINT64_MAX : 1000 * (uint64_t)i,
                                      .algorithm = (symmem_all_reduce_algorithm)(i % 2)};
        used += (size_t)snprintf(text + used, capacity - used, "%s%d:%d:", i > 0 ? "," : "",
                                 i % 3 - 1, i % 5);
        if (i % 7 == 6)
            used += (size_t)snprintf(text + used, capacity - used, "any:");
        else
            used += (size_t)snprintf(text + used, capacity - used, "%d:", 1000 * i);
        used += (size_t)snprintf(text + used, capacity - used, i % 2 ? "two_shot" : "one_shot");
    }
}

static void refuse_environment(struct tk *t, const char *text, symmem_status expected) {
    symmem_context_options options = tk_options(t);
    symmem_context *context = NULL;
    TK_REQUIRE(t, setenv("SYMMEM_ALL_REDUCE_TABLE", text, 1) == 0);
    symmem_status status = symmem_init(&options, &context);
    TK_CHECK_MSG(t, status == expected && context == NULL, "\"%.40s\": %s", text,
                 symmem_status_name(status));
}

/* All ranks begin with the environment's table; one of them then sets it by the call, and it is the
 * same; and then one that differs in the last entry. */
TK_TEST(all_reduce, table_of_the_environment, "SM-REDUCE-16", .needs = COLLECTIVES, .ranks = {2, 3},
        .flags = TK_PROCESS_ONLY | TK_SETS_ENVIRONMENT) {
    enum { MANY = SYMMEM_ALL_REDUCE_MAX_ENTRIES };
    static const char *const wrong[] = {
        "x",
        ",",
        "1:0:32",
        "1:0:32:one_shot,",
        "1:0:32:one_shot 1:0:32:one_shot",
        "2:0:32:one_shot",
        "-2:0:32:one_shot",
        "1:-1:32:one_shot",
        "1:2147483648:32:one_shot",
        "1:0:+1:one_shot",
        "1: 0:32:one_shot",
        "1;0:32:one_shot",
        "1:0;32:one_shot",
        "1:0::one_shot",
        "1:0:18446744073709551616:one_shot",
        "1:0:32:one_shots",
        "1:0:32:three_shot",
    };
    symmem_all_reduce_entry entries[MANY + 1];
    char text[(MANY + 1) * 32];
    for (size_t i = 0; i < TK_COUNT(wrong); i++)
        refuse_environment(t, wrong[i], SYMMEM_INVALID_ARGUMENT);
    write_entries(entries, text, sizeof text, MANY + 1);
    refuse_environment(t, text, SYMMEM_OUT_OF_RANGE);
    write_entries(entries, text, sizeof text, MANY);
    TK_REQUIRE(t, setenv("SYMMEM_ALL_REDUCE_TABLE", text, 1) == 0);
    symmem_context_options options = tk_options(t);
    tk_reinit(t, &options);
    TK_REQUIRE(t, unsetenv("SYMMEM_ALL_REDUCE_TABLE") == 0);
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 512);
    for (int step = 0; step < 3; step++) {
        entries[MANY - 1].max_bytes += step == 2;
        if (step > 0 && t->rank == t->last)
            TK_OK(t, symmem_set_all_reduce_table(t->context, entries, MANY));
        TK_STATUS(t, step < 2 ? SYMMEM_OK : SYMMEM_MISMATCH,
                  symmem_all_reduce(desk.handle, FLAT(desk.own, SYMMEM_FLOAT32, 9), SYMMEM_SUM,
                                    FLAT(desk.out, SYMMEM_FLOAT32, 9), 0, desk.limit_ms, NULL));
    }
}

enum difference {
    DIFFERENT_TABLE,
    DIFFERENT_INPUT,
    DIFFERENT_OUTPUT,
    IN_PLACE_OR_NOT,
    DIFFERENCES
};

/* One rank's table or kind of memory is another's: refused on every rank, even where the choice is
 * the same. Between private tensors it makes no difference what is in place. */
TK_TEST(all_reduce, ranks_choose_alike, "SM-REDUCE-12", .needs = COLLECTIVES, .ranks = {2, 3}) {
    enum { COUNT = 40 };
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 4 * COUNT);
    struct ops_tensor out;
    char *out_at = desk.out + REDUCE_MARGIN;
    bool odd = t->rank == t->last;
    for (int i = 0; i < DIFFERENCES; i++) {
        const symmem_all_reduce_entry entry = {.symmetric = -1,
                                               .max_bytes =
                                                   i == DIFFERENT_TABLE && odd ? 999 : 1000,
                                               .algorithm = SYMMEM_ALL_REDUCE_TWO_SHOT};
        bool private = (i == DIFFERENT_INPUT && odd) || i == IN_PLACE_OR_NOT;
        bool in_place = (i == DIFFERENT_OUTPUT || i == IN_PLACE_OR_NOT) && odd;
        tk_checkpoint(t, "difference %d", i);
        TK_OK(t, symmem_set_all_reduce_table(t->context, &entry, 1));
        reduce_lay(t, out_at, NULL, 4 * COUNT);
        const DLTensor *from =
            FLAT((private ? desk.input : desk.own) + REDUCE_MARGIN, SYMMEM_FLOAT32, COUNT);
        const DLTensor *to = in_place ? from : ops_flat(&out, out_at, SYMMEM_FLOAT32, COUNT);
        TK_STATUS(t, i == IN_PLACE_OR_NOT ? SYMMEM_OK : SYMMEM_MISMATCH,
                  symmem_all_reduce(desk.handle, from, SYMMEM_SUM, to, 0, desk.limit_ms, NULL));
        if (i != IN_PLACE_OR_NOT)
            reduce_expect_laid(t, out_at, NULL, SYMMEM_FLOAT32, COUNT, "out");
    }
}

TK_TEST(all_reduce, made_tensors, "SM-REDUCE-05,SM-ALLOC-07", .needs = COLLECTIVES,
        .max_ranks = 2) {
    enum { COUNT = 6 };
    const int64_t shape[3] = {2, 1, 3}, none[2] = {0, 5};
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 4 * COUNT);
    DLManagedTensor *made = NULL, *empty = NULL;
    bool symmetric = true;
    TK_REQ(t, "SM-REDUCE-05");
    TK_OK(t, symmem_one_shot_all_reduce(desk.handle, SHAPED(desk.own, SYMMEM_INT32, 3, shape),
                                        SYMMEM_SUM, 0, desk.limit_ms, NULL, &made));
    TK_REQUIRE(t, made != NULL);
    const DLTensor *tensor = &made->dl_tensor;
    TK_CHECK(t, tensor->ndim == 3 && tensor->shape[0] == 2 && tensor->shape[2] == 3);
    TK_CHECK(t, tensor->strides[0] == 3 && tensor->strides[2] == 1);
    TK_EQ_INT(t, t->device_type, tensor->device.device_type);
    TK_EQ_INT(t, own_device(t), tensor->device.device_id);
    TK_OK(t, symmem_is_symmetric(t->context, tensor->data, &symmetric));
    TK_CHECK(t, !symmetric);
    TK_FAILS(t, NOT_SYMMETRIC, symmem_free(t->context, tensor->data));
    TK_OK(t, symmem_one_shot_all_reduce(desk.handle, SHAPED(NULL, SYMMEM_INT32, 2, none),
                                        SYMMEM_SUM, 0, desk.limit_ms, NULL, &empty));
    TK_CHECK(t, empty != NULL && empty->dl_tensor.shape[0] == 0);
    if (empty != NULL)
        empty->deleter(empty);
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_one_shot_all_reduce(desk.handle, SHAPED(desk.own, SYMMEM_INT32, 3, shape),
                                        SYMMEM_SUM, 0, desk.limit_ms, NULL, NULL));
    tk_out_of_band_barrier(t);
    tk_end_context(t);
    made->deleter(made); /* the last to go */
}

/* The deleter may run before the work has. */
TK_TEST(all_reduce, made_on_a_stream, "SM-REDUCE-05", .needs = COLLECTIVES | SYMMEM_CAP_STREAMS,
        .max_ranks = 2) {
    enum { COUNT = 1000 };
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 4 * COUNT);
    DLManagedTensor *made = NULL;
    desk.stream = tk_stream(t);
    for (int i = 0; i < 3; i++) {
        TK_OK(t, symmem_one_shot_all_reduce(desk.handle, FLAT(desk.own, SYMMEM_FLOAT32, COUNT),
                                            SYMMEM_SUM, 0, desk.limit_ms, desk.stream, &made));
        TK_REQUIRE(t, made != NULL);
        made->deleter(made);
        made = NULL;
    }
    tk_synchronize(t, desk.stream);
}

TK_TEST(all_reduce, made_in_a_capture, "SM-REDUCE-05",
        .needs = COLLECTIVES | SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, .max_ranks = 2) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 64);
    DLManagedTensor *made = NULL;
    desk.stream = tk_stream(t);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(desk.stream));
    for (size_t count = 0; count < 2; count++)
        TK_FAILS(t, CAPTURE,
                 symmem_one_shot_all_reduce(desk.handle, FLAT(desk.own, SYMMEM_FLOAT32, count),
                                            SYMMEM_SUM, 0, desk.limit_ms, desk.stream, &made));
    TK_EQ_PTR(t, NULL, made);
    (void)tk_end_capture(t, desk.stream);
}

TK_TEST(all_reduce, copy_arguments, "SM-REDUCE-04,SM-COLL-04", .needs = COLLECTIVES,
        .max_ranks = 2) {
    enum { COUNT = 32, BYTES = COUNT * 4 };
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 4 * BYTES);
    struct ops_tensor i, o;
    symmem_handle *handle = desk.handle;
    uint32_t ms = desk.limit_ms;
    char *own = desk.own + REDUCE_MARGIN, *out = desk.out + REDUCE_MARGIN;
#define COPY(buffer_, input_, out_)                                                                \
    symmem_one_shot_all_reduce_copy_out(handle, buffer_, input_, SYMMEM_SUM, out_, 0, ms, NULL)
    TK_REQ(t, "SM-REDUCE-04");
    reduce_lay(t, own, NULL, BYTES);
    reduce_lay(t, out, NULL, BYTES);
    const DLTensor *buffer = FLAT(own, SYMMEM_FLOAT32, COUNT);
    const DLTensor *to = ops_flat(&o, out, SYMMEM_FLOAT32, COUNT);
    for (size_t count = COUNT - 1; count <= COUNT + 1; count += 2) {
        const DLTensor *input = ops_flat(&i, desk.input, SYMMEM_FLOAT32, count);
        to = ops_flat(&o, out, SYMMEM_FLOAT32, count);
        TK_FAILS(t, INVALID_ARGUMENT, COPY(buffer, input, to));
        TK_EQ_SIZE(t, COUNT, last_record().expected);
        TK_EQ_SIZE(t, count, last_record().actual);
    }
    const DLTensor *input = ops_flat(&i, desk.input, SYMMEM_INT32, COUNT);
    to = ops_flat(&o, out, SYMMEM_INT32, COUNT);
    TK_FAILS(t, INVALID_ARGUMENT, COPY(buffer, input, to));
    input = ops_flat(&i, desk.input, SYMMEM_FLOAT32, COUNT);
    to = ops_flat(&o, out, SYMMEM_FLOAT32, COUNT);
    TK_FAILS(t, NOT_SYMMETRIC, COPY(to, input, to));
    TK_FAILS(t, INVALID_ARGUMENT, COPY(NULL, input, to));
    TK_REQ(t, "SM-COLL-04");
    TK_FAILS(t, INVALID_ARGUMENT, COPY(buffer, buffer, to));
    TK_FAILS(t, INVALID_ARGUMENT, COPY(buffer, input, buffer));
    to = ops_flat(&o, desk.input + 4, SYMMEM_FLOAT32, COUNT);
    TK_FAILS(t, INVALID_ARGUMENT, COPY(buffer, input, to));
#undef COPY
    reduce_expect_laid(t, own, NULL, SYMMEM_FLOAT32, COUNT, "the buffer");
    reduce_expect_laid(t, out, NULL, SYMMEM_FLOAT32, COUNT, "out");
}

/* Empty tensors, with data on some ranks and without on others, are one and the same call. */
TK_TEST(all_reduce, empty_with_and_without_data, "SM-COLL-07", .needs = COLLECTIVES,
        .ranks = {2, 3}) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 64);
    uint32_t ms = desk.limit_ms;
    for (int32_t without = 0; without < 4; without++) {
        bool bare = t->rank == 0;
        const DLTensor *buffer = FLAT(desk.own, SYMMEM_FLOAT32, 0);
        const DLTensor *input = FLAT(bare && without % 2 ? NULL : desk.input, SYMMEM_FLOAT32, 0);
        const DLTensor *out = FLAT(bare && without / 2 ? NULL : desk.out, SYMMEM_FLOAT32, 0);
        TK_OK(t, symmem_one_shot_all_reduce_copy_out(desk.handle, buffer, input, SYMMEM_SUM, out, 0,
                                                     ms, NULL));
        TK_OK(t, symmem_two_shot_all_reduce_out(desk.handle, input, SYMMEM_SUM, out, 0, ms, NULL));
        TK_OK(t, symmem_all_reduce(desk.handle, input, SYMMEM_SUM, out, 0, ms, NULL));
        TK_OK(t, symmem_low_contention_reduce_scatter(desk.handle, input, SYMMEM_SUM, out, 0, ms,
                                                      NULL));
    }
}

/* Overlaps of which only whole in-place ones are allowed, in each kind of memory. */
TK_TEST(all_reduce, overlaps, "SM-COLL-04", .needs = COLLECTIVES, .max_ranks = 2) {
    enum { COUNT = 32, BYTES = COUNT * 4 };
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 4 * BYTES);
    struct ops_tensor i;
    symmem_handle *handle = desk.handle;
    uint32_t ms = desk.limit_ms;
    char *const places[3][2] = {
        {desk.own, desk.own + 4}, {desk.input, desk.input + 4}, {desk.own + 4, desk.own}};
    for (int k = 0; k < 3; k++) {
        const DLTensor *input = ops_flat(&i, places[k][0], SYMMEM_FLOAT32, COUNT);
        const DLTensor *out = FLAT(places[k][1], SYMMEM_FLOAT32, COUNT);
        TK_FAILS(t, INVALID_ARGUMENT,
                 symmem_all_reduce(handle, input, SYMMEM_SUM, out, 0, ms, NULL));
        if (k != 1)
            TK_FAILS(t, INVALID_ARGUMENT,
                     symmem_two_shot_all_reduce_out(handle, input, SYMMEM_SUM, out, 0, ms, NULL));
    }
    const DLTensor *input = ops_flat(&i, desk.own, SYMMEM_FLOAT32, COUNT);
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_two_shot_all_reduce_out(handle, input, SYMMEM_SUM, input, 0, ms, NULL));
    input = ops_flat(&i, desk.out, SYMMEM_FLOAT32, COUNT);
    TK_FAILS(t, NOT_SYMMETRIC, symmem_two_shot_all_reduce(handle, input, SYMMEM_SUM, 0, ms, NULL));
    input = ops_flat(&i, desk.own, SYMMEM_INT32, COUNT);
    TK_FAILS(t, UNSUPPORTED, symmem_two_shot_all_reduce(handle, input, SYMMEM_AVG, 0, ms, NULL));
}
