/* SPDX-License-Identifier: BSD-3-Clause */
/* Element types. */
#include <symmem/symmem.h>
#include "unit_main.h"

TEST("dtypes") {
    static const size_t sizes[SYMMEM_DTYPE_COUNT] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
    for (int i = 0; i < SYMMEM_DTYPE_COUNT; i++)
        CU_ASSERT_EQUAL(symmem_dtype_size((symmem_dtype)i), sizes[i]);
    CU_ASSERT_STRING_EQUAL(symmem_dtype_name(SYMMEM_BFLOAT16), "bfloat16");
    CU_ASSERT_STRING_EQUAL(symmem_dtype_name(SYMMEM_UINT8), "uint8");
    CU_ASSERT_STRING_EQUAL(symmem_dtype_name(SYMMEM_DTYPE_COUNT), "unknown");
    CU_ASSERT_EQUAL(symmem_dtype_size(SYMMEM_DTYPE_COUNT), 0);
    CU_ASSERT_EQUAL(symmem_dtype_size((symmem_dtype)-1), 0);
    CU_ASSERT_STRING_EQUAL(symmem_dtype_name((symmem_dtype)-1), "unknown");
}
