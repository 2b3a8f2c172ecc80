/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors, their scopes, and what a thread's record is meanwhile. */
#include <errno.h>

#include "bootstrap/bootstrap.h"
#include "last_record.h"
#include "unit_main.h"

/* --- making an error ------------------------------------------------------------------ */

TEST("record") {
    symmem_error_record record = last_record();
    CU_ASSERT(record.status == SYMMEM_OK && record.rank == -1 && record.failed_rank == -1);
    (void)sm_fail(SYMMEM_LIMIT, "earlier", "", "fields that go");
    CU_ASSERT_EQUAL(sm_error_sizes(4, 5), SYMMEM_LIMIT);
    CU_ASSERT_EQUAL(sm_error_missing(70), SYMMEM_LIMIT);
    record = last_record();
    CU_ASSERT(record.failed_rank == 70 && record.missing_count == 1 && record.missing[0] == 0);
    CU_ASSERT_TRUE(symmem_error_is_missing(&record, 70));
    CU_ASSERT_EQUAL(sm_error_failed_rank(3), SYMMEM_LIMIT);
    CU_ASSERT_EQUAL(sm_error_channel(7), SYMMEM_LIMIT);
    CU_ASSERT_EQUAL(sm_error_elapsed(9), SYMMEM_LIMIT);
    CU_ASSERT_EQUAL(sm_error_errno(EIO), SYMMEM_LIMIT);
    CU_ASSERT_EQUAL(sm_error_caller(1, 2), SYMMEM_LIMIT);
    CU_ASSERT_EQUAL(sm_error_caller(0, 8), SYMMEM_LIMIT); /* it is known by now */
    record = last_record();
    CU_ASSERT(record.expected == 4 && record.actual == 5 && record.failed_rank == 3);
    CU_ASSERT(record.channel == 7 && record.elapsed_ns == 9 && record.system_errno == EIO);
    CU_ASSERT(record.rank == 1 && record.world_size == 2);

    CU_ASSERT_EQUAL(sm_fail(SYMMEM_BUSY, "operation", "stage", "a %d", 1), SYMMEM_BUSY);
    record = last_record();
    CU_ASSERT(record.status == SYMMEM_BUSY && record.failed_rank == -1 && record.expected == 0);
    CU_ASSERT(record.channel == -1 && record.rank == -1 && record.world_size == 0);
    CU_ASSERT_STRING_EQUAL(record.operation, "operation");
    CU_ASSERT_STRING_EQUAL(record.stage, "stage");
    CU_ASSERT_STRING_EQUAL(record.message, "a 1");
    symmem_last_error(NULL);
}

TEST("texts that are too long") {
    symmem_error_record record;
    (void)sm_fail(SYMMEM_BUSY,
                  "an operation with a name that is longer than any public call has, and too long",
                  "", "%0300d", 0);
    sm_explain_text(" has no room");
    record = last_record();
    CU_ASSERT_EQUAL(strlen(record.operation), sizeof(record.operation) - 1);
    CU_ASSERT_EQUAL(strlen(record.message), sizeof(record.message) - 1);
}

TEST("a value is raised again") {
    symmem_error_record kept;
    (void)sm_fail(SYMMEM_BUSY, "operation", "", "a 1");
    CU_ASSERT_EQUAL(sm_error_get(&kept), SYMMEM_BUSY);
    (void)sm_fail(SYMMEM_LIMIT, "operation", "", "a 2");
    CU_ASSERT_EQUAL(sm_error_raise(&kept), SYMMEM_BUSY);
    CU_ASSERT_STRING_EQUAL(last_record().message, "a 1");
    symmem_clear_error();
    CU_ASSERT(last_record().status == SYMMEM_OK && last_record().channel == -1);
    CU_ASSERT_STRING_EQUAL(last_record().message, "");
    sm_explain_text("nothing failed");
    CU_ASSERT_STRING_EQUAL(last_record().message, "");
}

TEST("errno") {
    static const struct {
        int number;
        symmem_status status;
    } cases[] = {{EMFILE, SYMMEM_LIMIT},      {ENFILE, SYMMEM_LIMIT},
                 {ENOSPC, SYMMEM_NO_SPACE},   {ENOMEM, SYMMEM_OUT_OF_MEMORY},
                 {EACCES, SYMMEM_PERMISSION}, {EPERM, SYMMEM_PERMISSION},
                 {EFBIG, SYMMEM_LIMIT},       {EDQUOT, SYMMEM_NO_SPACE},
                 {EIO, SYMMEM_SYSTEM},        {ENAMETOOLONG, SYMMEM_PATH_TOO_LONG}};
    symmem_error_record record;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CU_ASSERT_EQUAL(sm_fail_errno(cases[i].number, "o", "s", "open %s", "f"), cases[i].status);
        record = last_record();
        CU_ASSERT_EQUAL(record.status, cases[i].status);
        CU_ASSERT_EQUAL(record.system_errno, cases[i].number);
        CU_ASSERT_EQUAL(strncmp(record.message, "open f: ", 8), 0);
        CU_ASSERT(strlen(record.message) > 8);
    }
    sm_fail_errno(EIO, "o", "s", "%0400d", 1);
    CU_ASSERT_EQUAL(strlen(last_record().message), sizeof(record.message) - 1);
}

