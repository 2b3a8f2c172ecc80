/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every way for data to reach a peer, followed by every way to tell it so: what was written before
 * the signal or the barrier is there after it. Data and signals may travel on different paths.
 */
#include "case_help.h"
#include "plain_help.h"

#define WORDS 3000u
#define ROUNDS 4u

enum path { BY_PUT = 0, BY_COPY, BY_STORE, BY_FILL, BY_WRITE_VALUE, BY_MULTICAST, PATH_COUNT };
enum told { BY_SIGNAL = 0, BY_BARRIER, TOLD_COUNT };

static const char *const path_names[] = {"put",      "copy",        "store",
                                         "memset32", "write value", "multicast store"};
static const char *const told_names[] = {"signal", "barrier"};

struct passing {
    symmem_handle *handle;
    symmem_stream *stream; /* or NULL */
    void *const *buffers;
    uint32_t *words;
    uint32_t limit_ms;
    struct plain plain; /* of BY_STORE */
};

static struct passing passing_begin(struct tk *t, symmem_stream *stream) {
    struct passing p = {.handle = tk_handle(t, WORDS * 4, tk_world_group(t)),
                        .stream = stream,
                        .words = tk_scratch(t, WORDS * 4),
                        .limit_ms = LONG_MS};
    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs(p.handle, &p.buffers));
    return p;
}

/* Fills and value writes leave one word everywhere, the others a pattern. */
static uint32_t expected_word(enum path path, int32_t writer, uint32_t generation, size_t i) {
    bool same = path == BY_FILL || path == BY_WRITE_VALUE;
    return word_of(writer, generation, same ? 0 : i);
}

static void fill_peer(struct tk *t, const struct passing *p, enum path path, int32_t peer,
                      uint32_t generation) {
    const int64_t size = WORDS;
    DLManagedTensor *tensor =
        view_by(t, symmem_get_buffer, p->handle, peer, 1, &size, SYMMEM_UINT32, 0);
    int64_t value = word_of(t->rank, generation, 0);
    if (path == BY_FILL)
        TK_OK(t, symmem_memset32(t->context, &tensor->dl_tensor, 0, value, WORDS, p->stream));
    for (int64_t i = 0; path == BY_WRITE_VALUE && i < WORDS; i += 50)
        TK_OK(t, symmem_stream_write_value32(t->context, &tensor->dl_tensor, i, value, p->stream));
    tensor->deleter(tensor);
}

/* Writes the generation to one peer, by multicast to all. */
static void send_data(struct tk *t, const struct passing *p, enum path path, int32_t peer,
                      uint32_t generation) {
    if (path == BY_FILL || path == BY_WRITE_VALUE) {
        fill_peer(t, p, path, peer, generation);
        return;
    }
    if (path == BY_PUT)
        TK_OK(t, symmem_put(p->handle, peer, 0, p->words, WORDS * 4, p->stream));
    else if (path == BY_COPY)
        TK_OK(t, symmem_copy(t->context, p->buffers[peer], p->words, WORDS * 4, p->stream));
    else if (path == BY_STORE)
        plain_store(&p->plain, p->buffers[peer], p->words, 0, WORDS);
    else
        TK_OK(t, symmem_multimem_store(p->handle, 0, p->words, WORDS * 4, p->stream));
}

static void check_data(struct tk *t, const struct passing *p, enum path path, enum told told,
                       int32_t writer, uint32_t generation) {
    if (path == BY_STORE)
        plain_load(&p->plain, p->buffers[t->rank], p->words, 0, WORDS);
    else
        tk_read(t, p->handle, t->rank, 0, p->words, WORDS * 4);
    size_t step = path == BY_WRITE_VALUE ? 50 : 1;
    size_t i = 0;
    while (i < WORDS && p->words[i] == expected_word(path, writer, generation, i))
        i += step;
    TK_CHECK_MSG(t, i >= WORDS, "%s, then %s: word %zu of rank %d is not of generation %u",
                 path_names[path], told_names[told], i, (int)writer, generation);
}

