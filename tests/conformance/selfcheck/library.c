/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for a library between a backend and its driver, which keeps what it once asked for. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

extern bool selfcheck_driver_maps(size_t bytes);
bool selfcheck_library_asks(size_t bytes) __attribute__((visibility("default")));
bool selfcheck_library_maps(size_t bytes) __attribute__((visibility("default")));

/* Neither call may be the last thing here: then the caller would be taken to have made it. */
bool selfcheck_library_asks(size_t bytes) {
    volatile bool mapped = selfcheck_driver_maps(bytes);
    return mapped;
}

bool selfcheck_library_maps(size_t bytes) {
    void *volatile shared = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared != MAP_FAILED;
}
