/* SPDX-License-Identifier: BSD-3-Clause */
/* Links between emulated devices, as the environment says. */

#include "shm_instance.h"

#define NAME "SYMMEM_SHM_NVLINKS"
#define UNTOUCHED (-5)

static int32_t matrix[17];

static symmem_status ask(const char *setting, int32_t count) {
    for (int i = 0; i < 17; i++)
        matrix[i] = UNTOUCHED;
    if (setting == NULL)
        unsetenv(NAME);
    else
        setenv(NAME, setting, 1);
    symmem_status status = backend->connectivity(instance, "nvlink", count, matrix);
    unsetenv(NAME);
    CU_ASSERT_EQUAL(matrix[count * count], UNTOUCHED);
    return status;
}

TEST("one number") {
    CU_ASSERT_EQUAL(ask(NULL, 4), SYMMEM_OK);
    for (int i = 0; i < 16; i++)
        CU_ASSERT_EQUAL(matrix[i], 0);
    CU_ASSERT_EQUAL(ask("18", 4), SYMMEM_OK);
    for (int i = 0; i < 16; i++)
        CU_ASSERT_EQUAL(matrix[i], i % 5 == 0 ? 0 : 18);
    CU_ASSERT_EQUAL(ask("1000", 1), SYMMEM_OK);
    CU_ASSERT_EQUAL(matrix[0], 0);
}

TEST("matrix") {
    static const int32_t expected[] = {0, 2, 1, 2, 0, 4, 1, 4, 0};
    CU_ASSERT_EQUAL(ask("0,2,1;2,0,4;1,4,0", 3), SYMMEM_OK);
    CU_ASSERT_EQUAL(memcmp(matrix, expected, sizeof expected), 0);
}

TEST("refusals") {
    static const char *const bad[] = {
        "",           "x",        "-1",        "1001",      "0,1",
        "0,1;1",      "0,1;1,0;", "0,1,1,0",   "0;1;1;0",   "0,1;1,0 ",
        " 0,1;1,0",   "0,+1;1,0", "0,1;1,0x2", "0,1;1,-0",  "0,1;;1,0",
        "0,2000;1,0", "18 ",      "0,1;1,0,0", "0,1,0;1,0", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CU_ASSERT_EQUAL(ask(bad[i], 2), SYMMEM_INVALID_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(host.text, NAME));
    }
    CU_ASSERT_EQUAL(backend->connectivity(instance, "pcie", 2, matrix), SYMMEM_NOT_FOUND);
}
