/* SPDX-License-Identifier: BSD-3-Clause */
/* A memory backend on the kit: memory is a file without a name, which the ranks of a host map. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <symmem/kit/host_memory.h>
#include <symmem/kit/host_signal.h>
#include <symmem/kit/segment.h>
#include <sys/mman.h>
#include <unistd.h>

static symmem_status mini_probe(char *reason, size_t capacity) {
    (void)reason, (void)capacity;
    return SYMMEM_OK;
}

/* It has nothing to remember but the core's services. */
static symmem_status mini_open(const symmem_host *host, const symmem_backend_config *config,
                               void **instance_p) {
    (void)config;
    *instance_p = (void *)(uintptr_t)host;
    return SYMMEM_OK;
}

static void mini_close(void *instance) {
    (void)instance;
}

static symmem_status mini_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory) {
    const symmem_host *host = instance;
    symmem_status status = host->point(host, "memfd_mini.alloc");
    if (status != SYMMEM_OK)
        return status;
    const int fd = memfd_create("memfd_mini", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return symmem_kit_fail_errno(host, errno, "alloc", "memfd_create");
    status = symmem_kit_segment_make(host, fd, device, bytes, memory);
    if (status != SYMMEM_OK)
        close(fd);
    return status;
}

static symmem_status mini_share(void *instance, symmem_memory *memory, symmem_share *share) {
    return symmem_kit_segment_share(instance, memory, share);
}

static symmem_status mini_map(void *instance, int32_t device, const symmem_share *share,
                              size_t bytes, symmem_memory *memory) {
    return symmem_kit_segment_map(instance, device, share, bytes, memory);
}

static const symmem_backend table = {
    .size = sizeof(symmem_backend),
    .abi = SYMMEM_BACKEND_ABI,
    .name = "memfd_mini",
    .description = "nameless files of this host, on symmem's kit",
    .flags = SYMMEM_CAP_PROCESS_RANKS | SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_DIRECT_ACCESS,
    .instance = &(const symmem_instance_ops){.size = sizeof(symmem_instance_ops),
                                             .probe = mini_probe,
                                             .open = mini_open,
                                             .close = mini_close,
                                             .device_count = symmem_kit_host_devices,
                                             .device_info = symmem_kit_host_device},
    .memory = &(const symmem_memory_ops){.size = sizeof(symmem_memory_ops),
                                         .alloc = mini_alloc,
                                         .release = symmem_kit_segment_release,
                                         .share = mini_share,
                                         .unshare = symmem_kit_segment_unshare,
                                         .map = mini_map},
    .signal = &symmem_kit_host_signal,
    .copy = &symmem_kit_host_copy,
};

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &table : NULL;
}
