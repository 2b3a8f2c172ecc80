/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank of a job that measures how long calls occupy the host. host-cost [ROUNDS] prints, on rank
 * 0, nanoseconds of one call, as the median and the minimum of the rounds. It measures calls on a
 * stream until they return, calls without a stream until they are over, a graph's launch for each
 * operation in it, and the driver's launch of the same kernel with the same arguments, interleaved.
 *
 *     SYMMEM_BACKEND=cuda build/bin/symmem-run 2 build/bin/host-cost
 */
#include "bench.h"

#include <dlfcn.h>
#include <symmem/symmem.h>

#include "device_clock.h"

#ifndef SYMMEM_COMMIT
#define SYMMEM_COMMIT "unknown"
#endif

#define LIMIT_MS 30000
#define CALLS 64 /* in a row: no queue is full */
#define GRAPH 50 /* operations in one */
#define BYTES 1024
#define MOST_ROUNDS 1000

typedef struct rank {
    symmem_context *context;
    symmem_group *group;
    symmem_handle *handle;
    symmem_stream *stream; /* the clock's, or one of the library's */
    device_clock *clock;   /* NULL: there is none */
    symmem_graph *graph;
    int32_t rank, ranks, device;
    char *memory;
    int64_t count;
    DLTensor in, out;
} rank;

static bool check(symmem_status status, const char *what) {
    symmem_error_record record;
    if (status == SYMMEM_OK)
        return true;
    symmem_last_error(&record);
    fprintf(stderr, "%s: %s: %s\n", what, record.operation, record.message);
    return false;
}

/* --- the driver's own launch ----------------------------------------------------------------- */

/* As the driver describes a kernel in a graph. */
typedef struct kernel_node {
    void *function;
    unsigned int grid[3], block[3];
    unsigned int shared_bytes;
    void **arguments;
    void **extra;
    void *kernel, *context;
} kernel_node;

static struct {
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*nodes)(void *graph, void **nodes, size_t *count);
    int (*kernel)(void *node, kernel_node *params);
    int (*launch)(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
                  unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                  void *stream, void **arguments, void **extra);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*destroy)(void *graph);
} driver;

static kernel_node bare; /* function NULL: there is none */
static void *bare_graph; /* whose arguments its are */

static bool find(const char *name, int version, void *entry_p) {
    int (*find_entry)(const char *name, void **entry, int version, uint64_t flags, int *found);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE), *entry = NULL;
    void *symbol = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    int found = 0;
    if (symbol == NULL)
        return false;
    memcpy(&find_entry, &symbol, sizeof symbol);
    if (find_entry(name, &entry, version, 0, &found) != 0 || entry == NULL)
        return false;
    memcpy(entry_p, &entry, sizeof entry);
    return true;
}

static bool load_driver(void) {
    return find("cuStreamBeginCapture", 12000, &driver.begin) &&
           find("cuStreamEndCapture", 12000, &driver.end) &&
           find("cuGraphGetNodes", 12000, &driver.nodes) &&
           find("cuGraphKernelNodeGetParams", 12000, &driver.kernel) &&
           find("cuLaunchKernel", 12000, &driver.launch) &&
           find("cuDevicePrimaryCtxRetain", 12000, &driver.retain) &&
           find("cuCtxPushCurrent", 12000, &driver.push) &&
           find("cuGraphDestroy", 12000, &driver.destroy);
}

static symmem_status in_place(rank *self, symmem_stream *stream) {
    return symmem_two_shot_all_reduce(self->handle, &self->in, SYMMEM_SUM, 0, LIMIT_MS, stream);
}

