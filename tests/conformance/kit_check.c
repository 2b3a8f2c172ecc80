/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks, and what a rank tells the controller. */
#include "kit_internal.h"

#include <string.h>

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

static void fail_with(struct tk *t, const char *file, int line, const char *format, va_list args) {
    struct arena_rank *slot = t->own->slot;
    uint32_t free_record = 0;
    const char *requirement;

    atomic_fetch_add_explicit(&slot->failures, 1, memory_order_relaxed);
    if (!atomic_compare_exchange_strong_explicit(&slot->failed, &free_record, 1,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    requirement = atomic_load_explicit(&t->own->requirement, memory_order_relaxed);
    vsnprintf(slot->message, sizeof(slot->message), format, args);
    snprintf(slot->file, sizeof(slot->file), "%s", base_name(file));
    slot->line = line;
    snprintf(slot->requirement, sizeof(slot->requirement), "%s",
             requirement == NULL ? "" : requirement);
    /* pairs with: judge_findings in the controller */
    atomic_store_explicit(&slot->failed, 2, memory_order_release);
}

void kit_fail_at(struct tk *t, const char *file, int line, const char *format, ...) {
    va_list args;

    va_start(args, format);
    fail_with(t, file, line, format, args);
    va_end(args);
}

static void count_check(struct tk *t) {
    atomic_fetch_add_explicit(&t->own->slot->checks, 1, memory_order_relaxed);
}

bool tk_check_at(struct tk *t, bool held, const char *file, int line, const char *format, ...) {
    va_list args;

    count_check(t);
    if (!held) {
        va_start(args, format);
        fail_with(t, file, line, format, args);
        va_end(args);
    }
    return held;
}

static size_t append(char *text, size_t capacity, size_t used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static size_t append(char *text, size_t capacity, size_t used, const char *format, ...) {
    va_list args;
    int length;

    if (used >= capacity)
        return used;
    va_start(args, format);
    length = vsnprintf(text + used, capacity - used, format, args);
    va_end(args);
    return length < 0 ? used : used + (size_t)length;
}

void kit_describe_status(symmem_status status, char *text, size_t capacity) {
    symmem_error_record record;
    size_t used = append(text, capacity, 0, "%s", symmem_status_name(status));

    if (status == SYMMEM_OK)
        return;
    symmem_last_error(&record);
    if (record.status != status) {
        append(text, capacity, used, " (no error record of it)");
        return;
    }
    used = append(text, capacity, used, ": %s (%s/%s, %.3f s", record.message, record.operation,
                  record.stage, (double)record.elapsed_ns / 1e9);
    if (record.failed_rank >= 0)
        used = append(text, capacity, used, ", failed rank %d", record.failed_rank);
    if (record.missing_count > 0) {
        used = append(text, capacity, used, ", missing");
        for (int32_t rank = 0; rank < record.world_size && rank < SYMMEM_MAX_WORLD_SIZE; rank++)
            if (symmem_error_is_missing(&record, rank))
                used = append(text, capacity, used, " %d", rank);
    }
    append(text, capacity, used, ")");
}

bool tk_status_at(struct tk *t, symmem_status expected, symmem_status actual, const char *text,
                  const char *file, int line) {
    char got[400];

    count_check(t);
    if (actual == expected)
        return true;
    kit_describe_status(actual, got, sizeof(got));
    kit_fail_at(t, file, line, "%s: expected %s, got %s", text, symmem_status_name(expected), got);
    return false;
}

bool tk_status_either_at(struct tk *t, symmem_status expected, symmem_status other,
                         symmem_status actual, const char *text, const char *file, int line) {
    char got[400];

    count_check(t);
    if (actual == expected || actual == other)
        return true;
    kit_describe_status(actual, got, sizeof(got));
    kit_fail_at(t, file, line, "%s: expected %s or %s, got %s", text, symmem_status_name(expected),
                symmem_status_name(other), got);
    return false;
}

bool tk_eq_int_at(struct tk *t, int64_t expected, int64_t actual, const char *text,
                  const char *file, int line) {
    return tk_check_at(t, expected == actual, file, line, "%s: expected %lld, got %lld", text,
                       (long long)expected, (long long)actual);
}

bool tk_eq_size_at(struct tk *t, uint64_t expected, uint64_t actual, const char *text,
                   const char *file, int line) {
    return tk_check_at(t, expected == actual, file, line, "%s: expected %llu, got %llu", text,
                       (unsigned long long)expected, (unsigned long long)actual);
}

bool tk_eq_ptr_at(struct tk *t, const void *expected, const void *actual, const char *text,
                  const char *file, int line) {
    return tk_check_at(t, expected == actual, file, line, "%s: expected %p, got %p", text, expected,
                       actual);
}

bool tk_eq_str_at(struct tk *t, const char *expected, const char *actual, const char *text,
                  const char *file, int line) {
    bool same =
        expected != NULL && actual != NULL ? strcmp(expected, actual) == 0 : expected == actual;

    return tk_check_at(t, same, file, line, "%s: expected \"%s\", got \"%s\"", text,
                       expected == NULL ? "(NULL)" : expected, actual == NULL ? "(NULL)" : actual);
}

void tk_requirement(struct tk *t, const char *id) {
    atomic_store_explicit(&t->own->requirement, id, memory_order_relaxed);
}

void tk_leave(struct tk *t) {
    longjmp(t->own->leave, 1);
}

void tk_checkpoint(struct tk *t, const char *format, ...) {
    struct arena_rank *slot = t->own->slot;
    va_list args;

    va_start(args, format);
    vsnprintf(slot->checkpoint, sizeof(slot->checkpoint), format, args);
    va_end(args);
}

void tk_unresolved(struct tk *t, const char *format, ...) {
    struct arena_rank *slot = t->own->slot;
    uint32_t free_record = 0;
    va_list args;

    if (!atomic_compare_exchange_strong_explicit(&slot->unresolved, &free_record, 1,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    va_start(args, format);
    vsnprintf(slot->unresolved_text, sizeof(slot->unresolved_text), format, args);
    va_end(args);
    /* pairs with: judge_findings in the controller */
    atomic_store_explicit(&slot->unresolved, 2, memory_order_release);
}

bool tk_failed(const struct tk *t) {
    return atomic_load_explicit(&t->own->slot->failures, memory_order_relaxed) > 0;
}

void tk_at(struct tk *t, const char *file, int line) {
    t->own->file = file;
    t->own->line = line;
}
