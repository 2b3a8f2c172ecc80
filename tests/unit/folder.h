/* SPDX-License-Identifier: BSD-3-Clause */
/* A folder for a file store: ranks make and remove thousands of files there, and on a disk each may
 * wait for what other programs write. */
#ifndef SYMMEM_UNIT_FOLDER_H
#define SYMMEM_UNIT_FOLDER_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define FOLDER_BYTES 32

/* In memory, where that is allowed. */
static inline bool make_folder(char path[FOLDER_BYTES]) {
    static const char *const places[] = {"/dev/shm", "/tmp"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, FOLDER_BYTES, "%s/symmem-unit-XXXXXX", places[i]);
        if (mkdtemp(path) != NULL)
            return true;
    }
    return false;
}

#endif
