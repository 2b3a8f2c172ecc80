/* SPDX-License-Identifier: BSD-3-Clause */
/* libnccl's entry points, found at run time. Nothing here is linked with it. */
#ifndef SYMMEM_NCCL_LIBRARY_H
#define SYMMEM_NCCL_LIBRARY_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

#if !defined(NCCL_VERSION_CODE) || NCCL_VERSION_CODE < 22700
#error "backend_nccl needs the nccl.h of NCCL 2.27 or later: earlier ones have no windows"
#endif

/* ncclTeam, whose header is not C. */
typedef struct nccl_team {
    int rank_count;
    int rank; /* this rank's index */
    int stride;
} nccl_team;

/* How pointers to peers' parts of a window are obtained. */
typedef enum nccl_resolver {
    NCCL_RESOLVE_UNSUPPORTED,
    NCCL_RESOLVE_BY_KERNEL, /* 2.28, by the kernel of resolve.cu */
    NCCL_RESOLVE_BY_HOST,   /* 2.29 and later: ncclGetPeerDevicePointer */
} nccl_resolver;

typedef struct nccl_library {
    int version;
    nccl_resolver resolver;
    __typeof__(ncclGetVersion) *GetVersion;
    __typeof__(ncclGetErrorString) *GetErrorString;
    __typeof__(ncclGetLastError) *GetLastError;
    __typeof__(ncclGetUniqueId) *GetUniqueId;
    __typeof__(ncclCommInitRankConfig) *CommInitRankConfig;
    __typeof__(ncclCommGetAsyncError) *CommGetAsyncError;
    __typeof__(ncclCommAbort) *CommAbort;
    __typeof__(ncclCommCount) *CommCount;
    __typeof__(ncclCommUserRank) *CommUserRank;
    __typeof__(ncclCommCuDevice) *CommCuDevice;
    __typeof__(ncclCommWindowRegister) *CommWindowRegister;
    __typeof__(ncclCommWindowDeregister) *CommWindowDeregister;
    __typeof__(ncclGroupStart) *GroupStart;
    __typeof__(ncclGroupEnd) *GroupEnd;
    __typeof__(ncclAllReduce) *AllReduce;
    __typeof__(ncclReduceScatter) *ReduceScatter;
    __typeof__(ncclAllGather) *AllGather;
    __typeof__(ncclBroadcast) *Broadcast;
    __typeof__(ncclSend) *Send;
    __typeof__(ncclRecv) *Recv;
    nccl_team (*TeamLsa)(ncclComm_t comm);
    /* NULL if a kernel asks. */
    ncclResult_t (*GetPeerDevicePointer)(ncclWindow_t window, size_t offset, int peer,
                                         void **pointer_p);
} nccl_library;

/* Writes the usual notation, as 2.28.9. */
void nccl_print_version(int version, char text[16]);

/*
 * Returns what a library of version `library` supports, for a backend compiled with headers of
 * version `built` (which its kernel has to match) and with or without that kernel. UNSUPPORTED
 * comes with a reason.
 */
nccl_resolver nccl_choose_resolver(int library, int built, bool has_kernel, bool has_host_query,
                                   char *reason, size_t capacity);

/* Returns false with a reason if there is no library or an unusable one. `stay`: the library is
 * never unloaded again, because threads of its own may run its code. Calls nothing of NCCL but
 * ncclGetVersion. */
bool nccl_library_load(nccl_library *library, bool stay, char *reason, size_t capacity);

/*
 * Returns whether ranks may share a device. NCCL allows that from 2.30 on if the environment has
 * NCCL_MULTI_RANK_GPU_ENABLE=1. Only then the library is loaded, and unloaded again.
 */
bool nccl_allows_sharing(void);

/*
 * Ensures that NCCL makes no multicast objects. NCCL_NVLS_ENABLE=0 has to be in the environment
 * before NCCL's first call in the process. Call it before nccl_library_load. Returns false with a
 * reason if the environment says something else, or if it may be too late. *set_p: the variable was
 * set here. `because`: the start of the reason.
 */
bool nccl_forbid_multicast(const char *because, bool *set_p, char *reason, size_t capacity);

#endif
