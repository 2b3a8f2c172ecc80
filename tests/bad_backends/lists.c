/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backends that do harm to whoever runs them: they hang, crash, write over memory and lie. Each is
 * the CPU emulation with something spoilt in its table. The suite's runner must answer every one
 * with a clear report and an exit status, in time; run.sh sees to it. They are dangerous: run.sh is
 * the only thing that should load them.
 */
#include "../mutants/decorator/decorator.h"

extern const struct mutant bad_hanging[], bad_crashing[], bad_corrupting[], bad_lying[], bad_rude[];

const struct mutant *const mutant_lists[] = {bad_hanging, bad_crashing, bad_corrupting,
                                             bad_lying,   bad_rude,     NULL};
