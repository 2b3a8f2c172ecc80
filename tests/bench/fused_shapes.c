/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank of gpu_fused.py: the fused products of three models' layers, in bfloat16, on a GPU.
 * fused-shapes ROUNDS: each round begins with a line on rank 0's standard input and ends with
 * {"done":true}; in between comes a line of JSON for each product and way of calling. Calls are
 * timed by the device, some in a row; the slowest rank's time counts.
 */

#include "bench.h"

#include <symmem/symmem.h>
#include <time.h>
#include "device_clock.h"

#ifndef SYMMEM_COMMIT
#define SYMMEM_COMMIT "unknown"
#endif

#define LIMIT_MS 30000
#define PAUSE_MS 300000 /* while others measure */
#define CALLS 10        /* in a row */
#define REPEATS 5
#define WARM 4
#define NOISE ((size_t)1 << 20) /* bytes of random numbers, again and again */
/* Before each measurement: a device that has just worked hard has a lower clock. */
#define REST_NS 200000000L

typedef struct shape {
    int64_t m, k, n; /* of the product as a whole */
} shape;

static const shape shapes[] = {{4096, 8192, 8192}, {8192, 8192, 28672}, {2048, 4096, 14336}};
enum { SHAPES = sizeof shapes / sizeof shapes[0], KINDS = 2 };
static const char *const kinds[KINDS] = {"fused_all_gather_matmul", "fused_matmul_reduce_scatter"};

typedef struct matrix {
    int64_t shape[2];
    DLTensor tensor;
} matrix;

typedef struct product {
    matrix a, b, out;
    symmem_graph *graph;
} product;

typedef struct rank {
    symmem_context *context;
    symmem_group *group;
    symmem_handle *workspace;
    device_clock *clock;
    symmem_stream *stream;
    int32_t rank, ranks, device;
    product products[SHAPES][KINDS];
    unsigned char noise[NOISE];
} rank;

static bool check(symmem_status status, const char *what) {
    symmem_error_record record;
    if (status == SYMMEM_OK)
        return true;
    symmem_last_error(&record);
    fprintf(stderr, "%s: %s: %s\n", what, record.operation, record.message);
    return false;
}

/* --- matrices ------------------------------------------------------------------------------- */

/* Eighths from -1 to 1, as what products take depends on their numbers. */
static void make_noise(rank *self) {
    static const uint16_t values[] = {0x0000, 0x3e00, 0x3e80, 0x3ec0, 0x3f00, 0x3f20,
                                      0x3f40, 0x3f60, 0x3f80, 0xbe00, 0xbe80, 0xbec0,
                                      0xbf00, 0xbf20, 0xbf40, 0xbf60, 0xbf80};
    uint32_t state = 1 + (uint32_t)self->rank;
    for (size_t i = 0; i + 1 < NOISE; i += 2) {
        state = state * 1664525u + 1013904223u;
        memcpy(self->noise + i, &values[(state >> 16) % 17], 2);
    }
}

static bool fill(const rank *self, const matrix *x) {
    const size_t bytes = 2 * (size_t)x->shape[0] * (size_t)x->shape[1];
    bool good = true;
    for (size_t at = 0; good && at < bytes; at += NOISE)
        good = check(symmem_copy(self->context, (char *)x->tensor.data + at, self->noise,
                                 bytes - at < NOISE ? bytes - at : NOISE, NULL),
                     "copy");
    return good;
}

/* Memory that no peer asks for is as good as any. */
static bool make_matrix(rank *self, matrix *x, int64_t rows, int64_t columns) {
    const size_t bytes = 2 * (size_t)rows * (size_t)columns;
    char *data = NULL;
    if (!check(symmem_alloc(self->context, bytes, -1, NULL, (void **)&data), "alloc"))
        return false;
    x->shape[0] = rows;
    x->shape[1] = columns;
    x->tensor = (DLTensor){.data = data,
                           .device = {.device_type = kDLCUDA, .device_id = self->device},
                           .ndim = 2,
                           .dtype = {.code = kDLBfloat, .bits = 16, .lanes = 1},
                           .shape = x->shape};
    return fill(self, x);
}

