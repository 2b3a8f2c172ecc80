/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend that is another backend with something wrong. Each mutant is one small file that
 * defines mutate(), linked with decorator.c into a plug-in of its own.
 *
 * The backend underneath is libsymmem_backend_shm.so in the folder above the mutant's, or the
 * shared object that SYMMEM_MUTANTS_OF names: any that speaks this ABI.
 */
#ifndef SYMMEM_MUTANTS_DECORATOR_H
#define SYMMEM_MUTANTS_DECORATOR_H

#include <symmem/backend.h>

/* The table underneath; constant once mutate() is called. Its instances, streams and peers are
 * those that the core gets, so an entry that is replaced hands everything on to it. */
extern const symmem_backend *real;

/* Changes what it wants to be wrong in a copy of that table. Called once. */
void mutate(symmem_backend *table);

void mutant_sleep_ms(unsigned ms);

/* For mutants that go wrong with peers' memory only: keeps track of what is imported in this
 * process, by the table's entries for it. */
void mutant_watch_imports(symmem_backend *table);
bool mutant_is_a_peers(const void *ptr);

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);

#endif
