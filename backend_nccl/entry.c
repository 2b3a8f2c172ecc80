/* SPDX-License-Identifier: BSD-3-Clause */
/* What the plug-in exports. */
#include "nccl_internal.h"

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? nccl_table() : NULL;
}
