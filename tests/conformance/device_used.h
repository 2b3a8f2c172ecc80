/* SPDX-License-Identifier: BSD-3-Clause */
/* How much of its devices this process uses, as far as somebody counts that by process. */
#ifndef SYMMEM_CONFORMANCE_DEVICE_USED_H
#define SYMMEM_CONFORMANCE_DEVICE_USED_H

#include <stdint.h>

/* Bytes of all devices together; 0: none, or nobody says. Today by NVIDIA's management library,
 * which keeps a few descriptors open from the first call on. */
uint64_t device_used_bytes(void);

#endif
