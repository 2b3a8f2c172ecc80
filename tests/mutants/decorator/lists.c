/* SPDX-License-Identifier: BSD-3-Clause */
#include "decorator.h"

extern const struct mutant signal_mutants[], memory_mutants[], copy_mutants[], stream_mutants[],
    collective_mutants[], contained_mutants[];

const struct mutant *const mutant_lists[] = {
    signal_mutants,     memory_mutants,    copy_mutants, stream_mutants,
    collective_mutants, contained_mutants, NULL};
