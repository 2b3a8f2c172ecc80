/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks, and what a rank tells the controller. */
#include "kit_internal.h"

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* What a check compared; both NULL if it did not. */
struct values {
    const char *expected;
    const char *got;
};

/* True for one caller. */
static bool claim(_Atomic uint32_t *record) {
    uint32_t is_free = 0;
    return atomic_compare_exchange_strong_explicit(record, &is_free, 1, memory_order_relaxed,
                                                   memory_order_relaxed);
}

/* In short: the first may be the smaller part of what is wrong. */
static void record_next(struct arena_rank *slot, const char *file, int line,
                        const struct values *values, const char *format, va_list args) {
    char message[200];
    if (!claim(&slot->failed_next))
        return;
    vsnprintf(message, sizeof(message), format, args);
    if (values->expected == NULL)
        snprintf(slot->next, sizeof(slot->next), "%s:%d: %s", base_name(file), line, message);
    else
        snprintf(slot->next, sizeof(slot->next), "%s:%d: %.120s: expected %.60s, got %.60s",
                 base_name(file), line, message, values->expected, values->got);
    /* pairs with: find_failed_check in the controller */
    atomic_store_explicit(&slot->failed_next, 2, memory_order_release);
}

/* Before the failure is counted, so that there are never more of the one than of the other. */
static void count_failure(struct tk *t, enum runner_cause cause) {
    struct arena_rank *slot = t->own->slot;
    if (cause == CAUSE_TIME) {
        tk_note_delay(t);
        atomic_fetch_add_explicit(&slot->late_failures, 1, memory_order_relaxed);
    } else if (cause == CAUSE_FOLLOWS)
        atomic_fetch_add_explicit(&slot->following_failures, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&slot->failures, 1, memory_order_relaxed);
}

static void fail_with(struct tk *t, enum runner_cause cause, const char *file, int line,
                      const struct values *values, const char *format, va_list args) {
    struct arena_rank *slot = t->own->slot;
    const char *requirement;
    count_failure(t, cause);
    if (!claim(&slot->failed)) {
        record_next(slot, file, line, values, format, args);
        return;
    }
    requirement = atomic_load_explicit(&t->own->requirement, memory_order_relaxed);
    vsnprintf(slot->message, sizeof(slot->message), format, args);
    snprintf(slot->expected, sizeof(slot->expected), "%s",
             values->expected == NULL ? "" : values->expected);
    snprintf(slot->got, sizeof(slot->got), "%s", values->got == NULL ? "" : values->got);
    snprintf(slot->file, sizeof(slot->file), "%s", base_name(file));
    slot->line = line;
    snprintf(slot->requirement, sizeof(slot->requirement), "%s",
             requirement == NULL ? "" : requirement);
    /* pairs with: judge_findings in the controller */
    atomic_store_explicit(&slot->failed, 2, memory_order_release);
}

/* Of the format and arguments of the function around it. */
#define FAIL(t, cause, file, line, values, format)                                                 \
    do {                                                                                           \
        va_list args_;                                                                             \
        va_start(args_, format);                                                                   \
        fail_with(t, cause, file, line, values, format, args_);                                    \
        va_end(args_);                                                                             \
    } while (0)
#define NO_VALUES (&(struct values){NULL, NULL})

void kit_fail_at(struct tk *t, const char *file, int line, const char *format, ...) {
    FAIL(t, CAUSE_OTHER, file, line, NO_VALUES, format);
}

void kit_fail_late_at(struct tk *t, const char *file, int line, const char *format, ...) {
    FAIL(t, CAUSE_TIME, file, line, NO_VALUES, format);
}

/* A status that was not expected. What another rank's failure has poisoned fails after it. */
static enum runner_cause cause_of(symmem_status status) {
    return status == SYMMEM_TIMEOUT    ? CAUSE_TIME
           : status == SYMMEM_POISONED ? CAUSE_FOLLOWS
                                       : CAUSE_OTHER;
}

static void fail_of(struct tk *t, enum runner_cause cause, const char *file, int line,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));
static void fail_of(struct tk *t, enum runner_cause cause, const char *file, int line,
                    const char *format, ...) {
    FAIL(t, cause, file, line, NO_VALUES, format);
}

