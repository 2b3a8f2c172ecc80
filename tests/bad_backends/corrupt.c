/* SPDX-License-Identifier: BSD-3-Clause */
/* Backends that write where they should not. */
#include "../mutants/decorator/decorator.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Fills every writable mapping whose line in the list of mappings has that text. */
static void fill_mappings(const char *text, int byte) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], permissions[8];
    unsigned long start, end;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        if (sscanf(line, "%lx-%lx %7s", &start, &end, permissions) == 3 && permissions[1] == 'w' &&
            strstr(line, text) != NULL)
            memset((void *)start, byte, end - start);
    if (maps != NULL)
        fclose(maps);
}

/* The memory through which the runner's ranks report is shared and anonymous. */
#define SHARED_ANONYMOUS "/dev/zero (deleted)"

static symmem_status barrier_fills(void *instance, const symmem_peers *peers, int32_t channel,
                                   const symmem_exec *exec) {
    fill_mappings(SHARED_ANONYMOUS, 0xa5);
    return real->barrier(instance, peers, channel, exec);
}

static symmem_status barrier_clears(void *instance, const symmem_peers *peers, int32_t channel,
                                    const symmem_exec *exec) {
    fill_mappings(SHARED_ANONYMOUS, 0);
    return real->barrier(instance, peers, channel, exec);
}

/* In the probe, too: there the runner learns what the backend can do. */
static symmem_status open_fills(const symmem_host *host, const symmem_backend_config *config,
                                void **instance_p) {
    fill_mappings(SHARED_ANONYMOUS, 0xff);
    return real->open(host, config, instance_p);
}

/* So that what the probe found out looks as if it were there. */
static symmem_status open_fills_and_fails(const symmem_host *host,
                                          const symmem_backend_config *config, void **instance_p) {
    (void)config, (void)instance_p;
    fill_mappings(SHARED_ANONYMOUS, 1);
    return host->fail(host, SYMMEM_SYSTEM, 0, "set_backend", "all of it was for nothing");
}

static symmem_status put_fills_the_heap(void *instance, const symmem_peers *peers, int32_t dst,
                                        int32_t channel, const symmem_exec *exec) {
    symmem_status status = real->put_signal(instance, peers, dst, channel, exec);
    fill_mappings("[heap]", 0xa5);
    return status;
}

/* Writes beyond the range that it was given, into memory of other objects. */
static symmem_status copy_writes_too_much(void *instance, int32_t device, void *dst,
                                          const void *src, size_t bytes, const symmem_exec *exec) {
    symmem_status status = real->copy(instance, device, dst, src, bytes, exec);
    if (bytes > 0 && bytes < 4096)
        ((char *)dst)[bytes] ^= 0x55;
    return status;
}

static symmem_status barrier_writes_into_pads(void *instance, const symmem_peers *peers,
                                              int32_t channel, const symmem_exec *exec) {
    for (int32_t rank = 0; rank < peers->world_size; rank++)
        *(uint32_t *)peers->pads[rank] = 1;
    return real->barrier(instance, peers, channel, exec);
}

static void close_closes_descriptors(void *instance) {
    for (int fd = 0; fd < 256; fd++)
        close(fd);
    real->close(instance);
}

const struct mutant bad_corrupting[] = {
    {"corrupt.report", .entries.barrier = barrier_fills},
    {"corrupt.report_cleared", .entries.barrier = barrier_clears},
    {"corrupt.report_in_open", .entries.open = open_fills},
    {"corrupt.probe", .entries.open = open_fills_and_fails},
    {"corrupt.heap", .entries.put_signal = put_fills_the_heap},
    {"corrupt.neighbors", .entries.copy = copy_writes_too_much},
    {"corrupt.pads", .entries.barrier = barrier_writes_into_pads},
    {"corrupt.descriptors", .entries.close = close_closes_descriptors},
    {.name = NULL},
};
