/* SPDX-License-Identifier: BSD-3-Clause */
/* By NVML, found when it is needed; its types are declared here, for its header is seldom there. */
#include "device_used.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define NVML_SUCCESS 0
#define NVML_NO_PERMISSION 4
#define MAX_PROCESSES 256
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

/* False: it does not say. */
static bool add_processes(const struct nvml_process *processes, unsigned int count,
                          struct device_use *use) {
    int own = 0;
    for (unsigned int i = 0; i < count; i++) {
        if (processes[i].pid != (unsigned int)getpid())
            continue;
        if (processes[i].used_bytes == NOT_KNOWN)
            return false;
        use->bytes += processes[i].used_bytes;
        own++; /* it may be there once for each part of a device */
    }
    use->others += own > 0 ? (int)count - own : 0;
    return true;
}

/* Those that the process may not use are counted too, and refused. */
static bool add_device(unsigned int index, struct device_use *use) {
    struct nvml_process processes[MAX_PROCESSES];
    unsigned int count = MAX_PROCESSES;
    void *device;
    int result = nvml.handle(index, &device);
    if (result == NVML_NO_PERMISSION)
        return true;
    return result == NVML_SUCCESS && nvml.processes(device, &count, processes) == NVML_SUCCESS &&
           count <= MAX_PROCESSES && add_processes(processes, count, use);
}

bool device_use_take(struct device_use *use) {
    unsigned int count = 0;
    *use = (struct device_use){0};
    (void)pthread_once(&nvml.once, load);
    if (!nvml.there || nvml.count(&count) != NVML_SUCCESS)
        return false;
    for (unsigned int i = 0; i < count; i++)
        if (!add_device(i, use))
            return false;
    return use->bytes > 0;
}
