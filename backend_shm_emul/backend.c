/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU emulation: its table, its instances and its devices. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "backing.h"
#include "blas.h"
#include "capture.h"
#include "collective.h"
#include "connectivity.h"
#include "error.h"
#include "event.h"
#include "graph.h"
#include "matmul.h"
#include "memory.h"
#include "multicast.h"
#include "ops.h"
#include "signal/value.h"
#include "signal/counts.h"
#include "signals.h"
#include "stream.h"
#include "wait.h"

#define DEFAULT_DEVICES 8
#define DEFAULT_SLOTS 128
#define DLPACK_CPU 1
/* How long close waits for work of destroyed streams. Poisoned waits end within a tick. */
#define CLOSE_WAIT_MS 300

/* Reads an environment variable's number. Leaves *value_p unchanged if the variable is not set. */
static symmem_status read_setting(const symmem_host *host, const char *name, long low, long high,
                                  int32_t *value_p) {
    const char *text = getenv(name);
    if (!text)
        return SYMMEM_OK;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    /* strtol also accepts leading blanks and a plus sign. Here, as in the core's variables, those
     * are typos. */
    bool plain = text[0] == '-' || (text[0] >= '0' && text[0] <= '9');
    if (!plain || errno != 0 || end == text || *end != '\0' || value < low || value > high)
        return host->fail(host, SYMMEM_INVALID_ARGUMENT, 0, "set_backend",
                          "%s=%s: need a number from %ld to %ld", name, text, low, high);
    *value_p = (int32_t)value;
    return SYMMEM_OK;
}

/* Reads the instruction set of the loops, by its name. */
static symmem_status read_isa(const symmem_host *host, symmem_cpu_isa *isa_p) {
    const char *text = getenv("SYMMEM_SHM_ISA");
    if (!text)
        return SYMMEM_OK;
    for (symmem_cpu_isa isa = SYMMEM_CPU_PORTABLE; isa < SYMMEM_CPU_ISA_COUNT; isa++)
        if (strcmp(text, symmem_cpu_isa_name(isa)) == 0 &&
            symmem_cpu_reduce_find(isa, SYMMEM_UINT8, SYMMEM_SUM)) {
            *isa_p = isa;
            return SYMMEM_OK;
        }
    return host->fail(host, SYMMEM_INVALID_ARGUMENT, 0, "set_backend",
                      "SYMMEM_SHM_ISA=%.40s: need an instruction set that the machine has: "
                      "portable, avx2 or avx512",
                      text);
}

static int32_t count_cores(void) {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0)
        return CPU_COUNT(&cores);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more cores than a cpu_set_t has bits */
    return online > 0 ? (int32_t)online : 1;
}

static symmem_status shm_probe(char *reason, size_t capacity) {
    return shm_backing_usable(reason, capacity) ? SYMMEM_OK : SYMMEM_UNSUPPORTED;
}

static symmem_status read_settings(shm_instance *self, const symmem_backend_config *config) {
    self->core_count = count_cores();
    self->can_seal = shm_backing_can_seal();
    self->device_count =
        config->world_size > DEFAULT_DEVICES ? config->world_size : DEFAULT_DEVICES;
    self->multicast_slots = DEFAULT_SLOTS;
    symmem_status status =
        read_setting(self->host, "SYMMEM_SHM_DEVICES", 1, SHM_MAX_DEVICES, &self->device_count);
    if (status != SYMMEM_OK)
        return status;
    status = read_setting(self->host, "SYMMEM_SHM_MULTICAST_SLOTS", 0, INT32_MAX,
                          &self->multicast_slots);
    return status == SYMMEM_OK ? read_isa(self->host, &self->isa) : status;
}

static symmem_status shm_open_instance(const symmem_host *host, const symmem_backend_config *config,
                                       void **instance_p) {
    symmem_status status = shm_failpoint(host, "shm.open");
    if (status != SYMMEM_OK)
        return status;
    shm_instance *self = calloc(1, sizeof *self);
    if (!self)
        return shm_out_of_memory(host, "set_backend");
    self->host = host;
    self->clock = shm_clock(host);
    self->rank = config->rank;
    self->world_size = config->world_size;
    self->root = "";
    status = read_settings(self, config);
    if (status != SYMMEM_OK)
        goto free_self;
    self->slots_used = calloc((size_t)self->device_count, sizeof *self->slots_used);
    if (!self->slots_used) {
        status = shm_out_of_memory(host, "set_backend");
        goto free_self;
    }
    int error = pthread_mutex_init(&self->lock, NULL);
    if (error != 0) {
        status = shm_fail_errno(host, error, "set_backend", "creating a lock");
        goto free_slots;
    }
    error = shm_cond_init(&self->stream_gone);
    if (error != 0) {
        status = shm_fail_errno(host, error, "set_backend", "creating a condition");
        goto destroy_lock;
    }
    error = pthread_mutex_init(&self->blas_lock, NULL);
    if (error != 0) {
        status = shm_fail_errno(host, error, "set_backend", "creating a lock");
        goto destroy_cond;
    }
    self->busy_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    status = shm_blas_read_setting(self);
    if (status != SYMMEM_OK)
        goto destroy_blas_lock;
    *instance_p = self;
    return SYMMEM_OK;

destroy_blas_lock:
    pthread_mutex_destroy(&self->blas_lock);
destroy_cond:
    pthread_cond_destroy(&self->stream_gone);
destroy_lock:
    pthread_mutex_destroy(&self->lock);
free_slots:
    free(self->slots_used);
free_self:
    free(self);
    return status;
}

