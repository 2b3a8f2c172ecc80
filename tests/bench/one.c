/* SPDX-License-Identifier: BSD-3-Clause */
/* One op at one size: memory, a first run that is checked, the measurement, the line. */
#include "rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096

bool bench_failed(const bench_rank *self, const char *what) {
    symmem_error_record record;
    symmem_last_error(&record);
    fprintf(stderr, "rank %d: %s of %zu bytes: %s: %s\n", self->rank, what, self->bytes,
            record.operation, record.message);
    return false;
}

/* --- memory ------------------------------------------------------------------------- */

void *bench_private_memory(size_t bytes) {
    size_t whole = (bytes / PAGE + 1) * PAGE;
    void *memory = aligned_alloc(PAGE, whole);
    if (memory != NULL)
        memset(memory, 0, whole); /* every page is there */
    else
        fprintf(stderr, "no memory: %zu bytes\n", whole);
    return memory;
}

void bench_set_tensor(DLTensor *tensor, symmem_dtype dtype, void *data, int64_t *shape,
                      size_t count) {
    static const uint8_t codes[] = {kDLUInt, kDLInt,  kDLInt,   kDLUInt,   kDLInt,   kDLUInt,
                                    kDLInt,  kDLUInt, kDLFloat, kDLBfloat, kDLFloat, kDLFloat};
    _Static_assert(sizeof codes == SYMMEM_DTYPE_COUNT, "one for each type");
    shape[0] = (int64_t)count;
    memset(tensor, 0, sizeof *tensor);
    tensor->data = data;
    tensor->device.device_type = kDLCPU;
    tensor->ndim = 1;
    tensor->dtype.code = codes[dtype];
    tensor->dtype.bits = (uint8_t)(8 * symmem_dtype_size(dtype));
    tensor->dtype.lanes = 1;
    tensor->shape = shape;
}

void bench_make_rows(DLTensor *tensor, int64_t *shape) {
    shape[0] /= BENCH_COLUMNS;
    shape[1] = BENCH_COLUMNS;
    tensor->ndim = 2;
}

bool bench_make_symmetric(bench_rank *self, size_t bytes) {
    if (symmem_alloc(self->context, bytes, -1, NULL, &self->symmetric) != SYMMEM_OK)
        return bench_failed(self, "alloc");
    if (symmem_rendezvous(self->context, self->symmetric, self->group, BENCH_TIMEOUT_MS,
                          &self->handle) != SYMMEM_OK)
        return bench_failed(self, "rendezvous");
    return true;
}

static bool make_symmetric(bench_rank *self, size_t in_bytes, size_t out_bytes) {
    int flags = self->op->flags;
    bool inside = (flags & (BENCH_IN_SYMMETRIC | BENCH_WAY_SYMMETRIC)) != 0;
    size_t in_size = inside ? (in_bytes / PAGE + 1) * PAGE : 0;
    size_t words = (size_t)self->ranks * sizeof(uint32_t); /* for check_barrier */
    self->out_offset = in_size;
    if (!bench_make_symmetric(self, in_size + out_bytes + words))
        return false;
    if (flags & BENCH_IN_SYMMETRIC)
        self->in = self->symmetric;
    if (flags & BENCH_OUT_SYMMETRIC)
        self->out = (char *)self->symmetric + in_size;
    return true;
}

static bool make_memory(bench_rank *self) {
    size_t element = symmem_dtype_size(self->dtype);
    size_t in_bytes = self->count * element, out_bytes = self->out_count * element;
    if (!(self->op->flags & BENCH_NO_HANDLE) && !make_symmetric(self, in_bytes, out_bytes))
        return false;
    if (self->in == NULL)
        self->in = bench_private_memory(in_bytes);
    if (self->op->flags & BENCH_IN_PLACE)
        self->out = self->in;
    if (self->out == NULL)
        self->out = bench_private_memory(out_bytes);
    bench_set_tensor(&self->in_tensor, self->dtype, self->in, self->in_shape, self->count);
    bench_set_tensor(&self->out_tensor, self->dtype, self->out, self->out_shape, self->out_count);
    return self->in != NULL && self->out != NULL &&
           (self->op->prepare == NULL || self->op->prepare(self));
}

void bench_end(bench_rank *self) {
    if (self->out != self->in && !(self->op->flags & BENCH_OUT_SYMMETRIC))
        free(self->out);
    if (!(self->op->flags & BENCH_IN_SYMMETRIC))
        free(self->in);
    free(self->factor);
    self->factor = NULL;
    symmem_handle_release(self->handle);
    (void)!symmem_free(self->context, self->symmetric);
    self->in = self->out = self->symmetric = NULL;
    self->handle = NULL;
}

/* --- the first run ------------------------------------------------------------------ */

