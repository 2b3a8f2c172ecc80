/* SPDX-License-Identifier: BSD-3-Clause */
/* What the plug-in exports. Apart from the rest, which another plug-in may hold as well. */
#include "cuda_internal.h"

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &cuda_table : NULL;
}
