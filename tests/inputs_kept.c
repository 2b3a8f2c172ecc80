/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests/inputs.sh runs as a user's program: what calls cost with ten and with many of each
 * thing that a program can keep. Ends with 1 if one costs more than twice as much. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/ops.h>
#include <symmem/symmem.h>
#include <time.h>

#define LIMIT_MS 30000u
#define FEW 10
#define ROUNDS 60
#define SLACK_US 1.0 /* of the caches, where a call takes less than that */
#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != SYMMEM_OK) {                                                                 \
            symmem_error_record record_;                                                           \
            symmem_last_error(&record_);                                                           \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, record_.operation,              \
                    record_.message);                                                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static symmem_context *context;
static symmem_group *group;
static symmem_store *store;
static symmem_stream *stream;
static symmem_pool *pool;
static symmem_handle *handle; /* of one that is there throughout */
static void *own;
static int serial;

/* This thread's alone: other programs take theirs. */
static double now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static symmem_group *new_group(void) {
    symmem_group *made;
    char name[32];
    (void)snprintf(name, sizeof name, "kept %d", serial++);
    OK(symmem_group_create(context, name, NULL, 0, NULL, &made));
    return made;
}

static void *new_memory(symmem_handle **handle_p) {
    void *ptr;
    OK(symmem_alloc(context, 4096, 0, NULL, &ptr));
    OK(symmem_rendezvous(context, ptr, group, LIMIT_MS, handle_p));
    return ptr;
}

/* --- what is measured ---------------------------------------------------------------------------
 */

static void make_group(void) {
    OK(symmem_group_destroy(new_group()));
}

static void find_group(void) {
    symmem_group *found;
    OK(symmem_group_find(context, "kept", &found));
}

static void meet(void) {
    symmem_handle *made;
    void *ptr = new_memory(&made);
    symmem_handle_release(made);
    OK(symmem_free(context, ptr));
}

static void meet_again(void) {
    symmem_handle *again;
    OK(symmem_rendezvous(context, own, group, LIMIT_MS, &again));
    symmem_handle_release(again);
}

static void allocate(void) {
    void *ptr;
    OK(symmem_alloc(context, 4096, 0, NULL, &ptr));
    OK(symmem_free(context, ptr));
}

static void make_stream(void) {
    symmem_stream *made;
    OK(symmem_stream_create(context, 0, &made));
    OK(symmem_stream_destroy(made));
}

static void make_event(void) {
    symmem_event *made;
    OK(symmem_event_create(context, 0, &made));
    symmem_event_destroy(made);
}

static void reset(void) {
    OK(symmem_handle_reset(handle, LIMIT_MS));
}

/* In a gap, and in none. */
static void take_block(void) {
    void *ptr, *large;
    OK(symmem_pool_alloc(pool, 512, &ptr));
    OK(symmem_pool_alloc(pool, 1024, &large));
    OK(symmem_pool_free(pool, large));
    OK(symmem_pool_free(pool, ptr));
}

static void ask_store(void) {
    char value[8];
    size_t bytes;
    OK(symmem_store_set(store, "kept", "1", 1, LIMIT_MS));
    OK(symmem_store_get(store, "kept", value, sizeof value, &bytes, LIMIT_MS));
    OK(symmem_store_remove(store, "kept", LIMIT_MS));
}

static const struct {
    const char *name;
    void (*call)(void);
} calls[] = {{"group", make_group},  {"group_find", find_group}, {"rendezvous", meet},
             {"cached", meet_again}, {"alloc", allocate},        {"stream", make_stream},
             {"event", make_event},  {"reset", reset},           {"pool", take_block},
             {"store", ask_store}};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* --- what is kept -------------------------------------------------------------------------------
 */

static void keep_group(void) {
    (void)new_group();
}

static void keep_link(void) {
    symmem_handle *made;
    OK(symmem_rendezvous(context, own, new_group(), LIMIT_MS, &made));
}

static void keep_memory(void) {
    symmem_handle *made;
    (void)new_memory(&made);
}

static void keep_handle(void) {
    symmem_handle *again;
    OK(symmem_rendezvous(context, own, group, LIMIT_MS, &again));
}

static void keep_stream(void) {
    symmem_stream *made;
    OK(symmem_stream_create(context, 0, &made));
}

static void keep_event(void) {
    symmem_event *made;
    OK(symmem_event_create(context, 0, &made));
}

static void keep_graph(void) {
    symmem_graph *graph;
    OK(symmem_stream_begin_capture(stream));
    OK(symmem_barrier(handle, 0, LIMIT_MS, stream));
    OK(symmem_stream_end_capture(stream, &graph));
    OK(symmem_graph_launch(graph, stream));
    OK(symmem_stream_synchronize(stream, LIMIT_MS));
}

