/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the driver and its entry points. */
#include "driver/driver.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The version is that of the interface that cuda.h declares, not the newest one. */
typedef struct entry_point {
    const char *name;
    int version;
    size_t offset;
    bool optional;
} entry_point;

#define ENTRY(member, since)                                                                       \
    { "cu" #member, since, offsetof(cuda_driver, member), false }
#define OPTIONAL(member, since)                                                                    \
    { "cu" #member, since, offsetof(cuda_driver, member), true }

static const entry_point entry_points[] = {
    ENTRY(Init, 2000),
    ENTRY(GetErrorName, 6000),
    ENTRY(DeviceGet, 2000),
    ENTRY(DriverGetVersion, 2020),
    ENTRY(DeviceGetCount, 2000),
    ENTRY(DeviceGetName, 2000),
    ENTRY(DeviceTotalMem, 3020),
    ENTRY(DeviceGetUuid, 11040),
    OPTIONAL(DeviceGetP2PAttribute, 8000),
    ENTRY(DeviceGetAttribute, 2000),
    ENTRY(DevicePrimaryCtxGetState, 7000),
    ENTRY(DevicePrimaryCtxRetain, 7000),
    ENTRY(DevicePrimaryCtxRelease, 11000),
    ENTRY(CtxPushCurrent, 4000),
    ENTRY(CtxPopCurrent, 4000),
    ENTRY(CtxGetCurrent, 4000),
    ENTRY(CtxGetDevice, 2000),
    OPTIONAL(CtxGetId, 12000),
    ENTRY(ModuleLoadData, 2000),
    ENTRY(ModuleUnload, 2000),
    ENTRY(ModuleGetFunction, 2000),
    OPTIONAL(FuncLoad, 12040),
    ENTRY(LaunchKernel, 4000),
    ENTRY(LaunchHostFunc, 10000),
    ENTRY(PointerGetAttributes, 7000),
    ENTRY(MemGetInfo, 3020),
    ENTRY(MemHostAlloc, 2020),
    ENTRY(MemFreeHost, 2000),
    ENTRY(MemFreeAsync, 11020),
    ENTRY(MemPoolCreate, 11020),
    ENTRY(MemPoolDestroy, 11020),
    ENTRY(MemPoolSetAttribute, 11020),
    ENTRY(MemAllocFromPoolAsync, 11020),
    ENTRY(MemGetAllocationGranularity, 10020),
    ENTRY(MemCreate, 10020),
    ENTRY(MemRelease, 10020),
    ENTRY(MemAddressReserve, 10020),
    ENTRY(MemAddressFree, 10020),
    ENTRY(MemMap, 10020),
    ENTRY(MemUnmap, 10020),
    ENTRY(MemSetAccess, 10020),
    ENTRY(MemExportToShareableHandle, 10020),
    ENTRY(MemImportFromShareableHandle, 10020),
    ENTRY(MemcpyAsync, 4000),
    ENTRY(MemsetD8Async, 3020),
    ENTRY(MemsetD32Async, 3020),
    ENTRY(StreamCreate, 2000),
    ENTRY(CtxGetStreamPriorityRange, 5050),
    ENTRY(StreamCreateWithPriority, 5050),
    ENTRY(StreamDestroy, 4000),
    ENTRY(StreamQuery, 2000),
    ENTRY(StreamWaitEvent, 3020),
    ENTRY(StreamWriteValue32, 11070),
    ENTRY(StreamWriteValue64, 11070),
    ENTRY(StreamBeginCapture, 10010),
    ENTRY(StreamEndCapture, 10000),
    ENTRY(StreamGetCaptureInfo, 11030),
    ENTRY(ThreadExchangeStreamCaptureMode, 10010),
    ENTRY(EventCreate, 2000),
    ENTRY(EventDestroy, 4000),
    ENTRY(EventRecord, 2000),
    ENTRY(EventQuery, 2000),
    ENTRY(GraphInstantiateWithFlags, 11040),
    ENTRY(GraphDestroy, 10000),
    ENTRY(GraphRetainUserObject, 11030),
    ENTRY(UserObjectCreate, 11030),
    ENTRY(UserObjectRelease, 11030),
    ENTRY(GraphLaunch, 10000),
    ENTRY(GraphExecDestroy, 10000),
};

typedef CUresult(CUDAAPI *find_entry)(const char *name, void **pointer, int version,
                                      cuuint64_t flags, CUdriverProcAddressQueryResult *found);

bool cuda_driver_load(cuda_driver *driver, char *reason, size_t capacity) {
    find_entry find = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        const char *text = dlerror();
        snprintf(reason, capacity, "no driver: %s", text != NULL ? text : "libcuda.so.1");
        return false;
    }
    /* ISO C has no cast from object to function pointers, hence the copies. */
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    (void)dlclose(library); /* it stays loaded: NODELETE */
    if (symbol == NULL) {
        snprintf(reason, capacity, "the driver is older than CUDA 12");
        return false;
    }
    memcpy(&find, &symbol, sizeof find);
    for (size_t i = 0; i < sizeof entry_points / sizeof entry_points[0]; i++) {
        const entry_point *entry = &entry_points[i];
        CUdriverProcAddressQueryResult found;
        CUresult result =
            find(entry->name, &symbol, entry->version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
        if (result != CUDA_SUCCESS)
            symbol = NULL;
        if (symbol == NULL && !entry->optional) {
            snprintf(reason, capacity, "the driver has no %s", entry->name);
            return false;
        }
        memcpy((char *)driver + entry->offset, &symbol, sizeof symbol);
    }
    return true;
}

CUresult cuda_driver_init(const cuda_driver *driver) {
    sigset_t before;
    cuda_signals_block(&before);
    CUresult result = driver->Init(0);
    cuda_signals_allow(&before);
    return result;
}