/* A stream destroyed after a TIMEOUT may still run. A stream that stays in a host function for long
 * frees the instance when it ends. */
static void shm_close_instance(void *instance) {
    shm_instance *self = instance;
    shm_failpoint_notify(self->host, "shm.close*");
    uint64_t deadline_ns = shm_deadline_ns(self->clock, CLOSE_WAIT_MS);
    pthread_mutex_lock(&self->lock);
    while (self->streams &&
           shm_cond_wait(self->clock, &self->stream_gone, &self->lock, deadline_ns)) {
    }
    bool gone = !self->streams;
    self->closed = true;
    pthread_mutex_unlock(&self->lock);
    if (gone)
        shm_instance_free(self);
}

static symmem_status shm_device_count(void *instance, int32_t *count_p) {
    shm_instance *self = instance;
    *count_p = self->device_count;
    return SYMMEM_OK;
}

static symmem_status shm_device_info(void *instance, int32_t device, symmem_device_info *info_p) {
    shm_instance *self = instance;
    memset(info_p, 0, sizeof *info_p);
    info_p->device_type = DLPACK_CPU;
    info_p->multicast = self->multicast_slots > 0;
    info_p->granularity = (size_t)sysconf(_SC_PAGESIZE);
    snprintf(info_p->name, sizeof info_p->name, "emulated device %d", (int)device);
    return SYMMEM_OK;
}

static const symmem_instance_ops instance_ops = {
    .size = sizeof(symmem_instance_ops),
    .probe = shm_probe,
    .open = shm_open_instance,
    .close = shm_close_instance,
    .device_count = shm_device_count,
    .device_info = shm_device_info,
};

static const symmem_memory_ops memory_ops = {
    .size = sizeof(symmem_memory_ops),
    .alloc = shm_memory_alloc,
    .release = shm_memory_release,
    .share = shm_memory_share,
    .unshare = shm_memory_unshare,
    .map = shm_memory_map,
};

static const symmem_signal_ops signal_ops = {
    .size = sizeof(symmem_signal_ops),
    .bytes = shm_signal_bytes,
    .peers_open = shm_peers_open,
    .peers_close = shm_peers_close,
    .barrier = shm_barrier,
    .put = shm_put_signal,
    .wait = shm_wait_signal,
    .reset = shm_signal_reset,
    .poison = shm_signal_poison,
    .wait_value = shm_wait_value,
    .count = shm_signal_count,
    .wait_counts = shm_wait_counts,
};

static const symmem_copy_ops copy_ops = {
    .size = sizeof(symmem_copy_ops),
    .copy = shm_copy,
    .memset32 = shm_memset32,
    .write_value32 = shm_write_value32,
    .write_value64 = shm_write_value64,
};

static const symmem_stream_ops stream_ops = {
    .size = sizeof(symmem_stream_ops),
    .create = shm_stream_create,
    .destroy = shm_stream_destroy,
    .synchronize = shm_stream_synchronize,
    .query = shm_stream_query,
    .device_synchronize = shm_device_synchronize,
    .event_create = shm_event_create,
    .event_destroy = shm_event_destroy,
    .event_record = shm_event_record,
    .wait_event = shm_stream_wait_event,
    .event_synchronize = shm_event_synchronize,
    .event_query = shm_event_query,
    .host_fn = shm_host_fn,
};

static const symmem_graph_ops graph_ops = {
    .size = sizeof(symmem_graph_ops),
    .capture_begin = shm_capture_begin,
    .capture_end = shm_capture_end,
    .capture_id = shm_capture_id,
    .launch = shm_graph_launch,
    .destroy = shm_graph_destroy,
};

static const symmem_multicast_ops multicast_ops = {
    .size = sizeof(symmem_multicast_ops),
    .create = shm_multicast_create,
    .attach = shm_multicast_attach,
    .bind = shm_multicast_bind,
    .release = shm_multicast_release,
    .store = shm_multimem_store,
    .ld_reduce = shm_multimem_ld_reduce,
};

static const symmem_collective_ops collective_ops = {
    .size = sizeof(symmem_collective_ops),
    .run = shm_collective,
    .run_splits = shm_collective,
    .reduce_tile = shm_reduce_tile,
};

static const symmem_matmul_ops matmul_ops = {
    .size = sizeof(symmem_matmul_ops),
    .multiply = shm_matmul,
    .copy_strided = shm_copy_strided,
    .reduce_local = shm_reduce_local,
};

static const symmem_topology_ops topology_ops = {
    .size = sizeof(symmem_topology_ops),
    .connectivity = shm_connectivity,
};

static const symmem_backend table = {
    .size = sizeof(symmem_backend),
    .abi = SYMMEM_BACKEND_ABI,
    .name = "shm",
    .description = "CPU emulation on POSIX shared memory",
    .flags = SYMMEM_CAP_FLAGS & ~SYMMEM_CAP_CROSS_HOST,
    .instance = &instance_ops,
    .memory = &memory_ops,
    .signal = &signal_ops,
    .copy = &copy_ops,
    .stream = &stream_ops,
    .graph = &graph_ops,
    .multicast = &multicast_ops,
    .collective = &collective_ops,
    .matmul = &matmul_ops,
    .topology = &topology_ops,
};

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &table : NULL;
}
