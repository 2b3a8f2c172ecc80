/* SPDX-License-Identifier: BSD-3-Clause */
/* The matrix of NVLinks. The library's types are declared here, because its header is rarely
 * installed. */
#include "driver/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINKS 36 /* Hopper and Blackwell have 18; links that do not exist answer an error */
#define NVML_SUCCESS 0
#define NVML_INVALID_ARGUMENT 2
#define NVML_NOT_SUPPORTED 3
#define REMOTE_GPU 0
#define REMOTE_SWITCH 2

typedef struct nvml_device *nvml_device;

typedef struct nvml_pci {
    char legacy_id[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char id[32];
} nvml_pci;

_Static_assert(sizeof(nvml_pci) == 68, "as the library has it");

typedef struct nvml_entries {
    int (*init)(void);
    int (*handle_by_pci)(const char *id, nvml_device *device);
    int (*link_state)(nvml_device device, unsigned int link, unsigned int *active);
    int (*remote_type)(nvml_device device, unsigned int link, unsigned int *type);
    int (*remote_pci)(nvml_device device, unsigned int link, nvml_pci *pci);
} nvml_entries;

/* The counts: direct[i * count + j] at i's end, switches[i]. */
typedef struct link_tally {
    int32_t count;
    const cuda_pci_address *places;
    int32_t *direct, *switches;
} link_tally;

static bool find_entries(void *library, nvml_entries *nvml, char *reason, size_t capacity) {
    const struct {
        const char *name;
        void *entry;
    } entries[] = {
        {"nvmlInit_v2", &nvml->init},
        {"nvmlDeviceGetHandleByPciBusId_v2", &nvml->handle_by_pci},
        {"nvmlDeviceGetNvLinkState", &nvml->link_state},
        {"nvmlDeviceGetNvLinkRemoteDeviceType", &nvml->remote_type},
        {"nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvml->remote_pci},
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *symbol = dlsym(library, entries[i].name);
        if (symbol == NULL) {
            snprintf(reason, capacity, "the management library has no %s", entries[i].name);
            return false;
        }
        /* ISO C has no cast from object to function pointers, hence the copy. */
        memcpy(entries[i].entry, &symbol, sizeof symbol);
    }
    return true;
}

static void count_direct(const link_tally *tally, int32_t i, const nvml_pci *remote) {
    for (int32_t j = 0; j < tally->count; j++) {
        const cuda_pci_address *place = &tally->places[j];
        if (j != i && place->domain == remote->domain && place->bus == remote->bus &&
            place->device == remote->device)
            tally->direct[(size_t)i * (size_t)tally->count + (size_t)j]++;
    }
}

/* A device without such a link says so. Any other error would make the matrix too small. */
static bool is_no_link(int error) {
    return error == NVML_INVALID_ARGUMENT || error == NVML_NOT_SUPPORTED;
}

static int count_link(const nvml_entries *nvml, const link_tally *tally, int32_t i,
                      nvml_device device, unsigned int link) {
    unsigned int active = 0, type = 0;
    nvml_pci remote;
    int error = nvml->link_state(device, link, &active);
    if (error != NVML_SUCCESS || active == 0)
        return is_no_link(error) ? NVML_SUCCESS : error;
    error = nvml->remote_type(device, link, &type);
    if (error == NVML_SUCCESS && type == REMOTE_SWITCH)
        tally->switches[i]++;
    if (error != NVML_SUCCESS || type != REMOTE_GPU)
        return is_no_link(error) ? NVML_SUCCESS : error;
    error = nvml->remote_pci(device, link, &remote);
    if (error == NVML_SUCCESS)
        count_direct(tally, i, &remote);
    return error;
}

/* All links are queried, because one that is switched off does not end the list. */
static int count_links(const nvml_entries *nvml, const link_tally *tally, int32_t i,
                       nvml_device device) {
    int error = NVML_SUCCESS;
    for (unsigned int link = 0; link < MAX_LINKS && error == NVML_SUCCESS; link++)
        error = count_link(nvml, tally, i, device, link);
    return error;
}

static bool count_all(const nvml_entries *nvml, const link_tally *tally, char *reason,
                      size_t capacity) {
    for (int32_t i = 0; i < tally->count; i++) {
        const cuda_pci_address *place = &tally->places[i];
        nvml_device device;
        char id[32];
        snprintf(id, sizeof id, "%08x:%02x:%02x.0", place->domain, place->bus, place->device);
        int error = nvml->handle_by_pci(id, &device);
        if (error != NVML_SUCCESS) {
            snprintf(reason, capacity, "the management library does not know %s (%d)", id, error);
            return false;
        }
        error = count_links(nvml, tally, i, device);
        if (error != NVML_SUCCESS) {
            snprintf(reason, capacity, "the management library failed at %s's links (%d)", id,
                     error);
            return false;
        }
    }
    return true;
}

static int32_t smaller(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static void write_matrix(const link_tally *tally, int32_t *matrix) {
    const size_t count = (size_t)tally->count;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++)
            matrix[i * count + j] =
                i == j ? 0
                       : smaller(tally->direct[i * count + j], tally->direct[j * count + i]) +
                             smaller(tally->switches[i], tally->switches[j]);
}

/* The library stays initialized. Each start after a stop would leak a descriptor. */
static bool ask_nvml(const nvml_entries *nvml, int32_t count, const cuda_pci_address *places,
                     int32_t *matrix, char *reason, size_t capacity) {
    link_tally tally = {.count = count, .places = places};
    bool told = false;
    int error = nvml->init();
    if (error != NVML_SUCCESS) {
        snprintf(reason, capacity, "the management library does not start (%d)", error);
        return false;
    }
    tally.direct = calloc((size_t)count * ((size_t)count + 1), sizeof *tally.direct);
    if (tally.direct == NULL) {
        snprintf(reason, capacity, "no memory");
    } else {
        tally.switches = tally.direct + (size_t)count * (size_t)count;
        told = count_all(nvml, &tally, reason, capacity);
    }
    if (told)
        write_matrix(&tally, matrix);
    free(tally.direct);
    return told;
}

/* The library is the process's. With driver 580 two threads that queried at once got different
 * links. */
static pthread_mutex_t nvml_lock = PTHREAD_MUTEX_INITIALIZER;

bool cuda_nvml_links(const char *name, int32_t count, const cuda_pci_address *places,
                     int32_t *matrix, char *reason, size_t capacity) {
    nvml_entries nvml;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        const char *text = dlerror();
        snprintf(reason, capacity, "no management library: %s", text != NULL ? text : name);
        return false;
    }
    bool told = find_entries(library, &nvml, reason, capacity);
    if (told) {
        (void)pthread_mutex_lock(&nvml_lock);
        told = ask_nvml(&nvml, count, places, matrix, reason, capacity);
        (void)pthread_mutex_unlock(&nvml_lock);
    }
    (void)dlclose(library);
    return told;
}
