/* SPDX-License-Identifier: BSD-3-Clause */
/* Removes the keys of exchanges from the store. */
#ifndef SYMMEM_CORE_EXCHANGE_CLEAN_H
#define SYMMEM_CORE_EXCHANGE_CLEAN_H

#include "bootstrap/exchange.h"

/* Whether a rank's part, or its mark that it gave up, is there. A status other than OK and
 * NOT_FOUND means that the store does not tell. */
symmem_status sm_exchange_look_for_part(const sm_gathering *x, int32_t rank);
/* Cleans up after an exchange that was completed, with data or with an agreed failure. A failure
 * here leaves keys behind, but the result is right. */
void sm_exchange_finish(sm_gathering *x, bool failed);
/* Marks this rank's part as given up and remembers the keys. After the end of a rank there is no
 * mark: the others see that end, too, and the caller is to be told without a write to the store. */
void sm_exchange_abandon(sm_session *session, uint64_t id, uint64_t sequence, sm_outcome outcome);
/* Removes the keys of exchanges that were given up. `all`: every rank has left those sessions. */
void sm_exchange_sweep(sm_session *session, bool all);

#endif