/* --- attempts ------------------------------------------------------------------------- */

static symmem_status attempt(bool raises) {
    SM_ATTEMPT(outer);
    CU_ASSERT_EQUAL(outer.error.status, SYMMEM_OK);
    {
        SM_ATTEMPT(inner);
        (void)sm_fail(SYMMEM_LIMIT, "inner", "", "forgiven");
        CU_ASSERT(inner.error.status == SYMMEM_LIMIT && outer.error.status == SYMMEM_OK);
        CU_ASSERT_STRING_EQUAL(last_record().message, "forgiven");
    }
    CU_ASSERT_EQUAL(outer.error.status, SYMMEM_OK);
    {
        SM_ATTEMPT(inner);
        (void)sm_fail(SYMMEM_TIMEOUT, "inner", "", "handed on");
        CU_ASSERT_EQUAL(sm_error_raise(&inner.error), SYMMEM_TIMEOUT);
        (void)sm_fail(SYMMEM_LIMIT, "inner", "", "after that");
    }
    CU_ASSERT_EQUAL(outer.error.status, SYMMEM_TIMEOUT);
    CU_ASSERT_STRING_EQUAL(outer.error.message, "handed on");
    return raises ? sm_error_raise(&outer.error) : SYMMEM_OK;
}

TEST("attempts") {
    symmem_error_record kept;
    symmem_clear_error();
    CU_ASSERT_EQUAL(attempt(false), SYMMEM_OK);
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_OK);
    (void)sm_fail(SYMMEM_BUSY, "before", "", "it stays");
    CU_ASSERT_EQUAL(attempt(false), SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(last_record().message, "it stays");
    CU_ASSERT_EQUAL(attempt(true), SYMMEM_TIMEOUT);
    CU_ASSERT_STRING_EQUAL(last_record().message, "handed on");

    SM_ATTEMPT(empty);
    CU_ASSERT_STRING_EQUAL(last_record().message, "handed on"); /* what is around it */
    CU_ASSERT(sm_error_get(&kept) == SYMMEM_OK && kept.rank == -1 && kept.message[0] == '\0');
    symmem_clear_error();
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_OK);
}

/* --- public calls --------------------------------------------------------------------- */

static const char group_name[SYMMEM_NAME_MAX] = "the group";

TEST("a call's error has all that the call knows, and is published at its end") {
    symmem_clear_error();
    sm_thread *outermost = sm_call_begin("symmem_public_name");
    CU_ASSERT_PTR_NOT_NULL(outermost);
    sm_call_is_in(1, 5, 6, NULL, NULL);
    (void)sm_fail(SYMMEM_LIMIT, "inner", "", "x");
    CU_ASSERT(last_record().rank == 5 && last_record().world_size == 6 &&
              last_record().group[0] == '\0');
    sm_call_is_of(1, 2, group_name);
    sm_call_is_in(1, 5, 6, NULL, NULL);
    sm_thread *inside = sm_call_begin("symmem_inside");
    CU_ASSERT_PTR_NULL(inside);
    (void)sm_fail(SYMMEM_BUSY, "inner", "", "y");
    sm_call_end(&inside);
    sm_call_end(&outermost);
    const symmem_error_record record = last_record();
    CU_ASSERT(record.status == SYMMEM_BUSY && record.rank == 1 && record.world_size == 2);
    CU_ASSERT_STRING_EQUAL(record.group, "the group");
    CU_ASSERT_STRING_EQUAL(record.operation, "public_name");
    CU_ASSERT_STRING_EQUAL(record.stage, "inner");
    CU_ASSERT_EQUAL(sm_fail(SYMMEM_LIMIT, "later", "", "no call"), SYMMEM_LIMIT);
    CU_ASSERT(last_record().rank == -1 && last_record().group[0] == '\0');
    CU_ASSERT_STRING_EQUAL(last_record().operation, "later");
}

/* Makes one call that fails, or one that forgives a failure inside it. */
static void call_on(uint64_t context, bool fails) {
    sm_thread *outermost = sm_call_begin("symmem_call");
    sm_call_is_in(context, -1, 0, NULL, NULL);
    {
        SM_ATTEMPT(step);
        (void)sm_fail(SYMMEM_LIMIT, "call", "", "%d is its context", (int)context);
        CU_ASSERT_TRUE(sm_failed_in(context)); /* while it lasts, too */
        if (fails)
            (void)sm_error_raise(&step.error);
    }
    sm_call_end(&outermost);
}

