/* SPDX-License-Identifier: BSD-3-Clause */
/* As much of a core as a plug-in needs that is asked for memory alone: its host, and how it is
 * found. */
#ifndef BARE_CORE_H
#define BARE_CORE_H

#include <dlfcn.h>
#include <symmem/backend.h>

#include "../quiet_host.h"

static const symmem_host bare_host = {.size = sizeof bare_host,
                                      .fail = quiet_fail,
                                      .fail_sizes = quiet_fail_sizes,
                                      .notice = quiet_notice};

/* NULL: there is none at `path`. */
static inline const symmem_backend *bare_load(const char *path) {
    const symmem_backend *(*entry)(uint32_t abi) = NULL;
    void *plugin = dlopen(path, RTLD_NOW);
    if (plugin != NULL)
        *(void **)&entry = dlsym(plugin, "symmem_backend_entry");
    return entry != NULL ? entry(SYMMEM_BACKEND_ABI) : NULL;
}

#endif
