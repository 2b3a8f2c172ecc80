/* SPDX-License-Identifier: BSD-3-Clause */
/* By NVML, found when it is needed; its types are declared here, for its header is seldom there. */
#include "device_used.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define NVML_SUCCESS 0
#define MAX_PROCESSES 1024
#define NOT_KNOWN (~0ULL)

struct nvml_process {
    unsigned int pid;
    unsigned long long used_bytes;
    unsigned int gpu_instance, compute_instance;
};

static struct {
    pthread_once_t once;
    bool there;
    int (*init)(void);
    int (*count)(unsigned int *count);
    int (*handle)(unsigned int index, void **device);
    int (*processes)(void *device, unsigned int *count, struct nvml_process *processes);
} nvml = {.once = PTHREAD_ONCE_INIT};

/* ISO C has no cast from object to function. */
static bool find(void *library, const char *name, void *entry) {
    void *symbol = dlsym(library, name);

    memcpy(entry, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static void load(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (library == NULL)
        return;
    nvml.there = find(library, "nvmlInit_v2", &nvml.init) &&
                 find(library, "nvmlDeviceGetCount_v2", &nvml.count) &&
                 find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.handle) &&
                 find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes) &&
                 nvml.init() == NVML_SUCCESS;
    (void)dlclose(library); /* it stays: NODELETE */
}

static uint64_t used_of(unsigned int index) {
    static __thread struct nvml_process processes[MAX_PROCESSES];
    unsigned int count = MAX_PROCESSES;
    uint64_t used = 0;
    void *device;

    if (nvml.handle(index, &device) != NVML_SUCCESS ||
        nvml.processes(device, &count, processes) != NVML_SUCCESS)
        return 0;
    for (unsigned int i = 0; i < count && i < MAX_PROCESSES; i++)
        if (processes[i].pid == (unsigned int)getpid() && processes[i].used_bytes != NOT_KNOWN)
            used += processes[i].used_bytes;
    return used;
}

uint64_t device_used_bytes(void) {
    unsigned int count = 0;
    uint64_t used = 0;

    (void)pthread_once(&nvml.once, load);
    if (!nvml.there || nvml.count(&count) != NVML_SUCCESS)
        return 0;
    for (unsigned int i = 0; i < count; i++)
        used += used_of(i);
    return used;
}
