/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver's entry points, found at run time. Nothing here is linked with the driver. */
#ifndef SYMMEM_CUDA_DRIVER_H
#define SYMMEM_CUDA_DRIVER_H

#include <cuda.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* Each member has the type that cuda.h declares. Its names stand for the newest versions. */
typedef struct cuda_driver {
    __typeof__(cuInit) *Init;
    __typeof__(cuGetErrorName) *GetErrorName;
    __typeof__(cuDeviceGet) *DeviceGet;
    __typeof__(cuDriverGetVersion) *DriverGetVersion;
    __typeof__(cuDeviceGetCount) *DeviceGetCount;
    __typeof__(cuDeviceGetName) *DeviceGetName;
    __typeof__(cuDeviceTotalMem) *DeviceTotalMem;
    __typeof__(cuDeviceGetUuid) *DeviceGetUuid;
    __typeof__(cuDeviceGetP2PAttribute) *DeviceGetP2PAttribute; /* NULL: the driver has none */
    __typeof__(cuDeviceGetAttribute) *DeviceGetAttribute;
    __typeof__(cuDevicePrimaryCtxGetState) *DevicePrimaryCtxGetState;
    __typeof__(cuDevicePrimaryCtxRetain) *DevicePrimaryCtxRetain;
    __typeof__(cuDevicePrimaryCtxRelease) *DevicePrimaryCtxRelease;
    __typeof__(cuCtxPushCurrent) *CtxPushCurrent;
    __typeof__(cuCtxPopCurrent) *CtxPopCurrent;
    __typeof__(cuCtxGetCurrent) *CtxGetCurrent;
    __typeof__(cuCtxGetDevice) *CtxGetDevice;
    __typeof__(cuCtxGetId) *CtxGetId; /* NULL: the driver has none */
    __typeof__(cuModuleLoadData) *ModuleLoadData;
    __typeof__(cuModuleUnload) *ModuleUnload;
    __typeof__(cuModuleGetFunction) *ModuleGetFunction;
    CUresult(CUDAAPI *FuncLoad)(CUfunction function); /* since 12.4; NULL: the driver has none */
    __typeof__(cuLaunchKernel) *LaunchKernel;
    __typeof__(cuLaunchHostFunc) *LaunchHostFunc;
    __typeof__(cuPointerGetAttributes) *PointerGetAttributes;
    __typeof__(cuMemGetInfo) *MemGetInfo;
    __typeof__(cuMemHostAlloc) *MemHostAlloc;
    __typeof__(cuMemFreeHost) *MemFreeHost;
    __typeof__(cuMemFreeAsync) *MemFreeAsync;
    __typeof__(cuMemPoolCreate) *MemPoolCreate;
    __typeof__(cuMemPoolDestroy) *MemPoolDestroy;
    __typeof__(cuMemPoolSetAttribute) *MemPoolSetAttribute;
    __typeof__(cuMemAllocFromPoolAsync) *MemAllocFromPoolAsync;
    __typeof__(cuMemGetAllocationGranularity) *MemGetAllocationGranularity;
    __typeof__(cuMemCreate) *MemCreate;
    __typeof__(cuMemRelease) *MemRelease;
    __typeof__(cuMemAddressReserve) *MemAddressReserve;
    __typeof__(cuMemAddressFree) *MemAddressFree;
    __typeof__(cuMemMap) *MemMap;
    __typeof__(cuMemUnmap) *MemUnmap;
    __typeof__(cuMemSetAccess) *MemSetAccess;
    __typeof__(cuMemExportToShareableHandle) *MemExportToShareableHandle;
    __typeof__(cuMemImportFromShareableHandle) *MemImportFromShareableHandle;
    __typeof__(cuMemcpyAsync) *MemcpyAsync;
    __typeof__(cuMemsetD8Async) *MemsetD8Async;
    __typeof__(cuMemsetD32Async) *MemsetD32Async;
    __typeof__(cuStreamCreate) *StreamCreate;
    __typeof__(cuCtxGetStreamPriorityRange) *CtxGetStreamPriorityRange;
    __typeof__(cuStreamCreateWithPriority) *StreamCreateWithPriority;
    __typeof__(cuStreamDestroy) *StreamDestroy;
    __typeof__(cuStreamQuery) *StreamQuery;
    __typeof__(cuStreamWaitEvent) *StreamWaitEvent;
    __typeof__(cuStreamWriteValue32) *StreamWriteValue32;
    __typeof__(cuStreamWriteValue64) *StreamWriteValue64;
    __typeof__(cuStreamBeginCapture) *StreamBeginCapture;
    __typeof__(cuStreamEndCapture) *StreamEndCapture;
    /* Its second version, because the third differs between toolkits. */
    CUresult(CUDAAPI *StreamGetCaptureInfo)(CUstream stream, CUstreamCaptureStatus *status,
                                            cuuint64_t *id, CUgraph *graph,
                                            const CUgraphNode **dependencies, size_t *count);
    __typeof__(cuThreadExchangeStreamCaptureMode) *ThreadExchangeStreamCaptureMode;
    __typeof__(cuEventCreate) *EventCreate;
    __typeof__(cuEventDestroy) *EventDestroy;
    __typeof__(cuEventRecord) *EventRecord;
    __typeof__(cuEventQuery) *EventQuery;
    __typeof__(cuGraphInstantiateWithFlags) *GraphInstantiateWithFlags;
    __typeof__(cuGraphDestroy) *GraphDestroy;
    __typeof__(cuGraphRetainUserObject) *GraphRetainUserObject;
    __typeof__(cuUserObjectCreate) *UserObjectCreate;
    __typeof__(cuUserObjectRelease) *UserObjectRelease;
    __typeof__(cuGraphLaunch) *GraphLaunch;
    __typeof__(cuGraphExecDestroy) *GraphExecDestroy;
} cuda_driver;

/* Returns false with a reason if there is no driver, or one that is too old. The library stays
 * loaded. */
bool cuda_driver_load(cuda_driver *driver, char *reason, size_t capacity);
CUresult cuda_driver_init(const cuda_driver *driver);

/* Signals belong to the program. A thread inherits its mask from its creator, so the backend's
 * threads and the driver's are started between these two calls. */
void cuda_signals_block(sigset_t *before);
void cuda_signals_allow(const sigset_t *before);

#endif
