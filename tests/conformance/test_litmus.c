/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Message passing with skew: many generations of data, of one cache line up to 4096, between ranks
 * that are delayed at random. What was written before a signal is there after its wait, whichever
 * thread of the rank wrote and whichever reads, and for any size and content.
 */
#include "case_help.h"
#include "plain_help.h"

#include <time.h>

#define LINE_WORDS 16u
#define MAX_LINES 4096u
#define DATA 0
#define CREDIT 1

/* Rank r writes to the next one and reads what the one before it wrote. */
struct ring {
    symmem_handle *handle;
    symmem_stream *stream; /* of the signals; NULL: without one */
    void *const *buffers;
    uint32_t *words;
    size_t count; /* of words in a buffer */
    int32_t next, previous;
    uint32_t limit_ms;
};

static struct ring ring_begin(struct tk *t, size_t count) {
    struct ring ring = {
        .handle = tk_handle(t, count * 4, tk_world_group(t)),
        .words = tk_scratch(t, count * 4),
        .count = count,
        .next = t->next,
        .previous = t->previous,
        .limit_ms = LONG_MS,
    };
    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs(ring.handle, &ring.buffers));
    return ring;
}

/* Now and then a short pause, so that ranks arrive in every order. */
static void skew(struct tk *t) {
    uint64_t draw = tk_random_below(t, 48);
    struct timespec pause = {.tv_nsec = (long)draw * 20000};
    if (draw < 6)
        (void)nanosleep(&pause, NULL);
}

static bool put_next(struct tk *t, const struct ring *ring, int32_t channel) {
    return TK_OK(
        t, symmem_put_signal(ring->handle, ring->next, channel, ring->limit_ms, ring->stream));
}

static bool wait_previous(struct tk *t, const struct ring *ring, int32_t channel) {
    return TK_OK(
        t, symmem_wait_signal(ring->handle, ring->previous, channel, ring->limit_ms, ring->stream));
}

static bool signal_next(struct tk *t, const struct ring *ring, int32_t channel) {
    return put_next(t, ring, channel) && wait_previous(t, ring, channel);
}

/* What came was read. */
static bool give_credit(struct tk *t, const struct ring *ring, int32_t channel) {
    return TK_OK(t, symmem_put_signal(ring->handle, ring->previous, channel, ring->limit_ms,
                                      ring->stream)) &&
           TK_OK(t, symmem_wait_signal(ring->handle, ring->next, channel, ring->limit_ms,
                                       ring->stream));
}

static bool check_generation(struct tk *t, const uint32_t *words, size_t count, int32_t writer,
                             uint32_t generation) {
    size_t wrong = first_wrong_word(words, count, writer, generation);
    return wrong == count || TK_CHECK_MSG(t, false, "word %zu of %zu is not of generation %u",
                                          wrong, count, generation);
}

/* --- one line to 4096 ------------------------------------------------------------------------- */

/* plain: by plain stores and loads; NULL: by one-sided calls. */
static bool pass_message(struct tk *t, const struct ring *ring, size_t count, uint32_t generation,
                         const struct plain *plain) {
    skew(t);
    fill_words(ring->words, count, t->rank, generation);
    if (plain != NULL)
        plain_store(plain, ring->buffers[ring->next], ring->words, 0, count);
    else
        tk_write(t, ring->handle, ring->next, 0, ring->words, count * 4);
    if (!put_next(t, ring, DATA))
        return false;
    if (generation % 20 == 0)
        tk_sleep_ms(1); /* then nothing but the signal itself can order: no thread sleeps */
    if (!wait_previous(t, ring, DATA))
        return false;
    if (plain != NULL)
        plain_load(plain, ring->buffers[t->rank], ring->words, 0, count);
    else
        tk_read(t, ring->handle, t->rank, 0, ring->words, count * 4);
    bool good = check_generation(t, ring->words, count, ring->previous, generation);
    skew(t);
    return good && give_credit(t, ring, CREDIT);
}

