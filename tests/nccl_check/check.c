/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * symmem-nccl-check: what the conformance suite cannot know of the NCCL backend, with the real
 * library: a communicator handed in, our barrier against NCCL's own, collectives where ranks have
 * no direct access to each other, and what a communicator that does not come up leaves behind. Each
 * rank is a process with RANK, WORLD_SIZE and SYMMEM_STORE set, as tests/run_ranks.sh starts them,
 * on the device of its number. With a NCCL_HOSTID of its own for each rank NCCL takes them for
 * ranks of different hosts. Exit status: 0 good, 1 bad, 77 nothing to check here.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define BYTES 1048576u

static symmem_status point(void *arg, const char *name) {
    check *c = arg;
    if (c->slow_point != NULL && strcmp(name, c->slow_point) == 0) {
        c->slow_point = NULL;
        sleep(4);
    }
    return SYMMEM_OK;
}

static bool open_context(check *c) {
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.backend = "nccl";
    options.multicast = 0;
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

static int listed(const char *path) {
    int count = 0;
    DIR *directory = opendir(path);
    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        closedir(directory);
    return count;
}

static void end_group(check *c) {
    EXPECT_OK(c, "group", symmem_group_destroy(c->group));
    sleep(4); /* NCCL's threads look twice a second whether they are to end */
    EXPECT_OK(c, "group", symmem_group_create(c->context, "check", NULL, 0, NULL, &c->group));
}

static symmem_status meet(check *c, void *memory, uint32_t limit_ms) {
    symmem_handle *handle = NULL;
    symmem_status status = symmem_rendezvous(c->context, memory, c->group, limit_ms, &handle);
    symmem_handle_release(handle);
    return status;
}

/* The last rank comes too late to the bringing up of a communicator. Of such a one NCCL keeps two
 * sockets, six if this rank's neighbours in its ring had come, whatever is done; all else goes,
 * compared with a group before whose communicator came up. */
static void check_late(check *c) {
    const int sockets = c->rank > 0 && c->rank < c->world - 2 ? 6 : 2;
    void *memory = NULL;
    if (symmem_alloc(c->context, 4096, c->rank, NULL, &memory) != SYMMEM_OK)
        return;
    symmem_status status = meet(c, memory, LIMIT_MS);
    EXPECT(c, "rendezvous before it", status == SYMMEM_OK, "%s", symmem_status_name(status));
    end_group(c);
    int threads = listed("/proc/self/task"), descriptors = listed("/proc/self/fd");
    if (c->rank == c->world - 1)
        c->slow_point = "nccl.comm.init*";
    status = meet(c, memory, 3000);
    EXPECT(c, "a late rank", status != SYMMEM_OK, "%s", symmem_status_name(status));
    c->slow_point = NULL;
    sleep(3);
    say(c, "left of that", true, "%d threads, %d descriptors more",
        listed("/proc/self/task") - threads, listed("/proc/self/fd") - descriptors);
    status = meet(c, memory, LIMIT_MS);
    EXPECT(c, "rendezvous after it", status == SYMMEM_OK, "%s", symmem_status_name(status));
    end_group(c);
    threads = listed("/proc/self/task") - threads;
    descriptors = listed("/proc/self/fd") - descriptors;
    EXPECT(c, "left when the group is gone", threads <= 0 && descriptors <= sockets,
           "%d threads, %d descriptors more", threads, descriptors);
    EXPECT_OK(c, "free", symmem_free(c->context, memory));
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
    status = symmem_alloc(c->context, BYTES, c->rank, NULL, &c->memory);
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
    if (info.world_within_direct_access)
        check_device_barrier(c);
    else
        check_apart(c);
    EXPECT_OK(c, "meeting", symmem_group_barrier(c->group, LIMIT_MS));
    symmem_handle_release(c->handle);
    EXPECT_OK(c, "free", symmem_free(c->context, c->memory));
}

int main(void) {
    check c = {.failures = 0};
    char reason[200] = "";
    CUcontext context;
    const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
    c.rank = rank != NULL ? (int)strtol(rank, NULL, 10) : 0;
    c.world = world != NULL ? (int)strtol(world, NULL, 10) : 1;
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* before NCCL's first call: never multicast */
    if (!find_entries(&c, reason, sizeof reason)) {
        say(&c, "nothing to check", true, "SKIPPED, %s", reason);
        return 77;
    }
    if (c.api.CtxRetain(&context, c.rank) != CUDA_SUCCESS ||
        c.api.CtxSetCurrent(context) != CUDA_SUCCESS) {
        say(&c, "nothing to check", true, "SKIPPED, no device %d", c.rank);
        return 77;
    }
    if (open_context(&c))
        check_all(&c);
    symmem_context_free(c.context);
    if (c.comm != NULL)
        EXPECT(&c, "the communicator is still the user's", c.api.CommAbort(c.comm) == ncclSuccess,
               "aborted by him");
    (void)c.api.CtxRelease(c.rank);
    return c.failures == 0 ? 0 : 1;
}
