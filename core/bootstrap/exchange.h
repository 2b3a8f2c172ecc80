/* SPDX-License-Identifier: BSD-3-Clause */
/* One gathering in progress: exchange.c leads it, exchange_value.c knows what travels, and
 * exchange_clean.c what is left of it. */
#ifndef SYMMEM_CORE_EXCHANGE_H
#define SYMMEM_CORE_EXCHANGE_H

#include "bootstrap/session_internal.h"

#define SM_PART_MAGIC 0x54524150u /* "PART" */
#define SM_PART_GAVE_UP 1u
#define SM_PART_FAILED 2u /* a verdict follows in place of the payload */
#define SM_PART_BYTES_MAX (SYMMEM_STORE_VALUE_MAX - sizeof(sm_part))

/* At the start of <id>/<seq>/<rank>; the payload follows, if it fits a value. */
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

/* At the start of `all`. */
typedef struct sm_all_head {
    uint32_t magic;
    int32_t failed_rank; /* -1: none */
} sm_all_head;

/* `all` if no rank failed: one of these a rank, then the payloads if they are equally large and
 * fit. */
typedef struct sm_summary {
    uint64_t bytes;
    uint64_t kind;
} sm_summary;

/* `all` if one did. */
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
    symmem_error_record failure; /* why this rank has nothing to give, if its status is not OK */
    const void *in;
    void *out;
    unsigned char *combined; /* head, summaries and payloads */
    size_t combined_bytes;
    unsigned char *scratch; /* one part */
    size_t scratch_bytes;
    bool published;
    int32_t there; /* the parts of the ranks before this one have come; of who combines */
    bool poor;     /* no memory: the buffers are these, enough for failures */
    sm_failed_part small_part;
    sm_failed_all small_all;
} sm_gathering;

/* --- exchange_value.c --- */
void sm_exchange_key(const sm_session *session, uint64_t id, uint64_t sequence, const char *name,
                     char key[SM_SESSION_KEY_BYTES]);
void sm_exchange_rank_key(const sm_session *session, uint64_t id, uint64_t sequence, int32_t rank,
                          char key[SM_SESSION_KEY_BYTES]);
/* The time for one store call; 0 with a record if the deadline has passed. */
uint32_t sm_exchange_limit_ms(const sm_gathering *x);
symmem_status sm_exchange_set(const sm_gathering *x, const char *key, const void *value,
                              size_t bytes);
size_t sm_gathering_world_size(const sm_gathering *x);
/* Whether `all` holds the payloads, given that all ranks agree on `bytes`. */
bool sm_gathering_inside(const sm_gathering *x, size_t bytes);
sm_summary *sm_gathering_summaries_of(const sm_gathering *x);
unsigned char *sm_gathering_payloads_of(const sm_gathering *x);
bool sm_gathering_has_failed(const sm_gathering *x);
/* The buffers; if there is no memory, small ones and a failure. */
symmem_status sm_gathering_allocate(sm_gathering *x);
/* The own part in scratch; its size. */
size_t sm_gathering_make_part(sm_gathering *x);
/* Reads a rank's part into scratch, which grows to fit. NOT_FOUND: absent, or it gave up.
 * OUT_OF_RANGE without a record: this rank has no memory, and the part is no failure. */
symmem_status sm_gathering_read_part(sm_gathering *x, int32_t rank, sm_part *part_p,
                                     bool *gave_up_p);
/* Whether this rank makes one value of all parts. */
bool sm_gathering_combines(const sm_gathering *x);
/* That rank's work: all parts into one value, in the store. */
sm_outcome sm_gathering_combine(sm_gathering *x);
/* NOT_FOUND: not there yet. */
symmem_status sm_gathering_read_all(sm_gathering *x);
/* The rank whose failure `all` is, or -1. */
int32_t sm_gathering_failed_rank_of(const sm_gathering *x);

/* --- exchange_clean.c --- */
/* Whether a part, or the mark of one who gave up, is there; other than OK and NOT_FOUND: the store
 * does not say. */
symmem_status sm_exchange_look_for_part(const sm_gathering *x, int32_t rank);
/* Cleaning up after an exchange that was complete, with data or with an agreed failure. What goes
 * wrong here leaves keys, but the result is right. */
void sm_exchange_finish(sm_gathering *x, bool failed);

#endif
