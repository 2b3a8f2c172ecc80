/* SPDX-License-Identifier: BSD-3-Clause */
/* oshrun -n 2 passive: PE 1 makes no call for 3 s. How long does PE 0 wait for each of its own?
 * With the argument "apart", as root, the PEs see different boot ids, as containers of one machine
 * may. UCX then takes them for two machines, and moves bytes only while PE 1 is in a call. */
#define _GNU_SOURCE
#include <sched.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
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

static int take_boot_id(const char *rank) {
    char path[] = "/tmp/boot_id.XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0 || dprintf(fd, "0000000%c-1111-2222-3333-444444444444\n", rank[0]) < 0)
        return -1;
    close(fd);
    const int failed = unshare(CLONE_NEWNS) != 0 ||
                       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
                       mount(path, "/proc/sys/kernel/random/boot_id", NULL, MS_BIND, NULL) != 0;
    unlink(path);
    return failed;
}

int main(int argc, char **argv) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    char *buffer = calloc(1, BYTES);
    if (argc > 1 && strcmp(argv[1], "apart") == 0 && (rank == NULL || take_boot_id(rank) != 0))
        return 2;
    setenv("OMPI_MCA_memory", "^patcher", 1); /* for the end, see finalize.c */
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
