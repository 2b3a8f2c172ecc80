/* SPDX-License-Identifier: BSD-3-Clause */
/* Element types and the error record. */
#include "bootstrap/bootstrap.h"
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

TEST("record") {
    symmem_error_record record;
    symmem_last_error(&record);
    CU_ASSERT(record.status == SYMMEM_OK && record.rank == -1 && record.failed_rank == -1);
    sm_record()->failed_rank = 3;
    sm_record()->missing[0] = 5;
    CU_ASSERT_EQUAL(sm_fail(SYMMEM_BUSY, "operation", "stage", "a %d", 1), SYMMEM_BUSY);
    symmem_last_error(&record);
    CU_ASSERT(record.status == SYMMEM_BUSY && record.failed_rank == -1 && record.missing[0] == 0);
    CU_ASSERT(record.channel == -1 && record.rank == -1 && record.world_size == 0);
    CU_ASSERT_STRING_EQUAL(record.operation, "operation");
    CU_ASSERT_STRING_EQUAL(record.stage, "stage");
    CU_ASSERT_STRING_EQUAL(record.message, "a 1");
    symmem_last_error(NULL);

    /* Built from its own texts, and longer than it holds. */
    sm_fail(SYMMEM_TIMEOUT, sm_record()->operation, sm_record()->stage, "%s and %0300d",
            sm_record()->message, 0);
    CU_ASSERT_STRING_EQUAL(sm_record()->operation, "operation");
    CU_ASSERT_EQUAL(strncmp(sm_record()->message, "a 1 and 0", 9), 0);
    CU_ASSERT_EQUAL(strlen(sm_record()->message), sizeof(record.message) - 1);
    sm_fail(SYMMEM_BUSY,
            "an operation with a name that is longer than any public call has, and too long", "",
            "x");
    CU_ASSERT_EQUAL(strlen(sm_record()->operation), sizeof(record.operation) - 1);

    CU_ASSERT_EQUAL(sm_fail_record(&record), SYMMEM_BUSY);
    CU_ASSERT_STRING_EQUAL(sm_record()->message, "a 1");
    CU_ASSERT_EQUAL(sm_fail_record(sm_record()), SYMMEM_BUSY);
    symmem_clear_error();
    CU_ASSERT(sm_record()->status == SYMMEM_OK && sm_record()->channel == -1);
    CU_ASSERT_STRING_EQUAL(sm_record()->message, "");
}

TEST("errno") {
    static const struct {
        int number;
        symmem_status status;
    } cases[] = {{EMFILE, SYMMEM_LIMIT},      {ENFILE, SYMMEM_LIMIT},
                 {ENOSPC, SYMMEM_NO_SPACE},   {ENOMEM, SYMMEM_OUT_OF_MEMORY},
                 {EACCES, SYMMEM_PERMISSION}, {EPERM, SYMMEM_PERMISSION},
                 {EFBIG, SYMMEM_LIMIT},       {EDQUOT, SYMMEM_NO_SPACE},
                 {EIO, SYMMEM_SYSTEM},        {ENAMETOOLONG, SYMMEM_PATH_TOO_LONG}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CU_ASSERT_EQUAL(sm_fail_errno(cases[i].number, "o", "s", "open %s", "f"), cases[i].status);
        CU_ASSERT_EQUAL(sm_record()->status, cases[i].status);
        CU_ASSERT_EQUAL(sm_record()->system_errno, cases[i].number);
        CU_ASSERT_EQUAL(strncmp(sm_record()->message, "open f: ", 8), 0);
        CU_ASSERT(strlen(sm_record()->message) > 8);
    }
    sm_fail_errno(EIO, "o", "s", "%0400d", 1);
    CU_ASSERT_EQUAL(strlen(sm_record()->message), sizeof(sm_record()->message) - 1);
}

/* One call that fails, or that meets a failure and puts the record of before back. */
static void call_on(uint64_t context, bool fails) {
    bool is_outermost = sm_call_begin("symmem_call");
    const symmem_error_record before = *sm_record();
    sm_call_is_in(context);
    (void)sm_fail(SYMMEM_LIMIT, "call", "", "%d is its context", (int)context);
    CU_ASSERT_TRUE(sm_failed_in(context)); /* while it lasts, too */
    if (!fails)
        *sm_record() = before;
    sm_call_end(&is_outermost);
}

TEST("whose failure the record is of") {
    symmem_clear_error();
    call_on(1, true);
    CU_ASSERT(sm_failed_in(1) && !sm_failed_in(2));
    call_on(2, false);
    CU_ASSERT(sm_failed_in(1) && !sm_failed_in(2));
    symmem_clear_error();
    CU_ASSERT_FALSE(sm_failed_in(1));
}
