/* SPDX-License-Identifier: BSD-3-Clause */
/* How much of its devices this process uses, as far as the system counts that by process. */
#ifndef SYMMEM_CONFORMANCE_DEVICE_USED_H
#define SYMMEM_CONFORMANCE_DEVICE_USED_H

#include <stdbool.h>
#include <stdint.h>

struct device_use {
    uint64_t bytes; /* this process's, of all devices together */
    int others;     /* processes beside it on the devices that it uses */
};

/* False if that is not known, or the process uses none. Today by NVIDIA's management library, which
 * keeps a few descriptors open from the first call on. */
bool device_use_take(struct device_use *use);

#endif
