/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the CUDA backend, its instance, and its description of devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "product/blas.h"
#include "backend.h"
#include "collective/collective.h"
#include "collective/splits.h"
#include "collective/tile.h"
#include "collective/copy.h"
#include "collective/local.h"
#include "driver/clock.h"
#include "driver/connectivity.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "driver/exit.h"
#include "driver/fabric.h"
#include "driver/image.h"
#include "inflight/inflight.h"
#include "inflight/spare.h"
#include "signal/launch_timeout.h"
#include "watcher.h"
#include "memory/imports.h"
#include "memory/memory.h"
#include "memory/scratch.h"
#include "memory/suballoc.h"
#include "product/product.h"
#include "signal/peers.h"
#include "signal/signal.h"
#include "signal/window.h"
#include "stream/event.h"
#include "stream/foreign_capture.h"
#include "stream/graph.h"
#include "stream/stream.h"
#include "memory/multicast.h"

#define DLPACK_CUDA 2
#define CLOSE_WAIT_MS 1000

/* --- probe -------------------------------------------------------------------------- */

static bool has_attribute(const cuda_driver *driver, CUdevice_attribute attribute) {
    CUdevice device;
    int value = 0;
    return driver->DeviceGet(&device, 0) == CUDA_SUCCESS &&
           driver->DeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

static symmem_status tell_driver(const cuda_driver *driver, char *text, size_t capacity) {
    int version = 0;
    (void)driver->DriverGetVersion(&version);
    snprintf(text, capacity, "CUDA driver %d.%d", version / 1000, version % 1000 / 10);
    return SYMMEM_OK;
}

static symmem_status probe(char *reason, size_t capacity) {
    cuda_driver driver;
    int count = 0;

    if (!cuda_driver_load(&driver, reason, capacity))
        return SYMMEM_UNSUPPORTED;
    CUresult result = cuda_driver_init(&driver);
    if (result == CUDA_SUCCESS)
        result = driver.DeviceGetCount(&count);
    if (result != CUDA_SUCCESS || count == 0)
        snprintf(reason, capacity, "no device: the driver answered %d", (int)result);
    else if (!has_attribute(&driver, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
             !has_attribute(&driver,
                            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        snprintf(reason, capacity, "the device cannot share memory by descriptor");
    else if (cuda_image() == NULL)
        snprintf(reason, capacity, "built without kernels (no nvcc)");
    else
        return tell_driver(&driver, reason, capacity);
    return SYMMEM_UNSUPPORTED;
}

/* --- instance ----------------------------------------------------------------------- */

static bool init_locks(cuda_instance *instance) {
    pthread_mutexattr_t attributes;
    if (pthread_mutexattr_init(&attributes) != 0)
        return false;
    bool done = pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE) == 0 &&
                pthread_mutex_init(&instance->collecting, &attributes) == 0;
    pthread_mutexattr_destroy(&attributes);
    if (!done)
        return false;
    /* Neither can fail on Linux with these attributes. */
    (void)pthread_mutex_init(&instance->opening, NULL);
    (void)pthread_mutex_init(&instance->ending, NULL);
    (void)pthread_mutex_init(&instance->lock, NULL);
    (void)pthread_cond_init(&instance->work, NULL);
    return true;
}

static void destroy_locks(cuda_instance *instance) {
    pthread_cond_destroy(&instance->work);
    pthread_mutex_destroy(&instance->lock);
    pthread_mutex_destroy(&instance->ending);
    pthread_mutex_destroy(&instance->opening);
    pthread_mutex_destroy(&instance->collecting);
}

static symmem_status open_driver(cuda_instance *instance) {
    char reason[200];
    int count = 0;
    if (!cuda_driver_load(&instance->driver, reason, sizeof reason))
        return instance->host->fail(instance->host, SYMMEM_UNSUPPORTED, 0, "open", "%s", reason);
    CUresult result = cuda_driver_init(&instance->driver);
    if (result == CUDA_SUCCESS)
        result = instance->driver.DeviceGetCount(&count);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "open");
    instance->device_count = count < CUDA_MAX_DEVICES ? count : CUDA_MAX_DEVICES;
    return SYMMEM_OK;
}

static symmem_status open_instance(const symmem_host *host, const symmem_backend_config *config,
                                   void **instance_p) {
    cuda_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL)
        return host->fail(host, SYMMEM_OUT_OF_MEMORY, 0, "open", "no memory");
    instance->host = host;
    instance->rank = config->rank;
    instance->world_size = config->world_size;
    instance->pending_end = &instance->pending;
    symmem_status status = cuda_failpoint(instance, "cuda.open");
    if (status == SYMMEM_OK)
        status = open_driver(instance);
    if (status == SYMMEM_OK)
        status = cuda_launch_timeout_open(instance);
    if (status == SYMMEM_OK)
        status = cuda_fabric_read_setting(instance);
    if (status != SYMMEM_OK)
        goto free_instance;
    if (!init_locks(instance)) {
        status = cuda_no_memory(instance, "open");
        goto free_instance;
    }
    status = cuda_blas_open(instance);
    if (status != SYMMEM_OK)
        goto destroy;
    status = cuda_watcher_start(instance);
    if (status != SYMMEM_OK)
        goto close_blas;
    *instance_p = instance;
    return SYMMEM_OK;
close_blas:
    cuda_blas_close(instance);
destroy:
    destroy_locks(instance);
free_instance:
    free(instance);
    return status;
}

/* What upper floors keep for each device that is open. */
static void release_kept(cuda_instance *instance) {
    for (int32_t i = 0; i < instance->device_count; i++) {
        if (instance->devices[i].context == NULL)
            continue;
        const bool entered = cuda_reenter(instance, i);
        cuda_spares_end(instance, i);
        cuda_kept_events_end(instance, i);
        cuda_granule_close(instance, i);
        cuda_imports_close(instance, i);
        if (entered)
            cuda_leave(instance);
    }
}

void cuda_instance_end(cuda_instance *instance) {
    cuda_foreign_captures_close(instance);
    if (instance->end_extension != NULL)
        instance->end_extension(instance);
    cuda_blas_close(instance);
    cuda_scratch_close(instance);
#ifdef SYMMEM_CUDA_MULTICAST
    cuda_multicast_close(instance);
#endif
    release_kept(instance);
    cuda_devices_close(instance);
    destroy_locks(instance);
    free(instance);
}

static void close_relaxed(cuda_instance *instance) {
    uint64_t end_ns = cuda_now_ns() + CLOSE_WAIT_MS * CUDA_NS_PER_MS;
    (void)cuda_failpoint(instance, "cuda.close*");
    cuda_collect(instance);
    while (atomic_load(&instance->pending_count) != 0 && cuda_now_ns() < end_ns) {
        cuda_sleep_ns(CUDA_NS_PER_MS / 10);
        cuda_collect(instance);
    }
    if (atomic_load(&instance->pending_count) != 0) {
        cuda_watcher_leave(instance); /* a host function has not returned */
        return;
    }
    cuda_watcher_stop(instance);
    cuda_instance_end(instance);
}

void cuda_close_instance(void *opaque) {
    cuda_instance *instance = opaque;
    const cuda_driver driver = instance->driver;
    const bool counted = cuda_busy_begin(); /* otherwise the program would close while it ends */
    cuda_relax(&driver);
    close_relaxed(instance);
    cuda_restore(&driver);
    if (counted)
        cuda_busy_end();
}

symmem_status cuda_device_count(void *opaque, int32_t *count_p) {
    *count_p = ((cuda_instance *)opaque)->device_count;
    return SYMMEM_OK;
}

static symmem_status describe_device(const cuda_instance *instance, int32_t device,
                                     symmem_device_info *info_p) {
    const cuda_driver *driver = &instance->driver;
    CUmemAllocationProp property = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    symmem_device_info info = {.device_type = DLPACK_CUDA};
    CUdevice id;
    CUuuid uuid;
    CUresult result = driver->DeviceGet(&id, device);

    if (result == CUDA_SUCCESS)
        result = driver->MemGetAllocationGranularity(&info.granularity, &property,
                                                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result == CUDA_SUCCESS)
        result = driver->DeviceGetName(info.name, (int)sizeof info.name, id);
    if (result == CUDA_SUCCESS)
        result = driver->DeviceGetUuid(&uuid, id);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "device_info");
    memcpy(info.unique_id, &uuid, sizeof info.unique_id);
    *info_p = info;
    return SYMMEM_OK;
}

