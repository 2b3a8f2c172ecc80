/* SPDX-License-Identifier: BSD-3-Clause */
/* Which process is which rank of a store's world. */
#ifndef SYMMEM_CORE_MEMBER_H
#define SYMMEM_CORE_MEMBER_H

#include "bootstrap/liveness.h"

/* What stands in a rank's key. Sent between ranks as is. */
typedef struct sm_member {
    sm_identity identity; /* first: some keys hold nothing else */
    uint32_t magic;
    int32_t rank;
    int32_t world_size;
    uint32_t took_over;    /* the key was that of a process which has ended */
    uint64_t published_ns; /* since boot */
    uint8_t token[16];     /* of the context */
} sm_member;
/* Whether another one is that rank, or has found that this one cannot be in its world: MISMATCH.
 * `own` NULL: nothing is known. */
symmem_status sm_member_check(symmem_store *store, const char *world_prefix, const sm_member *own,
                              const char *operation, uint32_t limit_ms);
/* MISMATCH if it is of a world of another size, which it is told. */
symmem_status sm_member_judge(symmem_store *store, const char *world_prefix, const sm_member *own,
                              const sm_member *found);
/* It was there before this rank, which has taken an ended process's place. */
bool sm_member_is_older(const sm_member *own, const sm_member *found);
/* The context's key in the store, see member.c. Once liveness is there. */
symmem_status sm_member_publish(symmem_context *context);
void sm_member_withdraw(symmem_context *context);

#endif
