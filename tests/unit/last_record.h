/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIT_LAST_RECORD_H
#define UNIT_LAST_RECORD_H

#include <stdbool.h>
#include <symmem/status.h>

static inline symmem_error_record last_record(void) {
    symmem_error_record record;
    symmem_last_error(&record);
    return record;
}

static inline bool last_is_missing(int32_t rank) {
    const symmem_error_record record = last_record();
    return symmem_error_is_missing(&record, rank);
}

#endif
