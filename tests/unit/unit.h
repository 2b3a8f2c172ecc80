/* SPDX-License-Identifier: BSD-3-Clause */
/* What the unit tests of the core's objects share: a world of one, and checks of error records. */
#ifndef UNIT_H
#define UNIT_H

#include "fake_backend.h"
#include "unit_main.h"

#include <symmem/symmem.h>

/* A call must answer `expected` and, if that is a failure, record it under `name`. */
#define EXPECT_FAIL(call, expected, name)                                                          \
    do {                                                                                           \
        symmem_error_record expect_record;                                                         \
        symmem_clear_error();                                                                      \
        CU_ASSERT_EQUAL((call), (expected));                                                       \
        symmem_last_error(&expect_record);                                                         \
        CU_ASSERT_EQUAL(expect_record.status, (expected));                                         \
        CU_ASSERT_STRING_EQUAL(expect_record.operation, (name));                                   \
        CU_ASSERT(expect_record.message[0] != 0);                                                  \
    } while (0)
#define EXPECT_OK(call) CU_ASSERT_EQUAL((call), SYMMEM_OK)

static flat_backend unit_table;

/* A context in a world of one, its fake backend registered and set. */
__attribute__((unused)) static symmem_context *unit_context(uint64_t capabilities) {
    symmem_context *context = NULL;
    symmem_context_options options;
    fake_reset();
    fake_table(&unit_table, "fake", capabilities);
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    options.local_rank = 0;
    CU_ASSERT_EQUAL_FATAL(symmem_init(&options, &context), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_register_backend(context, flat_table(&unit_table)), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_set_backend(context, "fake"), SYMMEM_OK);
    return context;
}

/* Ends it; all that the backend was asked for must have come back. */
__attribute__((unused)) static void unit_end(symmem_context *context) {
    symmem_context_free(context);
    CU_ASSERT_EQUAL(atomic_load(&fake.allocated), atomic_load(&fake.released));
    CU_ASSERT_EQUAL(atomic_load(&fake.opened), atomic_load(&fake.closed));
}

#endif
