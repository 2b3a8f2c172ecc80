/* SPDX-License-Identifier: BSD-3-Clause */
/* The signal mask that new threads inherit. A thread's own faults stay unblocked. If blocked, they
 * would end the process without the program's handler, if it has one. */
#include <pthread.h>

#include "driver/driver.h"

void cuda_signals_block(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t others;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&others, faults[i]);
    (void)pthread_sigmask(SIG_BLOCK, &others, before);
}

void cuda_signals_allow(const sigset_t *before) {
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}
