/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits of signal operations that are wrong, or do harm when they are over. */
#include "decorator.h"

#include <stdlib.h>

ON_SIGNAL(for_ever, call->exec.timeout_ms = 0)

static void abort_on_timeout(symmem_status status, const symmem_peers *peers) {
    (void)peers;
    if (status == SYMMEM_TIMEOUT)
        abort();
}

ON_SIGNAL(in_microseconds,
          call->exec.timeout_ms = call->exec.timeout_ms / 1000 + (call->exec.timeout_ms > 0))

/* The clock ticks at a rate other than the constant says. */
ON_SIGNAL(in_slow_ticks, call->exec.timeout_ms *= 3)
ON_SIGNAL(in_fast_ticks, call->exec.timeout_ms -= call->exec.timeout_ms / 4)
ON_SIGNAL(zero_is_short, if (call->exec.timeout_ms == 0) call->exec.timeout_ms = 100)
ON_SIGNAL(at_most_50, if (call->exec.timeout_ms > 50) call->exec.timeout_ms = 50)

const struct mutant timeout_mutants[] = {
    {"barrier_ignores_timeout", .on = ON_BARRIER, .before = for_ever},
    {"put_ignores_timeout", .on = ON_PUT, .before = for_ever},
    {"wait_ignores_timeout", .on = ON_WAIT, .before = for_ever},
    {"barrier_aborts_on_timeout", .on = ON_BARRIER, .after = abort_on_timeout},
    {"put_aborts_on_timeout", .on = ON_PUT, .after = abort_on_timeout},
    {"wait_aborts_on_timeout", .on = ON_WAIT, .after = abort_on_timeout},
    {"timeout_in_microseconds", .on = ON_ALL, .before = in_microseconds},
    {"timeout_in_slow_ticks", .on = ON_ALL, .before = in_slow_ticks},
    {"timeout_in_fast_ticks", .on = ON_ALL, .before = in_fast_ticks},
    {"timeout_zero_is_short", .on = ON_ALL, .before = zero_is_short},
    {"timeout_is_compiled_in", .on = ON_ALL, .before = at_most_50},
    {.name = NULL},
};
