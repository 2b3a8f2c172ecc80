/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank leaves in the store when it ends before its peers have met it. See exit_record.c. */
#ifndef SYMMEM_CORE_EXIT_RECORD_H
#define SYMMEM_CORE_EXIT_RECORD_H

#include "bootstrap/member.h"

typedef struct sm_verdict sm_verdict;

/* Leaves the reason why this rank ended before its peers met it. Called at the context's end, after
 * its member key is removed. `record` is NULL if nothing failed. */
void sm_exit_record_leave(const sm_world *world, const symmem_error_record *record);
/* Whether the record is of a lack of the rank itself. Wrong arguments and the failures of peers do
 * not count. */
bool sm_exit_record_is_lack(const symmem_error_record *record);
/* Leaves the record of a rank that goes on, in case it ends before it finalizes. */
void sm_exit_record_note(const sm_world *world, const symmem_error_record *record);
/* Removes the exit record of an earlier process of this rank. Called at the context's beginning. */
void sm_exit_record_clear(const sm_world *world);
/* Whether `rank` has left a recent exit record, and whose it is. *earlier_job_p tells whether that
 * process ended because of what may belong to an earlier job. */
bool sm_exit_record_read(const sm_world *world, int32_t rank, sm_identity *identity_p,
                         bool *earlier_job_p);
/* Whether some rank has left a recent record that tells of an earlier job. Reads one key. */
bool sm_exit_record_any_earlier(const sm_world *world);
/* Says so before this rank tells others. They may end, and be missed by ranks that come late,
 * before this one leaves its record. */
void sm_exit_record_mark_earlier(const sm_world *world);
/* Appends to the message of a record that names `rank` of a group what that rank has left. */
void sm_exit_record_explain(const sm_world *world, int32_t global_rank, int32_t rank,
                            symmem_error_record *record);
/* Makes the part of a record that ranks send each other, see session_agree.h. */
void sm_verdict_make(const symmem_error_record *record, sm_verdict *verdict_p);

#endif
