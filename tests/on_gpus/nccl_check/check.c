/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * symmem-nccl-check: tests of the NCCL backend with the real library that the conformance suite
 * cannot make. They cover a communicator of the program's own, our barrier against NCCL's own,
 * collectives where ranks have no direct access to each other, and a communicator that does not
 * come up. Each rank is a process with RANK, WORLD_SIZE and SYMMEM_STORE set, as symmem-run
 * starts them, on the device of its number; ranks beyond the number of devices share them, if NCCL
 * does that. With a NCCL_HOSTID of its own for each rank NCCL takes them for ranks of different
 * hosts. Exit status: 0 good, 1 bad, 77 nothing to check here.
 */

#include "check.h"

static symmem_status point(void *arg, const char *name) {
    check *c = arg;
    if (c->slow_point != NULL && strcmp(name, c->slow_point) == 0) {
        c->slow_point = NULL;
        usleep(c->late_ms * 1000);
    }
    return SYMMEM_OK;
}

static bool open_context(check *c) {
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.backend = "nccl";
    options.multicast = 0;
    options.allow_overlapping_devices = 1;
    options.point = point;
    options.point_arg = c;
    symmem_status status = symmem_init(&options, &c->context);
    if (status == SYMMEM_OK)
        status = symmem_group_create(c->context, "check", NULL, 0, NULL, &c->group);
    symmem_error_record record;
    symmem_last_error(&record);
    EXPECT(c, "context", status == SYMMEM_OK, "%s %s", symmem_status_name(status),
           status == SYMMEM_OK ? "" : record.message);
    return status == SYMMEM_OK;
}

/* Whether each rank has a device, all to itself or shared: or others would wait for who has none.
 */
static bool have_devices(const check *c, int devices) {
    uint64_t capabilities = 0;
    const bool shares = symmem_backend_capabilities(c->context, &capabilities) == SYMMEM_OK &&
                        (capabilities & SYMMEM_CAP_OVERLAP) != 0;
    const int32_t own = c->world <= devices || shares;
    int32_t *all = calloc((size_t)c->world, sizeof *all);
    bool have = all != NULL &&
                symmem_group_all_gather(c->group, &own, sizeof own, all, LIMIT_MS) == SYMMEM_OK;
    for (int r = 0; have && r < c->world; r++)
        have = all[r] != 0;
    free(all);
    if (!have)
        skip(c, "all", "%d ranks, %d devices here, which NCCL does not let some rank share",
             c->world, devices);
    return have;
}

static bool make_comm(check *c) {
    ncclUniqueId own, *all = calloc((size_t)c->world, sizeof *all);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    memset(&own, 0, sizeof own);
    config.blocking = 0;
    bool good = all != NULL && (c->rank != 0 || c->api.GetUniqueId(&own) == ncclSuccess) &&
                symmem_group_all_gather(c->group, &own, sizeof own, all, LIMIT_MS) == SYMMEM_OK;
    uint64_t begin_ms = now_ms();
    if (good) {
        ncclResult_t result =
            c->api.CommInitRankConfig(&c->comm, c->world, all[0], c->rank, &config);
        good =
            (result == ncclSuccess || result == ncclInProgress) && wait_ready(c, c->comm, LIMIT_MS);
    }
    EXPECT(c, "a communicator of the user's", good, "after %d ms", (int)(now_ms() - begin_ms));
    free(all);
    return good;
}

static bool rendezvous(check *c) {
    symmem_status status = symmem_group_set_communicator(c->group, c->comm);
    EXPECT(c, "handed in", status == SYMMEM_OK, "%s", symmem_status_name(status));
    status = symmem_alloc(c->context, BYTES, c->device, NULL, &c->memory);
    if (status == SYMMEM_OK)
        status = symmem_rendezvous(c->context, c->memory, c->group, LIMIT_MS, &c->handle);
    symmem_error_record record;
    symmem_last_error(&record);
    EXPECT(c, "rendezvous on it", status == SYMMEM_OK, "%s %s", symmem_status_name(status),
           status == SYMMEM_OK ? "" : record.message);
    return status == SYMMEM_OK;
}

static void check_all(check *c) {
    symmem_handle_info info;
    check_late(c);
    if (!make_comm(c) || !rendezvous(c) || symmem_handle_get_info(c->handle, &info) != SYMMEM_OK)
        return;
    if (info.world_within_direct_access) {
        check_device_barrier(c);
    } else {
        skip(c, "NCCL's device barrier", "no direct access to all ranks");
        check_apart(c);
    }
    EXPECT_OK(c, "meeting", symmem_group_barrier(c->group, LIMIT_MS));
    symmem_handle_release(c->handle);
    EXPECT_OK(c, "free", symmem_free(c->context, c->memory));
}

int main(void) {
    check c = {.failures = 0};
    char reason[200] = "";
    CUcontext context;
    int devices = 0;
    bool checked = false;
    const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
    c.rank = rank != NULL ? (int)strtol(rank, NULL, 10) : 0;
    c.world = world != NULL ? (int)strtol(world, NULL, 10) : 1;
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* before NCCL's first call: never multicast */
    if (!find_entries(&c, reason, sizeof reason)) {
        skip(&c, "all", "%s", reason);
        return 77;
    }
    if (c.api.DeviceGetCount(&devices) != CUDA_SUCCESS || devices < 1) {
        skip(&c, "all", "no device");
        return 77;
    }
    c.device = c.rank % devices;
    if (c.api.CtxRetain(&context, c.device) != CUDA_SUCCESS ||
        c.api.CtxSetCurrent(context) != CUDA_SUCCESS) {
        skip(&c, "all", "no context on device %d", c.device);
        return 77;
    }
    if (open_context(&c)) {
        checked = have_devices(&c, devices);
        if (checked)
            check_all(&c);
    }
    symmem_context_free(c.context);
    if (c.comm != NULL)
        EXPECT(&c, "the communicator is still the user's", c.api.CommAbort(c.comm) == ncclSuccess,
               "aborted by him");
    (void)c.api.CtxRelease(c.device);
    if (c.failures == 0 && !checked)
        return 77;
    return c.failures == 0 ? 0 : 1;
}