static bool wrong(const bench_rank *self, size_t index, double expected) {
    fprintf(stderr, "rank %d: %s of %zu bytes: element %zu is %g, not %g\n", self->rank,
            self->op->name, self->bytes, index, bench_load(self->dtype, self->out, index),
            expected);
    return false;
}

static bool check_output(const bench_rank *self) {
    for (size_t i = 0; i < self->out_count; i++) {
        double expected = self->op->expected(self, i);
        if (bench_load(self->dtype, self->out, i) != expected)
            return wrong(self, i, expected);
    }
    return true;
}

/* Runs once on known inputs and looks at what came out. *supported_p: the backend has the op. */
static bool check(bench_rank *self, bool *supported_p) {
    *supported_p = true;
    if (self->op->check != NULL)
        return self->op->check(self);
    for (size_t i = 0; i < self->count; i++)
        bench_store(self->dtype, self->in, i, bench_pattern(self->rank, i));
    if (!world_meet(self->world))
        return false;
    symmem_status status = self->op->once(self);
    *supported_p = status != SYMMEM_UNSUPPORTED;
    if (!*supported_p)
        return true;
    if (status != SYMMEM_OK)
        return bench_failed(self, self->op->name);
    if (!world_meet(self->world) || !check_output(self))
        return false;
    return world_meet(self->world); /* before anybody's next run changes what others look at */
}

/* --- the measurement ---------------------------------------------------------------- */

static bool step(void *state) {
    bench_rank *self = state;
    return self->op->once(self) == SYMMEM_OK || bench_failed(self, self->op->name);
}

static bool rewrite_and_step(void *state) {
    bench_rank *self = state;
    bench_rewrite(self->in, self->bytes);
    return step(state);
}

bench_turn bench_turn_of(bench_rank *self) {
    bool rewrite = self->options->rewrite && !self->op->keep;
    return (bench_turn){
        .once = rewrite ? rewrite_and_step : step, .state = self, .divisor = self->op->divisor};
}

bool bench_measure_turns(bench_rank *self, const bench_turn *turns, int count,
                         bench_result *results) {
    world_seat seat = {.world = self->world, .rank = self->rank};
    bench_side side = world_side(&seat);
    return world_meet(self->world) &&
           bench_measure_by_turns(&side, self->options, turns, count, results);
}

static void print(const bench_rank *self, const bench_result *result) {
    const char *backend = NULL;
    (void)!symmem_get_backend(self->context, &backend);
    const bench_line line = {.library = "symmem",
                             .backend = backend != NULL ? backend : "",
                             .op = self->op->name,
                             .dtype = self->op->unsized ? "" : self->options->dtype,
                             .bytes = self->bytes,
                             .ranks = self->ranks,
                             .checking = self->checking};
    if (self->rank == 0)
        bench_print(self->options, &line, result);
}

static void set_size(bench_rank *self, size_t bytes) {
    size_t element = symmem_dtype_size(self->dtype), unit = self->op->unit;
    size_t ranks = (size_t)self->ranks;
    bool parts = self->op->scale == BENCH_PER_RANK || self->op->scale == BENCH_PARTS;
    self->bytes = bench_whole_bytes(self->op->unsized ? 0 : bytes, element,
                                    (parts ? ranks : 1) * (unit > 0 ? unit : 1));
    self->count = self->bytes / element;
    self->out_count = self->op->scale == BENCH_TIMES_RANKS ? self->count * ranks
                      : self->op->scale == BENCH_PER_RANK  ? self->count / ranks
                                                           : self->count;
}

bool bench_begin(bench_rank *self, const bench_op *op, size_t bytes, bool *supported_p) {
    self->op = op;
    set_size(self, bytes);
    if (!make_memory(self) || !check(self, supported_p))
        return false;
    /* Zeros: sums in place stay what they are. */
    memset(self->in, 0, self->count * symmem_dtype_size(self->dtype));
    return true;
}

bool bench_run_one(bench_rank *self, const bench_op *op, size_t bytes) {
    bench_rank *const seats[2] = {self, self->twin};
    int count = self->twin != NULL ? 2 : 1, begun = 0;
    bench_turn turns[2];
    bench_result results[2];
    bool supported = true, good = true;
    for (; good && supported && begun < count; begun++) {
        good = bench_begin(seats[begun], op, bytes, &supported);
        turns[begun] = bench_turn_of(seats[begun]);
    }
    if (good && supported)
        good = bench_measure_turns(self, turns, count, results);
    for (int i = 0; good && supported && i < count; i++)
        print(seats[i], &results[i]);
    if (good && !supported && self->rank == 0)
        fprintf(stderr, "%s: not supported here\n", op->name);
    while (begun > 0)
        bench_end(seats[--begun]);
    return good;
}
