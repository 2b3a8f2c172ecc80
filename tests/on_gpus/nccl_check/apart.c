/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives where the ranks have no direct access to each other. But for sums they go from the
 * first half of the rank's block to the second. */

#include "check.h"

#define PART 1000 /* elements that a rank has, or gets from each */
#define MOST 64   /* ranks, so that a half holds a part of each */
#define COUNT 100000
#define SHORT_MS 1500u

static int32_t *out_of(const check *c) {
    return (int32_t *)((char *)c->memory + BYTES / 2);
}

static DLTensor ints(const check *c, void *data, int64_t *count) {
    return (DLTensor){.data = data,
                      .device = {kDLCUDA, c->device},
                      .ndim = 1,
                      .dtype = {kDLInt, 32, 1},
                      .shape = count};
}

/* What rank `r` has at place `i`. */
static int32_t value(int r, int i) {
    return 100000 * (r + 1) + i;
}

static int32_t words[MOST * PART];

static void fill(const check *c, int count) {
    for (int i = 0; i < count; i++)
        words[i] = value(c->rank, i);
    (void)c->api.MemcpyHtoD((CUdeviceptr)(uintptr_t)c->memory, words,
                            sizeof *words * (size_t)count);
    memset(words, 0, sizeof words);
    (void)c->api.MemcpyHtoD((CUdeviceptr)(uintptr_t)out_of(c), words, sizeof words);
}

static void fetch(const check *c, const void *from, int count) {
    (void)c->api.MemcpyDtoH(words, (CUdeviceptr)(uintptr_t)from, sizeof *words * (size_t)count);
}

static void told(check *c, const char *what, symmem_status status, int wrong) {
    EXPECT(c, what, status == SYMMEM_OK && wrong == 0, "%s, %d elements wrong",
           symmem_status_name(status), wrong);
}

static void scatters(check *c) {
    int64_t whole = (int64_t)PART * c->world, part = PART;
    DLTensor in = ints(c, c->memory, &whole), out = ints(c, out_of(c), &part);
    int wrong = 0;
    fill(c, PART * c->world);
    symmem_status status =
        symmem_reduce_scatter_out(c->handle, &in, SYMMEM_SUM, false, &out, 0, LIMIT_MS, NULL);
    fetch(c, out.data, PART);
    for (int i = 0; i < PART; i++) {
        int32_t sum = 0;
        for (int r = 0; r < c->world; r++)
            sum += value(r, c->rank * PART + i);
        wrong += words[i] != sum;
    }
    told(c, "reduce-scatter by NCCL", status, wrong);
}

static void gathers(check *c) {
    int64_t part = PART, whole = (int64_t)PART * c->world;
    DLTensor in = ints(c, c->memory, &part), out = ints(c, out_of(c), &whole);
    int wrong = 0;
    fill(c, PART);
    symmem_status status = symmem_all_gather_out(c->handle, &in, &out, 0, LIMIT_MS, NULL);
    fetch(c, out.data, PART * c->world);
    for (int i = 0; i < PART * c->world; i++)
        wrong += words[i] != value(i / PART, i % PART);
    told(c, "all-gather by NCCL", status, wrong);
}

static void broadcasts(check *c) {
    int64_t part = PART;
    DLTensor in = ints(c, c->memory, &part);
    int wrong = 0;
    symmem_status status = SYMMEM_OK;
    for (int root = 0; root < c->world && status == SYMMEM_OK; root++) {
        fill(c, PART);
        status = symmem_broadcast(c->handle, &in, root, 0, LIMIT_MS, NULL);
        fetch(c, in.data, PART);
        for (int i = 0; i < PART; i++)
            wrong += words[i] != value(root, i);
    }
    told(c, "broadcast by NCCL, from each", status, wrong);
}

/* Elements that rank `from` has for rank `to`; some have none, but each rank has its own. */
static size_t split(int from, int to) {
    return (size_t)((from + 2 * to + 1) % 3) * (PART / 3);
}

