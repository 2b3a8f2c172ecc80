/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "cpu/matmul.h"

/* Copies one dimension with two strides. */
static void copy_line(size_t element, int64_t count, char *dst, int64_t dst_step, const char *src,
                      int64_t src_step) {
    if (dst_step == 1 && src_step == 1) {
        memcpy(dst, src, (size_t)count * element);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        memcpy(dst + i * dst_step * (int64_t)element, src + i * src_step * (int64_t)element,
               element);
}

void symmem_cpu_copy_strided(const symmem_strided_copy *copy) {
    int64_t element = (int64_t)copy->element;
    int64_t at[SYMMEM_COPY_MAX_NDIM] = {0};
    int32_t last = copy->ndim - 1;
    for (int32_t d = 0; d < copy->ndim; d++)
        if (copy->shape[d] == 0)
            return;
    if (copy->ndim == 0) {
        memcpy(copy->dst, copy->src, copy->element);
        return;
    }
    for (;;) {
        int64_t src = 0, dst = 0;
        for (int32_t d = 0; d < last; d++) {
            src += at[d] * copy->src_strides[d];
            dst += at[d] * copy->dst_strides[d];
        }
        copy_line(copy->element, copy->shape[last], (char *)copy->dst + dst * element,
                  copy->dst_strides[last], (const char *)copy->src + src * element,
                  copy->src_strides[last]);
        int32_t d = last - 1;
        while (d >= 0 && ++at[d] == copy->shape[d])
            at[d--] = 0;
        if (d < 0)
            return;
    }
}
