/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU emulation: its table, its instances and its devices. */
#ifndef SYMMEM_BACKEND_SHM_BACKEND_H
#define SYMMEM_BACKEND_SHM_BACKEND_H

#include "shm.h"

/* The one exported symbol. */
SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);

#endif