/* Captured as a program does it, so that the kernel and its arguments can be read. */
static bool read_kernel(rank *self) {
    void *node = NULL, *context = NULL, *stream;
    size_t count = 1;
    if (self->clock == NULL || !load_driver())
        return true;
    stream = device_clock_stream(self->clock);
    if (driver.retain(&context, self->device) != 0 || driver.push(context) != 0 ||
        driver.begin(stream, 1) != 0)
        return false;
    bool good = check(in_place(self, self->stream), "a captured operation");
    if (driver.end(stream, &bare_graph) != 0 || !good)
        return false;
    if (driver.nodes(bare_graph, &node, &count) != 0 || count != 1 ||
        driver.kernel(node, &bare) != 0) {
        fprintf(stderr, "the operation is not one kernel\n");
        bare.function = NULL;
    }
    return true;
}

static bool launch_bare(rank *self) {
    return driver.launch(bare.function, bare.grid[0], bare.grid[1], bare.grid[2], bare.block[0],
                         bare.block[1], bare.block[2], bare.shared_bytes,
                         device_clock_stream(self->clock), bare.arguments, bare.extra) == 0;
}

/* --- what is measured ------------------------------------------------------------------------- */

static bool reduce_on_stream(rank *self) {
    return check(in_place(self, self->stream), "two_shot_all_reduce");
}

static bool reduce_now(rank *self) {
    return check(in_place(self, NULL), "two_shot_all_reduce");
}

static bool one_shot_on_stream(rank *self) {
    return check(symmem_one_shot_all_reduce_out(self->handle, &self->in, SYMMEM_SUM, &self->out, 1,
                                                LIMIT_MS, self->stream),
                 "one_shot_all_reduce");
}

static bool barrier_on_stream(rank *self) {
    return check(symmem_barrier(self->handle, 2, LIMIT_MS, self->stream), "barrier");
}

static bool barrier_now(rank *self) {
    return check(symmem_barrier(self->handle, 3, LIMIT_MS, NULL), "barrier");
}

static bool launch_graph(rank *self) {
    return check(symmem_graph_launch(self->graph, self->stream), "graph_launch");
}

typedef struct row {
    const char *name;
    bool (*call)(rank *self);
    int calls, divisor;
} row;

static const row rows[] = {
    {"kernel_launch_bare", launch_bare, CALLS, 1},
    {"all_reduce_in_place_on_stream", reduce_on_stream, CALLS, 1},
    {"one_shot_all_reduce_on_stream", one_shot_on_stream, CALLS, 1},
    {"barrier_on_stream", barrier_on_stream, CALLS, 1},
    {"all_reduce_in_place_captured", launch_graph, 4, GRAPH},
    {"all_reduce_in_place_without_stream", reduce_now, CALLS, 1},
    {"barrier_without_stream", barrier_now, CALLS, 1},
};
enum { ROWS = sizeof rows / sizeof rows[0] };
static double took_ns[ROWS][MOST_ROUNDS];

static bool is_measured(const row *one) {
    return one->call != launch_bare || bare.function != NULL;
}

static bool rest(rank *self) {
    return check(symmem_stream_synchronize(self->stream, LIMIT_MS), "synchronize") &&
           check(symmem_group_barrier(self->group, LIMIT_MS), "group_barrier");
}

static bool measure(rank *self, int index, int round) {
    const row *one = &rows[index];
    bool good = rest(self);
    const uint64_t begin_ns = bench_now_ns();
    for (int i = 0; good && i < one->calls; i++)
        good = one->call(self);
    const uint64_t end_ns = bench_now_ns();
    took_ns[index][round] = (double)(end_ns - begin_ns) / one->calls / one->divisor;
    return good;
}

static void print(const rank *self, int index, int rounds) {
    double *values = took_ns[index], bare_ns = bench_median(took_ns[0], (size_t)rounds);
    const double median = bench_median(values, (size_t)rounds); /* sorts */
    printf("{\"op\":\"%s\",\"bytes\":%d,\"median_ns\":%.0f,\"min_ns\":%.0f", rows[index].name,
           strncmp(rows[index].name, "barrier", 7) == 0 ? 0 : BYTES, median, values[0]);
    if (bare.function != NULL)
        printf(",\"to_bare_launch\":%.2f", median / bare_ns);
    printf(",\"ranks\":%d,\"device\":\"%s\",\"commit\":\"" SYMMEM_COMMIT "\"}\n", (int)self->ranks,
           self->clock != NULL ? device_clock_name(self->clock) : "");
}

