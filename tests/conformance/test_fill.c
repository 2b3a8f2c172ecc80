/* SPDX-License-Identifier: BSD-3-Clause */
/* memset32 and write_value32: exact words, refusals, ordinary memory. */
#include "sync_help.h"

enum { WORDS = 64 };

/* A flat uint32 tensor over `data`, on the same device as the handle's memory. */
struct flat {
    DLTensor tensor;
    int64_t shape[2];
    int64_t strides[2];
};

static void flat_init(struct tk *t, struct flat *flat, void *data, int64_t count, int32_t device) {
    memset(flat, 0, sizeof(*flat));
    flat->shape[0] = count;
    flat->tensor.data = data;
    flat->tensor.device.device_type = (DLDeviceType)t->device_type;
    flat->tensor.device.device_id = device;
    flat->tensor.ndim = 1;
    flat->tensor.dtype = (DLDataType){kDLUInt, 32, 1};
    flat->tensor.shape = flat->shape;
}

/* Own memory as a tensor: [canary word][WORDS words][canary word]. */
struct own {
    symmem_handle *handle;
    struct flat flat;
};

static void own_begin(struct tk *t, struct own *own) {
    own->handle = tk_handle(t, (WORDS + 2) * 4, tk_world_group(t));
    symmem_handle_info info = info_of(t, own->handle);
    void *const *buffers = buffers_of(t, own->handle);
    flat_init(t, &own->flat, (uint32_t *)buffers[info.rank] + 1, WORDS, info.device);
}

static void expect_words(struct tk *t, struct own *own, int32_t rank, const uint32_t *expected) {
    uint32_t all[WORDS + 2] = {0};
    memcpy(all + 1, expected, WORDS * 4);
    tk_expect_data(t, own->handle, rank, 0, all, sizeof(all));
}

static symmem_status fill(struct tk *t, const DLTensor *tensor, int64_t offset, int64_t value,
                          int64_t count) {
    return symmem_memset32(t->context, tensor, offset, value, count, NULL);
}

static symmem_status set_word(struct tk *t, const DLTensor *tensor, int64_t offset, int64_t value) {
    return symmem_stream_write_value32(t->context, tensor, offset, value, NULL);
}

TK_PORTED(test_memset32, "SM-FILL-01,SM-FILL-03", .max_ranks = 2, .flags = TK_PLAIN_MEMORY) {
    struct own own;
    own_begin(t, &own);
    DLTensor *tensor = &own.flat.tensor;
    uint32_t expected[WORDS] = {0};
    struct flat bad = own.flat;
    bad.tensor.shape = bad.shape;
    TK_OK(t, fill(t, tensor, 32, 1, 16));
    for (int i = 32; i < 48; i++)
        expected[i] = 1;
    expect_words(t, &own, t->rank, expected);
    bad.tensor.ndim = 2;
    bad.shape[0] = 8;
    bad.shape[1] = 8;
    TK_FAILS(t, INVALID_ARGUMENT, fill(t, &bad.tensor, 0, 2, 1));
    bad = own.flat;
    bad.tensor.shape = bad.shape;
    bad.tensor.dtype.code = kDLFloat;
    TK_FAILS(t, INVALID_ARGUMENT, fill(t, &bad.tensor, 0, 2, 1));
    TK_FAILS(t, OUT_OF_RANGE, fill(t, tensor, -1, 2, 1));
    TK_FAILS(t, OUT_OF_RANGE, fill(t, tensor, 0, 1ll << 32, 1));
    TK_FAILS(t, OUT_OF_RANGE, fill(t, tensor, 0, 2, -1));
    TK_FAILS(t, OUT_OF_RANGE, fill(t, tensor, 0, 2, 0));
    TK_FAILS(t, OUT_OF_RANGE, fill(t, tensor, WORDS, 2, 1));
    TK_FAILS(t, OUT_OF_RANGE, fill(t, tensor, 0, 2, WORDS + 1));
    expect_words(t, &own, t->rank, expected);
    TK_OK(t, fill(t, tensor, 0, 3, WORDS));
    TK_OK(t, fill(t, tensor, WORDS - 1, 4, 1));
    for (int i = 0; i < WORDS; i++)
        expected[i] = i == WORDS - 1 ? 4 : 3;
    expect_words(t, &own, t->rank, expected);
}

