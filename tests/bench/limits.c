/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the machine can do at best, measured as everything else is:
 *   hop      one cache line from one processor to another, one way: a word that two ranks play
 *            ping-pong with. No operation in which a rank waits for another can be faster.
 *   memcpy   from private to private memory, all ranks at once
 *   reduce   float32 sums of two private arrays into a third, all ranks at once
 *   rewrite  what --input rewritten adds to each call
 */
#include "world.h"

typedef struct limit_rank {
    bench_world *world;
    const bench_options *options;
    int rank;
    size_t bytes;
    float *first, *second, *result;
    uint32_t turn; /* of the hop */
} limit_rank;

typedef struct limit {
    const char *name;
    bool (*once)(void *state);
    int divisor;
    bool unsized;
} limit;

/* More ranks than processors need the processor to get anywhere. */
#define SPINS_BEFORE_LOOKING 10000

static bool await(limit_rank *self, int player, uint32_t value) {
    _Atomic uint32_t *word = &self->world->hop[player].value;
    for (int spin = 0; atomic_load_explicit(word, memory_order_acquire) != value; spin++)
        if (spin > SPINS_BEFORE_LOOKING) {
            if (atomic_load_explicit(&self->world->lost.value, memory_order_relaxed) != 0)
                return false;
            sched_yield();
        }
    return true;
}

/* There and back; each player has a word of its own, which only it writes. */
static bool hop(void *state) {
    limit_rank *self = state;
    if (self->rank > 1)
        return true;
    self->turn++;
    if (self->rank == 1 && !await(self, 0, self->turn))
        return false;
    atomic_store_explicit(&self->world->hop[self->rank].value, self->turn, memory_order_release);
    return self->rank == 1 || await(self, 1, self->turn);
}

/* Keeps the compiler from removing unused results. */
static void use(const void *memory) {
    __asm__ __volatile__("" : : "r"(memory) : "memory");
}

static bool copy(void *state) {
    limit_rank *self = state;
    memcpy(self->result, self->first, self->bytes);
    use(self->result);
    return true;
}

static void add(float *restrict result, const float *restrict first, const float *restrict second,
                size_t count) {
    for (size_t i = 0; i < count; i++)
        result[i] = first[i] + second[i];
}

static bool reduce(void *state) {
    limit_rank *self = state;
    add(self->result, self->first, self->second, self->bytes / sizeof(float));
    use(self->result);
    return true;
}

static bool rewrite(void *state) {
    limit_rank *self = state;
    bench_rewrite(self->first, self->bytes);
    return true;
}

static const limit limits[] = {
    {.name = "hop", .once = hop, .divisor = 2, .unsized = true},
    {.name = "memcpy", .once = copy, .divisor = 1},
    {.name = "reduce", .once = reduce, .divisor = 1},
    {.name = "rewrite", .once = rewrite, .divisor = 1},
};
#define LIMIT_COUNT (sizeof limits / sizeof limits[0])

static float *memory(size_t bytes) {
    size_t whole = (bytes / 4096 + 1) * 4096;
    float *values = aligned_alloc(4096, whole);
    return values != NULL ? memset(values, 0, whole) : NULL;
}

static bool run_one(limit_rank *self, const limit *which, size_t bytes) {
    world_seat seat = {.world = self->world, .rank = self->rank};
    bench_side side = world_side(&seat);
    bench_result result;
    self->bytes = bench_whole_bytes(bytes, sizeof(float), 1);
    self->first = memory(bytes);
    self->second = memory(bytes);
    self->result = memory(bytes);
    bool good = self->first != NULL && self->second != NULL && self->result != NULL &&
                bench_measure(&side, self->options, which->once, self, which->divisor, &result);
    free(self->first);
    free(self->second);
    free(self->result);
    const bench_line line = {.library = "limit",
                             .backend = "",
                             .op = which->name,
                             .dtype = which->once == reduce ? "float32" : "",
                             .bytes = self->bytes,
                             .ranks = self->world->ranks,
                             .checking = -1};
    if (good && self->rank == 0)
        bench_print(self->options, &line, &result);
    return good;
}

static int rank_main(bench_world *world, int rank, void *arg) {
    const bench_options *options = arg;
    limit_rank self = {.world = world, .options = options, .rank = rank};
    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        if (!bench_list_has(options->ops, limits[i].name) ||
            (limits[i].once == hop && world->ranks < 2))
            continue;
        for (int size = 0; size < (limits[i].unsized ? 1 : options->size_count); size++)
            if (!run_one(&self, &limits[i], limits[i].unsized ? 0 : options->sizes[size]))
                return BENCH_FAILED;
    }
    return BENCH_DONE;
}

int main(int argc, char **argv) {
    bench_options options;
    int status;
    if (!bench_options_parse(argc, argv, &options, &status))
        return status;
    for (size_t i = 0; options.list && i < LIMIT_COUNT; i++)
        puts(limits[i].name);
    return options.list ? bench_printed(BENCH_DONE) : world_run(&options, rank_main, &options);
}
