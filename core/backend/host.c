/* SPDX-License-Identifier: BSD-3-Clause */
/* The services that the core offers to a backend. */
#include "backend/host.h"
#include "backend/query.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct notice {
    sm_node node; /* first: context.c frees by the node */
    char text[];
} notice;

/* Remembers the text; false if it was told before. Out of memory counts as new: telling a thing
 * twice is better than not at all. */
static bool remember(symmem_context *context, const char *text) {
    bool known = false;
    (void)pthread_mutex_lock(&context->lock);
    for (sm_node *node = context->notices.next; node != &context->notices && !known;
         node = node->next)
        known = strcmp(SM_CONTAINER(node, notice, node)->text, text) == 0;
    if (!known) {
        size_t bytes = strlen(text) + 1;
        notice *added = malloc(sizeof(*added) + bytes);
        if (added) {
            memcpy(added->text, text, bytes);
            sm_list_add(&context->notices, &added->node);
        }
    }
    (void)pthread_mutex_unlock(&context->lock);
    return !known;
}

void sm_context_notice(symmem_context *context, const char *text) {
    if (!remember(context, text))
        return;
    if (context->log)
        context->log(context->log_arg, text);
    else
        sm_tell_stderr(text);
}

static symmem_context *context_of(const symmem_host *host) {
    return host->self;
}

static void add_fields(const symmem_host *host, int system_errno) {
    (void)sm_error_caller(context_of(host)->rank, context_of(host)->world_size);
    (void)sm_error_errno(system_errno);
    sm_explain_errno(system_errno);
}

/* The stage is the entry that was called, as the core says it. */
static symmem_status hand_on(sm_scope *made) {
    made->error.stage[0] = '\0';
    return sm_error_raise(&made->error);
}

static symmem_status host_fail(const symmem_host *host, symmem_status status, int system_errno,
                               const char *operation, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static symmem_status host_fail(const symmem_host *host, symmem_status status, int system_errno,
                               const char *operation, const char *format, ...) {
    SM_ATTEMPT(made);
    va_list args;
    va_start(args, format);
    sm_vfail(status, operation, "", format, args);
    va_end(args);
    add_fields(host, system_errno);
    return hand_on(&made);
}

static symmem_status host_fail_sizes(const symmem_host *host, symmem_status status,
                                     int system_errno, const char *operation, uint64_t expected,
                                     uint64_t actual) {
    SM_ATTEMPT(made);
    sm_fail(status, operation, "", "%s: %" PRIu64 " bytes asked for, %" PRIu64 " available",
            symmem_status_text(status), expected, actual);
    add_fields(host, system_errno);
    (void)sm_error_sizes(expected, actual);
    return hand_on(&made);
}

static void host_explain(const symmem_host *host, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void host_explain(const symmem_host *host, const char *format, ...) {
    char text[sizeof(((symmem_error_record *)NULL)->message)];
    va_list args;
    (void)host;
    va_start(args, format);
    const int length = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (length > 0)
        sm_explain_text(text);
}

static void host_notice(const symmem_host *host, const char *text) {
    sm_context_notice(context_of(host), text);
}

/* Without an operation: the public call that the step belongs to is put there by the core. */
static symmem_status host_point(const symmem_host *host, const char *name) {
    return sm_context_point(context_of(host), "backend", name);
}

static _Thread_local uint64_t call_deadline_ns;

uint64_t sm_call_deadline(uint64_t deadline_ns) {
    const uint64_t before_ns = call_deadline_ns;
    call_deadline_ns = deadline_ns;
    return before_ns;
}

/* Counted from when the backend asks: the driver calls before that have no limit, and no other rank
 * waits for this one. */
static _Thread_local uint32_t call_limit_ms;

uint32_t sm_call_limit(uint32_t limit_ms) {
    const uint32_t before_ms = call_limit_ms;
    call_limit_ms = limit_ms;
    return before_ms;
}

static uint64_t host_deadline_ns(const symmem_host *host) {
    (void)host;
    return call_deadline_ns != 0 ? call_deadline_ns : sm_deadline_ns(call_limit_ms);
}

void sm_host_init(symmem_context *context) {
    context->host = (symmem_host){
        .size = sizeof(symmem_host),
        .self = context,
        .fail = host_fail,
        .fail_sizes = host_fail_sizes,
        .notice = host_notice,
        .point = host_point,
        .has_points = context->point != NULL,
        .deadline_ns = host_deadline_ns,
        .clock = context->clock,
        .explain = host_explain,
    };
}

symmem_status sm_backend_failed(const symmem_context *context, symmem_status status,
                                const char *operation, const char *entry) {
    symmem_error_record error;
    const bool is_told = sm_error_get(&error) == status;
    if (!sm_status_known(status))
        return sm_context_fail(context, SYMMEM_BACKEND, operation, entry,
                               "the backend's %s answered %d, which is no status%s%s", entry,
                               (int)status, is_told ? ": " : "", is_told ? error.message : "");
    if (!is_told)
        return sm_context_fail(context, status, operation, entry, "the backend's %s gave no reason",
                               entry);
    sm_copy_text(error.operation, sizeof(error.operation), operation);
    if (error.stage[0] == '\0') /* a failpoint's name is more precise */
        sm_copy_text(error.stage, sizeof(error.stage), entry);
    return sm_error_raise(&error);
}
