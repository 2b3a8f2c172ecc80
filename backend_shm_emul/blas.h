/* SPDX-License-Identifier: BSD-3-Clause */
/* CBLAS, if the machine has one. */
#ifndef SYMMEM_BACKEND_SHM_BLAS_H
#define SYMMEM_BACKEND_SHM_BLAS_H

#include "shm.h"

/* Returns NULL if there is none. */
const symmem_cpu_blas *shm_blas(shm_instance *instance);
/* Called when the instance opens. Returns INVALID_ARGUMENT if the requested library is unusable. */
symmem_status shm_blas_read_setting(shm_instance *instance);

#endif