TEST("whose failure the record is of") {
    symmem_clear_error();
    call_on(1, true);
    CU_ASSERT(sm_failed_in(1) && !sm_failed_in(2));
    call_on(2, false);
    CU_ASSERT(sm_failed_in(1) && !sm_failed_in(2));
    symmem_clear_error();
    CU_ASSERT_FALSE(sm_failed_in(1));
}

/* --- what a failure leads to ------------------------------------------------------------ */

static int held, ended;
static symmem_status ended_with;

static void hold_arg(void *arg) {
    *(int *)arg += 1;
    held++;
}

static void end_arg(void *arg, const symmem_error_record *error) {
    *(int *)arg -= 1;
    ended++;
    ended_with = error != NULL ? error->status : SYMMEM_OK;
    errno = EBADF;                                    /* of a system call in there */
    (void)sm_fail(SYMMEM_BUSY, "end", "", "ignored"); /* nothing is told of this one */
}

static const sm_failure_ops failure_ops = {.hold = hold_arg, .end = end_arg};

/* A call on `arg`, and before on `other`, whose steps fail `times`. */
static void fail_on(int *arg, int *other, int times, bool forgives) {
    sm_thread *outermost = sm_call_begin("symmem_call");
    if (other != NULL) {
        sm_call_is_in(2, 0, 1, &failure_ops, other);
        (void)sm_fail(SYMMEM_BUSY, "call", "", "of another one");
    }
    sm_call_is_in(1, 0, 1, &failure_ops, arg);
    for (int i = 0; i < times; i++) {
        SM_ATTEMPT(step);
        (void)sm_fail(SYMMEM_LIMIT, "call", "", "step");
        if (!forgives)
            (void)sm_error_raise(&step.error);
        sm_call_is_in(1, 0, 1, &failure_ops, arg); /* a call inside */
    }
    CU_ASSERT_EQUAL(*arg, times > 0 ? 1 : 0);
    errno = ENOENT;
    sm_call_end(&outermost);
    CU_ASSERT(*arg == 0 && errno == ENOENT);
}

TEST("what a failure leads to") {
    int one = 0, other = 0;
    symmem_clear_error();
    fail_on(&one, NULL, 0, false);
    CU_ASSERT(held == 0 && ended == 0);
    fail_on(&one, NULL, 3, false);
    CU_ASSERT(held == 1 && ended == 1 && ended_with == SYMMEM_LIMIT);
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_LIMIT);
    fail_on(&one, NULL, 3, true);
    CU_ASSERT(held == 2 && ended == 2 && ended_with == SYMMEM_OK);
    fail_on(&one, &other, 1, false);
    CU_ASSERT(held == 4 && ended == 4 && ended_with == SYMMEM_LIMIT && other == 0);
}

TEST("what is no more is not held") {
    int gone = 0, one = 0;
    held = 0;
    sm_thread *outermost = sm_call_begin("symmem_call");
    sm_call_is_in(1, 0, 1, &failure_ops, &gone);
    sm_call_forget(&one);
    (void)sm_fail(SYMMEM_LIMIT, "call", "", "held");
    sm_call_forget(&gone); /* it is held, so it is not true */
    sm_call_end(&outermost);
    CU_ASSERT(held == 1 && gone == 0);
    outermost = sm_call_begin("symmem_call");
    sm_call_is_in(1, 0, 1, &failure_ops, &gone);
    sm_call_forget(&gone);
    (void)sm_fail(SYMMEM_LIMIT, "call", "", "not held");
    sm_call_end(&outermost);
    CU_ASSERT_EQUAL(held, 1);
    (void)sm_fail(SYMMEM_LIMIT, "call", "", "outside of a call");
    CU_ASSERT_EQUAL(held, 1);
    symmem_clear_error();
}

/* --- public calls in a callback --------------------------------------------------------- */

/* A store whose entry asks another one for a key that is not there. */
typedef struct asking {
    symmem_store *other;
    bool clears;
    symmem_error_record before, inside, after;
} asking;

static symmem_status ask_other(void *self, const char *key, int64_t delta, int64_t *value_p,
                               uint32_t timeout_ms) {
    asking *store = self;
    char value;
    size_t bytes;
    (void)key;
    (void)timeout_ms;
    store->before = last_record();
    CU_ASSERT_EQUAL(symmem_store_get(store->other, "none", &value, 1, &bytes, 100),
                    SYMMEM_NOT_FOUND);
    store->inside = last_record();
    if (store->clears)
        symmem_clear_error();
    store->after = last_record();
    *value_p = delta;
    return SYMMEM_OK;
}