TK_PORTED(test_stream_write_value32, "SM-FILL-02,SM-FILL-03", .needs = SYMMEM_CAP_STREAMS,
          .max_ranks = 2, .flags = TK_PLAIN_MEMORY) {
    struct own own;
    own_begin(t, &own);
    symmem_stream *stream = tk_stream(t);
    uint32_t expected[WORDS] = {0};
    for (int i = 0; i < 4; i++) {
        TK_OK(t, symmem_stream_write_value32(t->context, &own.flat.tensor, i, 1, stream));
        tk_synchronize(t, stream);
        expected[i] = 1;
        expect_words(t, &own, t->rank, expected);
    }
    TK_FAILS(t, OUT_OF_RANGE,
             symmem_stream_write_value32(t->context, &own.flat.tensor, -1, 1, stream));
    TK_FAILS(t, OUT_OF_RANGE,
             symmem_stream_write_value32(t->context, &own.flat.tensor, 0, 1ll << 32, stream));
    tk_synchronize(t, stream);
    expect_words(t, &own, t->rank, expected);
}

/* Single words, every offset, the largest values; without a stream. */
TK_TEST(fill, write_value32_sets_one_word, "SM-FILL-02,SM-FILL-03", .max_ranks = 2,
        .flags = TK_PLAIN_MEMORY) {
    struct own own;
    own_begin(t, &own);
    uint32_t expected[WORDS] = {0};
    const uint32_t values[] = {1, UINT32_MAX, 0x80000000u, 0x01020304u};
    for (int i = 0; i < WORDS; i += 7) {
        expected[i] = values[i % 4];
        TK_OK(t, set_word(t, &own.flat.tensor, i, values[i % 4]));
        expect_words(t, &own, t->rank, expected);
    }
    expected[WORDS - 1] = UINT32_MAX;
    TK_OK(t, set_word(t, &own.flat.tensor, WORDS - 1, UINT32_MAX));
    TK_FAILS(t, OUT_OF_RANGE, set_word(t, &own.flat.tensor, WORDS, 1));
    TK_FAILS(t, OUT_OF_RANGE, set_word(t, &own.flat.tensor, INT64_MAX, 1));
    expect_words(t, &own, t->rank, expected);
}

TK_TEST(fill, memset32_sets_exactly, "SM-FILL-01", .max_ranks = 2, .flags = TK_PLAIN_MEMORY) {
    struct own own;
    own_begin(t, &own);
    const int64_t counts[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 31};
    uint32_t expected[WORDS] = {0};
    for (int64_t offset = 0; offset < 33; offset += 4 + offset % 3)
        for (size_t c = 0; c < TK_COUNT(counts); c++) {
            uint32_t value = 0xF0000000u + (uint32_t)(offset * 64) + (uint32_t)c;
            for (int64_t i = 0; i < counts[c]; i++)
                expected[offset + i] = value;
            TK_OK(t, fill(t, &own.flat.tensor, offset, value, counts[c]));
            expect_words(t, &own, t->rank, expected);
        }
}

/* Peers' memory through a view, and a tensor that starts at a byte offset. */
TK_TEST(fill, peers_memory, "SM-FILL-01,SM-FILL-02", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .max_ranks = 4, .flags = TK_PLAIN_MEMORY) {
    struct own own;
    own_begin(t, &own);
    const int64_t sizes[1] = {WORDS};
    DLManagedTensor *view = NULL;
    uint32_t expected[WORDS] = {0};
    TK_REQUIRE_OK(t, symmem_get_buffer(own.handle, t->next, 1, sizes, SYMMEM_UINT32, 1, &view));
    tk_out_of_band_barrier(t);
    TK_OK(t, fill(t, &view->dl_tensor, 10, 0xABCDEF01, 3));
    TK_OK(t, set_word(t, &view->dl_tensor, 63, 5));
    for (int i = 10; i < 13; i++)
        expected[i] = 0xABCDEF01;
    expected[63] = 5;
    expect_words(t, &own, t->next, expected);
    view->deleter(view);
    tk_out_of_band_barrier(t);
    struct flat part = own.flat;
    part.tensor.shape = part.shape;
    part.tensor.byte_offset = 16;
    part.shape[0] = WORDS - 4;
    TK_OK(t, fill(t, &part.tensor, 0, 9, 1));
    expected[4] = 9;
    expect_words(t, &own, t->rank, expected);
    TK_FAILS(t, OUT_OF_RANGE, fill(t, &part.tensor, WORDS - 4, 9, 1));
}

