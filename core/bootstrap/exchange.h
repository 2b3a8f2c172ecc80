/* SPDX-License-Identifier: BSD-3-Clause */
/* One gathering in progress. exchange.c runs it, exchange_value.c encodes its parts and values, and
 * exchange_clean.c removes its keys. */
#ifndef SYMMEM_CORE_EXCHANGE_H
#define SYMMEM_CORE_EXCHANGE_H

#include "bootstrap/session_agree.h"

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

/* Does one gathering, in session `id`, exchange `sequence`. `kind` must be the same text on all
 * ranks. A rank that has nothing to give says why. The exchange is then completed all the same, and
 * every rank gets the failure of the lowest such rank, as an agreed one. Does not take the session
 * down. */
sm_outcome sm_exchange(sm_session *session, const sm_call *call, const char *kind, uint64_t id,
                       uint64_t sequence, const sm_contribution *mine, void *out);

#endif