static int wrong_of(const check *c, int source, const int32_t *at) {
    int before = 0, wrong = 0;
    for (int r = 0; r < c->rank; r++)
        before += (int)split(source, r);
    for (int i = 0; i < (int)split(source, c->rank); i++)
        wrong += at[i] != value(source, before + i);
    return wrong;
}

static void all_to_alls(check *c) {
    size_t in_splits[MOST], out_splits[MOST];
    int64_t sent = 0, got = 0;
    int wrong = 0;
    for (int r = 0; r < c->world; r++) {
        in_splits[r] = split(c->rank, r);
        out_splits[r] = split(r, c->rank);
        sent += (int64_t)in_splits[r];
        got += (int64_t)out_splits[r];
    }
    DLTensor in = ints(c, c->memory, &sent), out = ints(c, out_of(c), &got);
    fill(c, (int)sent);
    symmem_status status =
        symmem_all_to_all_out(c->handle, &in, in_splits, &out, out_splits, 0, LIMIT_MS, NULL);
    fetch(c, out.data, (int)got);
    const int32_t *at = words;
    for (int r = 0; r < c->world; at += split(r++, c->rank))
        wrong += wrong_of(c, r, at);
    told(c, "all-to-all by NCCL", status, wrong);
}

static void moves(check *c) {
    if (c->world > MOST) {
        skip(c, "the other collectives by NCCL", "for up to %d ranks", MOST);
        return;
    }
    scatters(c);
    gathers(c);
    broadcasts(c);
    all_to_alls(c);
}

/* --- sums, and a rank that does not come --------------------------------------------------- */

static int32_t values[COUNT];

static symmem_status reduce(check *c, uint32_t limit_ms) {
    int64_t count = COUNT;
    DLTensor all = ints(c, c->memory, &count);
    return symmem_all_reduce(c->handle, &all, SYMMEM_SUM, &all, 0, limit_ms, NULL);
}

static void sums(check *c) {
    int wrong = 0;
    for (int i = 0; i < COUNT; i++)
        values[i] = i * (c->rank + 1);
    (void)c->api.MemcpyHtoD((CUdeviceptr)(uintptr_t)c->memory, values, sizeof values);
    symmem_status status = reduce(c, LIMIT_MS);
    (void)c->api.MemcpyDtoH(values, (CUdeviceptr)(uintptr_t)c->memory, sizeof values);
    for (int i = 0; i < COUNT; i++)
        wrong += values[i] != i * (c->world * (c->world + 1) / 2);
    told(c, "all-reduce by NCCL", status, wrong);
}

/* The last rank comes when the others do not wait any more. */
static void missing(check *c) {
    bool last = c->rank == c->world - 1;
    if (last)
        sleep(4);
    uint64_t begin_ms = now_ms();
    symmem_status status = reduce(c, SHORT_MS);
    uint64_t took_ms = now_ms() - begin_ms;
    EXPECT(c, "a rank that does not come", status != SYMMEM_OK && took_ms < SHORT_MS + 2000,
           "%s after %d ms", symmem_status_name(status), (int)took_ms);
    EXPECT_OK(c, "meeting", symmem_group_barrier(c->group, LIMIT_MS));
    status = symmem_handle_reset(c->handle, LIMIT_MS);
    EXPECT(c, "reset", status == SYMMEM_OK, "%s", symmem_status_name(status));
}

/* Any rendezvous makes another communicator. */
static void again(check *c) {
    void *memory = NULL;
    symmem_handle *handle = NULL;
    symmem_status status = symmem_alloc(c->context, 4096, c->device, NULL, &memory);
    if (status == SYMMEM_OK)
        status = symmem_rendezvous(c->context, memory, c->group, LIMIT_MS, &handle);
    EXPECT(c, "rendezvous after a failure", status == SYMMEM_OK, "%s", symmem_status_name(status));
    sums(c);
    symmem_handle_release(handle);
    if (memory != NULL)
        EXPECT_OK(c, "free", symmem_free(c->context, memory));
}

void check_apart(check *c) {
    sums(c);
    moves(c);
    missing(c);
    again(c);
}
