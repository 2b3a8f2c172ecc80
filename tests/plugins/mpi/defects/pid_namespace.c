/* SPDX-License-Identifier: BSD-3-Clause */
/* mpirun -n 2 pid_namespace, as root: rank 1 is in a PID namespace of its own, as in a container.
 * MPI_Init of MPICH 4.0.2 over UCX aborts the job: it opens /proc/PID/fd/N of the other namespace.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    const char *mpich = getenv("PMI_RANK"), *open_mpi = getenv("OMPI_COMM_WORLD_RANK");
    const char *rank = mpich != NULL ? mpich : open_mpi != NULL ? open_mpi : "0";
    if (rank[0] == '1' && unshare(CLONE_NEWPID) != 0)
        return 2;
    pid_t pid = fork();
    if (pid != 0)
        return pid < 0 || waitpid(pid, NULL, 0) != pid;
    MPI_Init(NULL, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %s: fine\n", rank);
    MPI_Finalize();
    return 0;
}
