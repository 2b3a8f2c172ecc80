/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walks every system call of a complete run that a signal may interrupt and lets each be
 * interrupted once, which must go unnoticed.
 */
#include "life.h"
#include "wrap.h"

int main(void) {
    struct life_faults faults = {
        .table = symmem_backend_entry(SYMMEM_BACKEND_ABI),
        .arm = wrap_arm,
        .disarm = wrap_disarm,
        .harmless = true,
    };
    wrap_interrupt(true);
    return life_main("interruptions", &faults);
}
