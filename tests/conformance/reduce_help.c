/* SPDX-License-Identifier: BSD-3-Clause */
#include "reduce_help.h"

#include "ops_calls.h"

#define HANDLE_OFFSET 80 /* whole elements of every dtype, no whole line */

static uint64_t scramble(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Bits of exponent and fraction; both 0 for integers. */
static void float_format(symmem_dtype dtype, int *exponent_p, int *fraction_p) {
    bool half = dtype == SYMMEM_FLOAT16, brain = dtype == SYMMEM_BFLOAT16;
    bool single = dtype == SYMMEM_FLOAT32, wide = dtype == SYMMEM_FLOAT64;
    *exponent_p = half ? 5 : brain || single ? 8 : wide ? 11 : 0;
    *fraction_p = half ? 10 : brain ? 7 : single ? 23 : wide ? 52 : 0;
}

static uint64_t special_float(int which, int exponent, int fraction) {
    uint64_t sign = 1ull << (exponent + fraction);
    uint64_t infinity = ((1ull << exponent) - 1) << fraction;
    const uint64_t specials[8] = {0,
                                  sign,
                                  infinity,
                                  infinity | sign,
                                  sign | infinity | 1ull << (fraction - 1) | 1, /* quiet */
                                  infinity | 1,                                 /* signaling */
                                  sign | 1,                                     /* denormal */
                                  infinity - 1};
    return specials[which];
}

static uint64_t element_bits(symmem_dtype dtype, uint64_t random) {
    int exponent, fraction;
    float_format(dtype, &exponent, &fraction);
    if (exponent == 0)
        return random;
    if (random >> 59 == 0)
        return special_float((int)(random & 7), exponent, fraction);
    uint64_t bias = (1ull << (exponent - 1)) - 1;
    uint64_t power = bias - 2 + (random >> 54 & 3);
    return (random >> 53 & 1) << (exponent + fraction) | power << fraction |
           (random & ((1ull << fraction) - 1));
}

void reduce_fill(void *host, symmem_dtype dtype, size_t count, int32_t rank, uint32_t generation) {
    size_t element = symmem_dtype_size(dtype);
    uint64_t start = scramble((uint64_t)generation << 16 ^ (uint64_t)(rank + 1));
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = element_bits(dtype, scramble(start + i));
        memcpy((char *)host + i * element, &bits, element); /* little-endian */
    }
}

void reduce_data_begin(struct tk *t, struct reduce_data *data, symmem_dtype dtype,
                       symmem_reduce_op op, size_t count, int32_t ranks, uint32_t generation) {
    const void *srcs[SYMMEM_MAX_WORLD_SIZE];
    size_t bytes = count * symmem_dtype_size(dtype);
    *data = (struct reduce_data){.dtype = dtype, .op = op, .count = count, .bytes = bytes};
    data->inputs = malloc((size_t)ranks * bytes + 1);
    data->expected = malloc(bytes + 1);
    TK_REQUIRE(t, data->inputs != NULL && data->expected != NULL);
    for (int32_t r = 0; r < ranks; r++) {
        srcs[r] = data->inputs + (size_t)r * bytes;
        reduce_fill(data->inputs + (size_t)r * bytes, dtype, count, r, generation);
    }
    TK_REQUIRE(t, symmem_reference_reduce(data->expected, srcs, ranks, count, dtype, op));
}

void reduce_data_end(struct reduce_data *data) {
    free(data->inputs);
    free(data->expected);
}

/* As numbers: one enumeration is not multiplied by another. */
enum { REDUCE_DTYPES = (int)SYMMEM_DTYPE_COUNT, REDUCE_OPS = (int)SYMMEM_REDUCE_OP_COUNT };

int reduce_pair_count(void) {
    int count = 0;
    for (int i = 0; i < REDUCE_DTYPES * REDUCE_OPS; i++)
        count += symmem_reference_element_bytes((symmem_dtype)(i / REDUCE_OPS),
                                                (symmem_reduce_op)(i % REDUCE_OPS)) > 0;
    return count;
}

int reduce_step(const struct reduce_desk *desk) {
    return desk->size <= 8 || tk_suite_is_long() ? 1 : desk->size <= 64 ? 5 : 13;
}

