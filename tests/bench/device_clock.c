/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver's timed events. Its few entry points are declared here, so that symmem-bench is built
 * without CUDA's headers, too. */
#include "device_clock.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 96
#define US_PER_MS 1000.0
enum { SUCCESS = 0, STREAM_NON_BLOCKING = 1, EVENT_TIMED = 0 };

/* Results are CUresult, handles pointers, a CUdevice is a number. */
typedef struct clock_driver {
    int (*device_get)(int *device, int ordinal);
    int (*device_name)(char *name, int capacity, int device);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*stream_create)(void **stream, unsigned int flags);
    int (*stream_destroy)(void *stream);
    int (*event_create)(void **event, unsigned int flags);
    int (*event_record)(void *event, void *stream);
    int (*event_elapsed)(float *ms, void *start, void *end);
    int (*event_destroy)(void *event);
} clock_driver;

/* With the version that has the parameters above. */
typedef struct entry {
    const char *name;
    int version;
    size_t offset;
} entry;

static const entry entries[] = {
    {"cuDeviceGet", 2000, offsetof(clock_driver, device_get)},
    {"cuDeviceGetName", 2000, offsetof(clock_driver, device_name)},
    {"cuDevicePrimaryCtxRetain", 7000, offsetof(clock_driver, retain)},
    {"cuDevicePrimaryCtxRelease", 11000, offsetof(clock_driver, release)},
    {"cuCtxPushCurrent", 4000, offsetof(clock_driver, push)},
    {"cuCtxPopCurrent", 4000, offsetof(clock_driver, pop)},
    {"cuStreamCreate", 2000, offsetof(clock_driver, stream_create)},
    {"cuStreamDestroy", 4000, offsetof(clock_driver, stream_destroy)},
    {"cuEventCreate", 2000, offsetof(clock_driver, event_create)},
    {"cuEventRecord", 2000, offsetof(clock_driver, event_record)},
    {"cuEventElapsedTime", 2000, offsetof(clock_driver, event_elapsed)},
    {"cuEventDestroy", 4000, offsetof(clock_driver, event_destroy)},
};

struct device_clock {
    clock_driver driver;
    int device;
    void *context; /* NULL: not retained */
    void *stream;
    void *events[DEVICE_CLOCK_MARKS];
    char name[NAME_BYTES];
};

static bool load(clock_driver *self) {
    int (*find)(const char *name, void **entry, int version, uint64_t flags, int *found) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *symbol = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (library != NULL)
        (void)dlclose(library); /* it stays: NODELETE */
    if (symbol == NULL)
        return false;
    memcpy(&find, &symbol, sizeof find); /* ISO C has no cast from object to function */
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        int found = 0;
        if (find(entries[i].name, &symbol, entries[i].version, 0, &found) != SUCCESS ||
            symbol == NULL)
            return false;
        memcpy((char *)self + entries[i].offset, &symbol, sizeof symbol);
    }
    return true;
}

static bool enter(const device_clock *self) {
    return self->driver.push(self->context) == SUCCESS;
}

static void leave(const device_clock *self) {
    void *context;
    (void)self->driver.pop(&context);
}

/* The context is the backend's, which has it as well. */
static bool make(device_clock *self, int32_t ordinal) {
    const clock_driver *driver = &self->driver;
    if (!load(&self->driver) || driver->device_get(&self->device, ordinal) != SUCCESS ||
        driver->device_name(self->name, NAME_BYTES, self->device) != SUCCESS ||
        driver->retain(&self->context, self->device) != SUCCESS || !enter(self))
        return false;
    bool good = driver->stream_create(&self->stream, STREAM_NON_BLOCKING) == SUCCESS;
    for (int i = 0; good && i < DEVICE_CLOCK_MARKS; i++)
        good = driver->event_create(&self->events[i], EVENT_TIMED) == SUCCESS;
    leave(self);
    return good;
}

device_clock *device_clock_open(int32_t device) {
    device_clock *self = calloc(1, sizeof *self);
    if (self != NULL && make(self, device))
        return self;
    fprintf(stderr, "device %d does not tell its time; the host's clock is used\n", (int)device);
    device_clock_close(self);
    return NULL;
}

void device_clock_close(device_clock *self) {
    if (self != NULL && self->context != NULL) {
        if (enter(self)) {
            for (int i = 0; i < DEVICE_CLOCK_MARKS; i++)
                if (self->events[i] != NULL)
                    (void)self->driver.event_destroy(self->events[i]);
            if (self->stream != NULL)
                (void)self->driver.stream_destroy(self->stream);
            leave(self);
        }
        (void)self->driver.release(self->device);
    }
    free(self);
}

const char *device_clock_name(const device_clock *self) {
    return self->name;
}

void *device_clock_stream(const device_clock *self) {
    return self->stream;
}

bool device_clock_mark(device_clock *self, int index) {
    if (!enter(self))
        return false;
    int result = self->driver.event_record(self->events[index], self->stream);
    leave(self);
    return result == SUCCESS;
}

bool device_clock_between(device_clock *self, int index, double *us_p) {
    float ms = 0;
    if (!enter(self))
        return false;
    int result = self->driver.event_elapsed(&ms, self->events[index], self->events[index + 1]);
    leave(self);
    *us_p = (double)ms * US_PER_MS;
    return result == SUCCESS;
}