void kit_fail_status_at(struct tk *t, const char *file, int line, const char *what,
                        symmem_status status) {
    char text[400];
    kit_describe_status(status, text, sizeof(text));
    fail_of(t, cause_of(status), file, line, "%s: %s", what, text);
}

/* Where the case is, for a rank that is stuck later. Lines of the kit tell nothing about that. */
static void note_line(struct tk *t, const char *file, int line) {
    struct arena_rank *slot = t->own->slot;
    const char *name = base_name(file);
    if (strncmp(name, "kit_", 4) == 0)
        return;
    arena_put_word(&slot->last_file, name);
    atomic_store_explicit(&slot->last_line, (uint32_t)line, memory_order_relaxed);
}

static void count_check(struct tk *t, const char *file, int line) {
    atomic_fetch_add_explicit(&t->own->slot->checks, 1, memory_order_relaxed);
    note_line(t, file, line);
}

bool tk_check_at(struct tk *t, bool held, const char *file, int line, const char *format, ...) {
    count_check(t, file, line);
    if (!held)
        FAIL(t, CAUSE_OTHER, file, line, NO_VALUES, format);
    return held;
}

bool tk_timely_at(struct tk *t, bool held, const char *file, int line, const char *format, ...) {
    count_check(t, file, line);
    if (!held)
        FAIL(t, CAUSE_TIME, file, line, NO_VALUES, format);
    return held;
}

