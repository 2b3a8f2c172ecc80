/* SPDX-License-Identifier: BSD-3-Clause */
/* Environment variables. */
#include "bootstrap/bootstrap.h"
#include "unit_main.h"
#include "last_record.h"

static const char *const names[] = {"SYMMEM_TEST_A", "SYMMEM_TEST_B", NULL};

static symmem_status read_a(const char *text, int64_t *value_p) {
    setenv("SYMMEM_TEST_A", text, 1);
    return sm_env_int(names, -5, 1000, value_p);
}

TEST("numbers") {
    int64_t value = 77;
    unsetenv("SYMMEM_TEST_A");
    unsetenv("SYMMEM_TEST_B");
    symmem_clear_error();
    CU_ASSERT_EQUAL(sm_env_int(names, 0, 10, &value), SYMMEM_NOT_FOUND);
    CU_ASSERT(value == 77 && last_record().status == SYMMEM_OK);
    setenv("SYMMEM_TEST_B", "3", 1);
    CU_ASSERT_EQUAL(sm_env_int(names, 0, 10, &value), SYMMEM_OK);
    CU_ASSERT_EQUAL(value, 3);
    CU_ASSERT_EQUAL(read_a("4", &value), SYMMEM_OK); /* the first one wins */
    CU_ASSERT_EQUAL(value, 4);
    CU_ASSERT_EQUAL(read_a("-5", &value), SYMMEM_OK);
    CU_ASSERT_EQUAL(value, -5);
    static const char *const bad[] = {
        "", "x", "1x", " 1", "+1", "0x1", "1 ", "-", "1001", "-6", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        symmem_clear_error();
        CU_ASSERT_EQUAL(read_a(bad[i], &value), SYMMEM_INVALID_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "SYMMEM_TEST_A"));
    }
    CU_ASSERT_EQUAL(value, -5);
}

/* SM-ERROR-12 */
TEST("flags that are none") {
    static const char *const good[] = {"", "0", "1"};
    static const char *const bad[] = {"yes", "2", " 1", "1 ", "-1", "true", "00"};
    unsetenv("SYMMEM_TEST_A");
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        setenv("SYMMEM_TEST_B", good[i], 1);
        CU_ASSERT_EQUAL(sm_env_check_flags(names), SYMMEM_OK);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("SYMMEM_TEST_A", i % 2 == 0 ? "1" : bad[i], 1);
        setenv("SYMMEM_TEST_B", i % 2 == 0 ? bad[i] : "1", 1);
        symmem_clear_error();
        CU_ASSERT_EQUAL(sm_env_check_flags(names), SYMMEM_INVALID_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, names[i % 2 == 0]));
        CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, bad[i]));
    }
    unsetenv("SYMMEM_TEST_A");
    unsetenv("SYMMEM_TEST_B");
    CU_ASSERT_EQUAL(sm_env_check_flags(names), SYMMEM_OK);
}

TEST("flags") {
    unsetenv("SYMMEM_TEST_A");
    CU_ASSERT_TRUE(sm_env_flag("SYMMEM_TEST_A", true));
    CU_ASSERT_FALSE(sm_env_flag("SYMMEM_TEST_A", false));
    setenv("SYMMEM_TEST_A", "1", 1);
    CU_ASSERT_TRUE(sm_env_flag("SYMMEM_TEST_A", false));
    setenv("SYMMEM_TEST_A", "0", 1);
    CU_ASSERT_FALSE(sm_env_flag("SYMMEM_TEST_A", true));
    setenv("SYMMEM_TEST_A", "yes", 1);
    CU_ASSERT_TRUE(sm_env_flag("SYMMEM_TEST_A", true));
    CU_ASSERT_FALSE(sm_env_flag("SYMMEM_TEST_A", false));
}
