/* SPDX-License-Identifier: BSD-3-Clause */
#include "limits.h"

static uint32_t wrong_limit(uint32_t timeout_ms) {
    return timeout_ms > 0 ? timeout_ms : 100;
}
