/* SPDX-License-Identifier: BSD-3-Clause */
/* The first invalid value on either side of each argument: refused, recorded, nothing written. */
#ifndef SYMMEM_CONFORMANCE_LIMITS_HELP_H
#define SYMMEM_CONFORMANCE_LIMITS_HELP_H

#include "ops_help.h"

/* REFUSED(t, OUT_OF_RANGE, symmem_put(...)): the status, and a record of that call. */
#define REFUSED(t, expected, call) refused((t), SYMMEM_##expected, (call), #call, __LINE__)

static inline void refused(struct tk *t, symmem_status expected, symmem_status status,
                           const char *text, int line) {
    symmem_error_record record = last_record();
    const char *name = strncmp(text, "symmem_", 7) == 0 ? text + 7 : text;
    size_t length = strcspn(name, "(");
    bool recorded = record.status == expected && strlen(record.operation) == length &&
                    strncmp(name, record.operation, length) == 0 && record.message[0] != '\0';
    tk_status_at(t, expected, status, text, "limits", line);
    tk_check_at(t, recorded, "limits", line, "%s: the record has %s of \"%s\": \"%s\"", text,
                symmem_status_name(record.status), record.operation, record.message);
    symmem_clear_error();
}

/* Outputs of refused calls, all with a value that no call gives. */
#define UNTOUCHED 0x5b5b5b5b
#define UNTOUCHED_POINTER ((void *)(uintptr_t)0x5b5b5b50)

struct outputs {
    int32_t number;
    size_t size;
    bool flag;
    void *pointer;
    int fds[4];
    unsigned char bytes[64];
};

static inline struct outputs outputs_fresh(void) {
    struct outputs outputs;
    memset(&outputs, 0x5b, sizeof(outputs));
    outputs.flag = true;
    outputs.number = UNTOUCHED;
    outputs.pointer = UNTOUCHED_POINTER;
    return outputs;
}

static inline void outputs_check(struct tk *t, const struct outputs *outputs) {
    const struct outputs fresh = outputs_fresh();
    TK_CHECK_MSG(t, outputs->number == fresh.number, "a refused call wrote its number");
    TK_CHECK_MSG(t, outputs->size == fresh.size, "a refused call wrote its size");
    TK_CHECK_MSG(t, outputs->flag, "a refused call wrote its flag");
    TK_CHECK_MSG(t, outputs->pointer == fresh.pointer, "a refused call wrote its pointer");
    TK_CHECK_MSG(t, memcmp(outputs->fds, fresh.fds, sizeof(fresh.fds)) == 0,
                 "a refused call wrote its descriptors");
    TK_CHECK_MSG(t, memcmp(outputs->bytes, fresh.bytes, sizeof(fresh.bytes)) == 0,
                 "a refused call wrote its data");
}

#endif