/* Of 1, `factor`, `factor` * `factor` and so on lines. */
static void pass_messages(struct tk *t, bool direct, size_t most_lines, size_t factor,
                          int (*rounds_of)(size_t lines, bool slow)) {
    struct ring ring = ring_begin(t, most_lines * LINE_WORDS);
    struct plain plain = {0};
    uint32_t generation = 0;
    bool good = true;
    if (direct)
        plain = plain_begin(t, ring.count, true);
    ring.stream = plain.stream;
    for (size_t lines = 1; good && lines <= most_lines; lines *= factor)
        for (int i = rounds_of(lines, !plain_by_cpu(&plain)); good && i > 0; i--)
            good = pass_message(t, &ring, lines * LINE_WORDS, ++generation, direct ? &plain : NULL);
    if (ring.stream != NULL)
        tk_synchronize(t, ring.stream);
    TK_CHECK(t, good);
}

static int some_rounds(size_t lines, bool slow) {
    return slow || lines > 1 ? 60 : 120;
}

static int many_rounds(size_t lines, bool slow) {
    return lines > 64 ? 8 : lines > 1 ? 150 : slow ? 300 : 2000;
}

TK_TEST(signal, message_passing, "SM-SIGNAL-01,SM-ONESIDED-04", .ranks = {2, 4}) {
    pass_messages(t, false, 64, 2, some_rounds);
}

/* Plain stores and loads, so that ThreadSanitizer sees a missing release or acquire. */
TK_TEST(signal, message_passing_direct, "SM-SIGNAL-01", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .ranks = {2, 4}, .flags = TK_PLAIN_MEMORY) {
    pass_messages(t, true, 64, 2, some_rounds);
}

TK_TEST(litmus, puts_of_any_length, "SM-SIGNAL-01,SM-ONESIDED-04", .ranks = {2, 4},
        .timeout_s = 60) {
    pass_messages(t, false, MAX_LINES, 4, many_rounds);
}

TK_TEST(litmus, stores_of_any_length, "SM-SIGNAL-01,SM-ONESIDED-04",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .ranks = {2, 4}, .flags = TK_PLAIN_MEMORY,
        .timeout_s = 60) {
    pass_messages(t, true, MAX_LINES, 4, many_rounds);
}

/* --- several threads, one of which signals ---------------------------------------------------- */

#define WORKERS 4

struct team {
    struct tk *t;
    struct ring ring;
    struct plain plain;
    pthread_mutex_t begin; /* held until all threads are there */
    pthread_barrier_t meet;
    atomic_bool stop;
    bool direct;
    uint32_t generations;
};

struct worker {
    struct team *team;
    uint32_t number;
};

/* A worker's part, its last word after a pause if it is the one to be late. */
static void write_part(const struct team *team, uint32_t number, uint32_t generation) {
    const struct ring *ring = &team->ring;
    const size_t part = ring->count / WORKERS, at = number * part, last = at + part - 1;
    const struct timespec pause = {.tv_nsec = 200000};
    uint32_t *to = ring->buffers[ring->next], *words = ring->words;
    for (size_t i = at; i <= last; i++)
        words[i] = word_of(team->t->rank, generation, i);
    if (team->direct)
        plain_store(&team->plain, to + at, words + at, at, part - 1);
    if (generation % (2 * WORKERS) == number)
        (void)nanosleep(&pause, NULL);
    if (team->direct)
        plain_store(&team->plain, to + last, words + last, last, 1);
    else
        TK_OK(team->t, symmem_put(ring->handle, ring->next, at * 4, words + at, part * 4, NULL));
}

/* Reads another worker's part than it wrote; it has waited for no signal itself. */
static void read_part(struct team *team, uint32_t number, uint32_t generation) {
    const struct ring *ring = &team->ring;
    const size_t part = ring->count / WORKERS, at = (number + 1) % WORKERS * part;
    const uint32_t *from = ring->buffers[team->t->rank];
    if (team->direct)
        plain_load(&team->plain, from + at, ring->words + at, at, part);
    else
        TK_OK(team->t,
              symmem_get(ring->handle, team->t->rank, at * 4, ring->words + at, part * 4, NULL));
    for (size_t i = at; i < at + part; i++)
        if (ring->words[i] != word_of(ring->previous, generation, i)) {
            TK_CHECK_MSG(team->t, false, "word %zu is not of generation %u", i, generation);
            return;
        }
}

