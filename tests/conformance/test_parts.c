/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of one allocation, each met by its own pointer and reached on every path of data; and the
 * local side of a copy. */
#include "case_help.h"
#include "sync_help.h"

#define BYTES (5u * 4096u)
#define PIECE 24u
#define CANARY 0xE1

enum path {
    BY_PUT = 0,
    BY_GET,
    BY_FILL,
    BY_COPY,
    BY_STREAM,
    BY_GRAPH,
    BY_MULTICAST,
    BY_REDUCE,
};

static const size_t places[] = {16, 64, 256, 4096, 4096 + 48, 3 * 4096 - 8, BYTES - 64};
enum { PARTS = TK_COUNT(places) };

struct parts {
    symmem_handle *whole, *parts[PARTS];
    int32_t next, previous;
};

static struct parts parts_begin(struct tk *t) {
    struct parts p = {.next = t->next, .previous = t->previous};
    char *memory = tk_alloc(t, BYTES);
    for (int i = 0; i < PARTS; i++) { /* the first rendezvous is by an interior pointer */
        p.parts[PARTS - 1 - i] =
            tk_rendezvous(t, memory + places[PARTS - 1 - i], tk_world_group(t));
        TK_EQ_SIZE(t, places[PARTS - 1 - i], info_of(t, p.parts[PARTS - 1 - i]).offset);
    }
    p.whole = tk_rendezvous(t, memory, tk_world_group(t));
    return p;
}

/* What `rank` writes to part i. Words, all alike, so that a fill can do it. */
static void piece_of(uint32_t *words, int32_t rank, int part, enum path path) {
    for (size_t i = 0; i < PIECE / 4; i++)
        words[i] = word_of(rank, (uint32_t)path + 1, (size_t)part);
}

static DLManagedTensor *tensor_of(struct tk *t, symmem_handle *handle, int32_t rank) {
    const int64_t size = PIECE / 4;
    DLManagedTensor *tensor =
        view_by(t, symmem_get_remote_tensor, handle, rank, 1, &size, SYMMEM_UINT32, 0);
    return tensor;
}

/* Writes this rank's piece to the part at the next rank (at every rank by multicast). */
static void write_part(struct tk *t, const struct parts *p, int i, enum path path,
                       const uint32_t *words, symmem_stream *stream) {
    DLManagedTensor *tensor =
        path == BY_FILL || path == BY_COPY ? tensor_of(t, p->parts[i], p->next) : NULL;
    if (path == BY_FILL)
        TK_OK(t, symmem_memset32(t->context, &tensor->dl_tensor, 0, words[0], PIECE / 4, NULL));
    else if (path == BY_COPY)
        TK_OK(t, symmem_copy(t->context, tensor->dl_tensor.data, words, PIECE, NULL));
    else if (path != BY_MULTICAST)
        TK_OK(t, symmem_put(p->parts[i], p->next, 0, words, PIECE, stream));
    else if (t->rank == 0)
        TK_OK(t, symmem_multimem_store(p->parts[i], 0, words, PIECE, NULL));
    if (tensor != NULL)
        tensor->deleter(tensor);
}

/* The whole memory: pieces in their places and canaries everywhere else. */
static void check_whole(struct tk *t, const struct parts *p, enum path path) {
    uint8_t *expected = tk_scratch(t, BYTES);
    memset(expected, CANARY, BYTES);
    for (int i = 0; i < PARTS; i++) {
        uint32_t words[PIECE / 4];
        piece_of(words, path == BY_MULTICAST ? 0 : p->previous, i, path);
        memcpy(expected + places[i], words, PIECE);
    }
    tk_expect_data(t, p->whole, t->rank, 0, expected, BYTES);
}

static void clear(struct tk *t, const struct parts *p) {
    tk_fill(t, p->whole, t->rank, 0, BYTES, CANARY);
    TK_OK(t, symmem_barrier(p->whole, 0, LONG_MS, NULL));
}

