/* SPDX-License-Identifier: BSD-3-Clause */
/* oshrun -n 2 pid_namespace, as root: PE 1 is in a PID namespace of its own, as in a container. */
#define _GNU_SOURCE
#include <sched.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    int status;
    if (rank != NULL && rank[0] == '1' && unshare(CLONE_NEWPID) != 0)
        return 2;
    pid_t pid = fork();
    if (pid != 0)
        return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
    alarm(20);
    setenv("OMPI_MCA_memory", "^patcher", 1); /* for the end, see finalize.c */
    shmem_init();
    long *word = shmem_malloc(sizeof *word);
    *word = 0;
    shmem_barrier_all();
    shmem_long_p(word, 7, (shmem_my_pe() + 1) % shmem_n_pes());
    shmem_barrier_all();
    printf("PE %d: %s\n", shmem_my_pe(), *word == 7 ? "fine" : "the put is lost");
    shmem_finalize();
    return 0;
}
