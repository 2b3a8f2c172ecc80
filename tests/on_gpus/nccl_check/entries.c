/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <stdarg.h>
#include <time.h>

#include "check.h"

uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void say(const check *c, const char *what, bool good, const char *format, ...) {
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("rank %d: %s: %s: %s\n", c->rank, good ? "good" : "BAD", what, text);
    fflush(stdout);
}

void skip(const check *c, const char *what, const char *format, ...) {
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("rank %d: SKIPPED: %s: %s\n", c->rank, what, text);
    fflush(stdout);
}

typedef struct entry {
    const char *name;
    size_t offset;
} entry;

#define SYMBOL(call) #call
#define ENTRY(member, call) {SYMBOL(call), offsetof(entries, member)},

static const entry of_cuda[] = {CUDA_CALLS(ENTRY)};
static const entry of_nccl[] = {NCCL_CALLS(ENTRY) ENTRY(DevCommCreate, ncclDevCommCreate)
                                    ENTRY(DevCommDestroy, ncclDevCommDestroy)};

static bool find_all(entries *api, const char *library, const entry *list, size_t count,
                     char *reason, size_t capacity) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        snprintf(reason, capacity, "%s", dlerror());
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(handle, list[i].name);
        if (symbol == NULL) {
            snprintf(reason, capacity, "%s has no %s", library, list[i].name);
            return false;
        }
        memcpy((char *)api + list[i].offset, &symbol, sizeof symbol);
    }
    return true;
}

bool find_entries(check *c, char *reason, size_t capacity) {
    const char *library = getenv("SYMMEM_NCCL_LIBRARY");
    if (library == NULL || *library == '\0')
        library = "libnccl.so.2";
    if (!find_all(&c->api, "libcuda.so.1", of_cuda, sizeof of_cuda / sizeof of_cuda[0], reason,
                  capacity) ||
        !find_all(&c->api, library, of_nccl, sizeof of_nccl / sizeof of_nccl[0], reason, capacity))
        return false;
    CUresult result = c->api.Init(0);
    if (result != CUDA_SUCCESS)
        snprintf(reason, capacity, "cuInit answers %d", (int)result);
    return result == CUDA_SUCCESS && c->api.GetVersion(&c->version) == ncclSuccess;
}

bool wait_ready(check *c, ncclComm_t comm, uint32_t limit_ms) {
    uint64_t begin_ms = now_ms();
    ncclResult_t state = ncclInProgress;
    const struct timespec pause = {.tv_nsec = 1000000};
    while (c->api.CommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress &&
           now_ms() - begin_ms < limit_ms)
        nanosleep(&pause, NULL);
    return state == ncclSuccess;
}