int reduce_first_pair(const struct tk *t, const struct reduce_desk *desk) {
    return (int)(t->seed % (uint64_t)reduce_step(desk));
}

void reduce_pair(int index, symmem_dtype *dtype_p, symmem_reduce_op *op_p) {
    for (int i = 0; i < REDUCE_DTYPES * REDUCE_OPS; i++) {
        *dtype_p = (symmem_dtype)(i / REDUCE_OPS);
        *op_p = (symmem_reduce_op)(i % REDUCE_OPS);
        if (symmem_reference_element_bytes(*dtype_p, *op_p) > 0 && index-- == 0)
            return;
    }
}

void reduce_lay(struct tk *t, char *at, const void *data, size_t bytes) {
    size_t whole = bytes + (size_t)2 * REDUCE_MARGIN;
    char *image = malloc(whole);
    TK_REQUIRE(t, image != NULL);
    memset(image, REDUCE_MARK, whole);
    if (data != NULL && bytes > 0)
        memcpy(image + REDUCE_MARGIN, data, bytes);
    ops_upload(t, at - REDUCE_MARGIN, image, whole);
    free(image);
}

bool reduce_expect_laid(struct tk *t, const char *at, const void *expected, symmem_dtype dtype,
                        size_t count, const char *what) {
    size_t bytes = count * symmem_dtype_size(dtype), whole = bytes + (size_t)2 * REDUCE_MARGIN;
    char marks[REDUCE_MARGIN], *image = malloc(whole);
    TK_REQUIRE(t, image != NULL);
    memset(marks, REDUCE_MARK, sizeof marks);
    ops_download(t, image, at - REDUCE_MARGIN, whole);
    bool held =
        expected == NULL || ops_expect(t, expected, image + REDUCE_MARGIN, dtype, count, what);
    held =
        TK_CHECK_MSG(t, memcmp(image, marks, sizeof marks) == 0, "written before %s", what) && held;
    held = TK_CHECK_MSG(t, memcmp(image + REDUCE_MARGIN + bytes, marks, sizeof marks) == 0,
                        "written behind %s", what) &&
           held;
    free(image);
    return held;
}

struct reduce_desk reduce_desk_begin(struct tk *t, symmem_group *group, size_t bytes) {
    struct reduce_desk desk = {
        .room = bytes + 64 + (size_t)2 * REDUCE_MARGIN, .limit_ms = LONG_MS, .generation = 1};
    char *base = tk_alloc(t, desk.room + HANDLE_OFFSET);
    desk.handle = tk_rendezvous(t, base + HANDLE_OFFSET, group);
    desk.input = tk_alloc(t, desk.room);
    desk.out = tk_alloc(t, desk.room);
    symmem_handle_info info = info_of(t, desk.handle);
    desk.own = ops_own(t, desk.handle);
    desk.rank = info.rank;
    desk.size = info.world_size;
    return desk;
}

void reduce_expect_same_digest(struct tk *t, const struct reduce_desk *desk) {
    tk_share_u64(t, 4, desk->digest);
    tk_out_of_band_barrier(t);
    for (int32_t r = 0; r < t->world_size; r++)
        TK_CHECK_MSG(t, tk_read_u64(t, r, 4) == desk->digest, "rank %d holds other bits", (int)r);
    tk_out_of_band_barrier(t);
}

static bool copies(enum reduce_form form) {
    return form == FORM_ONE_SHOT_COPY_OUT || form == FORM_ONE_SHOT_COPY;
}

static bool input_is_symmetric(enum reduce_form form) {
    return form == FORM_ONE_SHOT_OUT || form == FORM_ONE_SHOT || form == FORM_TWO_SHOT ||
           form == FORM_TWO_SHOT_OUT || form == FORM_CHOSEN_IN_PLACE || form == FORM_CHOSEN_OUT;
}

/* Where the places of one call are. */
struct places {
    char *symmetric, *input, *out;
    struct ops_tensor tensors[3];
};