static void *gaps[10000];
static int gap_count;

/* Between two blocks, and free once all are there: what is free is what the next one takes. */
static void keep_gap(void) {
    void *between;
    OK(symmem_pool_alloc(pool, 512, &gaps[gap_count++]));
    OK(symmem_pool_alloc(pool, 512, &between));
}

static void open_gaps(void) {
    while (gap_count > 0)
        OK(symmem_pool_free(pool, gaps[--gap_count]));
}

static void keep_key(void) {
    char key[32];
    (void)snprintf(key, sizeof key, "kept/%d", serial++);
    OK(symmem_store_set(store, key, "1", 1, LIMIT_MS));
}

static const struct {
    const char *name;
    void (*keep)(void);
    int many;
} things[] = {{"groups", keep_group, 10000},
              {"destroyed groups", make_group, 10000},
              {"groups of a tensor", keep_link, 2000},
              {"tensors", keep_memory, 2000},
              {"handles", keep_handle, 10000},
              {"streams", keep_stream, 200},
              {"events", keep_event, 10000},
              {"graphs", keep_graph, 2000},
              {"gaps", keep_gap, 10000},
              {"keys", keep_key, 10000}};

static void begin(void) {
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.backend = "shm";
    options.rank = 0;
    options.world_size = 1;
    OK(symmem_store_open_memory(&store));
    options.store = store;
    OK(symmem_init(&options, &context));
    OK(symmem_group_create(context, "kept", NULL, 0, NULL, &group));
    OK(symmem_stream_create(context, 0, &stream));
    OK(symmem_pool_create(context, 0, (size_t)64 << 20, &pool));
    own = new_memory(&handle);
}

static void end(void) {
    OK(symmem_finalize(context));
    symmem_context_free(context);
    symmem_store_close(store);
}

static void measure(double *costs) {
    open_gaps();
    for (int c = 0; c < CALLS; c++) {
        costs[c] = 1e9;
        for (int round = 0; round < ROUNDS; round++) {
            double begin_us = now_us();
            calls[c].call();
            double cost = now_us() - begin_us;
            costs[c] = cost < costs[c] ? cost : costs[c];
        }
    }
}

static int grows(const char *what, const char *call, double few, double many) {
    const int too_much = many > 2 * few + SLACK_US;
    if (too_much)
        fprintf(stderr, "%s kept: %s takes %.2f us, and %.2f with %d\n", what, call, many, few,
                FEW);
    return too_much;
}

/* The number of calls that cost too much. */
static int keep(size_t thing) {
    double few[CALLS], many[CALLS];
    int bad = 0;
    begin();
    for (int i = 0; i < FEW; i++)
        things[thing].keep();
    measure(few);
    for (int i = FEW; i < things[thing].many; i++)
        things[thing].keep();
    measure(many);
    for (int c = 0; c < CALLS; c++)
        bad += grows(things[thing].name, calls[c].name, few[c], many[c]);
    end();
    return bad;
}

/* The cost of each operation of a capture with so many handles. */
static double captured_us(int count) {
    symmem_handle *made;
    symmem_graph *graph;
    double least = 1e9;
    begin();
    OK(symmem_stream_begin_capture(stream));
    OK(symmem_stream_end_capture(stream, &graph));
    symmem_handle **handles = calloc((size_t)count, sizeof(symmem_handle *));
    for (int i = 0; handles != NULL && i < count; i++) {
        (void)new_memory(&made);
        handles[i] = made;
        OK(symmem_barrier(made, 0, LIMIT_MS, NULL)); /* the first one makes what a channel needs */
    }
    OK(symmem_stream_begin_capture(stream));
    for (int i = 0; handles != NULL && i < count; i++) {
        double begin_us = now_us();
        OK(symmem_barrier(handles[i], 0, LIMIT_MS, stream));
        double cost = now_us() - begin_us;
        if (i >= count - FEW) /* the last ones */
            least = cost < least ? cost : least;
    }
    OK(symmem_stream_end_capture(stream, &graph));
    end();
    free(handles);
    return least;
}

/* The cost of each group in finalize. */
static double finalize_us(int count) {
    begin();
    for (int i = 0; i < count; i++)
        keep_group();
    double begin_us = now_us();
    end();
    return (now_us() - begin_us) / count;
}

int main(void) {
    int bad = 0;
    for (size_t thing = 0; thing < sizeof things / sizeof things[0]; thing++)
        bad += keep(thing);
    bad +=
        grows("captured handles", "an operation on a capture", captured_us(FEW), captured_us(2000));
    bad += grows("groups", "finalize of each", finalize_us(1000), finalize_us(10000));
    return bad == 0 ? 0 : 1;
}
