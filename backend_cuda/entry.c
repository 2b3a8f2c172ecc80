/* SPDX-License-Identifier: BSD-3-Clause */
/* The symbol that the plug-in exports. It is separate, because another plug-in may contain the
 * other files too. */
#include "backend.h"

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &cuda_table : NULL;
}
