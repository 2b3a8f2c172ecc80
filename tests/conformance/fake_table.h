/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small backend inside the suite: memory from the heap, a world of one, no capability. Its
 * tables are what the registration cases bend and break.
 */
#ifndef SYMMEM_CONFORMANCE_FAKE_TABLE_H
#define SYMMEM_CONFORMANCE_FAKE_TABLE_H

#include <symmem/backend.h>

#include "../flat_backend.h"

/* Works in a world of one. Constant, so they may be registered anywhere. */
extern const symmem_backend fake_table_a; /* "suite_fake_a" */
extern const symmem_backend fake_table_b; /* "suite_fake_b" */
/* 31 characters long; more bytes than this ABI's table are claimed. */
extern const symmem_backend fake_table_longest;
/* Its probe answers UNSUPPORTED with fake_reason. */
extern const symmem_backend fake_table_absent; /* "suite_fake_absent" */
extern const char fake_reason[];

/* A table with every entry and every flag there is. Nothing in it works, but it is well formed. */
void fake_table_full(flat_backend *table);

/* Ranks' memory is not shared but exchanged in their group, in which each reaches its own alone. */
void fake_table_exchanges(flat_backend *table);

/* Calls made of any fake entry in this process. The cases that look at it run on one rank. */
int fake_table_calls(void);

#endif
