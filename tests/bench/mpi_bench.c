/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measurements of symmem-bench in MPI: the same options, sizes, timing and lines, so that only
 * the operation itself differs. Started by mpirun; the number of ranks is mpirun's.
 *
 * What stands for what
 *   barrier             MPI_Barrier
 *   put_wait            MPI_Send and MPI_Recv, there and back, halved
 *   rendezvous          MPI_Win_allocate and MPI_Win_free
 *   all_reduce and its forms   MPI_Allreduce of a sum; in place where symmem's is
 *   reduce_scatter, all_gather, broadcast, all_to_all   the call of that name, equal parts
 */
#include "bench.h"

#include <mpi.h>

typedef struct state {
    const bench_options *options;
    int rank, ranks;
    size_t bytes; /* of the input */
    int count;    /* elements, float32 */
    int part;     /* one rank's part of them */
    float *in, *out;
} state;

typedef enum scale { SAME, TIMES_RANKS, PER_RANK } scale;

typedef struct op {
    const char *name;
    int (*once)(state *self);
    double (*expected)(const state *self, int index); /* NULL: no output */
    scale out_scale;
    int divisor;
    bool unsized;
    bool in_place;
} op;

/* As symmem-bench has it. */
static double pattern(int rank, int index) {
    return (double)(((size_t)index * 7 + (size_t)rank * 3) % 13);
}

/* --- the operations ----------------------------------------------------------------- */

#define ONCE(name, call)                                                                           \
    static int name(state *self) {                                                                 \
        return call;                                                                               \
    }
#define EXPECTED(name, value)                                                                      \
    static double name(const state *self, int index) {                                             \
        return value;                                                                              \
    }