/* All parts on one path. */
static void on_path(struct tk *t, const struct parts *p, enum path path, symmem_stream *stream) {
    uint32_t words[PARTS][PIECE / 4];
    tk_checkpoint(t, "path %d", (int)path);
    clear(t, p);
    if (path == BY_GRAPH)
        TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    for (int i = 0; i < PARTS; i++) {
        piece_of(words[i], t->rank, i, path);
        write_part(t, p, i, path, words[i], stream);
    }
    if (path == BY_GRAPH) {
        TK_OK(t, symmem_graph_launch(tk_end_capture(t, stream), stream));
    }
    tk_synchronize(t, stream);
    TK_OK(t, symmem_barrier(p->whole, 0, LONG_MS, NULL));
    check_whole(t, p, path);
    TK_OK(t, symmem_barrier(p->whole, 0, LONG_MS, NULL));
}

static void read_parts(struct tk *t, const struct parts *p) {
    for (int i = 0; i < PARTS; i++) {
        uint32_t words[PIECE / 4];
        piece_of(words, t->rank, i, BY_GET);
        tk_write(t, p->whole, t->rank, places[i], words, PIECE);
    }
    TK_OK(t, symmem_barrier(p->whole, 0, LONG_MS, NULL));
    for (int i = 0; i < PARTS; i++) {
        uint32_t words[PIECE / 4];
        uint32_t found[PIECE / 4 + 1] = {0};
        piece_of(words, p->next, i, BY_GET);
        TK_OK(t, symmem_get(p->parts[i], p->next, 0, found, PIECE, NULL));
        TK_CHECK_MSG(t, memcmp(found, words, PIECE) == 0 && found[PIECE / 4] == 0, "part %d", i);
        DLManagedTensor *tensor = tensor_of(t, p->parts[i], p->next);
        TK_OK(t, symmem_copy(t->context, found, tensor->dl_tensor.data, PIECE, NULL));
        TK_CHECK_MSG(t, memcmp(found, words, PIECE) == 0, "view of part %d", i);
        tensor->deleter(tensor);
    }
    TK_OK(t, symmem_barrier(p->whole, 0, LONG_MS, NULL));
}

TK_TEST(parts, mapped_paths, "SM-HANDLE-05,SM-VIEW-02,SM-ONESIDED-01",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 4) {
    struct parts p = parts_begin(t);
    on_path(t, &p, BY_PUT, NULL);
    on_path(t, &p, BY_FILL, NULL);
    on_path(t, &p, BY_COPY, NULL);
    read_parts(t, &p);
}

TK_TEST(parts, streams_and_graphs, "SM-HANDLE-05,SM-STREAM-08",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, .max_ranks = 4) {
    struct parts p = parts_begin(t);
    symmem_stream *stream = tk_stream(t);
    on_path(t, &p, BY_STREAM, stream);
    on_path(t, &p, BY_GRAPH, stream);
}

ON_MULTICAST(parts, multicast, "SM-MCAST-07,SM-HANDLE-05", .needs = SYMMEM_CAP_MULTICAST,
             .ranks = {2, 4}) {
    struct parts p = parts_begin(t);
    TK_REQUIRE(t, info_of(t, p.whole).multicast_ptr != NULL);
    on_path(t, &p, BY_MULTICAST, NULL);
    clear(t, &p);
    for (int i = 0; i < PARTS; i++) {
        uint32_t own = 1000u * (uint32_t)i + 1;
        tk_write(t, p.whole, t->rank, places[i], &own, 4);
    }
    TK_OK(t, symmem_barrier(p.whole, 0, LONG_MS, NULL));
    for (int i = 0; i < PARTS; i++) {
        uint32_t sum = 0;
        TK_OK(t, symmem_multimem_ld_reduce(p.parts[i], 0, &sum, 1, SYMMEM_INT32, SYMMEM_SUM, NULL));
        TK_EQ_INT(t, t->world_size * (1000 * i + 1), sum);
    }
    TK_OK(t, symmem_barrier(p.whole, 0, LONG_MS, NULL));
}

/* --- the local side --------------------------------------------------------------------------- */