static bool make_product(rank *self, int s, int kind, size_t *most_p) {
    const shape *of = &shapes[s];
    product *x = &self->products[s][kind];
    const int64_t n = of->n / self->ranks, m = of->m / self->ranks;
    size_t bytes = 0;
    bool made = kind == 0
                    ? make_matrix(self, &x->a, m, of->k) && make_matrix(self, &x->b, of->k, n) &&
                          make_matrix(self, &x->out, of->m, n)
                    : make_matrix(self, &x->a, of->m, n) && make_matrix(self, &x->b, n, of->k) &&
                          make_matrix(self, &x->out, m, of->k);
    if (!made)
        return false;
    made = check(
        kind == 0 ? symmem_fused_all_gather_matmul_workspace(&x->a.tensor, NULL, 0, false,
                                                             self->ranks, &bytes)
                  : symmem_fused_matmul_reduce_scatter_workspace(
                        &x->a.tensor, &x->b.tensor, NULL, 0, &x->out.tensor, self->ranks, &bytes),
        "workspace");
    *most_p = bytes > *most_p ? bytes : *most_p;
    return made;
}

/* A gather's shard where its workspace begins, as the least scheme has it. */
static bool place_shards(rank *self, void *memory) {
    bool good = true;
    for (int s = 0; good && s < SHAPES; s++) {
        good = check(symmem_free(self->context, self->products[s][0].a.tensor.data), "free");
        self->products[s][0].a.tensor.data = memory;
    }
    return good;
}

/* All matrices, and as much again for the workspace, whose size is known only once they are
 * made. */
static size_t heap_bytes(int32_t ranks) {
    size_t bytes = (size_t)64 << 20;
    for (int s = 0; s < SHAPES; s++) {
        const size_t m = (size_t)shapes[s].m, k = (size_t)shapes[s].k, n = (size_t)shapes[s].n;
        bytes += 2 * KINDS * 2 * (m * k + k * n + m * n) / (size_t)ranks + 2 * m * (k + n);
    }
    return bytes;
}

/* Ranks that share a device show that the program works, not how fast anything is. Backends whose
 * engine all ranks start together start it here. */
static bool join(rank *self) {
    symmem_join_options room = {.size = sizeof room};
    int32_t devices;
    bool good = check(symmem_init(NULL, &self->context), "init") &&
                check(symmem_context_rank(self->context, &self->rank), "rank") &&
                check(symmem_context_world_size(self->context, &self->ranks), "world_size") &&
                check(symmem_device_count(self->context, &devices), "device_count");
    if (!good)
        return false;
    self->device = self->rank % devices;
    room.heap_bytes = heap_bytes(self->ranks);
    return check(symmem_join(self->context, &room, LIMIT_MS), "join") &&
           check(symmem_group_create(self->context, "world", NULL, 0, NULL, &self->group),
                 "group_create");
}

static bool open_rank(rank *self) {
    size_t most = 0;
    void *memory;
    bool good = join(self);
    if (good)
        make_noise(self);
    for (int s = 0; good && s < SHAPES; s++)
        for (int kind = 0; good && kind < KINDS; kind++)
            good = make_product(self, s, kind, &most);
    return good && check(symmem_alloc(self->context, most, -1, NULL, &memory), "alloc") &&
           check(symmem_rendezvous(self->context, memory, self->group, LIMIT_MS, &self->workspace),
                 "rendezvous") &&
           place_shards(self, memory) && (self->clock = device_clock_open(self->device)) != NULL &&
           check(symmem_stream_wrap(self->context, self->device, device_clock_stream(self->clock),
                                    &self->stream),
                 "stream_wrap");
}

/* --- times ---------------------------------------------------------------------------------- */

static bool call(rank *self, const product *x, int kind) {
    const DLTensor *b = &x->b.tensor, *out = &x->out.tensor;
    return check(
        kind == 0 ? symmem_fused_all_gather_matmul(self->workspace, &x->a.tensor, 0, 1, &b, NULL,
                                                   &out, 0, LIMIT_MS, self->stream, NULL)
                  : symmem_fused_matmul_reduce_scatter(self->workspace, &x->a.tensor, b, SYMMEM_SUM,
                                                       0, out, 0, LIMIT_MS, self->stream, NULL),
        kinds[kind]);
}

