/* SPDX-License-Identifier: BSD-3-Clause */
/* A stream of the caller's: the library's work between the caller's own, products of the caller's.
 */

#include "caller.h"

static float value(int rank, int round, int i) {
    return (float)((i * 7 + rank * 13 + round * 31) % 1009);
}

void put_in(struct caller *c, int round) {
    for (int i = 0; i < COUNT; i++)
        c->host[i] = value(c->rank, round, i);
    memset(c->host + COUNT, 0, COUNT * sizeof(float));
}

bool came_out(struct caller *c, int round) {
    for (int i = 0; i < COUNT; i++) {
        float sum = 0;
        for (int rank = 0; rank < c->world; rank++)
            sum += value(rank, round, i);
        if (c->host[COUNT + i] != sum)
            return false;
    }
    return true;
}

static void take_a_moment(void *arg) {
    (void)arg;
    sleep_ms(2);
}

static void copy(struct caller *c, void *to, const void *from, CUstream native) {
    need_driver(c, "a copy of the caller's",
                c->driver.MemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                      COUNT * sizeof(float), native));
}

void enqueue_sum(struct caller *c) {
    struct vector in, out;
    need_driver(c, "a host function of the caller's",
                c->driver.LaunchHostFunc(c->native, take_a_moment, NULL));
    copy(c, c->memory, c->host, c->native);
    need(c, "all-reduce",
         symmem_one_shot_all_reduce_out(c->handle, vector(&in, c->memory, COUNT), SYMMEM_SUM,
                                        vector(&out, c->out, COUNT), 0, LIMIT_MS, c->stream));
    copy(c, c->host + COUNT, c->out, c->native);
}

static void between_the_callers_own(struct caller *c) {
    enum { ROUNDS = 10 };
    int good = 0;
    for (int round = 0; round < ROUNDS; round++) {
        put_in(c, round);
        enqueue_sum(c);
        good += is_idle_in(c, (int)LIMIT_MS) && came_out(c, round);
    }
    expect(c, "sums between the caller's copies", good == ROUNDS, "%d of %d", good, ROUNDS);
    expect_status(c, "what they say", symmem_stream_synchronize(c->stream, LIMIT_MS), SYMMEM_OK);
}

/* --- products of the caller's ----------------------------------------------------------------- */

#define SIDE 8 /* of b, and columns of a and out; and rows of each rank */
#define PART ((size_t)SIDE * SIDE)

struct matrix {
    int64_t shape[2];
    DLTensor dl;
};

static const DLTensor *matrix(struct matrix *matrix, float *data, int64_t rows) {
    *matrix = (struct matrix){.shape = {rows, SIDE}};
    matrix->dl = (DLTensor){.data = data, .ndim = 2, .dtype = {kDLFloat, 32, 1}};
    matrix->dl.shape = matrix->shape;
    return &matrix->dl;
}

struct product {
    struct caller *c;
    int calls, odd;
};

/* By the identity, so that a copy is enough. */
static symmem_status by_a_copy(void *arg, const symmem_matmul *p, void *native) {
    struct product *product = arg;
    struct caller *c = product->c;
    const size_t bytes = (size_t)(p->m * p->n) * sizeof(float);
    product->calls++;
    product->odd +=
        native == NULL || p->n != SIDE || p->k != SIDE || p->a_row != SIDE || p->out_row != SIDE;
    return c->driver.MemcpyAsync((CUdeviceptr)(uintptr_t)p->out, (CUdeviceptr)(uintptr_t)p->a,
                                 bytes, native) == CUDA_SUCCESS
               ? SYMMEM_OK
               : SYMMEM_SYSTEM;
}

static void own_products(struct caller *c) {
    struct product product = {.c = c};
    struct matrix shard, b, out;
    float *const input = c->memory + 3 * COUNT, *const identity = input + PART;
    float values[PART], *results = calloc((size_t)c->world * PART, sizeof *results);
    const DLTensor *bs[1], *outs[1];
    float *memory = NULL;
    size_t workspace = 0;
    for (size_t i = 0; i < PART; i++)
        values[i] = (float)(c->rank * 1000 + (int)i);
    need(c, "memory",
         symmem_alloc(c->context, (size_t)c->world * PART * sizeof(float), c->device, NULL,
                      (void **)&memory));
    need(c, "shard", symmem_copy(c->context, input, values, sizeof values, NULL));
    bs[0] = matrix(&b, identity, SIDE);
    outs[0] = matrix(&out, memory, (int64_t)c->world * SIDE);
    matrix(&shard, input, SIDE);
    need(c, "workspace",
         symmem_fused_all_gather_matmul_workspace(&shard.dl, NULL, 0, false, c->world, &workspace));
    need(c, "a product of the caller's", symmem_set_matmul(c->context, by_a_copy, &product));
    need(c, "gather and multiply",
         symmem_fused_all_gather_matmul(c->handle, &shard.dl, 0, 1, bs, NULL, outs, 0, LIMIT_MS,
                                        c->stream, NULL));
    need(c, "the library's own", symmem_set_matmul(c->context, NULL, NULL));
    need(c, "its end", symmem_stream_synchronize(c->stream, LIMIT_MS));
    need(c, "results",
         symmem_copy(c->context, results, memory, (size_t)c->world * PART * sizeof(float), NULL));
    size_t wrong = 0;
    for (int rank = 0; rank < c->world; rank++)
        for (size_t i = 0; i < PART; i++)
            wrong += results[(size_t)rank * PART + i] != (float)(rank * 1000 + (int)i);
    expect(c, "products of the caller's",
           workspace <= 3 * COUNT * sizeof(float) && wrong == 0 && product.calls == c->world &&
               product.odd == 0,
           "%d calls, %d odd, %zu numbers wrong", product.calls, product.odd, wrong);
    need(c, "free", symmem_free(c->context, memory));
    free(results);
}

/* The driver's default ones, which PyTorch's users are on. The fake driver has none. */
static void default_streams(struct caller *c) {
    const CUstream natives[] = {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}, native = c->native;
    symmem_stream *stream = c->stream;
    for (int i = 0; i < 2 && !c->driver.is_fake; i++) {
        c->native = natives[i];
        need(c, "wrap", symmem_stream_wrap(c->context, c->device, c->native, &c->stream));
        between_the_callers_own(c);
        need(c, "the wrapper's end", symmem_stream_destroy(c->stream));
    }
    c->native = native;
    c->stream = stream;
}

void check_streams(struct caller *c) {
    between_the_callers_own(c);
    default_streams(c);
    own_products(c);
}
