/* SPDX-License-Identifier: BSD-3-Clause */
/* Words that ranks write and wait for: one of 32 and one of 64 bits. */
#ifndef SYMMEM_CONFORMANCE_VALUE_HELP_H
#define SYMMEM_CONFORMANCE_VALUE_HELP_H

#include "case_help.h"

/* A word of a width, at a place of a handle's memory. */
struct value_word {
    struct tk *t;
    symmem_handle *handle;
    int32_t rank; /* whose memory */
    size_t offset;
    bool wide;
};

static const symmem_compare all_compares[] = {SYMMEM_EQ, SYMMEM_NE, SYMMEM_GT,
                                              SYMMEM_GE, SYMMEM_LT, SYMMEM_LE};

static inline bool value_compares(symmem_compare compare, uint64_t found, uint64_t value) {
    return compare == SYMMEM_EQ   ? found == value
           : compare == SYMMEM_NE ? found != value
           : compare == SYMMEM_GT ? found > value
           : compare == SYMMEM_GE ? found >= value
           : compare == SYMMEM_LT ? found < value
                                  : found <= value;
}

static inline symmem_status value_wait(const struct value_word *word, symmem_compare compare,
                                       uint64_t value, int32_t source, uint32_t limit_ms,
                                       symmem_stream *stream) {
    return word->wide ? symmem_wait_value64(word->handle, word->rank, word->offset, compare, value,
                                            source, limit_ms, stream)
                      : symmem_wait_value32(word->handle, word->rank, word->offset, compare,
                                            (uint32_t)value, source, limit_ms, stream);
}

/* By a value write, which needs a pointer to the memory. */
static inline symmem_status value_write(const struct value_word *word, uint64_t value,
                                        symmem_stream *stream) {
    struct tk *t = word->t;
    const symmem_handle_info info = info_of(t, word->handle);
    char *const base = (char *)buffers_of(t, word->handle)[word->rank] + info.offset;
    int64_t count = 1, stride = 1;
    DLTensor tensor = {.data = base + word->offset,
                       .device = {(DLDeviceType)t->device_type, info.device},
                       .ndim = 1,
                       .dtype = {kDLUInt, word->wide ? 64 : 32, 1},
                       .shape = &count,
                       .strides = &stride};
    return word->wide ? symmem_stream_write_value64(t->context, &tensor, 0, value, stream)
                      : symmem_stream_write_value32(t->context, &tensor, 0, (int64_t)value, stream);
}

/* Without an order: where no rank waits. */
static inline void value_set(const struct value_word *word, uint64_t value) {
    const uint32_t narrow = (uint32_t)value;
    if (word->wide)
        tk_write(word->t, word->handle, word->rank, word->offset, &value, sizeof value);
    else
        tk_write(word->t, word->handle, word->rank, word->offset, &narrow, sizeof narrow);
}

#endif
