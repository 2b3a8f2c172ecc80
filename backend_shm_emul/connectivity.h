/* SPDX-License-Identifier: BSD-3-Clause */
/* Links between the emulated devices, as SYMMEM_SHM_NVLINKS says at the query. */
#ifndef SYMMEM_BACKEND_SHM_CONNECTIVITY_H
#define SYMMEM_BACKEND_SHM_CONNECTIVITY_H

#include "shm.h"

symmem_status shm_connectivity(void *instance, const char *connection, int32_t device_count,
                               int32_t *matrix);

#endif
