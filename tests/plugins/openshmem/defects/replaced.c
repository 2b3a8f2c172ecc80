/* SPDX-License-Identifier: BSD-3-Clause */
/* oshrun -n 2 replaced: rank 1's first process is killed, and a second takes its place in the
 * launch. A PE cannot be replaced: shmem_init of Open MPI 4.1.4 ends the process. */
#include <shmem.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void start(const char *who) {
    int rank;
    shmem_init();
    rank = shmem_my_pe();
    printf("PE %d, %s process: started\n", rank, who);
    fflush(stdout);
    if (rank == 1 && strcmp(who, "first") == 0)
        kill(getpid(), SIGKILL);
    alarm(10); /* rank 0 lives on meanwhile */
    pause();
}

int main(void) {
    int status;
    pid_t pid = fork();
    if (pid == 0)
        start("first");
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 1;
    alarm(5);
    if (WTERMSIG(status) == SIGKILL)
        start("second");
    return 0;
}
