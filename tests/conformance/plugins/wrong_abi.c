/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend that answers with a table of another ABI than it was asked for. */
#include "../fake_table.h"

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);
const symmem_backend *symmem_backend_entry(uint32_t abi) {
    static symmem_backend table;
    table = fake_table_a;
    table.abi = abi + 1;
    return &table;
}