static size_t append(char *text, size_t capacity, size_t used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static size_t append(char *text, size_t capacity, size_t used, const char *format, ...) {
    va_list args;
    if (used >= capacity)
        return used;
    va_start(args, format);
    int length = vsnprintf(text + used, capacity - used, format, args);
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

static bool compared_at(struct tk *t, bool same, enum runner_cause cause, const char *file,
                        int line, const struct values *values, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
static bool compared_at(struct tk *t, bool same, enum runner_cause cause, const char *file,
                        int line, const struct values *values, const char *format, ...) {
    count_check(t, file, line);
    if (!same)
        FAIL(t, cause, file, line, values, format);
    return same;
}

bool kit_compared_at(struct tk *t, bool same, const char *file, int line, const char *expected,
                     const char *got, const char *format, ...) {
    count_check(t, file, line);
    if (!same)
        FAIL(t, CAUSE_OTHER, file, line, (&(struct values){expected, got}), format);
    return same;
}

/* What the system has no part in. */
static bool is_callers(symmem_status status) {
    return status == SYMMEM_INVALID_ARGUMENT || status == SYMMEM_OUT_OF_RANGE ||
           status == SYMMEM_MISALIGNED || status == SYMMEM_OVERFLOW ||
           status == SYMMEM_NOT_SYMMETRIC || status == SYMMEM_MISMATCH ||
           status == SYMMEM_CAPTURE || status == SYMMEM_BUSY || status == SYMMEM_UNSUPPORTED ||
           status == SYMMEM_POISONED || status == SYMMEM_TIMEOUT ||
           status == SYMMEM_NOT_INITIALIZED || status == SYMMEM_STALE || status == SYMMEM_ABI;
}

/* Beside each status: of another call there may be another record. SM-ERROR-10. */
static bool blames_nobody_else(struct tk *t, symmem_status status, const char *text,
                               const char *file, int line) {
    symmem_error_record record;
    if (!is_callers(status))
        return true;
    symmem_last_error(&record);
    return record.status != status || record.system_errno == 0 ||
           tk_check_at(t, false, file, line, "%s: the record of %s has errno %d", text,
                       symmem_status_name(status), record.system_errno);
}

bool tk_status_at(struct tk *t, symmem_status expected, symmem_status actual, const char *text,
                  const char *file, int line) {
    char got[400] = "";
    if (!blames_nobody_else(t, actual, text, file, line))
        return false;
    if (actual != expected)
        kit_describe_status(actual, got, sizeof(got));
    return compared_at(t, actual == expected, cause_of(actual), file, line,
                       &(struct values){symmem_status_name(expected), got}, "%s", text);
}

bool tk_status_either_at(struct tk *t, symmem_status expected, symmem_status other,
                         symmem_status actual, const char *text, const char *file, int line) {
    bool same = actual == expected || actual == other;
    char both[100], got[400] = "";
    if (!same)
        kit_describe_status(actual, got, sizeof(got));
    snprintf(both, sizeof(both), "%s or %s", symmem_status_name(expected),
             symmem_status_name(other));
    return compared_at(t, same, cause_of(actual), file, line, &(struct values){both, got}, "%s",
                       text);
}

bool tk_within_at(struct tk *t, uint64_t most_ms, uint64_t since_ms, uint64_t until_ms,
                  const char *text, const char *file, int line) {
    uint64_t took_ms = until_ms > since_ms ? until_ms - since_ms : 0, late_ms = 0;
    uint64_t allowed_ms = tk_scaled_ms((uint32_t)most_ms);
    char expected[80], got[32];
    if (took_ms > allowed_ms) {
        tk_note_delay(t);
        late_ms = tk_late_ms(t, since_ms);
        allowed_ms += late_ms;
    }
    snprintf(expected, sizeof(expected), "at most %llu ms, %llu of them for a late machine",
             (unsigned long long)allowed_ms, (unsigned long long)late_ms);
    snprintf(got, sizeof(got), "%llu ms", (unsigned long long)took_ms);
    return compared_at(t, took_ms <= allowed_ms, CAUSE_TIME, file, line,
                       &(struct values){expected, got}, "it takes no more than %s", text);
}

#define EQUALS(name, type, format, printed)                                                        \
    bool name(struct tk *t, type expected, type actual, const char *text, const char *file,        \
              int line) {                                                                          \
        char values[2][24] = {"", ""};                                                             \
        if (expected != actual) {                                                                  \
            snprintf(values[0], sizeof(values[0]), format, (printed)expected);                     \
            snprintf(values[1], sizeof(values[1]), format, (printed)actual);                       \
        }                                                                                          \
        return kit_compared_at(t, expected == actual, file, line, values[0], values[1], "%s",      \
                               text);                                                              \
    }
EQUALS(tk_eq_int_at, int64_t, "%lld", long long)
EQUALS(tk_eq_size_at, uint64_t, "%llu", unsigned long long)
EQUALS(tk_eq_ptr_at, const void *, "%p", const void *)
#undef EQUALS

bool tk_bound_at(struct tk *t, bool least, uint64_t bound, uint64_t actual, const char *text,
                 const char *file, int line) {
    bool held = least ? actual >= bound : actual < bound;
    char expected[40] = "", got[24] = "";
    if (!held) {
        snprintf(expected, sizeof(expected), "%s %llu", least ? "at least" : "less than",
                 (unsigned long long)bound);
        snprintf(got, sizeof(got), "%llu", (unsigned long long)actual);
    }
    return kit_compared_at(t, held, file, line, expected, got, "%s", text);
}

static void quote(char *quoted, size_t capacity, const char *text) {
    if (text == NULL)
        snprintf(quoted, capacity, "(NULL)");
    else
        snprintf(quoted, capacity, "\"%s\"", text);
}

bool tk_eq_str_at(struct tk *t, const char *expected, const char *actual, const char *text,
                  const char *file, int line) {
    bool same =
        expected != NULL && actual != NULL ? strcmp(expected, actual) == 0 : expected == actual;
    char values[2][400] = {"", ""};
    if (!same) {
        quote(values[0], sizeof(values[0]), expected);
        quote(values[1], sizeof(values[1]), actual);
    }
    return kit_compared_at(t, same, file, line, values[0], values[1], "%s", text);
}

bool tk_says_at(struct tk *t, const char *text, const char *file, int line) {
    const symmem_error_record record = last_record();
    return tk_check_at(t, strstr(record.message, text) != NULL, file, line,
                       "the record has no \"%s\": \"%s\"", text, record.message);
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
    va_list args;
    if (!claim(&slot->unresolved))
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
    note_line(t, file, line);
    t->own->file = file;
    t->own->line = line;
}
