/* SPDX-License-Identifier: BSD-3-Clause */
/* handlers: which signals have a handler when main begins, after MPI_Init, and after MPI_Finalize.
 * The program itself sets none. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>

#define SIGNALS 32

static void look(const char *when) {
    printf("%s, signals with a handler:", when);
    for (int number = 1; number < SIGNALS; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
            action.sa_handler != SIG_IGN)
            printf(" %d", number);
    }
    printf("\n");
}

int main(void) {
    look("before MPI_Init");
    MPI_Init(NULL, NULL);
    look("after MPI_Init");
    MPI_Finalize();
    look("after MPI_Finalize");
    return 0;
}
