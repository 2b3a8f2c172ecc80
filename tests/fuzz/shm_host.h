/* SPDX-License-Identifier: BSD-3-Clause */
/* The core's services to a backend, as little as the targets that drive the emulation's table need:
 * every failure lands in the calling thread's record, no peer is lost, nothing is poisoned. */
#ifndef SYMMEM_TESTS_FUZZ_SHM_HOST_H
#define SYMMEM_TESTS_FUZZ_SHM_HOST_H

#include <symmem/backend.h>

extern const symmem_host fuzz_host;

#endif
