/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for the value of a word. */
#ifndef SYMMEM_BACKEND_SHM_VALUE_H
#define SYMMEM_BACKEND_SHM_VALUE_H

#include "shm.h"

symmem_status shm_wait_value(void *instance, const symmem_peers *peers,
                             const symmem_value_wait *wait, const symmem_exec *exec);

#endif
