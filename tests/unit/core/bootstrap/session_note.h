/* SPDX-License-Identifier: BSD-3-Clause */
/* Notes as peers send them. */
#ifndef SYMMEM_TESTS_SESSION_NOTE_H
#define SYMMEM_TESTS_SESSION_NOTE_H

#include "bootstrap/session_internal.h"
#include "bootstrap/session_agree.h"
#include "bootstrap/session_cause.h"
#include "session_ranks.h"

enum { GAVE_UP = 1, FINALIZED, CONTRADICTED, DESTROYED, REMARKED }; /* as in session_cause.c */

typedef struct note {
    uint32_t tag_kind, kind;
    int32_t source;
    sm_verdict verdict;
} note;

/* `missing`: bits of the first ranks. */
static inline sm_verdict verdict(symmem_status status, int32_t failed_rank, uint64_t missing) {
    sm_verdict made;
    memset(&made, 0, sizeof(made));
    made.status = status;
    made.channel = -1;
    made.failed_rank = failed_rank;
    made.missing[0] = missing;
    made.missing_count = (uint32_t)__builtin_popcountll(missing);
    sm_copy_text(made.operation, sizeof(made.operation), "theirs");
    sm_copy_text(made.message, sizeof(made.message), "what they say");
    return made;
}

static inline bool send(const sm_session *session, int32_t to, const note *sent) {
    struct {
        uint32_t kind;
        int32_t global_rank;
        sm_verdict verdict;
    } why = {sent->kind, sent->source, sent->verdict};
    uint8_t bytes[SM_IPC_NOTE_BYTES] = {0};
    sm_ipc_tag tag;
    memset(&tag, 0, sizeof(tag));
    memcpy(bytes, &why, sizeof(why));
    memcpy(tag.nonce, session->joins[to].nonce, sizeof(tag.nonce));
    tag.source = sent->source;
    tag.kind = sent->tag_kind;
    return sm_ipc_send_note(session->ipc, session->joins[to].address,
                            session->joins[to].address_bytes, &tag, bytes);
}

#endif
