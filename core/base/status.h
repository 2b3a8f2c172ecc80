/* SPDX-License-Identifier: BSD-3-Clause */
/* Statuses that came from elsewhere. */
#ifndef SYMMEM_CORE_STATUS_H
#define SYMMEM_CORE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the number is one of the statuses. */
bool sm_status_known(int32_t value);

#endif
