/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings from the environment. */
#ifndef SYMMEM_CORE_ENV_H
#define SYMMEM_CORE_ENV_H

#include "base/error.h"

/* First variable of the NULL-terminated list that is set; malformed or out of range is
 * INVALID_ARGUMENT naming it; none set leaves *value_p alone and is NOT_FOUND without a record. */
symmem_status sm_env_int(const char *const *names, int64_t low, int64_t high, int64_t *value_p);
/* INVALID_ARGUMENT if one of them is set to something else than 0, 1 or nothing. */
symmem_status sm_env_check_flags(const char *const *names);
/* "1" true, "0" false, unset or anything else -> fallback. */
bool sm_env_flag(const char *name, bool fallback);

#endif
