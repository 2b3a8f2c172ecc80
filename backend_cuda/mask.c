/* SPDX-License-Identifier: BSD-3-Clause */
/* The signal mask that new threads get. */
#include <pthread.h>

#include "driver.h"

void cuda_signals_block(sigset_t *before) {
    sigset_t all;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, before);
}

void cuda_signals_allow(const sigset_t *before) {
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}
