/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds libnccl and what its version supports, and prevents multicast in it. */
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

#define SINCE_WINDOWS 22700
#define SINCE_DEVICE_POINTERS 22800
#define SINCE_HOST_QUERIES 22900
#define SINCE_SHARED_DEVICES 23000
#define NVLS "NCCL_NVLS_ENABLE"
#define SHARING "NCCL_MULTI_RANK_GPU_ENABLE"

typedef struct entry_point {
    const char *name;
    size_t offset;
} entry_point;

#define ENTRY(member)                                                                              \
    { "nccl" #member, offsetof(nccl_library, member) }

static const entry_point entry_points[] = {
    ENTRY(GetErrorString),
    ENTRY(GetLastError),
    ENTRY(GetUniqueId),
    ENTRY(CommInitRankConfig),
    ENTRY(CommGetAsyncError),
    ENTRY(CommAbort),
    ENTRY(CommWindowRegister),
    ENTRY(CommWindowDeregister),
    ENTRY(CommCount),
    ENTRY(CommUserRank),
    ENTRY(CommCuDevice),
    ENTRY(GroupStart),
    ENTRY(GroupEnd),
    ENTRY(AllReduce),
    ENTRY(ReduceScatter),
    ENTRY(AllGather),
    ENTRY(Broadcast),
    ENTRY(Send),
    ENTRY(Recv),
};

/* SYMMEM_NCCL_LIBRARY is a name or path instead of the usual one. */
static const char *library_name(void) {
    const char *wanted = secure_getenv("SYMMEM_NCCL_LIBRARY");
    return wanted != NULL && *wanted != '\0' ? wanted : "libnccl.so.2";
}

/* ISO C has no cast from object to function pointers, hence the copy. */
static bool find_entry(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* NCCL_VERSION_CODE reads 2.28.9 as 22809. */
void nccl_print_version(int version, char text[16]) {
    (void)snprintf(text, 16, "%d.%d.%d", version / 10000 % 100, version / 100 % 100, version % 100);
}

nccl_resolver nccl_choose_resolver(int library, int built, bool has_kernel, bool has_host_query,
                                   char *reason, size_t capacity) {
    char there[16], here[16];
    nccl_print_version(library, there);
    nccl_print_version(built, here);
    if (library < SINCE_WINDOWS)
        snprintf(reason, capacity, "libnccl %s is too old: windows came with 2.27", there);
    else if (library < SINCE_DEVICE_POINTERS)
        snprintf(reason, capacity, "libnccl %s is too old: pointers to peers came with 2.28",
                 there);
    else if (library >= SINCE_HOST_QUERIES && has_host_query)
        return NCCL_RESOLVE_BY_HOST;
    else if (library >= SINCE_HOST_QUERIES)
        snprintf(reason, capacity, "libnccl %s has no ncclGetPeerDevicePointer or no ncclTeamLsa",
                 there);
    else if (!has_kernel)
        snprintf(reason, capacity,
                 "libnccl %s needs a kernel, and this was built without (no nvcc)", there);
    else if (library / 100 != built / 100) /* 2.28 promises no stable layout on the device */
        snprintf(reason, capacity,
                 "libnccl is %s, but this was built with %s: for 2.28 both have "
                 "to be of one release",
                 there, here);
    else
        return NCCL_RESOLVE_BY_KERNEL;
    return NCCL_RESOLVE_UNSUPPORTED;
}

static bool find_entries(void *handle, nccl_library *library, char *reason, size_t capacity) {
    for (size_t i = 0; i < sizeof entry_points / sizeof entry_points[0]; i++) {
        if (!find_entry(handle, entry_points[i].name, (char *)library + entry_points[i].offset)) {
            snprintf(reason, capacity, "libnccl has no %s", entry_points[i].name);
            return false;
        }
    }
    return true;
}

static bool examine(void *handle, nccl_library *library, char *reason, size_t capacity) {
    if (!find_entry(handle, "ncclGetVersion", &library->GetVersion) ||
        library->GetVersion(&library->version) != ncclSuccess) {
        snprintf(reason, capacity, "libnccl does not tell its version");
        return false;
    }
    bool has_team = find_entry(handle, "ncclTeamLsa", &library->TeamLsa);
    bool has_query = find_entry(handle, "ncclGetPeerDevicePointer", &library->GetPeerDevicePointer);
    library->resolver =
        nccl_choose_resolver(library->version, NCCL_VERSION_CODE, nccl_image() != NULL && has_team,
                             has_query && has_team, reason, capacity);
    return library->resolver != NCCL_RESOLVE_UNSUPPORTED &&
           find_entries(handle, library, reason, capacity);
}

/* A thread that checks whether the library is in use must not see it here for a moment. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool load(nccl_library *library, bool stay, char *reason, size_t capacity) {
    memset(library, 0, sizeof *library);
    void *handle = dlopen(library_name(), RTLD_NOW | RTLD_LOCAL | (stay ? RTLD_NODELETE : 0));
    if (handle == NULL) {
        const char *text = dlerror();
        snprintf(reason, capacity, "no libnccl: %s", text != NULL ? text : library_name());
        return false;
    }
    bool usable = examine(handle, library, reason, capacity);
    (void)dlclose(handle);
    return usable;
}

bool nccl_library_load(nccl_library *library, bool stay, char *reason, size_t capacity) {
    pthread_mutex_lock(&lock);
    const bool usable = load(library, stay, reason, capacity);
    pthread_mutex_unlock(&lock);
    return usable;
}

/* NCCL reads a number of any base, and so reads a text that is no number as 0. */
bool nccl_allows_sharing(void) {
    char reason[200];
    nccl_library library;
    const char *asked = getenv(SHARING);
    return asked != NULL && strtoll(asked, NULL, 0) != 0 &&
           nccl_library_load(&library, false, reason, sizeof reason) &&
           library.version >= SINCE_SHARED_DEVICES;
}

/* The environment and NCCL's own parameters belong to the process, so there is no narrower
 * scope. */
bool nccl_forbid_multicast(const char *because, bool *set_p, char *reason, size_t capacity) {
    bool forbidden = false;
    *set_p = false;
    pthread_mutex_lock(&lock);
    const char *value = getenv(NVLS);
    void *loaded = value == NULL ? dlopen(library_name(), RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (value != NULL && strcmp(value, "0") == 0)
        forbidden = true;
    else if (value != NULL)
        snprintf(reason, capacity, "%s, but " NVLS "=%.20s", because, value);
    else if (loaded != NULL)
        snprintf(reason, capacity,
                 "%s, and libnccl is in use already: set " NVLS "=0 before the program starts",
                 because);
    else if (setenv(NVLS, "0", 1) != 0)
        snprintf(reason, capacity, "cannot set " NVLS "=0");
    else
        *set_p = forbidden = true;
    if (loaded != NULL)
        (void)dlclose(loaded);
    pthread_mutex_unlock(&lock);
    return forbidden;
}
