/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices, their contexts, and which of them a thread is in. */

#include "fake.h"

#define DEVICES FAKE_DEVICES
#define MAX_DEPTH 16

struct CUctx_st {
    _Atomic int references; /* changed under the lock */
    int stale;              /* references to what was reset, which are released all the same */
    unsigned long long resets;
    pthread_mutex_t enqueueing; /* held by every call that enqueues */
};

/* The devices' primary ones, and behind them one more of each, for a program of its own. */
static struct CUctx_st contexts[2 * DEVICES] = {
    [0 ... 2 * DEVICES - 1] = {.enqueueing = PTHREAD_MUTEX_INITIALIZER},
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread CUcontext stack[MAX_DEPTH];
static __thread int depth;
static atomic_int pushed; /* by all threads */

CUcontext fake_current(void) {
    return depth > 0 ? stack[depth - 1] : NULL;
}

bool fake_in_context(void) {
    return depth > 0 && stack[depth - 1]->references > 0;
}

unsigned long long fake_id_of(CUcontext context) {
    pthread_mutex_lock(&lock);
    unsigned long long id =
        context->resets * 2 * DEVICES + (unsigned long long)(context - contexts) + 1;
    pthread_mutex_unlock(&lock);
    return id;
}

void fake_reset_context(CUdevice device) {
    pthread_mutex_lock(&lock);
    contexts[device].stale += contexts[device].references;
    contexts[device].references = 0;
    contexts[device].resets++;
    pthread_mutex_unlock(&lock);
}

int fake_contexts_pushed(void) {
    return pushed;
}

void fake_begin_enqueueing(void) {
    pthread_mutex_lock(&fake_current()->enqueueing);
}

void fake_end_enqueueing(void) {
    pthread_mutex_unlock(&fake_current()->enqueueing);
}

void fake_cuda_quiet(void) {
    fake_begin_enqueueing();
    fake_wait_context(fake_current());
    fake_end_enqueueing();
}

FAKE(Init, unsigned int flags) {
    FAKE_CALL("cuInit");
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (getenv("FAKE_CUDA_TAKES_BACK") != NULL)
        pthread_once(&once, fake_take_back_at_exit);
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE(GetErrorName, CUresult error, const char **name) {
    FAKE_CALL("cuGetErrorName");
    static __thread char text[32];
    snprintf(text, sizeof text, "FAKE_ERROR_%d", (int)error);
    *name = text;
    return CUDA_SUCCESS;
}

FAKE(DriverGetVersion, int *version) {
    FAKE_CALL("cuDriverGetVersion");
    *version = 13000;
    return CUDA_SUCCESS;
}

FAKE(DeviceGetCount, int *count) {
    FAKE_CALL("cuDeviceGetCount");
    const char *wanted = getenv("FAKE_CUDA_DEVICES");
    int number = wanted != NULL ? atoi(wanted) : DEVICES;
    *count = number >= 1 && number <= DEVICES ? number : DEVICES;
    return CUDA_SUCCESS;
}

FAKE(DeviceGet, CUdevice *device, int index) {
    FAKE_CALL("cuDeviceGet");
    int count;
    (void)fake_DeviceGetCount(&count);
    *device = index;
    return index >= 0 && index < count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

FAKE(DeviceGetName, char *name, int capacity, CUdevice device) {
    FAKE_CALL("cuDeviceGetName");
    snprintf(name, (size_t)capacity, "fake device %d, no GPU", device);
    return CUDA_SUCCESS;
}

FAKE(DeviceTotalMem, size_t *bytes, CUdevice device) {
    FAKE_CALL("cuDeviceTotalMem");
    *bytes = FAKE_DEVICE_BYTES;
    return CUDA_SUCCESS;
}

FAKE(DeviceGetUuid, CUuuid *uuid, CUdevice device) {
    FAKE_CALL("cuDeviceGetUuid");
    memset(uuid, device + 1, sizeof *uuid);
    return CUDA_SUCCESS;
}

/* Of pairs of devices. They have NVLink, unless the environment has FAKE_CUDA_PCIE. */
FAKE(DeviceGetP2PAttribute, int *value, CUdevice_P2PAttribute attribute, CUdevice device,
     CUdevice other) {
    FAKE_CALL("cuDeviceGetP2PAttribute");
    if (device == other)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED &&
             getenv("FAKE_CUDA_PCIE") == NULL;
    return CUDA_SUCCESS;
}

/* PCI places as fake_nvml.c has them; all else that is asked for is there. */
FAKE(DeviceGetAttribute, int *value, CUdevice_attribute attribute, CUdevice device) {
    FAKE_CALL("cuDeviceGetAttribute");
    *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID   ? 0
             : attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID    ? 0x10 + device
             : attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID ? device
                                                              : 1;
    return CUDA_SUCCESS;
}

FAKE(DevicePrimaryCtxGetState, CUdevice device, unsigned int *flags, int *active) {
    FAKE_CALL("cuDevicePrimaryCtxGetState");
    pthread_mutex_lock(&lock);
    *active = contexts[device].references > 0;
    pthread_mutex_unlock(&lock);
    *flags = 0;
    return CUDA_SUCCESS;
}

/* Takes a reference. Returns true if it is the only one. */
static bool refer_to(CUdevice device) {
    pthread_mutex_lock(&lock);
    bool is_first = contexts[device].references++ == 0;
    pthread_mutex_unlock(&lock);
    fake_count(1);
    return is_first;
}

void fake_use_devices(void) {
    for (CUdevice device = 0; device < DEVICES; device++)
        (void)refer_to(device);
}

/* FAKE_CUDA_SLOW_OPEN: how long a device takes to open, in milliseconds. */
FAKE(DevicePrimaryCtxRetain, CUcontext *context, CUdevice device) {
    FAKE_CALL("cuDevicePrimaryCtxRetain");
    const char *slow = getenv("FAKE_CUDA_SLOW_OPEN");
    bool is_first = refer_to(device);
    if (slow != NULL && is_first)
        usleep((useconds_t)atoi(slow) * 1000);
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

FAKE(DevicePrimaryCtxRelease, CUdevice device) {
    FAKE_CALL("cuDevicePrimaryCtxRelease");
    pthread_mutex_lock(&lock);
    CUcontext context = &contexts[device];
    bool stale = context->stale > 0, held = !stale && context->references > 0;
    context->stale -= stale;
    context->references -= held;
    context->resets += held && context->references == 0; /* the next one is another */
    pthread_mutex_unlock(&lock);
    fake_count(held || stale ? -1 : 0);
    return held || stale ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

FAKE(CtxPushCurrent, CUcontext context) {
    FAKE_CALL("cuCtxPushCurrent");
    if (depth == MAX_DEPTH)
        return CUDA_ERROR_INVALID_VALUE;
    if (depth == 0)
        fake_first_pushed();
    fake_watch_end();
    stack[depth++] = context;
    pushed++;
    return CUDA_SUCCESS;
}

FAKE(CtxPopCurrent, CUcontext *context) {
    FAKE_CALL("cuCtxPopCurrent");
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    pushed--;
    if (depth == 0)
        fake_last_popped();
    return CUDA_SUCCESS;
}

FAKE(CtxGetDevice, CUdevice *device) {
    FAKE_CALL("cuCtxGetDevice");
    FAKE_NEED_CONTEXT();
    *device = (CUdevice)(fake_current() - contexts) % DEVICES;
    return CUDA_SUCCESS;
}

FAKE(CtxGetCurrent, CUcontext *context) {
    FAKE_CALL("cuCtxGetCurrent");
    *context = fake_current();
    return CUDA_SUCCESS;
}

/* By its first versioned name: later versions take other arguments. The new context becomes the
 * thread's current one. */
__attribute__((visibility("default"))) CUresult cuCtxCreate_v2(CUcontext *context,
                                                               unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    CUcontext own = &contexts[DEVICES + device];
    pthread_mutex_lock(&lock);
    const bool is_free = flags == 0 && own->references == 0;
    own->references += is_free;
    pthread_mutex_unlock(&lock);
    if (!is_free)
        return CUDA_ERROR_INVALID_VALUE; /* the fake has but one of them */
    *context = own;
    return fake_CtxPushCurrent(own);
}

FAKE(CtxDestroy, CUcontext context) {
    FAKE_CALL("cuCtxDestroy");
    CUcontext popped;
    if (context < contexts + DEVICES)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context == fake_current())
        (void)fake_CtxPopCurrent(&popped);
    pthread_mutex_lock(&lock);
    context->references = 0;
    context->resets++;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

FAKE(CtxGetId, CUcontext context, unsigned long long *id) {
    FAKE_CALL("cuCtxGetId");
    FAKE_NEED_CONTEXT();
    *id = fake_id_of(context != NULL ? context : fake_current());
    return CUDA_SUCCESS;
}
