/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of symmem-nccl-check share. */
#ifndef SYMMEM_NCCL_CHECK_H
#define SYMMEM_NCCL_CHECK_H

#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/backend.h>
#include <symmem/symmem.h>
#include <unistd.h>

#define LIMIT_MS 30000u
#define BYTES 1048576u /* of this rank's block */

/* The driver's and NCCL's entries, found at run time as the plug-in finds them. Each by its name
 * here and the header's, which is a macro for the symbol's. */
/* clang-format off */
#define CUDA_CALLS(CALL) \
    CALL(Init, cuInit) CALL(DeviceGetCount, cuDeviceGetCount) \
    CALL(CtxRetain, cuDevicePrimaryCtxRetain) CALL(CtxRelease, cuDevicePrimaryCtxRelease) \
    CALL(CtxSetCurrent, cuCtxSetCurrent) CALL(CtxSynchronize, cuCtxSynchronize) \
    CALL(ModuleLoadData, cuModuleLoadData) CALL(ModuleGetFunction, cuModuleGetFunction) \
    CALL(ModuleGetGlobal, cuModuleGetGlobal) CALL(LaunchKernel, cuLaunchKernel) \
    CALL(MemcpyDtoH, cuMemcpyDtoH) CALL(MemcpyHtoD, cuMemcpyHtoD)
#define NCCL_CALLS(CALL) \
    CALL(GetVersion, ncclGetVersion) CALL(GetUniqueId, ncclGetUniqueId) \
    CALL(CommInitRankConfig, ncclCommInitRankConfig) \
    CALL(CommGetAsyncError, ncclCommGetAsyncError) CALL(CommAbort, ncclCommAbort)
/* clang-format on */
typedef struct entries {
#define MEMBER(member, call) __typeof__(call) *member;
    CUDA_CALLS(MEMBER)
    NCCL_CALLS(MEMBER)
#undef MEMBER
    /* Their headers are not C. */
    ncclResult_t (*DevCommCreate)(ncclComm_t comm, const void *requirements, void *dev_comm);
    ncclResult_t (*DevCommDestroy)(ncclComm_t comm, const void *dev_comm);
} entries;

typedef struct check {
    entries api;
    int rank, world, failures;
    int device;  /* ranks beyond the number of devices share them, where NCCL allows it */
    int version; /* of libnccl */
    symmem_context *context;
    symmem_group *group;
    ncclComm_t comm; /* the user's */
    symmem_handle *handle;
    void *memory;
    const char *slow_point; /* where this rank is late, once, and how long */
    uint32_t late_ms;
} check;

/* entries.c */
/* False with a reason: this machine has nothing to check. */
bool find_entries(check *c, char *reason, size_t capacity);
bool wait_ready(check *c, ncclComm_t comm, uint32_t limit_ms);

/* Prints one line. */
void say(const check *c, const char *what, bool good, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* What this machine cannot show: no line of what is good. */
void skip(const check *c, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define EXPECT(c, what, condition, ...)                                                            \
    do {                                                                                           \
        bool good_ = (condition);                                                                  \
        say((c), (what), good_, __VA_ARGS__);                                                      \
        (c)->failures += !good_;                                                                   \
    } while (0)

#define EXPECT_OK(c, what, call)                                                                   \
    do {                                                                                           \
        symmem_status status_ = (call);                                                            \
        EXPECT((c), (what), status_ == SYMMEM_OK, "%s", symmem_status_name(status_));              \
    } while (0)

uint64_t now_ms(void);

/* device_barrier.c */
void check_device_barrier(check *c);
/* apart.c */
void check_apart(check *c);
/* late.c */
void check_late(check *c);

#endif
