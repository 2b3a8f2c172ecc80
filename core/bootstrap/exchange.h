/* SPDX-License-Identifier: BSD-3-Clause */
/* One gathering in progress. exchange.c runs it, and exchange_value.c encodes its parts and
 * values. */
#ifndef SYMMEM_CORE_EXCHANGE_H
#define SYMMEM_CORE_EXCHANGE_H

#include "bootstrap/session_internal.h"

#define SM_PART_MAGIC 0x54524150u /* "PART" */
#define SM_PART_GAVE_UP 1u
#define SM_PART_FAILED 2u /* a verdict follows in place of the payload */
#define SM_PART_BYTES_MAX (SYMMEM_STORE_VALUE_MAX - sizeof(sm_part))

/* The head of the value of <id>/<seq>/<rank>. The payload follows if it fits in the value. */
typedef struct sm_part {
    uint32_t magic;
    uint32_t flags;
    uint64_t bytes;
    uint64_t kind; /* hash: ranks in different calls must not take each other's data */
} sm_part;

typedef struct sm_failed_part {
    sm_part part;
    sm_verdict verdict;
} sm_failed_part;

/* The head of the value of <id>/<seq>/all. */
typedef struct sm_all_head {
    uint32_t magic;
    int32_t failed_rank; /* -1: none */
} sm_all_head;

/* The value of `all` if no rank failed: a summary for each rank, then the payloads if they all have
 * the same size and fit. */
typedef struct sm_summary {
    uint64_t bytes;
    uint64_t kind;
} sm_summary;

/* The value of `all` if a rank failed. */
typedef struct sm_failed_all {
    sm_all_head head;
    sm_verdict verdict;
} sm_failed_all;

typedef struct sm_gathering {
    sm_session *session;
    const sm_call *call;
    uint64_t id;
    uint64_t sequence;
    sm_part own;
    symmem_error_record failure; /* this rank's earlier failure, if its status is not OK */
    const void *in;
    void *out;
    unsigned char *combined; /* head, summaries and payloads */
    size_t combined_bytes;
    unsigned char *scratch; /* one part */
    size_t scratch_bytes;
    bool published;
    int32_t there; /* rank 0: the parts of all lower ranks have come */
    bool poor;     /* out of memory: the two buffers below serve for failures */
    sm_failed_part small_part;
    sm_failed_all small_all;
} sm_gathering;

/* --- exchange_value.c --- */
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
