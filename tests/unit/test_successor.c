/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that ended and was started again: its successor joins new groups, and whoever knows that
 * one does not take it for the process that is gone, which handles and groups of before still need.
 */
#include <CUnit/Basic.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <symmem/backend.h>
#include <symmem/symmem.h>

#include "folder.h"
#include "internal.h"
#include "unit.h"

const symmem_backend *symmem_backend_entry(uint32_t abi);

enum { LIMIT_MS = 10000, SHORT_MS = 4000, LONGEST_S = 60 };

/* One rank of two. */
typedef struct world {
    symmem_store *store;
    symmem_context *context;
    void *memory;
} world;

static symmem_status world_open(world *w, const char *path, int32_t rank) {
    const symmem_backend *table = symmem_backend_entry(SYMMEM_BACKEND_ABI);
    symmem_context_options options;
    memset(w, 0, sizeof *w);
    symmem_context_options_init(&options);
    options.rank = rank;
    options.world_size = 2;
    symmem_status status = symmem_store_open_file(path, &w->store);
    options.store = w->store;
    if (status == SYMMEM_OK)
        status = symmem_init(&options, &w->context);
    if (status == SYMMEM_OK)
        status = symmem_register_backend(w->context, table);
    if (status == SYMMEM_OK)
        status = symmem_set_backend(w->context, table->name);
    if (status == SYMMEM_OK)
        status = symmem_set_allow_overlapping_devices(w->context, 1);
    if (status == SYMMEM_OK)
        status = symmem_alloc(w->context, 4096, 0, NULL, &w->memory);
    return status;
}

static symmem_status meet(const world *w, const char *name, symmem_group **group_p,
                          symmem_handle **handle_p) {
    symmem_status status = symmem_group_create(w->context, name, NULL, 0, NULL, group_p);
    if (status == SYMMEM_OK)
        status = symmem_rendezvous(w->context, w->memory, *group_p, LIMIT_MS, handle_p);
    return status == SYMMEM_OK ? symmem_barrier(*handle_p, 0, LIMIT_MS, NULL) : status;
}

/* Rank 1 in a process of its own, which meets rank 0 in that group and stays until it is killed. */
static pid_t start_peer(const char *path, const char *name) {
    const pid_t parent = getpid();
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    world w;
    symmem_group *group;
    symmem_handle *handle;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(LONGEST_S);
    if (getppid() != parent || world_open(&w, path, 1) != SYMMEM_OK ||
        meet(&w, name, &group, &handle) != SYMMEM_OK)
        _exit(1);
    for (;;)
        (void)pause();
}

static void end_peer(pid_t pid) {
    int status = 0;
    if (pid < 2)
        return;
    CU_ASSERT_EQUAL(kill(pid, SIGKILL), 0);
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    CU_ASSERT(WIFSIGNALED(status));
}

/* It needs the one that is gone. */
static void expect_lost(symmem_status status, uint64_t begin_ns) {
    symmem_error_record record;
    symmem_last_error(&record);
    CU_ASSERT_EQUAL(status, SYMMEM_PEER_LOST);
    CU_ASSERT(symmem_error_is_missing(&record, 1));
    CU_ASSERT(sm_now_ns() - begin_ns < 1500000000);
}

static void test_successor(void) {
    char path[FOLDER_BYTES], command[FOLDER_BYTES + 16];
    world w;
    symmem_group *first = NULL, *second = NULL;
    symmem_handle *before = NULL, *after = NULL;
    CU_ASSERT_FATAL(make_folder(path));
    pid_t peer = start_peer(path, "first");
    CU_ASSERT_FATAL(peer > 1);
    CU_ASSERT_EQUAL(world_open(&w, path, 0), SYMMEM_OK);
    CU_ASSERT_EQUAL(meet(&w, "first", &first, &before), SYMMEM_OK);
    end_peer(peer);
    peer = start_peer(path, "second");
    CU_ASSERT_FATAL(peer > 1);
    CU_ASSERT_EQUAL(meet(&w, "second", &second, &after), SYMMEM_OK);

    uint64_t begin_ns = sm_now_ns();
    expect_lost(symmem_barrier(before, 0, SHORT_MS, NULL), begin_ns);
    int fd = -1;
    begin_ns = sm_now_ns();
    expect_lost(symmem_group_recv_fd(first, 1, &fd, SHORT_MS), begin_ns);
    /* The successor is there. */
    uint32_t value = 5;
    CU_ASSERT_EQUAL(symmem_put(after, 1, 0, &value, sizeof value, NULL), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_put_signal(after, 1, 0, LIMIT_MS, NULL), SYMMEM_OK);
    symmem_handle_release(after);
    symmem_handle_release(before);
    symmem_context_free(w.context);
    symmem_store_close(w.store);
    end_peer(peer);
    snprintf(command, sizeof command, "rm -rf -- '%s'", path);
    CU_ASSERT_EQUAL(system(command), 0);
}

int main(void) {
    static const unit_case cases[] = {
        {"what is gone is not its successor", test_successor},
    };
    return UNIT_MAIN("successor", cases);
}
