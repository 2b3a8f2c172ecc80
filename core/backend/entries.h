/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend's table as the core uses it: every entry at one place, NULL where the table has none.
 */
#ifndef SYMMEM_CORE_BACKEND_ENTRIES_H
#define SYMMEM_CORE_BACKEND_ENTRIES_H

#include <symmem/backend.h>

#define SM_ENTRY(group, entry, name, need) __typeof__(((symmem_##group##_ops *)NULL)->entry) name;
typedef struct sm_backend {
    const symmem_backend *table; /* which it was made of */
    const char *name, *description;
    uint64_t capabilities; /* the table's flags, and what its groups and entries show */
    SYMMEM_BACKEND_ENTRIES(SM_ENTRY)
} sm_backend;
#undef SM_ENTRY

/* Fills *backend from a table, or refuses it with ABI: its version, sizes, name, flags, or a
 * missing entry. Calls nothing of it. Local, any thread. [SM-BACKEND-06, -07, -12, -13] */
symmem_status sm_backend_read(const symmem_backend *table, const char *operation,
                              sm_backend *backend);
/* 1 to 31 of a-z 0-9 _. */
bool sm_backend_name_valid(const char *name);

#endif
