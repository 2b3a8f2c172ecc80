/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floating-point environment of the loops is the one with which a program starts, whatever the
 * caller set. Ranks that round differently, or flush denormals, would get different bits. A caller
 * that traps exceptions would be killed by an operation that is no error here.
 */
#ifndef SYMMEM_KERNELS_CPU_FLOAT_MODE_H
#define SYMMEM_KERNELS_CPU_FLOAT_MODE_H

#include <stdint.h>

#if defined(__SSE2__)

/* Rounds to nearest, keeps denormals, traps nothing. The bits below are flags, not modes. */
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

#else /* unknown processor: the caller's mode is used */

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

/* Returns the mode that symmem_cpu_float_end restores. */
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
