/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes one rank's failure the failure of all ranks: the part of its record that is sent, and the
 * choice between two failures. */
#include "bootstrap/session_agree.h"
#include "bootstrap/session_internal.h"

#include <string.h>

bool sm_verdict_valid(const sm_session *session, const sm_verdict *verdict) {
    int32_t world_size = session->config.world_size;
    uint32_t count = 0;
    for (int32_t rank = 0; rank < SYMMEM_MAX_WORLD_SIZE; rank++) {
        bool missing = (verdict->missing[rank / 64] >> (rank % 64) & 1) != 0;
        if (missing && rank >= world_size)
            return false;
        count += missing ? 1 : 0;
    }
    return sm_status_known(verdict->status) && verdict->status != SYMMEM_OK &&
           count == verdict->missing_count && verdict->channel >= -1 &&
           verdict->failed_rank >= -1 && verdict->failed_rank < world_size;
}

symmem_status sm_verdict_apply(const sm_session *session, const sm_call *call, int32_t rank,
                               const sm_verdict *verdict) {
    sm_session_fail(session, call, (symmem_status)verdict->status, "%.*s",
                    (int)sizeof(verdict->message) - 1, verdict->message);
    symmem_error_record error, *record = &error;
    (void)sm_error_get(&error);
    record->system_errno = verdict->system_errno;
    record->channel = verdict->channel;
    /* A record that names other ranks, for instance lost ones, does not get its own rank added. */
    bool accuses = verdict->failed_rank >= 0 || verdict->missing_count > 0;
    record->failed_rank = accuses ? verdict->failed_rank : rank;
    record->expected = verdict->expected;
    record->actual = verdict->actual;
    record->missing_count = verdict->missing_count;
    memcpy(record->missing, verdict->missing, sizeof(record->missing));
    if (verdict->operation[0] != '\0')
        memcpy(record->operation, verdict->operation, sizeof(record->operation));
    if (verdict->stage[0] != '\0')
        memcpy(record->stage, verdict->stage, sizeof(record->stage));
    record->operation[sizeof(record->operation) - 1] = '\0';
    record->stage[sizeof(record->stage) - 1] = '\0';
    return sm_error_raise(&error);
}

symmem_status sm_own_failure(const sm_session *session, const sm_call *call,
                             const symmem_error_record *own) {
    symmem_error_record described = *own;
    if (described.operation[0] == '\0')
        sm_copy_text(described.operation, sizeof(described.operation), call->operation);
    if (described.stage[0] == '\0')
        sm_copy_text(described.stage, sizeof(described.stage), call->stage);
    sm_copy_text(described.group, sizeof(described.group), session->config.group_name);
    described.rank = session->config.rank;
    described.world_size = session->config.world_size;
    described.elapsed_ns = sm_now_ns() - call->start_ns;
    if (described.failed_rank < 0 && described.missing_count == 0)
        described.failed_rank = session->config.rank;
    return sm_error_raise(&described);
}

symmem_status sm_earlier_failure(const sm_session *session, const sm_call *call,
                                 const symmem_error_record *own, symmem_status status) {
    /* Reports this rank's earlier failure, unless that is only a consequence of a lost peer (it
     * names another rank, or none). PEER_LOST with the rank is then more useful. */
    bool of_another = own->failed_rank >= 0 && own->failed_rank != session->config.rank;
    bool nameless = own->status == SYMMEM_PEER_LOST && own->missing_count == 0;
    if (status == SYMMEM_PEER_LOST && (of_another || nameless))
        return status;
    return sm_own_failure(session, call, own);
}

/* Names the lost ranks in a record of the backend, whose library may notice a peer's end without
 * saying which peer. Asks only about known processes: a process that was replaced is lost for the
 * waiting ranks, too. */
static void name_the_lost(const sm_session *session, symmem_error_record *record) {
    const sm_session_config *config = &session->config;
    for (int32_t rank = 0; rank < config->world_size; rank++) {
        if (rank == config->rank || sm_session_peer_state(session, rank) != SYMMEM_PEER_GONE)
            continue;
        record->missing[rank / 64] |= 1ull << (rank % 64);
        record->failed_rank = record->missing_count++ == 0 ? rank : -1;
    }
}

symmem_status sm_session_agree_and_gather(sm_session *session, const char *operation,
                                          const char *stage, symmem_status own, const void *data,
                                          size_t bytes, void *out, uint64_t deadline_ns) {
    symmem_error_record record;
    (void)sm_error_get(&record);
    record.status = own;
    if (own == SYMMEM_PEER_LOST && record.missing_count == 0)
        name_the_lost(session, &record);
    const sm_contribution mine = {
        .failure = own == SYMMEM_OK ? NULL : &record, .data = data, .bytes = bytes};
    return sm_session_gather(session, operation, stage, &mine, out, false, deadline_ns);
}

symmem_status sm_session_agree(sm_session *session, const char *operation, const char *stage,
                               symmem_status own, uint64_t deadline_ns) {
    return sm_session_agree_and_gather(session, operation, stage, own, NULL, 0, NULL, deadline_ns);
}