/* Cached, because it is called often and only the environment's setting of multicast can change. */
symmem_status cuda_device_info(void *opaque, int32_t index, symmem_device_info *info_p) {
    cuda_instance *instance = opaque;
    cuda_device *device = &instance->devices[index];
    symmem_status status = SYMMEM_OK;
    pthread_mutex_lock(&instance->lock);
    if (!device->described)
        status = describe_device(instance, index, &device->info);
    device->described = status == SYMMEM_OK;
    if (device->described)
        *info_p = device->info;
    pthread_mutex_unlock(&instance->lock);
#ifdef SYMMEM_CUDA_MULTICAST
    CUdevice id;
    if (status == SYMMEM_OK && instance->driver.DeviceGet(&id, index) == CUDA_SUCCESS)
        info_p->multicast = cuda_multicast_now(instance, id);
#endif
    return status;
}

const symmem_instance_ops cuda_instance_ops = {
    .size = sizeof(symmem_instance_ops),
    .probe = probe,
    .open = open_instance,
    .close = cuda_close_instance,
    .device_count = cuda_device_count,
    .device_info = cuda_device_info,
};

static const symmem_memory_ops cuda_memory_ops = {
    .size = sizeof(symmem_memory_ops),
    .alloc = cuda_memory_alloc,
    .release = cuda_memory_release,
    .share = cuda_memory_share,
    .unshare = cuda_memory_unshare,
    .map = cuda_memory_map,
};

