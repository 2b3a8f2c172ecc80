/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for a library or backend that forgets what it asked for: of the heap, of address space, of
 * its driver, of a library beneath. */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* What makes it a backend to the ledger. */
const void *symmem_backend_entry(unsigned abi) __attribute__((visibility("default")));
void *selfcheck_leak(size_t bytes) __attribute__((visibility("default")));
bool selfcheck_reserve(bool all_back) __attribute__((visibility("default")));
int selfcheck_socket(void) __attribute__((visibility("default")));
bool selfcheck_pin(size_t bytes, bool by_runtime) __attribute__((visibility("default")));
bool selfcheck_use_library(size_t bytes, bool asks) __attribute__((visibility("default")));
extern bool selfcheck_driver_maps(size_t bytes);
extern bool selfcheck_runtime_asks(size_t bytes);
extern bool selfcheck_library_asks(size_t bytes);
extern bool selfcheck_library_maps(size_t bytes);

void *selfcheck_leak(size_t bytes) {
    void *forgotten = malloc(bytes);
    return forgotten == NULL ? NULL : (char *)forgotten + 1;
}

/* Three pages, of which only the middle one is given back, or all. */
bool selfcheck_reserve(bool all_back) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *reserved = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserved == MAP_FAILED || munmap(reserved + page, page) != 0)
        return false;
    return !all_back || munmap(reserved, 3 * page) == 0;
}

int selfcheck_socket(void) {
    static volatile int last;
    last = socket(AF_UNIX, SOCK_STREAM, 0);
    return last;
}

/* A mapping that the driver makes for it. */
bool selfcheck_pin(size_t bytes, bool by_runtime) {
    volatile bool mapped =
        by_runtime ? selfcheck_runtime_asks(bytes) : selfcheck_driver_maps(bytes);
    return mapped;
}

/* A mapping of the library's, or one that the driver makes for the library. */
bool selfcheck_use_library(size_t bytes, bool asks) {
    volatile bool mapped = asks ? selfcheck_library_asks(bytes) : selfcheck_library_maps(bytes);
    return mapped;
}

const void *symmem_backend_entry(unsigned abi) {
    (void)abi;
    return NULL;
}
