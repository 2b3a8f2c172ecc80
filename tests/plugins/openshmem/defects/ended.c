/* SPDX-License-Identifier: BSD-3-Clause */
/* oshrun -n 2 ended: PE 1 is killed, and PE 0 puts to it, completes that, and exits. Open MPI 4.1.4
 * calls shmem_finalize when a process exits that has not, which waits for all PEs. */
#include <shmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(void) {
    shmem_init();
    unsigned *word = shmem_malloc(sizeof *word);
    const int me = shmem_my_pe();
    *word = 0;
    shmem_barrier_all();
    if (me == 1)
        kill(getpid(), SIGKILL);
    sleep(2);
    alarm(5);
    shmem_uint_atomic_set(word, 7, 1);
    printf("shmem_uint_atomic_set returned\n");
    shmem_quiet();
    printf("shmem_quiet returned\n");
    fflush(stdout);
    alarm(5);
    exit(0);
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
        printf("the next call, or exit, did not return within 5 s\n");
    fflush(stdout);
    sleep(12);
    return 0;
}