static const symmem_signal_ops cuda_signal_ops = {
    .size = sizeof(symmem_signal_ops),
    .bytes = cuda_signal_bytes,
    .peers_open = cuda_peers_open,
    .peers_close = cuda_peers_close,
    .barrier = cuda_barrier,
    .put = cuda_put_signal,
    .wait = cuda_wait_signal,
    .reset = cuda_signal_reset,
    .poison = cuda_signal_poison,
    .check = cuda_signal_check,
    .wait_value = cuda_wait_value,
    .count = cuda_signal_count,
    .wait_counts = cuda_wait_counts,
};

const symmem_copy_ops cuda_copy_ops = {
    .size = sizeof(symmem_copy_ops),
    .copy = cuda_copy,
    .memset32 = cuda_memset32,
    .write_value32 = cuda_write_value32,
    .write_value64 = cuda_write_value64,
};

const symmem_stream_ops cuda_stream_ops = {
    .size = sizeof(symmem_stream_ops),
    .create = cuda_stream_create,
    .wrap = cuda_stream_wrap,
    .destroy = cuda_stream_destroy,
    .synchronize = cuda_stream_synchronize,
    .query = cuda_stream_query,
    .device_synchronize = cuda_device_synchronize,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .wait_event = cuda_stream_wait_event,
    .event_synchronize = cuda_event_synchronize,
    .event_query = cuda_event_query,
    .host_fn = cuda_host_fn,
};

const symmem_graph_ops cuda_graph_ops = {
    .size = sizeof(symmem_graph_ops),
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .capture_id = cuda_capture_id,
    .launch = cuda_graph_launch,
    .destroy = cuda_graph_destroy,
};

#ifdef SYMMEM_CUDA_MULTICAST
static const symmem_multicast_ops cuda_multicast_ops = {
    .size = sizeof(symmem_multicast_ops),
    .create = cuda_multicast_create,
    .attach = cuda_multicast_attach,
    .bind = cuda_multicast_bind,
    .release = cuda_multicast_release,
    .store = cuda_multimem_store,
    .ld_reduce = cuda_multimem_ld_reduce,
};
#endif

const symmem_collective_ops cuda_collective_ops = {
    .size = sizeof(symmem_collective_ops),
    .run = cuda_collective,
    .run_splits = cuda_collective_splits,
    .reduce_tile = cuda_reduce_tile,
};

const symmem_matmul_ops cuda_matmul_ops = {
    .size = sizeof(symmem_matmul_ops),
    .multiply = cuda_matmul,
    .copy_strided = cuda_copy_strided,
    .reduce_local = cuda_reduce_local,
};

const symmem_topology_ops cuda_topology_ops = {
    .size = sizeof(symmem_topology_ops),
    .connectivity = cuda_connectivity,
};

const symmem_backend cuda_table = {
    .size = sizeof cuda_table,
    .abi = SYMMEM_BACKEND_ABI,
    .name = "cuda",
    .description = "CUDA virtual memory management (built with CUDA " SYMMEM_CUDA_TOOLKIT
        CUDA_MULTICAST_DESCRIPTION ")",
    .flags = SYMMEM_CAP_OVERLAP | SYMMEM_CAP_THREAD_RANKS | SYMMEM_CAP_PROCESS_RANKS |
             SYMMEM_CAP_CROSS_HOST | SYMMEM_CAP_DIRECT_ACCESS | SYMMEM_CAP_POOL,
    .instance = &cuda_instance_ops,
    .memory = &cuda_memory_ops,
    .signal = &cuda_signal_ops,
    .copy = &cuda_copy_ops,
    .stream = &cuda_stream_ops,
    .graph = &cuda_graph_ops,
#ifdef SYMMEM_CUDA_MULTICAST
    .multicast = &cuda_multicast_ops,
#endif
    .collective = &cuda_collective_ops,
    .matmul = &cuda_matmul_ops,
    .topology = &cuda_topology_ops,
};
