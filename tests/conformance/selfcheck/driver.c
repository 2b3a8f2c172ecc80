/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for a driver that a backend loads, and which keeps what it once asked for. */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

bool selfcheck_driver_keeps(size_t bytes) __attribute__((visibility("default")));
int selfcheck_driver_socket(void) __attribute__((visibility("default")));
bool selfcheck_driver_maps(size_t bytes) __attribute__((visibility("default")));

/* Found again, so that to a sanitizer it is no leak. */
static char *kept[1024];

bool selfcheck_driver_keeps(size_t bytes) {
    static int count;
    char *block = malloc(bytes);
    kept[count++ % 1024] = block;
    void *reserved = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block != NULL && reserved != MAP_FAILED;
}

/* Kept, lest the call be the last thing here: then the caller would be taken to have made it. */
int selfcheck_driver_socket(void) {
    static volatile int last;
    last = socket(AF_UNIX, SOCK_STREAM, 0);
    return last;
}

/* Memory that a device sees, too, for any caller. */
bool selfcheck_driver_maps(size_t bytes) {
    void *shared = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared != MAP_FAILED;
}
