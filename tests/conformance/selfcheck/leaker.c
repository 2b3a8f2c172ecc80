/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for a library or backend that forgets a block of the heap. */
#include <stdlib.h>

void *selfcheck_leak(size_t bytes) __attribute__((visibility("default")));

void *selfcheck_leak(size_t bytes) {
    void *forgotten = malloc(bytes);

    return forgotten == NULL ? NULL : (char *)forgotten + 1;
}
