/* SPDX-License-Identifier: BSD-3-Clause */
/* The other collectives where the ranks have no direct access to each other, from the first half of
 * this rank's block to the second. */

#include "check.h"

#define PART 1000 /* elements that a rank has, or gets from each */
#define MOST 64   /* ranks, so that a half holds a part of each */

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

void check_moves(check *c) {
    if (c->world > MOST) {
        skip(c, "the other collectives by NCCL", "for up to %d ranks", MOST);
        return;
    }
    scatters(c);
    gathers(c);
    broadcasts(c);
    all_to_alls(c);
}
