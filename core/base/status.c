/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of statuses and dtypes. */
#include "base/status.h"

#include <symmem/symmem.h>

const char *symmem_status_name(symmem_status status) {
    switch (status) {
#define STATUS_NAME(name, value, text)                                                             \
    case SYMMEM_##name:                                                                            \
        return #name;
        SYMMEM_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

const char *symmem_status_text(symmem_status status) {
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case SYMMEM_##name:                                                                            \
        return text;
        SYMMEM_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

bool sm_status_known(int32_t value) {
    switch (value) {
#define STATUS_KNOWN(name, number, text) case number:
        SYMMEM_STATUS_LIST(STATUS_KNOWN)
#undef STATUS_KNOWN
        return true;
    default:
        return false;
    }
}

static const struct {
    const char *name;
    size_t bytes;
} dtypes[SYMMEM_DTYPE_COUNT] = {
    [SYMMEM_UINT8] = {"uint8", 1},     [SYMMEM_INT8] = {"int8", 1},
    [SYMMEM_INT16] = {"int16", 2},     [SYMMEM_UINT16] = {"uint16", 2},
    [SYMMEM_INT32] = {"int32", 4},     [SYMMEM_UINT32] = {"uint32", 4},
    [SYMMEM_INT64] = {"int64", 8},     [SYMMEM_UINT64] = {"uint64", 8},
    [SYMMEM_FLOAT16] = {"float16", 2}, [SYMMEM_BFLOAT16] = {"bfloat16", 2},
    [SYMMEM_FLOAT32] = {"float32", 4}, [SYMMEM_FLOAT64] = {"float64", 8},
};

size_t symmem_dtype_size(symmem_dtype dtype) {
    return (unsigned)dtype < SYMMEM_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *symmem_dtype_name(symmem_dtype dtype) {
    return (unsigned)dtype < SYMMEM_DTYPE_COUNT ? dtypes[dtype].name : "unknown";
}