static void *work(void *arg) {
    struct worker *own = arg;
    struct team *team = own->team;
    bool leads = own->number == 0;
    (void)pthread_mutex_lock(&team->begin);
    (void)pthread_mutex_unlock(&team->begin);
    for (uint32_t g = 1; g <= team->generations && !atomic_load(&team->stop); g++) {
        write_part(team, own->number, g);
        (void)pthread_barrier_wait(&team->meet); /* all parts are written */
        if (leads && !signal_next(team->t, &team->ring, DATA))
            atomic_store(&team->stop, true);
        (void)pthread_barrier_wait(&team->meet); /* the signal has come, for one thread */
        if (atomic_load(&team->stop))
            return NULL;
        read_part(team, own->number, g);
        (void)pthread_barrier_wait(&team->meet); /* all have read */
        if (leads && (tk_failed(team->t) || !give_credit(team->t, &team->ring, CREDIT)))
            atomic_store(&team->stop, true);
        (void)pthread_barrier_wait(&team->meet);
    }
    return NULL;
}

static void run_team(struct tk *t, bool direct) {
    struct team team = {.t = t, .ring = ring_begin(t, 2048), .direct = direct, .generations = 200};
    if (direct) /* without a stream: what one thread wrote another one's signal tells of */
        team.plain = plain_begin(t, team.ring.count, false);
    struct worker workers[WORKERS];
    pthread_t threads[WORKERS];
    uint32_t started = 1; /* the rank's own thread leads */
    TK_REQUIRE(t, pthread_mutex_init(&team.begin, NULL) == 0);
    TK_REQUIRE(t, pthread_barrier_init(&team.meet, NULL, WORKERS) == 0);
    (void)pthread_mutex_lock(&team.begin);
    for (uint32_t i = 0; i < WORKERS; i++)
        workers[i] = (struct worker){.team = &team, .number = i};
    while (started < WORKERS &&
           pthread_create(&threads[started], NULL, work, &workers[started]) == 0)
        started++;
    atomic_store(&team.stop, !TK_EQ_INT(t, WORKERS, started));
    (void)pthread_mutex_unlock(&team.begin);
    (void)work(&workers[0]);
    for (uint32_t i = 1; i < started; i++)
        TK_EQ_INT(t, 0, pthread_join(threads[i], NULL));
    (void)pthread_barrier_destroy(&team.meet);
    (void)pthread_mutex_destroy(&team.begin);
}

TK_TEST(litmus, threads_store_one_signals, "SM-SIGNAL-01,SM-ONESIDED-04",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .ranks = {2, 4}, .flags = TK_PLAIN_MEMORY,
        .timeout_s = 60) {
    run_team(t, true);
}

TK_TEST(litmus, threads_put_one_signals, "SM-SIGNAL-01,SM-ONESIDED-04", .ranks = {2, 4},
        .timeout_s = 60) {
    run_team(t, false);
}

/* --- a ring of two slots ---------------------------------------------------------------------- */

