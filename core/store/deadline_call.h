/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of other libraries that take no deadline, such as a resolver's and PMIx's. */
#ifndef SYMMEM_CORE_DEADLINE_CALL_H
#define SYMMEM_CORE_DEADLINE_CALL_H

#include "base/base.h"

typedef struct sm_deadline_call {
    void (*run)(struct sm_deadline_call *call);
    void (*destroy)(struct sm_deadline_call *call); /* called by its last user */
    _Atomic int users;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    bool is_left; /* the deadline has passed: the caller has not seen the end */
} sm_deadline_call;

/* Runs it in a thread of its own, which takes no signals. True: it has returned, and the caller
 * calls sm_deadline_call_release. False: it has not returned by then (errno is ETIMEDOUT), or no
 * thread could be made (another errno). The thread then goes on alone and destroys the call. */
bool sm_deadline_call_run(sm_deadline_call *call, uint64_t deadline_ns);
void sm_deadline_call_release(sm_deadline_call *call);

#endif
