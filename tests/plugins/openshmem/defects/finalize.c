/* SPDX-License-Identifier: BSD-3-Clause */
/* oshrun -n 2 finalize: shmem_finalize of Open MPI 4.1.4 is a fault. It is not with
 * OMPI_MCA_memory=^patcher. */
#include <shmem.h>
#include <stdio.h>

int main(void) {
    shmem_init();
    printf("PE %d of %d\n", shmem_my_pe(), shmem_n_pes());
    fflush(stdout);
    shmem_finalize();
    printf("fine\n");
    return 0;
}
