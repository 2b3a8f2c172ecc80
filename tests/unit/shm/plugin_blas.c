/* SPDX-License-Identifier: BSD-3-Clause */
/* A CBLAS that multiplies nothing. It notes what floating-point environment it was loaded in. */
#include <symmem/status.h>

SYMMEM_API extern int unit_blas_loaded_as_usual;
SYMMEM_API void cblas_sgemm(void);
SYMMEM_API void cblas_dgemm(void);

int unit_blas_loaded_as_usual;

__attribute__((constructor)) static void note(void) {
    volatile float one = 1, tiny = 1e-40f, half_a_bit = 0x1p-24f;
    unit_blas_loaded_as_usual = one * tiny != 0 && one + half_a_bit == 1;
}

void cblas_sgemm(void) {}

void cblas_dgemm(void) {}
