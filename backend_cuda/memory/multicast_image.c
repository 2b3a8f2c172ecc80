/* SPDX-License-Identifier: BSD-3-Clause */
/* The compiled kernels of multimem.cu, as image.c has the others. There are none if there was no
 * nvcc. */
#include "memory/multicast.h"

#ifdef SYMMEM_CUDA_MULTICAST_IMAGE
extern const unsigned char symmem_cuda_multicast_image[];
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".hidden symmem_cuda_multicast_image\n"
        ".global symmem_cuda_multicast_image\n"
        "symmem_cuda_multicast_image:\n"
        ".incbin \"" SYMMEM_CUDA_MULTICAST_IMAGE "\"\n"
        ".byte 0\n"
        ".popsection\n");

const void *cuda_multicast_image(void) {
    return symmem_cuda_multicast_image;
}
#else
const void *cuda_multicast_image(void) {
    return NULL;
}
#endif
