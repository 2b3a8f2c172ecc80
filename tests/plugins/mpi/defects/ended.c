/* SPDX-License-Identifier: BSD-3-Clause */
/* mpirun -n 2 ended: rank 1 is killed, and rank 0 completes an accumulate to it. MPI_Win_flush does
 * not return under MPICH 4.0.2, and no call says that the rank has ended. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(void) {
    const unsigned value = 7;
    int rank;
    char *base;
    MPI_Win win;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        kill(getpid(), SIGKILL);
    sleep(2);
    alarm(5);
    MPI_Accumulate(&value, 1, MPI_UNSIGNED, 1, 0, 1, MPI_UNSIGNED, MPI_REPLACE, win);
    printf("MPI_Win_flush returned %d\n", MPI_Win_flush(1, win));
    fflush(stdout);
    _exit(0);
}

/* The launcher's own process lives on, so that it does not end the others. */
int main(void) {
    int status;
    pid_t pid = fork();
    if (pid == 0)
        work();
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 1;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        printf("MPI_Win_flush did not return within 5 s\n");
    fflush(stdout);
    sleep(8);
    return 0;
}