static int barrier(state *self) {
    (void)self;
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int send(const state *self, int peer) {
    return MPI_Send(self->in, self->count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
}

static int receive(const state *self, int peer) {
    int error =
        MPI_Recv(self->out, self->count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    bench_read(self->out, self->bytes);
    return error;
}

static int put_wait(state *self) {
    if (self->rank > 1)
        return MPI_SUCCESS;
    int error = self->rank == 0 ? send(self, 1) : receive(self, 0);
    if (error != MPI_SUCCESS)
        return error;
    return self->rank == 0 ? receive(self, 1) : send(self, 0);
}

static int rendezvous(state *self) {
    MPI_Win window;
    void *memory;
    int error =
        MPI_Win_allocate((MPI_Aint)self->bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    return error != MPI_SUCCESS ? error : MPI_Win_free(&window);
}

ONCE(all_reduce,
     MPI_Allreduce(self->in, self->out, self->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD))
ONCE(all_reduce_in_place,
     MPI_Allreduce(MPI_IN_PLACE, self->in, self->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD))
ONCE(reduce, MPI_Reduce(self->in, self->out, self->count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD))
ONCE(reduce_scatter,
     MPI_Reduce_scatter_block(self->in, self->out, self->part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD))
ONCE(all_gather, MPI_Allgather(self->in, self->count, MPI_FLOAT, self->out, self->count, MPI_FLOAT,
                               MPI_COMM_WORLD))
ONCE(broadcast, MPI_Bcast(self->in, self->count, MPI_FLOAT, 0, MPI_COMM_WORLD))
ONCE(all_to_all, MPI_Alltoall(self->in, self->part, MPI_FLOAT, self->out, self->part, MPI_FLOAT,
                              MPI_COMM_WORLD))

/* --- what comes out ------------------------------------------------------------------- */

EXPECTED(of_peer, self->rank > 1 ? 0 : pattern(1 - self->rank, index))

static double of_root(const state *self, int index) {
    (void)self;
    return pattern(0, index);
}

static double summed(const state *self, int index) {
    double sum = 0;
    for (int rank = 0; rank < self->ranks; rank++)
        sum += pattern(rank, index);
    return sum;
}

EXPECTED(summed_on_root, self->rank == 0 ? summed(self, index) : 0)
EXPECTED(summed_part, summed(self, self->rank * self->part + index))
EXPECTED(gathered, pattern(index / self->count, index % self->count))
EXPECTED(exchanged, pattern(index / self->part, self->rank * self->part + index % self->part))

/* symmem has several of one kind. */
#define ALL_REDUCE(text)                                                                           \
    { .name = (text), .once = all_reduce, .expected = summed }
#define ALL_REDUCE_IN_PLACE(text)                                                                  \
    { .name = (text), .once = all_reduce_in_place, .expected = summed, .in_place = true }
#define REDUCE_SCATTER(text)                                                                       \
    { .name = (text), .once = reduce_scatter, .expected = summed_part, .out_scale = PER_RANK }

#define ALL_GATHER(text)                                                                           \
    { .name = (text), .once = all_gather, .expected = gathered, .out_scale = TIMES_RANKS }

static const op ops[] = {
    {.name = "barrier", .once = barrier, .unsized = true},
    {.name = "put_wait", .once = put_wait, .expected = of_peer, .divisor = 2},
    {.name = "rendezvous", .once = rendezvous},
    ALL_REDUCE("all_reduce"),
    ALL_REDUCE("all_reduce_copy_out"),
    ALL_REDUCE("one_shot_all_reduce"),
    ALL_REDUCE("one_shot_all_reduce_copy_out"),
    ALL_REDUCE("two_shot_all_reduce_out"),
    ALL_REDUCE_IN_PLACE("all_reduce_in_place"),
    ALL_REDUCE_IN_PLACE("two_shot_all_reduce"),
    ALL_REDUCE_IN_PLACE("multimem_all_reduce"),
    ALL_REDUCE("multimem_one_shot_all_reduce"),
    {.name = "multimem_one_shot_reduce", .once = reduce, .expected = summed_on_root},
    REDUCE_SCATTER("reduce_scatter"),
    REDUCE_SCATTER("low_contention_reduce_scatter"),
    ALL_GATHER("all_gather"),
    ALL_GATHER("all_gather_push"),
    ALL_GATHER("low_contention_all_gather"),
    ALL_GATHER("multimem_all_gather"),
    ALL_GATHER("low_contention_all_gather_ce_multicast"),
    {.name = "broadcast", .once = broadcast, .expected = of_root, .in_place = true},
    {.name = "all_to_all", .once = all_to_all, .expected = exchanged},
};
#define OP_COUNT (sizeof ops / sizeof ops[0])

/* --- one op at one size --------------------------------------------------------------- */

static int out_count(const state *self, const op *which) {
    return which->out_scale == TIMES_RANKS ? self->count * self->ranks
           : which->out_scale == PER_RANK  ? self->part
                                           : self->count;
}

static float *memory(int count) {
    size_t bytes = ((size_t)count * sizeof(float) / 4096 + 1) * 4096;
    float *values = aligned_alloc(4096, bytes);
    if (values == NULL) {
        fprintf(stderr, "no memory: %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, BENCH_FAILED);
    }
    return memset(values, 0, bytes);
}

static void prepare(state *self, const op *which) {
    self->in = memory(self->count);
    self->out = which->in_place ? self->in : memory(out_count(self, which));
}

static void finish(state *self) {
    if (self->out != self->in)
        free(self->out);
    free(self->in);
}

/* One run on known inputs. */
static bool check(state *self, const op *which) {
    for (int i = 0; i < self->count; i++)
        self->in[i] = (float)pattern(self->rank, i);
    MPI_Barrier(MPI_COMM_WORLD);
    if (which->once(self) != MPI_SUCCESS)
        return false;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; which->expected != NULL && i < out_count(self, which); i++)
        if ((double)self->out[i] != which->expected(self, i)) {
            fprintf(stderr, "rank %d: %s of %zu bytes: element %d is %g, not %g\n", self->rank,
                    which->name, self->bytes, i, (double)self->out[i], which->expected(self, i));
            return false;
        }
    memset(self->in, 0, self->bytes);
    return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS;
}

typedef struct timed {
    state *self;
    const op *which;
} timed;

static bool step(void *arg) {
    const timed *run = arg;
    return run->which->once(run->self) == MPI_SUCCESS;
}

static bool rewrite_and_step(void *arg) {
    const timed *run = arg;
    bench_rewrite(run->self->in, run->self->bytes);
    return step(arg);
}

static bool meet(void *arg) {
    (void)arg;
    return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS;
}

static bool largest(void *arg, double value, double *largest_p) {
    (void)arg;
    return MPI_Allreduce(&value, largest_p, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS;
}

static bool run_one(state *self, const op *which, size_t bytes, const char *library) {
    bool parts = which->out_scale == PER_RANK || which->once == all_to_all;
    timed run = {.self = self, .which = which};
    bench_side side = {.rank = self->rank, .barrier = meet, .largest = largest};
    bench_result result;
    self->bytes = bench_whole_bytes(bytes, sizeof(float), parts ? (size_t)self->ranks : 1);
    self->count = (int)(self->bytes / sizeof(float));
    self->part = self->count / self->ranks;
    prepare(self, which);
    bool good =
        check(self, which) &&
        bench_measure(&side, self->options, self->options->rewrite ? rewrite_and_step : step, &run,
                      which->divisor > 0 ? which->divisor : 1, &result);
    finish(self);
    const bench_line line = {.library = library,
                             .backend = "",
                             .op = which->name,
                             .dtype = which->unsized ? "" : "float32",
                             .bytes = self->bytes,
                             .ranks = self->ranks,
                             .checking = -1};
    if (good && self->rank == 0)
        bench_print(self->options, &line, &result);
    return good;
}

/* --- the run -------------------------------------------------------------------------- */

/* "Open MPI v4.1.4, package ..." and "MPICH Version: 4.0.2 ..." to name and version. */
static void find_library(char *name, size_t capacity) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    MPI_Get_library_version(text, &length);
    bool open_mpi = strstr(text, "Open MPI") != NULL;
    const char *version = text + strcspn(text, "0123456789");
    snprintf(name, capacity, "%s %.*s", open_mpi ? "Open MPI" : "MPICH",
             (int)strspn(version, "0123456789.abrc"), version);
}

static bool run_op(state *self, const op *which, const char *library) {
    for (int i = 0; i < (which->unsized ? 1 : self->options->size_count); i++)
        if (!run_one(self, which, which->unsized ? 0 : self->options->sizes[i], library))
            return false;
    return true;
}

static int run_ops(state *self) {
    char library[64];
    find_library(library, sizeof library);
    for (size_t i = 0; i < OP_COUNT; i++)
        if (bench_list_has(self->options->ops, ops[i].name) && !run_op(self, &ops[i], library))
            return BENCH_FAILED;
    return BENCH_DONE;
}

static int list_ops(void) {
    for (size_t i = 0; i < OP_COUNT; i++)
        puts(ops[i].name);
    return BENCH_DONE;
}

int main(int argc, char **argv) {
    bench_options options;
    state self = {.options = &options};
    int status;
    if (!bench_options_parse(argc, argv, &options, &status))
        return status;
    if (options.list)
        return bench_printed(list_ops());
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &self.ranks);
    bench_pin(&options, self.rank);
    status = bench_printed(run_ops(&self));
    if (status != BENCH_DONE)
        MPI_Abort(MPI_COMM_WORLD, status);
    MPI_Finalize();
    return status;
}
