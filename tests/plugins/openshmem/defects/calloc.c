/* SPDX-License-Identifier: BSD-3-Clause */
/* oshrun -n 2 calloc: shmem_calloc is complete on all PEs when it returns, for it ends with a
 * barrier. Open MPI 4.1.4 sets the memory to zero behind that: puts of peers are lost. */
#include <shmem.h>
#include <stdio.h>

#define ROUNDS 200

int main(void) {
    int lost = 0;
    shmem_init();
    const int me = shmem_my_pe(), all = shmem_n_pes();
    for (int i = 0; i < ROUNDS; i++) {
        const size_t bytes = i % 2 != 0 ? (size_t)8 << 10 : (size_t)4 << 20;
        char *memory = shmem_calloc(bytes, 1);
        long *last = (long *)(void *)(memory + bytes - sizeof(long));
        shmem_long_p(last, 7, (me + 1) % all);
        shmem_barrier_all();
        lost += *last != 7;
        shmem_barrier_all();
        shmem_free(memory);
    }
    printf("PE %d: %d of %d puts after shmem_calloc are lost\n", me, lost, ROUNDS);
    shmem_finalize();
    return lost > 0;
}
