/* SPDX-License-Identifier: BSD-3-Clause */
#include "decorator.h"

static symmem_status copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                          const symmem_exec *exec) {
    return real->copy(instance, device, dst, src, bytes / 8 * 8, exec);
}

void mutate(symmem_backend *table) {
    table->copy = copy;
}
