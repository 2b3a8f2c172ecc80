/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend that works, to be loaded by its path. */
#include "../fake_table.h"

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);
const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &fake_table_a : NULL;
}
