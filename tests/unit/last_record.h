/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIT_LAST_RECORD_H
#define UNIT_LAST_RECORD_H

#include <symmem/status.h>

static inline symmem_error_record last_record(void) {
    symmem_error_record record;
    symmem_last_error(&record);
    return record;
}

#endif