/* --- the rank ----------------------------------------------------------------------------------
 */

static DLTensor tensor_of(rank *self, DLDevice device, size_t at) {
    return (DLTensor){.data = self->memory + at,
                      .device = device,
                      .ndim = 1,
                      .dtype = {.code = kDLBfloat, .bits = 16, .lanes = 1},
                      .shape = &self->count};
}

static bool open_rank(rank *self) {
    symmem_handle_info info;
    DLDevice device;
    int32_t type;
    if (!check(symmem_init(NULL, &self->context), "init") ||
        !check(symmem_join(self->context, NULL, LIMIT_MS), "join") ||
        !check(symmem_group_create(self->context, "world", NULL, 0, NULL, &self->group), "group") ||
        !check(symmem_alloc(self->context, 4 * BYTES, -1, NULL, (void **)&self->memory), "alloc") ||
        !check(symmem_rendezvous(self->context, self->memory, self->group, LIMIT_MS, &self->handle),
               "rendezvous") ||
        !check(symmem_handle_get_info(self->handle, &info), "info") ||
        !check(symmem_device_type(self->context, &type), "device_type"))
        return false;
    self->rank = info.rank;
    self->ranks = info.world_size;
    self->device = info.device;
    device = (DLDevice){(DLDeviceType)type, self->device};
    self->count = BYTES / 2;
    self->in = tensor_of(self, device, 0);
    self->out = tensor_of(self, device, 2 * BYTES);
    if (type == kDLCUDA)
        self->clock = device_clock_open(self->device);
    return check(self->clock != NULL
                     ? symmem_stream_wrap(self->context, self->device,
                                          device_clock_stream(self->clock), &self->stream)
                     : symmem_stream_create(self->context, self->device, &self->stream),
                 "stream");
}

static bool capture(rank *self) {
    bool good = check(symmem_stream_begin_capture(self->stream), "begin_capture");
    for (int i = 0; good && i < GRAPH; i++)
        good = reduce_on_stream(self);
    return check(symmem_stream_end_capture(self->stream, &self->graph), "end_capture") && good;
}

static bool run(rank *self, int rounds) {
    bool good = open_rank(self) && reduce_on_stream(self) && rest(self) && read_kernel(self) &&
                capture(self);
    for (int round = -1; good && round < rounds; round++) /* one for warming up */
        for (int i = 0; good && i < ROWS; i++)
            good = !is_measured(&rows[i]) || measure(self, i, round < 0 ? 0 : round);
    for (int i = 0; good && self->rank == 0 && i < ROWS; i++)
        if (is_measured(&rows[i]))
            print(self, i, rounds);
    good = good && rest(self);
    if (bare_graph != NULL)
        good = driver.destroy(bare_graph) == 0 && good;
    return good;
}

static bool close_rank(rank *self) {
    bool good = check(symmem_graph_destroy(self->graph), "graph_destroy") &&
                check(symmem_stream_destroy(self->stream), "stream_destroy");
    symmem_handle_release(self->handle);
    good = good && check(symmem_free(self->context, self->memory), "free") &&
           check(symmem_finalize(self->context), "finalize");
    symmem_context_free(self->context);
    device_clock_close(self->clock);
    return good;
}

int main(int argc, char **argv) {
    static rank self;
    const int rounds = argc > 1 ? atoi(argv[1]) : 101;
    if (rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "host-cost [ROUNDS], at most %d\n", MOST_ROUNDS);
        return BENCH_USAGE;
    }
    return run(&self, rounds) && close_rank(&self) && fflush(stdout) == 0 ? BENCH_DONE
                                                                          : BENCH_FAILED;
}
