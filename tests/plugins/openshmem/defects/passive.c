/* SPDX-License-Identifier: BSD-3-Clause */
/* oshrun -n 2 passive: PE 1 makes no call for 3 s. How long does PE 0 wait for each of its own? */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BYTES ((size_t)1 << 20)

static void tell(const char *what, struct timespec *since) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("  %-22s %.3f s\n", what,
           (double)(now.tv_sec - since->tv_sec) + (double)(now.tv_nsec - since->tv_nsec) / 1e9);
    *since = now;
}

static void work(char *memory, char *buffer) {
    struct timespec since;
    usleep(300000);
    clock_gettime(CLOCK_MONOTONIC, &since);
    shmem_putmem(memory, buffer, 8, 1);
    tell("put of 8 bytes", &since);
    shmem_putmem(memory, buffer, BYTES, 1);
    tell("put of 1 MiB", &since);
    shmem_uint_atomic_set((unsigned *)(void *)memory, 7, 1);
    tell("atomic set", &since);
    shmem_quiet();
    tell("quiet", &since);
    shmem_getmem(buffer, memory, BYTES, 1);
    tell("get of 1 MiB", &since);
}

int main(void) {
    char *buffer = calloc(1, BYTES);
    shmem_init();
    char *memory = shmem_malloc(BYTES);
    shmem_barrier_all();
    if (shmem_my_pe() == 1)
        sleep(3);
    else
        work(memory, buffer);
    shmem_barrier_all();
    shmem_finalize();
    free(buffer);
    return 0;
}
