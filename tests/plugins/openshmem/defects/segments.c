/* SPDX-License-Identifier: BSD-3-Clause */
/* oshrun -n 2 segments: 40 mappings, as of a program with threads or a large heap, below the data
 * of a liboshmem that dlopen loads. shmem_init of Open MPI 4.1.4 has room for 32 and writes beyond.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>

int main(void) {
    for (size_t i = 0; i < 40; i++)
        if (mmap((char *)0x20000000 + i * 0x10000, 4096, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            return 2;
    void *library = dlopen("liboshmem.so.40", RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL)
        return 2;
    void (*init)(void) = (void (*)(void))dlsym(library, "shmem_init");
    int (*my_pe)(void) = (int (*)(void))dlsym(library, "shmem_my_pe");
    init();
    printf("PE %d: fine\n", my_pe());
    return 0;
}
