/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>

#include "caller.h"

bool driver_load(struct driver *driver) {
    static const struct {
        const char *name;
        size_t offset;
    } entries[] = {
#define ENTRY(call) {"cu" #call, offsetof(struct driver, call)},
        DRIVER_CALLS(ENTRY)};
    CUresult (*look)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (symbol == NULL)
        return false;
    memcpy(&look, &symbol, sizeof look);
    driver->is_fake = dlsym(library, "fake_streams_left") != NULL;
    symbol = dlsym(library, "fake_fail_calls");
    memcpy(&driver->fail_calls, &symbol, sizeof symbol);
    symbol = dlsym(library, "cuCtxCreate_v2");
    memcpy(&driver->CtxCreate, &symbol, sizeof symbol);
    if (symbol == NULL)
        return false;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        CUdriverProcAddressQueryResult found;
        if (look(entries[i].name, &symbol, 12000, 0, &found) != CUDA_SUCCESS || symbol == NULL)
            return false;
        memcpy((char *)driver + entries[i].offset, &symbol, sizeof symbol);
    }
    return driver->Init(0) == CUDA_SUCCESS;
}