static symmem_status run_form(const struct reduce_desk *desk, const struct reduce_call *call,
                              struct places *at, DLManagedTensor **made_p) {
    const DLTensor *symmetric = ops_flat(&at->tensors[0], at->symmetric, call->dtype, call->count);
    const DLTensor *input = ops_flat(&at->tensors[1], at->input, call->dtype, call->count);
    const DLTensor *out = ops_flat(&at->tensors[2], at->out, call->dtype, call->count);
    static const ops_fn forms[] = {
        [FORM_ONE_SHOT_OUT] = row_one_shot_out, [FORM_ONE_SHOT_COPY_OUT] = row_one_shot_copy_out,
        [FORM_ONE_SHOT] = row_one_shot,         [FORM_ONE_SHOT_COPY] = row_one_shot_copy,
        [FORM_TWO_SHOT] = row_two_shot,         [FORM_TWO_SHOT_OUT] = row_two_shot_out};
    const struct ops_call one = {.handle = desk->handle,
                                 .buffer = symmetric,
                                 .input = input,
                                 .out = out,
                                 .op = call->op,
                                 .channel = desk->channel,
                                 .limit_ms = desk->limit_ms,
                                 .stream = desk->stream,
                                 .made_p = made_p};
    return (size_t)call->form < TK_COUNT(forms) ? forms[call->form](&one) : row_all_reduce(&one);
}

static struct places places_of(const struct reduce_desk *desk, const struct reduce_call *call) {
    size_t offset = REDUCE_MARGIN + call->at * symmem_dtype_size(call->dtype);
    struct places at = {
        .symmetric = desk->own + offset, .input = desk->input + offset, .out = desk->out + offset};
    if (input_is_symmetric(call->form))
        at.input = at.symmetric;
    if (call->form == FORM_TWO_SHOT || call->form == FORM_CHOSEN_IN_PLACE ||
        call->form == FORM_CHOSEN_PRIVATE_IN_PLACE)
        at.out = at.input;
    if (call->form == FORM_CHOSEN_TO_SYMMETRIC)
        at.out = at.symmetric;
    return at;
}

static void fold(struct reduce_desk *desk, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        desk->digest = (desk->digest ^ (uint8_t)bytes[i]) * 0x100000001b3u;
}

static void expect_made(struct tk *t, const struct reduce_data *data, DLManagedTensor *made,
                        char *got) {
    const DLTensor *tensor = &made->dl_tensor;
    TK_EQ_INT(t, 1, tensor->ndim);
    TK_EQ_SIZE(t, data->count, tensor->shape[0]);
    TK_CHECK(t, tensor->dtype.bits == 8 * symmem_dtype_size(data->dtype));
    if (data->bytes > 0)
        ops_download(t, got, (char *)tensor->data + tensor->byte_offset, data->bytes);
    ops_expect(t, data->expected, got, data->dtype, data->count, "the new tensor");
    made->deleter(made);
}

void reduce_check(struct tk *t, struct reduce_desk *desk, const struct reduce_call *call) {
    struct reduce_data data;
    DLManagedTensor *made = NULL;
    reduce_data_begin(t, &data, call->dtype, call->op, call->count, desk->size, desk->generation++);
    const char *own = data.inputs + (size_t)desk->rank * data.bytes;
    struct places at = places_of(desk, call);
    bool in_place = at.out == at.input;
    TK_REQUIRE(t, REDUCE_MARGIN + call->at * symmem_dtype_size(call->dtype) + data.bytes +
                          REDUCE_MARGIN <=
                      desk->room);
    if (copies(call->form))
        reduce_lay(t, at.symmetric, NULL, data.bytes);
    if (!in_place)
        reduce_lay(t, at.out, NULL, data.bytes);
    reduce_lay(t, at.input, own, data.bytes);
    if (TK_OK(t, run_form(desk, call, &at, &made))) {
        if (desk->stream != NULL)
            tk_synchronize(t, desk->stream);
        char *got = malloc(data.bytes + 1);
        TK_REQUIRE(t, got != NULL);
        if (made != NULL)
            expect_made(t, &data, made, got);
        else
            reduce_expect_laid(t, at.out, data.expected, call->dtype, call->count, "the result");
        if (made == NULL)
            ops_download(t, got, at.out, data.bytes);
        fold(desk, got, data.bytes);
        free(got);
        if (!in_place)
            reduce_expect_laid(t, at.input, own, call->dtype, call->count, "the input");
        if (copies(call->form))
            reduce_expect_laid(t, at.symmetric, NULL, call->dtype, call->count, "the buffer");
    }
    reduce_data_end(&data);
}
