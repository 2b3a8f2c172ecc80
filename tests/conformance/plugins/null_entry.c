/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend that does not speak this ABI. */
#include <symmem/backend.h>

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);
const symmem_backend *symmem_backend_entry(uint32_t abi) {
    (void)abi;
    return NULL;
}
