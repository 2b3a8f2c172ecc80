/* SPDX-License-Identifier: BSD-3-Clause */
/* The compiled kernels, as bytes of this library. There are none if there was no nvcc. */
#include "driver/image.h"

#ifdef SYMMEM_CUDA_IMAGE
extern const unsigned char symmem_cuda_image[];
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".hidden symmem_cuda_image\n"
        ".global symmem_cuda_image\n"
        "symmem_cuda_image:\n"
        ".incbin \"" SYMMEM_CUDA_IMAGE "\"\n"
        ".byte 0\n"
        ".popsection\n");

const void *cuda_image(void) {
    return symmem_cuda_image;
}
#else
const void *cuda_image(void) {
    return NULL;
}
#endif
