/* SPDX-License-Identifier: BSD-3-Clause */
/* libnccl's entry points, found at run time: nothing here is linked with it. */
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
    int rank; /* the own one's place */
    int stride;
} nccl_team;

/* How pointers to peers' parts of a window are found. */
typedef enum nccl_resolver {
    NCCL_RESOLVE_NOT,
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
    /* NULL where a kernel asks. */
    ncclResult_t (*GetPeerDevicePointer)(ncclWindow_t window, size_t offset, int peer,
                                         void **pointer_p);
} nccl_library;

/* As people write it. */
void nccl_print_version(int version, char text[16]);

/*
 * What can be done with a library of version `library`, for a backend compiled with headers of
 * version `built` (which its kernel has to match) and with or without that kernel. NOT: a reason.
 */
nccl_resolver nccl_choose_resolver(int library, int built, bool has_kernel, bool has_host_query,
                                   char *reason, size_t capacity);

/* False with a reason if there is no library or one that will not do. `stay`: it is never unloaded
 * again, for threads of its own may run its code. Calls nothing of NCCL but ncclGetVersion. */
bool nccl_library_load(nccl_library *library, bool stay, char *reason, size_t capacity);

/*
 * Whether ranks may share a device: NCCL allows that from 2.30 on where the environment asks for it
 * by NCCL_MULTI_RANK_GPU_ENABLE=1. Only then is the library loaded, and unloaded again.
 */
bool nccl_allows_sharing(void);

/*
 * Sees to it that NCCL makes no multicast objects: NCCL_NVLS_ENABLE=0 has to stand in the
 * environment before NCCL's first call in the process. Before nccl_library_load. False with a
 * reason where the environment says something else, or it may be too late; *set_p: was set here.
 * `because`: what the reason begins with.
 */
bool nccl_forbid_multicast(const char *because, bool *set_p, char *reason, size_t capacity);

#endif
