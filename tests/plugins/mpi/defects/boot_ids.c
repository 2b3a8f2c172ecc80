/* SPDX-License-Identifier: BSD-3-Clause */
/* As root, in a network namespace that has the loopback interface alone:
 *     unshare -n sh -c 'ip link set lo up && mpirun -n 2 boot_ids'
 * The ranks see different boot ids, as containers of one machine may. MPI_Init of MPICH 4.0.2 over
 * UCX aborts the job: UCX takes them for two machines, which the loopback interface does not
 * connect. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static int take_boot_id(char rank) {
    char path[] = "/tmp/boot_id.XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0 || dprintf(fd, "0000000%c-1111-2222-3333-444444444444\n", rank) < 0)
        return -1;
    close(fd);
    const int failed = unshare(CLONE_NEWNS) != 0 ||
                       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
                       mount(path, "/proc/sys/kernel/random/boot_id", NULL, MS_BIND, NULL) != 0;
    unlink(path);
    return failed;
}

int main(int argc, char **argv) {
    const char *mpich = getenv("PMI_RANK"), *open_mpi = getenv("OMPI_COMM_WORLD_RANK");
    const char *rank = mpich != NULL ? mpich : open_mpi != NULL ? open_mpi : "0";
    if (argc == 1) { /* UCX reads it when the process loads it, so before main */
        execl("/proc/self/exe", argv[0], take_boot_id(rank[0]) == 0 ? "taken" : "failed", NULL);
        return 2;
    }
    if (strcmp(argv[1], "taken") != 0)
        return 2;
    MPI_Init(NULL, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %s: fine\n", rank);
    MPI_Finalize();
    return 0;
}
