/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walks every system and library call of a complete run and lets each fail once: whatever fails,
 * calls return a status with a record, nothing hangs, and no descriptor or mapping is left.
 */
#include "life.h"
#include "wrap.h"

int main(void) {
    struct life_faults faults = {
        .table = symmem_backend_entry(SYMMEM_BACKEND_ABI),
        .arm = wrap_arm,
        .disarm = wrap_disarm,
    };
    return life_main("faults", &faults);
}
