/* SPDX-License-Identifier: BSD-3-Clause */
/* What makes a backend's table acceptable, and what it says. */
#ifndef SYMMEM_CORE_BACKEND_TABLE_H
#define SYMMEM_CORE_BACKEND_TABLE_H

#include "backend/context.h"

/* UNSUPPORTED: "the backend has no <what>". */
symmem_status sm_need_capability(symmem_context *context, uint64_t capability,
                                 const char *operation, const char *what);

#endif
