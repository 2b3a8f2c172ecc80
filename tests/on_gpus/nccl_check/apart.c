/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives where the ranks have no direct access to each other. */

#include "check.h"

#define COUNT 100000
#define SHORT_MS 1500u

static int32_t values[COUNT];

static symmem_status reduce(check *c, uint32_t limit_ms) {
    int64_t count = COUNT;
    DLTensor all = {.data = c->memory,
                    .device = {kDLCUDA, c->device},
                    .ndim = 1,
                    .dtype = {kDLInt, 32, 1},
                    .shape = &count};
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
    EXPECT(c, "all-reduce by NCCL", status == SYMMEM_OK && wrong == 0, "%s, %d elements wrong",
           symmem_status_name(status), wrong);
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
    check_moves(c);
    missing(c);
    again(c);
}
