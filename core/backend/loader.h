/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding and opening a backend's shared object. */
#ifndef SYMMEM_CORE_BACKEND_LOADER_H
#define SYMMEM_CORE_BACKEND_LOADER_H

#include "backend/context.h"

/* The table of the shared object at `path`, not yet checked (loader.c). LOAD, ABI. */
symmem_status sm_load_table(const char *path, const char *operation, void **library_p,
                            const symmem_backend **table_p);
/* The first libsymmem_backend_<name>.so on the search path. NOT_FOUND. */
symmem_status sm_search_backend(const char *name, const char *operation, char *path,
                                size_t capacity);

#endif
