/* SPDX-License-Identifier: BSD-3-Clause */
/* A caller's floating-point environment that is not the usual one, for tests of what has to give
 * the same bits all the same. */
#ifndef SYMMEM_STRANGE_FLOATS_H
#define SYMMEM_STRANGE_FLOATS_H

#include <fenv.h>
#include <stdbool.h>
#include <stdint.h>

#define STRANGE_UPWARDS 0xDFC0u /* upwards, denormals flushed */
#define STRANGE_TRAPS 0xC040u   /* the same, and every exception a trap */

/* `mode` becomes this thread's; the one that it had. Without SSE it is rounded upwards only. */
static inline uint32_t strange_floats(uint32_t mode) {
#ifdef __SSE2__
    uint32_t usual = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode);
    return usual;
#else
    (void)mode;
    return (uint32_t)fegetround() + 0 * (uint32_t)fesetround(FE_UPWARD);
#endif
}

/* Restores `usual`. Returns true if the mode was `mode` until now. The flags, below, need not be
 * kept. */
static inline bool usual_floats(uint32_t mode, uint32_t usual) {
#ifdef __SSE2__
    bool kept = (__builtin_ia32_stmxcsr() & ~0x3Fu) == mode;
    __builtin_ia32_ldmxcsr(usual);
    return kept;
#else
    (void)mode;
    bool kept = fegetround() == FE_UPWARD;
    return fesetround((int)usual) == 0 && kept;
#endif
}

#endif
