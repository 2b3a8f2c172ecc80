/* SPDX-License-Identifier: BSD-3-Clause */
/* The keys, parts and combined values of an exchange. */
#ifndef SYMMEM_CORE_EXCHANGE_VALUE_H
#define SYMMEM_CORE_EXCHANGE_VALUE_H

#include "bootstrap/exchange.h"

void sm_exchange_key(const sm_session *session, uint64_t id, uint64_t sequence, const char *name,
                     char key[SM_SESSION_KEY_BYTES]);
void sm_exchange_rank_key(const sm_session *session, uint64_t id, uint64_t sequence, int32_t rank,
                          char key[SM_SESSION_KEY_BYTES]);
/* Returns the time left for one store call, or 0 with a record if the deadline has passed. */
uint32_t sm_exchange_limit_ms(const sm_gathering *x);
symmem_status sm_exchange_set(const sm_gathering *x, const char *key, const void *value,
                              size_t bytes);
size_t sm_gathering_world_size(const sm_gathering *x);
/* Whether `all` holds the payloads, if every rank gives `bytes` bytes. */
bool sm_gathering_inside(const sm_gathering *x, size_t bytes);
sm_summary *sm_gathering_summaries_of(const sm_gathering *x);
unsigned char *sm_gathering_payloads_of(const sm_gathering *x);
bool sm_gathering_has_failed(const sm_gathering *x);
/* Allocates the buffers. Without memory for them it uses the small ones and records a failure. */
symmem_status sm_gathering_allocate(sm_gathering *x);
/* Writes this rank's part to scratch and returns its size. */
size_t sm_gathering_make_part(sm_gathering *x);
/* Reads a rank's part into scratch, which grows to fit. Answers NOT_FOUND if the part is absent or
 * its rank gave up. Answers OUT_OF_RANGE without a record if this rank has no memory for the part,
 * unless the part is a failure. */
symmem_status sm_gathering_read_part(sm_gathering *x, int32_t rank, sm_part *part_p,
                                     bool *gave_up_p);
/* Whether this rank combines the parts of all ranks into one value. */
bool sm_gathering_combines(const sm_gathering *x);
/* Combines all parts into one value and sets it in the store. Only the combining rank calls
 * this. */
sm_outcome sm_gathering_combine(sm_gathering *x);
/* Answers NOT_FOUND while the combined value is absent. */
symmem_status sm_gathering_read_all(sm_gathering *x);
/* Returns the rank whose failure `all` holds, or -1. */
int32_t sm_gathering_failed_rank_of(const sm_gathering *x);

#endif