/* A bad tensor is refused first, whatever else is wrong; nothing is written by any refusal. */
TK_TEST(fill, refusals_in_order, "SM-FILL-03", .max_ranks = 2, .flags = TK_PLAIN_MEMORY) {
    struct own own;
    own_begin(t, &own);
    struct flat bad[6];
    uint32_t zeros[WORDS] = {0};
    for (int i = 0; i < 6; i++) {
        bad[i] = own.flat;
        bad[i].tensor.shape = bad[i].shape;
    }
    bad[0].tensor.dtype.code = kDLInt;
    bad[1].tensor.dtype.bits = 64;
    bad[2].tensor.dtype.lanes = 2;
    bad[3].tensor.strides = bad[3].strides; /* every second word */
    bad[3].strides[0] = 2;
    bad[3].shape[0] = WORDS / 2;
    bad[4].tensor.ndim = 2;
    bad[4].shape[0] = WORDS / 2;
    bad[4].shape[1] = 2;
    bad[5].tensor.data = NULL;
    for (int i = 0; i < 6; i++) {
        TK_FAILS(t, INVALID_ARGUMENT, fill(t, &bad[i].tensor, -1, -1, 0));
        TK_FAILS(t, INVALID_ARGUMENT, fill(t, &bad[i].tensor, 0, 1, 1));
        TK_FAILS(t, INVALID_ARGUMENT, set_word(t, &bad[i].tensor, -1, -1));
        TK_FAILS(t, INVALID_ARGUMENT, set_word(t, &bad[i].tensor, 0, 1));
    }
    TK_FAILS(t, INVALID_ARGUMENT, fill(t, NULL, 0, 1, 1));
    TK_FAILS(t, OUT_OF_RANGE, fill(t, &own.flat.tensor, 0, -1, 1));
    TK_FAILS(t, OUT_OF_RANGE, fill(t, &own.flat.tensor, 1, 1, INT64_MAX));
    TK_FAILS(t, OUT_OF_RANGE, fill(t, &own.flat.tensor, INT64_MAX, 1, 1));
    TK_FAILS(t, OUT_OF_RANGE, set_word(t, &own.flat.tensor, 0, -1));
    expect_words(t, &own, t->rank, zeros);
    /* Explicit strides that say contiguous are no obstacle. */
    struct flat plain = own.flat;
    plain.tensor.shape = plain.shape;
    plain.tensor.strides = plain.strides;
    plain.strides[0] = 1;
    TK_OK(t, fill(t, &plain.tensor, 0, 1, 1));
}