static symmem_status no_set(void *self, const char *key, const void *value, size_t bytes,
                            uint32_t timeout_ms) {
    (void)self, (void)key, (void)value, (void)bytes, (void)timeout_ms;
    return SYMMEM_UNSUPPORTED;
}

static symmem_status no_get(void *self, const char *key, void *value, size_t capacity,
                            size_t *bytes_p, uint32_t timeout_ms) {
    (void)self, (void)key, (void)value, (void)capacity, (void)bytes_p, (void)timeout_ms;
    return SYMMEM_UNSUPPORTED;
}

static symmem_status no_key(void *self, const char *key, uint32_t timeout_ms) {
    (void)self, (void)key, (void)timeout_ms;
    return SYMMEM_UNSUPPORTED;
}

static void no_close(void *self) {
    (void)self;
}

static void add_to(asking *asked, const char *key) {
    static const symmem_store_ops ops = {sizeof(ops), no_set, no_get,  no_key,
                                         ask_other,   no_key, no_close};
    symmem_store *store = NULL;
    int64_t value = 0;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&asked->other), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, asked, &store), SYMMEM_OK);
    CU_ASSERT(symmem_store_add(store, key, 3, &value, 1000) == SYMMEM_OK && value == 3);
    symmem_store_close(store);
    symmem_store_close(asked->other);
}

TEST("a public call in a callback") {
    asking asked = {.clears = false};
    (void)sm_fail(SYMMEM_BUSY, "earlier", "", "an earlier call's");
    add_to(&asked, "k");
    CU_ASSERT_STRING_EQUAL(asked.before.message, "an earlier call's");
    CU_ASSERT_EQUAL(asked.inside.status, SYMMEM_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(asked.inside.operation, "store_add");
    CU_ASSERT_STRING_EQUAL(asked.inside.stage, "store_get");
    CU_ASSERT_EQUAL(asked.after.status, SYMMEM_NOT_FOUND);
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_NOT_FOUND); /* a call of the user's did fail */

    (void)sm_fail(SYMMEM_BUSY, "earlier", "", "an earlier call's");
    asked.clears = true;
    add_to(&asked, "k");
    CU_ASSERT_EQUAL(asked.after.status, SYMMEM_OK);
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_OK);
}

TEST("a public call in an attempt of a thread that is in no call") {
    symmem_store *store = NULL;
    symmem_clear_error();
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    {
        SM_ATTEMPT(step);
        CU_ASSERT_EQUAL(symmem_store_wait(store, "none", 1), SYMMEM_TIMEOUT);
        CU_ASSERT_EQUAL(step.error.status, SYMMEM_TIMEOUT);
        CU_ASSERT_STRING_EQUAL(step.error.operation, "store_wait");
    }
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_OK);
    symmem_store_close(store);
}

/* --- threads and processes -------------------------------------------------------------- */

static void *fail_elsewhere(void *arg) {
    symmem_error_record *seen = arg;
    seen[0] = last_record();
    SM_ATTEMPT(step);
    sm_thread *outermost = sm_call_begin("symmem_elsewhere");
    (void)sm_fail(SYMMEM_MISALIGNED, "elsewhere", "", "another thread's");
    sm_call_end(&outermost);
    (void)sm_error_raise(&step.error);
    seen[1] = last_record();
    return NULL;
}

TEST("threads have scopes of their own") {
    symmem_error_record seen[2];
    pthread_t thread;
    symmem_clear_error();
    sm_thread *outermost = sm_call_begin("symmem_here");
    {
        SM_ATTEMPT(step);
        (void)sm_fail(SYMMEM_BUSY, "here", "", "this thread's");
        CU_ASSERT_EQUAL(pthread_create(&thread, NULL, fail_elsewhere, seen), 0);
        CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
        CU_ASSERT(seen[0].status == SYMMEM_OK && seen[1].status == SYMMEM_MISALIGNED);
        CU_ASSERT_STRING_EQUAL(seen[1].operation, "elsewhere");
        CU_ASSERT_STRING_EQUAL(step.error.message, "this thread's");
    }
    sm_call_end(&outermost);
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_OK);
}

/* In the middle of a call, as in a callback of the user's. */
TEST("a child of fork goes on in its parent's scopes, and the parent does not notice") {
    int result = 0;
    symmem_clear_error();
    sm_thread *outermost = sm_call_begin("symmem_parent");
    (void)sm_fail(SYMMEM_BUSY, "parent", "", "before the fork");
    const pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        const bool has_parents = strcmp(last_record().message, "before the fork") == 0;
        (void)sm_fail(SYMMEM_LIMIT, "child", "", "in the child");
        sm_call_end(&outermost);
        _exit(has_parents && last_record().status == SYMMEM_LIMIT ? 0 : 1);
    }
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &result, 0), child);
    CU_ASSERT(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    sm_call_end(&outermost);
    CU_ASSERT_STRING_EQUAL(last_record().message, "before the fork");
}