/* Own symmetric memory as source and destination: up to its end and not one byte further. */
TK_TEST(parts, local_side_is_checked, "SM-ONESIDED-07", .max_ranks = 4) {
    enum { SIZE = 1000 };
    char *memory = tk_alloc(t, SIZE);
    symmem_handle *source = tk_rendezvous(t, memory, tk_world_group(t));
    symmem_handle *handle = tk_handle(t, 2 * SIZE, tk_world_group(t));
    tk_fill(t, source, t->rank, 0, SIZE, 0x51);
    tk_fill(t, handle, t->rank, 0, 2 * SIZE, 0x15);
    tk_out_of_band_barrier(t);
    for (size_t at = 0; at < SIZE; at += 333) {
        size_t rest = SIZE - at;
        TK_FAILS(t, OUT_OF_RANGE, symmem_put(handle, t->next, 0, memory + at, rest + 1, NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_get(handle, t->next, 0, memory + at, rest + 1, NULL));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_copy(t->context, memory + at, (const char *)handle, rest + 1, NULL));
    }
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, source, t->rank, 0, SIZE, 0x51);
    tk_expect_bytes(t, handle, t->rank, 0, 2 * SIZE, 0x15);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_put(handle, t->next, SIZE, memory, SIZE, NULL)); /* all of it */
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, handle, t->rank, 0, SIZE, 0x15);
    tk_expect_bytes(t, handle, t->rank, SIZE, SIZE, 0x51);
    TK_OK(t, symmem_get(handle, t->next, 0, memory, SIZE, NULL));
    tk_expect_bytes(t, source, t->rank, 0, SIZE, 0x15);
}

/* Ends past 4 GiB: whatever is computed in 32 bits wraps to a place inside a small block. */

#define BLOCK_BYTES 4096u
#define FOUR_GIB ((size_t)1 << 32)

static void views(struct tk *t, symmem_handle *handle) {
    static const symmem_dtype dtypes[] = {SYMMEM_UINT8, SYMMEM_FLOAT16, SYMMEM_INT32,
                                          SYMMEM_FLOAT64};
    TK_REQ(t, "SM-VIEW-03");
    for (size_t i = 0; i < TK_COUNT(dtypes); i++) {
        int64_t wrap = (int64_t)(FOUR_GIB / symmem_dtype_size(dtypes[i]));
        const int64_t some = 8, many = wrap + 8, rows[2] = {65536, wrap / 65536};
        DLManagedTensor *tensor = NULL;
        TK_FAILS(t, OUT_OF_RANGE, symmem_get_buffer(handle, 0, 1, &some, dtypes[i], wrap, &tensor));
        TK_FAILS(t, OUT_OF_RANGE, symmem_get_buffer(handle, 0, 1, &many, dtypes[i], 0, &tensor));
        TK_FAILS(t, OUT_OF_RANGE, symmem_get_buffer(handle, 0, 2, rows, dtypes[i], 0, &tensor));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_get_remote_tensor(handle, 0, 1, &some, dtypes[i], wrap, &tensor));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_get_signal_pad(handle, 0, 1, &some, dtypes[i], wrap, &tensor));
        TK_EQ_PTR(t, NULL, tensor);
    }
}

/* Nothing is moved at first: a library that lets the end wrap says OK before it does harm. */
static void transfers(struct tk *t, symmem_handle *handle) {
    static const size_t sizes[] = {0, 1, 64};
    uint8_t data[64] = {0};
    TK_REQ(t, "SM-ONESIDED-03");
    for (size_t i = 0; i < TK_COUNT(sizes) && !tk_failed(t); i++) {
        TK_FAILS(t, OUT_OF_RANGE, symmem_put(handle, 0, FOUR_GIB + 16, data, sizes[i], NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_get(handle, 0, FOUR_GIB, data, sizes[i], NULL));
    }
    if (!tk_failed(t))
        TK_FAILS(t, OUT_OF_RANGE, symmem_get(handle, 0, 0, data, FOUR_GIB + 16, NULL));
}

TK_TEST(bounds, past_4_gib, "SM-VIEW-03,SM-ONESIDED-03", .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, BLOCK_BYTES, tk_world_group(t));
    views(t, handle);
    transfers(t, handle);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, BLOCK_BYTES, 0);
}
