/* SPDX-License-Identifier: BSD-3-Clause */
#include "api_model.h"

void model_expect(symmem_status status, symmem_status expected, int line) {
    if (status != expected)
        fprintf(stderr, "line %d: %s instead of %s\n", line, symmem_status_name(status),
                symmem_status_name(expected));
    FUZZ_CHECK(status == expected);
    if (status != SYMMEM_OK)
        fuzz_check_failure(status, 1);
}

int model_find(const model *m, const void *ptr) {
    for (int i = 0; i < SLOTS; i++) {
        const model_memory *memory = &m->memory[i];
        if (memory->ptr != NULL && memory->active && (uintptr_t)ptr >= (uintptr_t)memory->ptr &&
            (uintptr_t)ptr - (uintptr_t)memory->ptr < memory->bytes)
            return i;
    }
    return -1;
}

bool model_captures(const model *m) {
    return m->capturing >= 0;
}

symmem_status model_bounds(const model_handle *handle, size_t offset, size_t bytes) {
    size_t end;
    if (__builtin_add_overflow(offset, bytes, &end) ||
        __builtin_add_overflow(end, handle->offset, &end))
        return SYMMEM_OVERFLOW;
    return end <= handle->block_bytes ? SYMMEM_OK : SYMMEM_OUT_OF_RANGE;
}

void *model_any_pointer(model *m) {
    uint8_t form = fuzz_u8(m->in);
    const model_memory *memory = &m->memory[form / 8 % SLOTS];
    if (form % 8 == 7)
        return NULL;
    if (memory->ptr == NULL || form % 8 == 6)
        return m->foreign;
    switch (form % 8) {
    case 4:
        return memory->ptr + memory->bytes; /* one past the end: unused, or the next block's */
    case 5:
        return memory->ptr + fuzz_u16(m->in) % memory->bytes;
    default:
        return memory->ptr;
    }
}

void model_forget_contents(model *m) {
    for (int i = 0; i < SLOTS; i++) {
        free(m->memory[i].shadow);
        m->memory[i].shadow = NULL;
    }
}

void model_check_contents(const model *m) {
    for (int i = 0; i < SLOTS; i++)
        if (m->memory[i].shadow != NULL)
            FUZZ_CHECK(memcmp(m->memory[i].ptr, m->memory[i].shadow, m->memory[i].bytes) == 0);
}

void model_drop_memory(model *m, int slot) {
    free(m->memory[slot].shadow);
    m->memory[slot] = (model_memory){.ptr = NULL};
    for (int i = 0; i < SLOTS; i++)
        if (m->handles[i].memory == slot)
            m->handles[i].memory = -1;
}
