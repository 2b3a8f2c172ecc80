/* SPDX-License-Identifier: BSD-3-Clause */
/* The last rank comes too late to what NCCL does on all ranks together: all get one answer, soon
 * after their limits, and what is left behind is known. */
#include <dirent.h>

#include "check.h"

#define SLACK_MS 2000u

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

static symmem_status rendezvous(check *c, void *memory, uint32_t limit_ms) {
    symmem_handle *handle = NULL;
    symmem_status status = symmem_rendezvous(c->context, memory, c->group, limit_ms, &handle);
    symmem_handle_release(handle);
    return status;
}

/* Whether all ranks have that status. */
static bool is_alls(check *c, symmem_status status) {
    int32_t own = status, *all = calloc((size_t)c->world, sizeof *all);
    bool same = all != NULL &&
                symmem_group_all_gather(c->group, &own, sizeof own, all, LIMIT_MS) == SYMMEM_OK;
    for (int r = 0; same && r < c->world; r++)
        same = all[r] == own;
    free(all);
    return same;
}

static void be_late(check *c, void *memory, const char *place, uint32_t limit_ms) {
    const bool late = c->rank == c->world - 1;
    c->late_ms = limit_ms + 1000;
    const uint64_t most_ms = limit_ms + SLACK_MS + (late ? c->late_ms : 0);
    const uint64_t begin_ms = now_ms();
    c->slow_point = late ? place : NULL;
    symmem_status status = rendezvous(c, memory, limit_ms);
    const uint64_t took_ms = now_ms() - begin_ms;
    const bool was_there = c->slow_point == NULL;
    c->slow_point = NULL;
    EXPECT(c, place, was_there && status != SYMMEM_OK && took_ms < most_ms, "%s%s after %d ms",
           was_there ? "" : "not come to, ", symmem_status_name(status), (int)took_ms);
    EXPECT(c, "all ranks' answer", is_alls(c, status), "%s", symmem_status_name(status));
}

/* Compared with a group before, whose communicator came up. */
static void check_late_at(check *c, void *memory, const char *place, uint32_t limit_ms,
                          int sockets) {
    symmem_status status = rendezvous(c, memory, LIMIT_MS);
    EXPECT(c, "rendezvous before it", status == SYMMEM_OK, "%s", symmem_status_name(status));
    end_group(c);
    int threads = listed("/proc/self/task"), descriptors = listed("/proc/self/fd");
    be_late(c, memory, place, limit_ms);
    sleep(3);
    say(c, "left of that", true, "%d threads, %d descriptors more",
        listed("/proc/self/task") - threads, listed("/proc/self/fd") - descriptors);
    status = rendezvous(c, memory, LIMIT_MS);
    EXPECT(c, "rendezvous after it", status == SYMMEM_OK, "%s", symmem_status_name(status));
    end_group(c);
    threads = listed("/proc/self/task") - threads;
    descriptors = listed("/proc/self/fd") - descriptors;
    EXPECT(c, "left when the group is gone", threads <= 0 && descriptors <= sockets,
           "%d threads, %d descriptors more", threads, descriptors);
}

/* Whatever is done NCCL keeps sockets: of a communicator that did not come up two, or six if this
 * rank's neighbors in its ring had come; of one that had, those by which the ranks met for the
 * registration, two at the most. */
void check_late(check *c) {
    void *memory = NULL;
    if (symmem_alloc(c->context, 4096, c->device, NULL, &memory) != SYMMEM_OK)
        return;
    check_late_at(c, memory, "nccl.comm.init*", 3000,
                  c->rank > 0 && c->rank < c->world - 2 ? 6 : 2);
    check_late_at(c, memory, "nccl.window.register*", 10000, 2); /* the communicator comes first */
    EXPECT_OK(c, "free", symmem_free(c->context, memory));
}
