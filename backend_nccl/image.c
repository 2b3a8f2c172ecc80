/* SPDX-License-Identifier: BSD-3-Clause */
/* The compiled kernel, as bytes of this library. There is none if there was no nvcc or no device
 * header. */
#include "image.h"

#ifdef SYMMEM_NCCL_IMAGE
extern const unsigned char symmem_nccl_image[];
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".hidden symmem_nccl_image\n"
        ".global symmem_nccl_image\n"
        "symmem_nccl_image:\n"
        ".incbin \"" SYMMEM_NCCL_IMAGE "\"\n"
        ".byte 0\n"
        ".popsection\n");

const void *nccl_image(void) {
    return symmem_nccl_image;
}
#else
const void *nccl_image(void) {
    return NULL;
}
#endif
