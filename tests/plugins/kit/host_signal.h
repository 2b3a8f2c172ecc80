/* SPDX-License-Identifier: BSD-3-Clause */
/* The group signal for backends whose ranks' memory the CPU of each rank reads and writes: signals
 * and barriers are words there. Independent of the instance. */
#ifndef SYMMEM_KIT_HOST_SIGNAL_H
#define SYMMEM_KIT_HOST_SIGNAL_H

#include <symmem/backend.h>

extern const symmem_signal_ops symmem_kit_host_signal;

#endif