/* Memory of no handle: the host's own where the device reaches that, else an allocation. */
TK_TEST(fill, ordinary_memory, "SM-FILL-04,SM-FILL-01,SM-FILL-02", .max_ranks = 2) {
    uint32_t own_words[WORDS + 2] = {0};
    bool by_host = (t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0;
    uint32_t *words = by_host ? own_words : tk_alloc(t, sizeof(own_words));
    struct flat flat;
    symmem_stream *stream = (t->capabilities & SYMMEM_CAP_STREAMS) != 0 ? tk_stream(t) : NULL;
    flat_init(t, &flat, words + 1, WORDS, own_device(t));
    TK_OK(t, fill(t, &flat.tensor, 0, 7, WORDS));
    TK_OK(t, symmem_memset32(t->context, &flat.tensor, 2, 8, 3, stream));
    TK_OK(t, symmem_stream_write_value32(t->context, &flat.tensor, 63, 9, stream));
    tk_synchronize(t, stream);
    if (!by_host)
        TK_OK(t, symmem_copy(t->context, own_words, words, sizeof(own_words), NULL));
    for (int i = 0; i < WORDS; i++)
        TK_EQ_INT(t, i == 63 ? 9 : i >= 2 && i < 5 ? 8 : 7, own_words[i + 1]);
    TK_CHECK(t, own_words[0] == 0 && own_words[WORDS + 1] == 0);
    TK_FAILS(t, OUT_OF_RANGE, fill(t, &flat.tensor, 63, 1, 2));
}

/* By the CPU itself where it can, else by a copy of its own. */
static uint32_t flag_at(struct tk *t, const uint32_t *flag) {
    uint32_t word = 0;
    /* pairs with: write_value32 of the previous rank's stream */
    if ((t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0)
        return atomic_load_explicit((const _Atomic uint32_t *)flag, memory_order_acquire);
    TK_OK(t, symmem_copy(t->context, &word, flag, sizeof(word), NULL));
    return word;
}

static const uint32_t *data_at(struct tk *t, const uint32_t *data, size_t count, uint32_t *room) {
    if ((t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0)
        return data;
    TK_OK(t, symmem_copy(t->context, room, data, count * sizeof(*data), NULL));
    return room;
}

static void take_a_moment(void *arg) {
    tk_sleep_ms(2);
}

/* Rank 0 writes one number after the other into the next rank's word, all bytes of each alike,
 * while that looks: with its CPU, for a copy might take a word in pieces itself. Until it has seen
 * many come, for on a busy machine the two may run alternately. */
static void words_appear_whole(struct tk *t, const struct flat *flag, const uint32_t *own) {
    enum { MANY = 500, SEEN = 8, IS_OVER = 9 };
    uint32_t torn = 0, last = 0;
    uint64_t seen = 0;
    TK_OK(t, set_word(t, &flag->tensor, 0, 0));
    tk_share_u64(t, SEEN, 0);
    tk_share_u64(t, IS_OVER, 0);
    tk_out_of_band_barrier(t);
    const uint64_t begin_ms = tk_now_ms(), least_ms = 60, most_ms = 2000;
    symmem_status status = SYMMEM_OK;
    for (uint32_t i = 0; t->rank == 0 && status == SYMMEM_OK; i++) {
        status =
            symmem_stream_write_value32(t->context, &flag->tensor, 0, i % 256 * 0x01010101u, NULL);
        uint64_t spent_ms = i % 64 == 0 ? tk_now_ms() - begin_ms : 0;
        if (spent_ms >= most_ms || (spent_ms >= least_ms && tk_read_u64(t, 1, SEEN) >= MANY))
            break;
    }
    TK_OK(t, status);
    if (t->rank == 0)
        tk_share_u64(t, IS_OVER, 1);
    while (t->rank == 1 && tk_read_u64(t, 0, IS_OVER) == 0) {
        for (int i = 0; i < 1000; i++) {
            uint32_t word = flag_at(t, own);
            torn = word != (word & 255) * 0x01010101u ? word : torn;
            seen += word != last;
            last = word;
        }
        tk_share_u64(t, SEEN, seen);
    }
    TK_CHECK_MSG(t, torn == 0, "a word was written in pieces: 0x%08x", torn);
    tk_out_of_band_barrier(t);
}

/* The word is a flag for what the stream wrote before: the peer polls it and reads the data. Behind
 * something slow, where the stream can have that: data must not be there by chance. */
TK_TEST(fill, write_value_comes_after_the_data, "SM-FILL-02",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_DIRECT_ACCESS, .ranks = {2, 4},
        .flags = TK_PLAIN_MEMORY) {
    enum { DATA_WORDS = 4096 };
    symmem_handle *handle = tk_handle(t, (DATA_WORDS + 1) * 4, tk_world_group(t));
    symmem_handle_info info = info_of(t, handle);
    symmem_stream *stream = tk_stream(t);
    struct flat flag;
    uint32_t *words = tk_scratch(t, DATA_WORDS * 4), *room = tk_scratch(t, DATA_WORDS * 4);
    void *const *buffers = buffers_of(t, handle);
    const uint32_t *own = buffers[info.rank];
    flat_init(t, &flag, (uint32_t *)buffers[t->next] + DATA_WORDS, 1, info.device);
    for (uint32_t g = 1; g <= 20 && !tk_failed(t); g++) {
        fill_words(words, DATA_WORDS, t->rank, g);
        if ((t->capabilities & SYMMEM_CAP_HOST_FN) != 0)
            TK_OK(t, symmem_stream_host_fn(stream, take_a_moment, NULL));
        TK_OK(t, symmem_put(handle, t->next, 0, words, DATA_WORDS * 4, stream));
        TK_OK(t, symmem_stream_write_value32(t->context, &flag.tensor, 0, g, stream));
        uint64_t end_ms = tk_now_ms() + LONG_MS;
        while (flag_at(t, own + DATA_WORDS) != g && tk_now_ms() < end_ms)
            tk_sleep_ms(0);
        TK_EQ_SIZE(t, DATA_WORDS,
                   first_wrong_word(data_at(t, own, DATA_WORDS, room), DATA_WORDS, t->previous, g));
        tk_synchronize(t, stream);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
    if ((t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0)
        words_appear_whole(t, &flag, own + DATA_WORDS);
}
