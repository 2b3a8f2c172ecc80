/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that begin anew by exec, in the same store and under the same process number, as programs
 * do that restart themselves: who they were is gone, and no other process is in their place. */
#include "bootstrap/bootstrap.h"
#include "folder.h"
#include "unit.h"
#include "last_record.h"

#include <dirent.h>

enum { LIMIT_MS = 10000 };
static const char variable[] = "SYMM_RESTARTED_RANK"; /* "RANK PATH" */

/* 0: it did. */
static int meet(const char *path, int32_t rank, const char *name) {
    symmem_store *store = NULL;
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = rank;
    options.world_size = 2;
    symmem_status status = symmem_store_open_file(path, &store);
    options.store = store;
    if (status == SYMMEM_OK)
        status = symmem_init(&options, &context);
    if (status == SYMMEM_OK)
        status = symmem_group_create(context, name, NULL, 0, NULL, &group);
    if (status == SYMMEM_OK)
        status = symmem_group_barrier(group, LIMIT_MS);
    if (status != SYMMEM_OK)
        fprintf(stderr, "rank %d in %s: %s\n", (int)rank, name, last_record().message);
    return status == SYMMEM_OK ? 0 : 1;
}

/* Until rank 1 is there anew: that who it was has ended others are told. */
static bool await_restart(const char *path) {
    symmem_store *store = NULL;
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_member member = {.took_over = 0};
    size_t bytes = 0;
    if (symmem_store_open_file(path, &store) != SYMMEM_OK)
        return false;
    sm_identity_key("symmem", 1, key, sizeof(key));
    const uint64_t end_ns = sm_deadline_ns(LIMIT_MS);
    while (symmem_store_get(store, key, &member, sizeof(member), &bytes, LIMIT_MS) == SYMMEM_OK &&
           member.took_over == 0 && !sm_expired(end_ns))
        sm_sleep_ns(1000000);
    symmem_store_close(store);
    return member.took_over != 0;
}

/* Starts a rank in a new process. It forms a group, then starts its program again if it is to, with
 * the values that it left in the store. */
static pid_t start(const char *path, int32_t rank, bool restarts) {
    const pid_t parent = getpid();
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(99);
    sm_sleep_ns(50000000); /* it is there when it and the other one have begun */
    int result = meet(path, rank, "first");
    if (result == 0 && restarts) {
        char text[FOLDER_BYTES + 8];
        snprintf(text, sizeof(text), "%d %s", (int)rank, path);
        if (setenv(variable, text, 1) == 0)
            execl("/proc/self/exe", "again", (char *)NULL);
        result = 98;
    }
    if (result == 0 && !await_restart(path))
        result = 97;
    if (result == 0)
        result = meet(path, rank, "second");
    _exit(result);
}

static void remove_folder(const char *path) {
    DIR *listing = opendir(path);
    const struct dirent *entry;
    while (listing != NULL && (entry = readdir(listing)) != NULL)
        (void)unlinkat(dirfd(listing), entry->d_name, 0);
    if (listing != NULL)
        closedir(listing);
    CU_ASSERT_EQUAL(rmdir(path), 0);
}

static void run(bool all) {
    char path[FOLDER_BYTES];
    CU_ASSERT_FATAL(make_folder(path));
    pid_t pids[2];
    for (int32_t rank = 0; rank < 2; rank++)
        pids[rank] = start(path, rank, all || rank == 1);
    for (int32_t rank = 0; rank < 2; rank++) {
        int status = -1;
        CU_ASSERT(pids[rank] > 1 && waitpid(pids[rank], &status, 0) == pids[rank]);
        CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    remove_folder(path);
}

TEST("one rank") {
    run(false);
}

TEST("all ranks") {
    run(true);
}

/* A process that has started its program again runs no cases. */
int unit_setup(void) {
    const char *text = getenv(variable);
    char path[FOLDER_BYTES];
    int rank;
    if (text == NULL || sscanf(text, "%d %31s", &rank, path) != 2)
        return 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        _exit(97);
    sm_sleep_ns(rank == 0 ? 300000000 : 0); /* the other one finds what it was before */
    _exit(meet(path, rank, "second"));
}