static bool calls(rank *self, const product *x, int kind, int count) {
    bool good = true;
    for (int i = 0; good && i < count; i++)
        good = call(self, x, kind);
    return good;
}

static bool finish(rank *self) {
    return check(symmem_stream_synchronize(self->stream, LIMIT_MS), "synchronize");
}

static bool capture(rank *self, product *x, int kind) {
    if (x->graph != NULL)
        return true;
    return calls(self, x, kind, WARM) && finish(self) &&
           check(symmem_stream_begin_capture(self->stream), "begin_capture") &&
           calls(self, x, kind, CALLS) &&
           check(symmem_stream_end_capture(self->stream, &x->graph), "end_capture");
}

static bool run(rank *self, product *x, int kind, bool captured) {
    return captured ? check(symmem_graph_launch(x->graph, self->stream), "graph_launch")
                    : calls(self, x, kind, CALLS);
}

/* The slowest rank's median, on rank 0; host_us: of making a call, the same way. */
static bool measure(rank *self, product *x, int kind, bool captured, double *us_p,
                    double *host_us_p) {
    double us[REPEATS], host_us[REPEATS];
    nanosleep(&(struct timespec){0, REST_NS}, NULL);
    /* What lies in the workspace now has more digits, which products take longer for. */
    if (kind == 0 && !fill(self, &x->a))
        return false;
    for (int i = -1; i < REPEATS; i++) { /* the first one is for warming up */
        if (!check(symmem_group_barrier(self->group, LIMIT_MS), "barrier") ||
            !calls(self, x, kind, 1) || !device_clock_mark(self->clock, 0))
            return false;
        const uint64_t begin_ns = bench_now_ns();
        if (!run(self, x, kind, captured))
            return false;
        const double host = (double)(bench_now_ns() - begin_ns) / 1000 / CALLS;
        double total_us;
        if (!device_clock_mark(self->clock, 1) || !finish(self) ||
            !device_clock_between(self->clock, 0, &total_us))
            return false;
        if (i >= 0) {
            us[i] = total_us / CALLS;
            host_us[i] = host;
        }
    }
    *us_p = bench_median(us, REPEATS);
    *host_us_p = bench_median(host_us, REPEATS);
    return true;
}

static bool round_of(rank *self) {
    for (int s = 0; s < SHAPES; s++)
        for (int kind = 0; kind < KINDS; kind++) {
            product *x = &self->products[s][kind];
            if (!capture(self, x, kind))
                return false;
            for (int captured = 0; captured < 2; captured++) {
                double us, host_us;
                if (!measure(self, x, kind, captured != 0, &us, &host_us))
                    return false;
                printf("{\"op\":\"%s\",\"m\":%" PRId64 ",\"k\":%" PRId64 ",\"n\":%" PRId64
                       ",\"way\":\"%s\",\"rank\":%d,\"us\":%.2f,\"host_us\":%.2f}\n",
                       kinds[kind], shapes[s].m, shapes[s].k, shapes[s].n,
                       captured ? "graph" : "eager", self->rank, us, host_us);
            }
        }
    fflush(stdout);
    return check(symmem_group_barrier(self->group, LIMIT_MS), "barrier");
}

int main(int argc, char **argv) {
    static rank self;
    char line[64];
    const int rounds = argc > 1 ? atoi(argv[1]) : 1;
    bool good = open_rank(&self);
    if (good && self.rank == 0)
        printf("{\"about\":\"symmem\",\"device\":\"%s\",\"commit\":\"%s\"}\n",
               device_clock_name(self.clock), SYMMEM_COMMIT);
    for (int i = 0; good && i < rounds; i++) {
        good = self.rank != 0 || fgets(line, sizeof line, stdin) != NULL;
        good =
            good && check(symmem_group_barrier(self.group, PAUSE_MS), "barrier") && round_of(&self);
        if (good && self.rank == 0)
            printf("{\"done\":true}\n");
        fflush(stdout);
    }
    /* What is left ends with the process. */
    return good ? 0 : 1;
}
