/* SPDX-License-Identifier: BSD-3-Clause */
/* The clock ticks at a rate other than the constant says. */
#include "limits.h"

static uint32_t wrong_limit(uint32_t timeout_ms) {
    return timeout_ms - timeout_ms / 4;
}
