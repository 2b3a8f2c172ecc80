/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for CUDA's runtime library, by its name: what it asks of the driver is for its caller. */
#include <stdbool.h>
#include <stddef.h>

extern bool selfcheck_driver_maps(size_t bytes);
bool selfcheck_runtime_asks(size_t bytes) __attribute__((visibility("default")));

bool selfcheck_runtime_asks(size_t bytes) {
    volatile bool mapped = selfcheck_driver_maps(bytes);
    return mapped;
}
