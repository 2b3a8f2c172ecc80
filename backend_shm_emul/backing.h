/* SPDX-License-Identifier: BSD-3-Clause */
/* Returns a descriptor of `bytes` allocated bytes. The file has no name. */
#ifndef SYMMEM_BACKEND_SHM_BACKING_H
#define SYMMEM_BACKEND_SHM_BACKING_H

#include "shm.h"

symmem_status shm_backing_create(shm_instance *instance, size_t bytes, const char *operation,
                                 int *fd_p);
bool shm_backing_usable(char *reason, size_t capacity);
/* Returns whether no process can shorten it. can_seal: whether new memory can be sealed. */
bool shm_backing_is_sealed(int fd);
bool shm_backing_can_seal(void);

#endif
