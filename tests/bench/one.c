/* SPDX-License-Identifier: BSD-3-Clause */
/* One op at one size: memory, a first run that is checked, the measurement, the line. */
#include "rank.h"

#include <stdarg.h>

#define PAGE 4096

static _Thread_local bool has_told;

bool bench_tell(const bench_rank *self, const char *format, ...) {
    char text[BENCH_TEXT];
    va_list args;
    int begin = snprintf(text, sizeof text, "rank %d: ", self->rank);
    va_start(args, format);
    vsnprintf(text + begin, sizeof text - (size_t)begin, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", text);
    if (self->options->serve)
        bench_print_error(text);
    has_told = true;
    return false;
}

bool bench_failed(const bench_rank *self, const char *what) {
    symmem_error_record record;
    symmem_last_error(&record);
    return bench_tell(self, "%s of %zu bytes: %s: %s", what, self->bytes, record.operation,
                      record.message);
}

void bench_tell_end(const bench_rank *self) {
    if (!has_told)
        (void)bench_tell(self, "the end, for another rank has failed");
}

/* --- memory ------------------------------------------------------------------------- */

bool bench_on_device(const bench_rank *self) {
    return self->device.device_type != kDLCPU;
}

/* For a device. Symmetric memory that is not shared serves as private memory. */
static void *device_memory(bench_rank *self, size_t bytes) {
    void *memory = NULL;
    if (symmem_alloc(self->context, bytes, -1, NULL, &memory) != SYMMEM_OK)
        (void)bench_failed(self, "alloc");
    return memory;
}

void *bench_private_memory(bench_rank *self, size_t bytes) {
    size_t whole = (bytes / PAGE + 1) * PAGE;
    if (bench_on_device(self))
        return device_memory(self, whole);
    void *memory = aligned_alloc(PAGE, whole);
    if (memory != NULL)
        memset(memory, 0, whole); /* every page is there */
    else
        (void)bench_tell(self, "no memory: %zu bytes", whole);
    return memory;
}

static void free_private(bench_rank *self, void *memory) {
    if (bench_on_device(self))
        (void)!symmem_free(self->context, memory);
    else
        free(memory);
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
        self->in = bench_private_memory(self, in_bytes);
    if (self->op->flags & BENCH_IN_PLACE)
        self->out = self->in;
    if (self->out == NULL)
        self->out = bench_private_memory(self, out_bytes);
    bench_set_tensor(&self->in_tensor, self->dtype, self->in, self->in_shape, self->count);
    bench_set_tensor(&self->out_tensor, self->dtype, self->out, self->out_shape, self->out_count);
    self->in_tensor.device = self->out_tensor.device = self->device;
    return self->in != NULL && self->out != NULL &&
           (self->op->prepare == NULL || self->op->prepare(self));
}

void bench_end(bench_rank *self) {
    if (self->out != self->in && !(self->op->flags & BENCH_OUT_SYMMETRIC))
        free_private(self, self->out);
    if (!(self->op->flags & BENCH_IN_SYMMETRIC))
        free_private(self, self->in);
    free_private(self, self->factor);
    self->factor = NULL;
    symmem_handle_release(self->handle);
    (void)!symmem_free(self->context, self->symmetric);
    self->in = self->out = self->symmetric = NULL;
    self->handle = NULL;
    symmem_handle_release(self->fresh_handle);
    (void)!symmem_free(self->context, self->fresh);
    self->fresh_handle = NULL;
    self->fresh = NULL;
}

/* --- the first run ------------------------------------------------------------------ */

/* The host's copy of memory that is a device's, else the memory. */
static void *open_copy(bench_rank *self, void *memory, size_t bytes) {
    void *copy = bench_on_device(self) ? malloc(bytes > 0 ? bytes : 1) : memory;
    if (copy == NULL)
        (void)bench_tell(self, "no memory: %zu bytes", bytes);
    return copy;
}

static bool close_copy(bench_rank *self, void *copy, void *memory, size_t bytes, bool write) {
    bool good = copy == memory || !write || bytes == 0 ||
                symmem_copy(self->context, memory, copy, bytes, NULL) == SYMMEM_OK;
    if (copy != memory)
        free(copy);
    return good || bench_failed(self, "copy");
}

/* Fills it with known numbers, or with zeros. */
static bool fill_input(bench_rank *self, bool zeros) {
    size_t bytes = self->count * symmem_dtype_size(self->dtype);
    void *in = open_copy(self, self->in, bytes);
    if (in == NULL)
        return false;
    if (zeros)
        memset(in, 0, bytes);
    for (size_t i = 0; !zeros && i < self->count; i++)
        bench_store(self->dtype, in, i, bench_pattern(self->rank, i));
    return close_copy(self, in, self->in, bytes, true);
}

static bool compare_output(const bench_rank *self, const void *out) {
    for (size_t i = 0; i < self->out_count; i++) {
        double expected = self->op->expected(self, i), found = bench_load(self->dtype, out, i);
        if (found == expected)
            continue;
        return bench_tell(self, "%s of %zu bytes: element %zu is %g, not %g", self->op->name,
                          self->bytes, i, found, expected);
    }
    return true;
}

static bool check_output(bench_rank *self) {
    size_t bytes = self->out_count * symmem_dtype_size(self->dtype);
    void *out = open_copy(self, self->out, bytes);
    if (out == NULL)
        return false;
    bool good = out == self->out || bytes == 0 ||
                symmem_copy(self->context, out, self->out, bytes, NULL) == SYMMEM_OK ||
                bench_failed(self, "copy");
    good = good && compare_output(self, out);
    return close_copy(self, out, self->out, bytes, false) && good;
}

/* Runs once on known inputs and checks the output. *supported_p: the backend has the op. */
static bool check(bench_rank *self, bool *supported_p) {
    *supported_p = true;
    if (self->op->check != NULL)
        return self->op->check(self);
    if (!fill_input(self, false) || !world_barrier(self->world))
        return false;
    symmem_status status = self->op->once(self);
    /* An engine may have no pointers to peers. */
    *supported_p = status != SYMMEM_UNSUPPORTED && status != SYMMEM_UNREACHABLE;
    if (!*supported_p)
        return true;
    if (status != SYMMEM_OK)
        return bench_failed(self, self->op->name);
    if (!world_barrier(self->world) || !check_output(self))
        return false;
    /* before another rank's next run changes what this rank reads */
    return world_barrier(self->world);
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

static bool before(void *state) {
    bench_rank *self = state;
    return self->op->before(self);
}

bench_turn bench_turn_of(bench_rank *self) {
    bool rewrite = self->options->rewrite && !self->op->keep;
    return (bench_turn){.once = rewrite ? rewrite_and_step : step,
                        .prepare = self->op->before != NULL ? before : NULL,
                        .state = self,
                        .divisor = self->op->divisor,
                        .single = self->op->before != NULL};
}

bool bench_measure_turns(bench_rank *self, const bench_turn *turns, int count,
                         bench_result *results) {
    world_seat seat = {.world = self->world, .rank = self->rank};
    bench_side side = world_side(&seat);
    return world_barrier(self->world) &&
           bench_measure_by_turns(&side, self->options, turns, count, results);
}

static bool is_captured(const bench_rank *self) {
    uint64_t able = 0;
    return self->options->graph > 0 &&
           symmem_backend_capabilities(self->context, &able) == SYMMEM_OK &&
           (able & SYMMEM_CAP_CAPTURE) != 0 &&
           (self->op->flags & (BENCH_HOST_MEMORY | BENCH_NO_STREAM)) == 0;
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
                             .device = self->clock != NULL ? device_clock_name(self->clock) : NULL,
                             .checking = self->checking,
                             .graph = is_captured(self) ? self->options->graph : 0,
                             .by_device = self->clock != NULL};
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
    *supported_p = !bench_on_device(self) || (op->flags & BENCH_HOST_MEMORY) == 0;
    if (!*supported_p)
        return true;
    /* Fills with zeros at the end, so that sums in place do not grow. */
    return make_memory(self) && check(self, supported_p) && fill_input(self, true);
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
    if (good && supported && is_captured(self))
        good = bench_measure_graph(self, &results[0]);
    else if (good && supported)
        good = bench_measure_turns(self, turns, count, results);
    for (int i = 0; good && supported && i < count; i++)
        print(seats[i], &results[i]);
    if (good && !supported && self->rank == 0)
        fprintf(stderr, "%s: not supported here\n", op->name);
    while (begun > 0)
        bench_end(seats[--begun]);
    return good;
}
