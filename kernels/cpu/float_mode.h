/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floating-point environment of the loops: the one a program starts with, whatever the caller
 * made of its own. Ranks that round differently, or flush denormals, would get different bits, and
 * a caller that traps exceptions would be killed by what is no error here.
 */
#ifndef SYMMEM_KERNELS_CPU_FLOAT_MODE_H
#define SYMMEM_KERNELS_CPU_FLOAT_MODE_H

#include <stdint.h>

#if defined(__SSE2__)

/* To nearest, denormals kept, no traps; the bits below are flags, not modes. */
#define SYMMEM_CPU_FLOAT_DEFAULT 0x1F80u
#define SYMMEM_CPU_FLOAT_FLAGS 0x3Fu

static inline uint64_t symmem_cpu_float_get(void) {
    return __builtin_ia32_stmxcsr();
}

static inline void symmem_cpu_float_set(uint64_t mode) {
    __builtin_ia32_ldmxcsr((unsigned)mode);
}

#elif defined(__aarch64__)

#define SYMMEM_CPU_FLOAT_DEFAULT 0u
#define SYMMEM_CPU_FLOAT_FLAGS 0u

static inline uint64_t symmem_cpu_float_get(void) {
    uint64_t mode;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static inline void symmem_cpu_float_set(uint64_t mode) {
    __asm__ __volatile__("msr fpcr, %0" : : "r"(mode) : "memory");
}

#else /* the caller's it is */

#define SYMMEM_CPU_FLOAT_DEFAULT 0u
#define SYMMEM_CPU_FLOAT_FLAGS 0u

static inline uint64_t symmem_cpu_float_get(void) {
    return SYMMEM_CPU_FLOAT_DEFAULT;
}

static inline void symmem_cpu_float_set(uint64_t mode) {
    (void)mode;
}

#endif

static inline int symmem_cpu_float_is_usual(uint64_t mode) {
    return (mode & ~(uint64_t)SYMMEM_CPU_FLOAT_FLAGS) == SYMMEM_CPU_FLOAT_DEFAULT;
}

/* Returns what symmem_cpu_float_end is to put back. */
static inline uint64_t symmem_cpu_float_begin(void) {
    uint64_t mode = symmem_cpu_float_get();
    if (!symmem_cpu_float_is_usual(mode))
        symmem_cpu_float_set(SYMMEM_CPU_FLOAT_DEFAULT);
    return mode;
}

static inline void symmem_cpu_float_end(uint64_t mode) {
    if (!symmem_cpu_float_is_usual(mode))
        symmem_cpu_float_set(mode);
}

#endif