/* The writer is always two slots ahead; a slot is refilled as soon as it was handed back. */
TK_TEST(litmus, ring_of_two_slots, "SM-SIGNAL-01,SM-ONESIDED-04", .ranks = {2, 4},
        .timeout_s = 60) {
    enum { SLOT = 160, LAPS = 800 };
    struct ring ring = ring_begin(t, 2 * SLOT);
    bool good = true;
    for (uint32_t g = 1; good && g <= 2 * LAPS + 2; g++) {
        int32_t slot = (int32_t)(g % 2);
        if (g > 2 && g <= 2 * LAPS + 2) /* the reader of my writes is through with this slot */
            good =
                TK_OK(t, symmem_wait_signal(ring.handle, ring.next, 2 + slot, ring.limit_ms, NULL));
        if (good && g <= 2 * LAPS) {
            fill_words(ring.words, SLOT, t->rank, g);
            tk_write(t, ring.handle, ring.next, (size_t)slot * SLOT * 4, ring.words, SLOT * 4);
            good = TK_OK(t, symmem_put_signal(ring.handle, ring.next, slot, ring.limit_ms, NULL));
        }
        if (!good || g < 2)
            continue; /* read one behind */
        uint32_t read = g - 1;
        if (read > 2 * LAPS)
            break;
        slot = (int32_t)(read % 2);
        skew(t);
        good = TK_OK(t, symmem_wait_signal(ring.handle, ring.previous, slot, ring.limit_ms, NULL));
        tk_read(t, ring.handle, t->rank, (size_t)slot * SLOT * 4, ring.words, SLOT * 4);
        good =
            good && check_generation(t, ring.words, SLOT, ring.previous, read) &&
            TK_OK(t, symmem_put_signal(ring.handle, ring.previous, 2 + slot, ring.limit_ms, NULL));
    }
    TK_CHECK(t, good);
}

/* --- another size and content each time ------------------------------------------------------- */

/* Words that a protocol might take for its own: the signal's values, sentinels, the data that is
 * there already. */
static uint32_t odd_word(uint64_t kind, int32_t rank, uint32_t generation, size_t i) {
    static const uint32_t words[] = {0, 1, UINT32_MAX, 0x80000000u, 0x7fc00001u, 0xff800001u};
    enum { COUNT = TK_COUNT(words) };
    return kind < COUNT ? words[kind] : word_of(rank, kind == COUNT ? 1 : generation, i);
}

/* The same on every rank. */
static uint64_t draw(const struct tk *t, uint32_t generation) {
    uint64_t x = t->seed + generation * 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static bool pass_odd_message(struct tk *t, const struct ring *ring, uint32_t generation) {
    uint64_t drawn = draw(t, generation);
    uint64_t kind = drawn % 8;
    size_t most = (size_t)1 << (drawn >> 8) % 15; /* sizes of every magnitude alike */
    size_t count = 1 + (size_t)(drawn >> 16) % most;
    int32_t channel = (int32_t)((drawn >> 40) % 3) * 2;
    uint32_t *words = ring->words;
    for (size_t i = 0; i < count; i++)
        words[i] = odd_word(kind, t->rank, generation, i);
    tk_fill(t, ring->handle, t->rank, count * 4, 64, 0xC7); /* behind what is to come */
    if (!give_credit(t, ring, channel + 1))
        return false;
    tk_write(t, ring->handle, ring->next, 0, words, count * 4);
    if (!signal_next(t, ring, channel))
        return false;
    for (size_t i = 0; i < count; i++)
        words[i] = odd_word(kind, ring->previous, generation, i);
    return tk_expect_data(t, ring->handle, t->rank, 0, words, count * 4) &&
           tk_expect_bytes(t, ring->handle, t->rank, count * 4, 64, 0xC7);
}

TK_TEST(litmus, any_size_and_content, "SM-SIGNAL-01,SM-ONESIDED-04", .ranks = {2, 4},
        .flags = TK_WRITES_PADS, .timeout_s = 60) {
    struct ring ring = ring_begin(t, ((size_t)1 << 14) + 16);
    void *const *pads = pads_of(t, ring.handle);
    void *pad = pads[t->rank];
    pad_fill(t, ring.handle, 0x3D);
    bool good = true;
    for (uint32_t g = 1; good && g <= 600; g++)
        good = pass_odd_message(t, &ring, g);
    TK_CHECK(t, good);
    TK_REQUIRE_OK(t, symmem_handle_signal_pad_ptrs(ring.handle, &pads));
    TK_EQ_PTR(t, pad, pads[t->rank]); /* where it is depends on no call */
    pad_expect(t, ring.handle, 0x3D);
}

/*
 * Every way for data to reach a peer, followed by every way to tell it so: what was written before
 * the signal or the barrier is there after it. Data and signals may travel on different paths.
 */

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
