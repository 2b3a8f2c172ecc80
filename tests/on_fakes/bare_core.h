/* SPDX-License-Identifier: BSD-3-Clause */
/* As much of a core as a plug-in needs that is asked for memory alone: its host, and how it is
 * found. */
#ifndef BARE_CORE_H
#define BARE_CORE_H

#include <dlfcn.h>
#include <symmem/backend.h>

static symmem_status bare_fail(const symmem_host *host, symmem_status status, int error,
                               const char *operation, const char *format, ...) {
    return status;
}

static symmem_status bare_fail_sizes(const symmem_host *host, symmem_status status, int error,
                                     const char *operation, uint64_t expected, uint64_t actual) {
    return status;
}

static void bare_notice(const symmem_host *host, const char *text) {}

static const symmem_host bare_host = {.size = sizeof bare_host,
                                      .fail = bare_fail,
                                      .fail_sizes = bare_fail_sizes,
                                      .notice = bare_notice};

/* NULL: there is none at `path`. */
static inline const symmem_backend *bare_load(const char *path) {
    const symmem_backend *(*entry)(uint32_t abi) = NULL;
    void *plugin = dlopen(path, RTLD_NOW);
    if (plugin != NULL)
        *(void **)&entry = dlsym(plugin, "symmem_backend_entry");
    return entry != NULL ? entry(SYMMEM_BACKEND_ABI) : NULL;
}

#endif
