/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backends that harm the process that runs them: they hang, crash, write over memory and lie. Each
 * is the CPU emulation with a broken entry in its table. run.sh checks that the suite's runner
 * answers each one in time with a clear report and an exit status. They are dangerous, so only
 * run.sh should load them.
 */
#include "../mutants/decorator/decorator.h"

extern const struct mutant bad_hanging[], bad_crashing[], bad_corrupting[], bad_lying[], bad_rude[];

const struct mutant *const mutant_lists[] = {bad_hanging, bad_crashing, bad_corrupting,
                                             bad_lying,   bad_rude,     NULL};