/* One writer to all; each reader looks as soon as it was told. */
static void one_round(struct tk *t, const struct passing *p, enum path path, enum told told,
                      int32_t writer, uint32_t generation) {
    if (t->rank == writer)
        fill_words(p->words, WORDS, writer, generation);
    for (int32_t peer = 0; t->rank == writer && peer < t->world_size; peer++)
        if (path != BY_MULTICAST || peer == 0)
            send_data(t, p, path, peer, generation);
    for (int32_t peer = 0; told == BY_SIGNAL && t->rank == writer && peer < t->world_size; peer++)
        TK_OK(t, symmem_put_signal(p->handle, peer, 1, p->limit_ms, p->stream));
    if (told == BY_SIGNAL)
        TK_OK(t, symmem_wait_signal(p->handle, writer, 1, p->limit_ms, p->stream));
    else
        TK_OK(t, symmem_barrier(p->handle, 1, p->limit_ms, p->stream));
    if (p->stream != NULL)
        tk_synchronize(t, p->stream);
    check_data(t, p, path, told, writer, generation);
    TK_OK(t, symmem_barrier(p->handle, 0, p->limit_ms, NULL)); /* all have read */
}

static void all_rounds(struct tk *t, const struct passing *p, enum path path) {
    uint32_t generation = 0;
    for (enum told told = BY_SIGNAL; told < TOLD_COUNT; told++)
        for (uint32_t i = 0; i < ROUNDS && !tk_failed(t); i++) {
            generation++;
            tk_checkpoint(t, "%s, then %s, generation %u", path_names[path], told_names[told],
                          generation);
            one_round(t, p, path, told, (int32_t)i % t->world_size, generation);
        }
}

/* The paths in [first, last] but by stores, which have a stream of their own. */
static void paths(struct tk *t, symmem_stream *stream, enum path first, enum path last) {
    struct passing p = passing_begin(t, stream);
    for (enum path path = first; path <= last; path++)
        if (path != BY_STORE)
            all_rounds(t, &p, path);
}

TK_TEST(litmus, paths_without_stream, "SM-SIGNAL-01,SM-BARRIER-02,SM-ONESIDED-04",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .ranks = {2, 4}, .flags = TK_PLAIN_MEMORY,
        .timeout_s = 60) {
    paths(t, NULL, BY_PUT, BY_FILL);
}

TK_TEST(litmus, plain_stores, "SM-SIGNAL-01,SM-BARRIER-02,SM-ONESIDED-04",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .ranks = {2, 4}, .flags = TK_PLAIN_MEMORY,
        .timeout_s = 60) {
    struct plain plain = plain_begin(t, WORDS, true);
    struct passing p = passing_begin(t, plain.stream);
    p.plain = plain;
    all_rounds(t, &p, BY_STORE);
}

TK_TEST(litmus, paths_on_a_stream, "SM-SIGNAL-01,SM-BARRIER-02,SM-ONESIDED-04",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_DIRECT_ACCESS, .ranks = {2, 4},
        .flags = TK_PLAIN_MEMORY, .timeout_s = 60) {
    paths(t, tk_stream(t), BY_PUT, BY_WRITE_VALUE);
}

ON_MULTICAST(litmus, multicast_stores, "SM-SIGNAL-01,SM-BARRIER-02,SM-ONESIDED-04",
             .needs = SYMMEM_CAP_MULTICAST | SYMMEM_CAP_STREAMS | SYMMEM_CAP_DIRECT_ACCESS,
             .ranks = {2, 4}, .flags = TK_PLAIN_MEMORY, .timeout_s = 60) {
    paths(t, NULL, BY_MULTICAST, BY_MULTICAST);
    paths(t, tk_stream(t), BY_MULTICAST, BY_MULTICAST);
}
