/* SPDX-License-Identifier: BSD-3-Clause */
/* For mutants that get the limit of signal operations wrong: wrong_limit says how. Include it in
 * one file of a mutant. */
#ifndef SYMMEM_MUTANTS_LIMITS_H
#define SYMMEM_MUTANTS_LIMITS_H

#include "decorator.h"

/* What the mutant makes of a limit in milliseconds; 0 is none. */
static uint32_t wrong_limit(uint32_t timeout_ms);

static symmem_exec with_wrong_limit(const symmem_exec *exec) {
    symmem_exec copy = *exec;
    copy.timeout_ms = wrong_limit(exec->timeout_ms);
    return copy;
}

static symmem_status barrier(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_exec *exec) {
    symmem_exec wrong = with_wrong_limit(exec);
    return real->barrier(instance, peers, channel, &wrong);
}

static symmem_status put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, const symmem_exec *exec) {
    symmem_exec wrong = with_wrong_limit(exec);
    return real->put_signal(instance, peers, dst_rank, channel, &wrong);
}

static symmem_status wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                                 int32_t channel, const symmem_exec *exec) {
    symmem_exec wrong = with_wrong_limit(exec);
    return real->wait_signal(instance, peers, src_rank, channel, &wrong);
}

void mutate(symmem_backend *table) {
    table->barrier = barrier;
    table->put_signal = put_signal;
    table->wait_signal = wait_signal;
}

#endif
