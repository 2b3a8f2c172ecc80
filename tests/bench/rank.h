/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of symmem-bench, and the definition of an op. A new op is a line in a table of ops_*.c.
 * It says where input and output lie, the call, and the expected value of each output element.
 */
#ifndef SYMMEM_BENCH_RANK_H
#define SYMMEM_BENCH_RANK_H

#include "world.h"

#include <symmem/backend.h>
#include <symmem/symmem.h>

#include "device_clock.h"

#define BENCH_TIMEOUT_MS 20000
#define BENCH_JOIN_MS 60000 /* an engine starts */
/* What the calls with a channel end with, in functions that have `self`. */
#define BENCH_ON_CHANNEL 0, BENCH_TIMEOUT_MS, self->stream

typedef struct bench_op bench_op;

typedef struct bench_rank bench_rank;
struct bench_rank {
    const bench_options *options;
    bench_world *world;
    int rank, ranks;
    int left, right; /* neighbors */
    symmem_context *context;
    symmem_group *group;
    DLDevice device;       /* where the backend's memory is */
    device_clock *clock;   /* NULL: there is none */
    symmem_stream *stream; /* what a graph is captured from; NULL: calls run at once */
    /* Of the op and size at hand. */
    const bench_op *op;
    symmem_dtype dtype;
    size_t bytes; /* of the input */
    size_t count; /* elements in it */
    size_t out_count;
    void *in, *out;
    size_t out_offset; /* of a symmetric output, from the handle's memory */
    void *symmetric;   /* all of the op's symmetric memory */
    symmem_handle *handle;
    int64_t in_shape[2], out_shape[2];
    DLTensor in_tensor, out_tensor;
    void *fresh; /* of rendezvous_alone */
    symmem_handle *fresh_handle;
    /* For products: the second matrix, the scales and the signals. */
    void *factor;
    float scale;
    uint32_t signals[4];
    int64_t factor_shape[2], scale_shape[2], signals_shape[2];
    DLTensor factor_tensor, scale_tensor, signals_tensor;
    int checking; /* what was asked of the context, -1: nothing */
    /* the same rank with a context that checks, measured interleaved with this one; NULL: none */
    bench_rank *twin;
};

/* Where input and output lie; neither flag: in private memory. */
enum {
    BENCH_IN_SYMMETRIC = 1,
    BENCH_OUT_SYMMETRIC = 2,
    BENCH_IN_PLACE = 4,       /* the output is the input */
    BENCH_NO_HANDLE = 8,      /* the op makes what it needs */
    BENCH_WAY_SYMMETRIC = 16, /* neither: the handle's memory, as large as the input, is the way */
    BENCH_HOST_MEMORY = 32,   /* the op itself looks at memory: no devices, no graphs */
    BENCH_NO_STREAM = 64      /* a call of the host's: no graphs */
};

typedef enum bench_scale {
    BENCH_SAME,        /* the output is as large as the input */
    BENCH_TIMES_RANKS, /* so many times as large */
    BENCH_PER_RANK,    /* the part of one rank; the input is a multiple of the ranks */
    BENCH_PARTS        /* as large, and a multiple of the ranks */
} bench_scale;

struct bench_op {
    const char *name;
    int flags;
    bench_scale scale;
    int divisor;   /* see bench_measure; 0 counts as 1 */
    bool unsized;  /* bytes mean nothing */
    bool keep;     /* others read the input at any time: it is never rewritten */
    int min_ranks; /* 0 counts as 1 */
    size_t unit;   /* the input has a multiple of so many elements, each rank's part too; 0: of 1 */
    bool scaled;   /* a product with scales */
    bool (*prepare)(bench_rank *self); /* more than input and output; NULL: nothing */
    bool (*before)(bench_rank *self);  /* before each run, and not timed; NULL: nothing */
    symmem_status (*once)(bench_rank *self);
    /* The output's element `index` after one run on the inputs of bench_pattern; NULL: no output,
     * the op's own `check` looks. */
    double (*expected)(const bench_rank *self, size_t index);
    bool (*check)(bench_rank *self);
};

/* All ops, one table each file; NULL ends a table. */
/* The name, what is timed, and what else is not 0. */
#define BENCH_OP(name_, once_, ...)                                                                \
    { .name = name_, .once = once_, __VA_ARGS__ }

/* The definition of a call that is timed, and of what comes out, by an expression. */
#define BENCH_ONCE(name, call)                                                                     \
    static symmem_status name(bench_rank *self) {                                                  \
        return call;                                                                               \
    }
#define BENCH_EXPECTED(name, value)                                                                \
    static double name(const bench_rank *self, size_t index) {                                     \
        return value;                                                                              \
    }

extern const bench_op bench_sync_ops[];
extern const bench_op bench_move_ops[];
extern const bench_op bench_collective_ops[];
extern const bench_op bench_multimem_ops[];
extern const bench_op bench_fused_ops[];

/* What rank `rank` has at `index` of its input: small whole numbers, whose sums are exact. */
double bench_pattern(int rank, size_t index);
/* What all ranks have there, added. */
double bench_summed(const bench_rank *self, size_t index);
/* All ranks' inputs, one after the other. */
double bench_gathered(const bench_rank *self, size_t index);

/* elements.c: one element at `index`. */
void bench_store(symmem_dtype dtype, void *memory, size_t index, double value);
double bench_load(symmem_dtype dtype, const void *memory, size_t index);

/* --- one.c -------------------------------------------------------------------------- */

/* Measures and prints one op at one size. False: it failed, and why was printed. */
bool bench_run_one(bench_rank *self, const bench_op *op, size_t bytes);
/* Memory and tensors for one op, and its first run, on inputs whose result is checked. After it,
 * whatever it returns, bench_end. False: it failed, and why was printed. *supported_p: the backend
 * has the op. */
bool bench_begin(bench_rank *self, const bench_op *op, size_t bytes, bool *supported_p);
void bench_end(bench_rank *self);
/* Returns what bench_begin has prepared, as one kind of samples. */
bench_turn bench_turn_of(bench_rank *self);
bool bench_measure_turns(bench_rank *self, const bench_turn *turns, int count,
                         bench_result *results);
/* For an op's `prepare`: symmetric memory of its own, and zeroed private memory, which bench_end
 * gives back with `factor`; flat tensors, and the same with rows of BENCH_COLUMNS elements. */
#define BENCH_COLUMNS 64
bool bench_make_symmetric(bench_rank *self, size_t bytes);
void *bench_private_memory(bench_rank *self, size_t bytes);
void bench_set_tensor(DLTensor *tensor, symmem_dtype dtype, void *data, int64_t *shape,
                      size_t count);
void bench_make_rows(DLTensor *tensor, int64_t *shape);
/* Whether the backend's memory is a device's. */
bool bench_on_device(const bench_rank *self);
/* graph.c: what bench_begin has made ready, captured options->graph times; launches are timed. */
bool bench_measure_graph(bench_rank *self, bench_result *result);
/* serve.c: until the end of standard input. */
int bench_serve(bench_rank *self);
/* main.c. NULL: there is none of that name. */
const bench_op *bench_find_op(const char *name);
/* What went wrong on this rank, for people and for who sent a request. Always false. */
bool bench_tell(const bench_rank *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Tells the thread's error record. Always false. */
bool bench_failed(const bench_rank *self, const char *what);
/* For a rank that has failed: tells so, unless it has told why. */
void bench_tell_end(const bench_rank *self);

#endif
