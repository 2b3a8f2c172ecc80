/* SPDX-License-Identifier: BSD-3-Clause */
/* The entries of the management library that backend_cuda uses, on a table. Not the library. */
#include "fake_nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NOT_FOUND 6
#define INVALID_ARGUMENT 2
#define UNINITIALIZED 1
#define NOT_SUPPORTED 3
#define NO_PERMISSION 4
#define INSUFFICIENT_SIZE 7

typedef struct nvml_pci {
    char legacy_id[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char id[32];
} nvml_pci;

typedef struct nvml_process {
    unsigned int pid;
    unsigned long long used_bytes;
    unsigned int gpu_instance, compute_instance;
} nvml_process;

EXPORT extern fake_nvml_state fake_nvml;
fake_nvml_state fake_nvml = {.unknown_device = -1};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device);
EXPORT int nvmlDeviceGetCount_v2(unsigned int *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const int *links, unsigned int *count,
                                                   nvml_process *processes);
EXPORT int nvmlDeviceGetNvLinkState(const int *links, unsigned int link, unsigned int *active);
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(const int *links, unsigned int link,
                                               unsigned int *type);
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(const int *links, unsigned int link, nvml_pci *pci);

int nvmlInit_v2(void) {
    if (fake_nvml.refuses_start)
        return 999;
    fake_nvml.starts++;
    return 0;
}

int nvmlShutdown(void) {
    fake_nvml.starts--;
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
    unsigned int domain, bus, place;
    if (fake_nvml.starts < 1)
        return UNINITIALIZED;
    if (sscanf(id, "%x:%x:%x.0", &domain, &bus, &place) != 3 || domain != 0 || bus < 0x10 ||
        bus - 0x10 >= FAKE_NVML_DEVICES || place != bus - 0x10 ||
        (int)place == fake_nvml.unknown_device)
        return NOT_FOUND;
    *device = fake_nvml.links[place];
    return 0;
}

/* FAKE_NVML_PROCESSES says how the fake answers. none: it does not know processes; unused: it
 * knows none here; twice: it names each once for every half of the device; hidden: one device is
 * refused. */
static bool is_so(const char *manner) {
    const char *wanted = getenv("FAKE_NVML_PROCESSES");
    return wanted != NULL && strcmp(wanted, manner) == 0;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = is_so("hidden") ? 2 : 1;
    return fake_nvml.starts < 1 ? UNINITIALIZED : 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    *device = fake_nvml.links[0];
    return index == 0 ? 0 : is_so("hidden") ? NO_PERMISSION : INVALID_ARGUMENT;
}

/* What the fake driver says; 0: there is none. */
static size_t ask_driver(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = driver != NULL ? dlsym(driver, name) : NULL;
    size_t (*ask)(void);
    memcpy(&ask, &symbol, sizeof symbol);
    size_t answer = symbol != NULL ? ask() : 0;
    if (driver != NULL)
        (void)dlclose(driver);
    return answer;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const int *links, unsigned int *count,
                                            nvml_process *processes) {
    const size_t used = ask_driver("fake_device_bytes"), others = ask_driver("fake_others_bytes");
    const unsigned int halves = is_so("twice") ? 2 : 1;
    if (used == 0 || is_so("none"))
        return NOT_SUPPORTED;
    if (*count < 2 * halves)
        return INSUFFICIENT_SIZE;
    *count = 0;
    for (unsigned int half = 0; half < halves && !is_so("unused"); half++) {
        if (others != 0)
            processes[(*count)++] = (nvml_process){(unsigned int)getppid(), others, half, 0};
        processes[(*count)++] = (nvml_process){(unsigned int)getpid(), used / halves, half, 0};
    }
    return 0;
}

int nvmlDeviceGetNvLinkState(const int *links, unsigned int link, unsigned int *active) {
    if (link >= FAKE_NVML_LINKS || links[link] == LINK_NONE)
        return INVALID_ARGUMENT;
    *active = links[link] != LINK_OFF;
    return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(const int *links, unsigned int link, unsigned int *type) {
    if (link >= FAKE_NVML_LINKS || links[link] <= LINK_OFF)
        return INVALID_ARGUMENT;
    *type = links[link] == LINK_SWITCH ? 2 : links[link] == LINK_OTHER ? 1 : 0;
    return 0;
}

/* Behind a switch: all ones, as in a virtual machine. */
int nvmlDeviceGetNvLinkRemotePciInfo_v2(const int *links, unsigned int link, nvml_pci *pci) {
    if (link >= FAKE_NVML_LINKS || links[link] <= LINK_OFF)
        return INVALID_ARGUMENT;
    memset(pci, 0xff, sizeof *pci);
    if (links[link] < LINK_GPU)
        return 0;
    pci->domain = 0;
    pci->device = (unsigned int)(links[link] - LINK_GPU);
    pci->bus = 0x10 + pci->device;
    return 0;
}
