// SPDX-License-Identifier: BSD-3-Clause
// A declaration of calls.h that differs from NVSHMEM's own is an error here.
#include <nvshmem_host.h>

#include "calls.h"

static_assert(CALLS_WITH_UNIQUEID == NVSHMEMX_INIT_WITH_UNIQUEID, "the flag of a start by id");
