/* SPDX-License-Identifier: BSD-3-Clause */
/* oshrun -n 2 swap: a compare-and-swap of 32 bits gives the old value of the word. Open MPI 4.1.4
 * over UCX writes 64 bits of result. */
#include <shmem.h>
#include <stdio.h>

#define ROUNDS 1000

int main(void) {
    unsigned wrong = 0;
    shmem_init();
    const int me = shmem_my_pe(), all = shmem_n_pes();
    unsigned *words = shmem_malloc(4096);
    for (int i = 0; i < 1024; i++)
        words[i] = 0;
    shmem_barrier_all();
    for (unsigned i = 0; i < ROUNDS; i++)
        wrong += shmem_uint_atomic_compare_swap(&words[me], i, i + 1, (me + 1) % all) != i;
    shmem_barrier_all();
    printf("PE %d: %u of %d swaps gave a wrong old value; the word is %u\n", me, wrong, ROUNDS,
           words[(me + all - 1) % all]);
    shmem_finalize();
    return wrong > 0;
}
