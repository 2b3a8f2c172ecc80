/* SPDX-License-Identifier: BSD-3-Clause */
/* The entry: the emulation's table, spoilt as the environment variable BAD_KIND says. */
#include "bad.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const symmem_backend *bad_real;

/* The emulation lies one folder above this shared object. */
static const symmem_backend *load_real(uint32_t abi) {
    char path[PATH_MAX];
    Dl_info self;
    if (dladdr(&bad_real, &self) == 0 || strlen(self.dli_fname) + 64 > sizeof path)
        return NULL;
    strcpy(path, self.dli_fname);
    char *slash = strrchr(path, '/');
    strcpy(slash == NULL ? path : slash + 1, "../libsymmem_backend_shm.so");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, SYMMEM_BACKEND_ENTRY);
    symmem_backend_entry_fn entry;
    if (symbol == NULL)
        return NULL;
    memcpy(&entry, &symbol, sizeof entry);
    return entry(abi);
}

static const struct bad_kind *find(const char *name) {
    static const struct bad_kind *const lists[] = {bad_hanging, bad_crashing, bad_corrupting,
                                                   bad_lying, bad_rude};
    for (size_t list = 0; list < sizeof lists / sizeof lists[0]; list++)
        for (const struct bad_kind *kind = lists[list]; kind->name != NULL; kind++)
            if (strcmp(kind->name, name) == 0)
                return kind;
    return NULL;
}

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    static symmem_backend table; /* the process loads it once */
    const char *name = getenv("BAD_KIND");
    const struct bad_kind *kind = find(name == NULL ? "" : name);
    bad_real = load_real(abi);
    if (kind == NULL || bad_real == NULL) {
        fprintf(stderr, "bad backend: no kind '%s', or no emulation\n", name == NULL ? "" : name);
        return NULL;
    }
    table = *bad_real;
    table.name = "bad";
    kind->spoil(&table);
    return &table;
}
