/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backends that do harm to whoever runs them: they hang, crash, write over memory and lie. Each is
 * the CPU emulation with something spoilt in its table. The suite's runner must answer every one
 * with a clear report and an exit status, in time; run.sh sees to it. They are dangerous: run.sh is
 * the only thing that should load them.
 */
#ifndef SYMMEM_BAD_BACKENDS_H
#define SYMMEM_BAD_BACKENDS_H

#include <symmem/backend.h>

struct bad_kind {
    const char *name;
    /* Called once in a process, before the core has seen the table. */
    void (*spoil)(symmem_backend *table);
};

/* Lists that a NULL name ends. */
extern const struct bad_kind bad_hanging[];
extern const struct bad_kind bad_crashing[];
extern const struct bad_kind bad_corrupting[];
extern const struct bad_kind bad_lying[];
extern const struct bad_kind bad_rude[];

/* The emulation's own table, for entries that do something before or after. */
extern const symmem_backend *bad_real;

#endif
