/* SPDX-License-Identifier: BSD-3-Clause */
/* A store of files in a directory of its own, one in memory, and children that use them. */
#ifndef SYMMEM_STORE_FILES_H
#define SYMMEM_STORE_FILES_H

#include "../bootstrap/session_ranks.h"
#include "unit.h"

static char directory[] = "/tmp/symmem-store-XXXXXX";
static char path[64];

static inline symmem_store *open_file(void) {
    symmem_store *store = NULL;
    if (symmem_store_open_file(path, &store) != SYMMEM_OK)
        abort();
    return store;
}

static inline symmem_store *open_memory(void) {
    symmem_store *store = NULL;
    if (symmem_store_open_memory(&store) != SYMMEM_OK)
        abort();
    return store;
}

static inline pid_t start(void (*body)(void)) {
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
            _exit(99);
        body();
        exit(0);
    }
    return pid;
}

int unit_setup(void) {
    if (mkdtemp(directory) == NULL)
        return 1;
    snprintf(path, sizeof(path), "%s/store", directory);
    /* Open to other users, so that the refusal is the store's own. */
    return chmod(directory, 0755);
}

int unit_teardown(void) {
    rmdir(directory);
    return 0;
}

#endif
