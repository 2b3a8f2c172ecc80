/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits for the value of a word. Anything may write it, a plain store of the program's included, so
 * no wake-up comes. It polls: without a pause at first, then between short sleeps.
 */
#include <sched.h>
#include <time.h>

#include "error.h"
#include "op.h"
#include "signals.h"
#include "signal/value.h"
#include "wait.h"

#define NS_PER_MS 1000000ull
/* How often the thread looks before it lets others run, and then before it begins to sleep. */
#define LOOKS 100
#define YIELDS 200
#define SHORT_NS 20000
#define LONG_NS 500000
#define SHORT_SLEEPS 200

typedef _Atomic uint64_t wide_word;

/* A wait, and the value of the last look. */
typedef struct value_wait {
    shm_wait wait; /* first: the functions that it points to get this */
    const symmem_value_wait *value;
    uint64_t seen;
} value_wait;

static uint64_t load_word(const symmem_value_wait *value) {
    /* acquire; pairs with: run_write_value32 and 64, or a release store of the user */
    if (value->bytes == sizeof(wide_word))
        return atomic_load_explicit((const wide_word *)value->word, memory_order_acquire);
    return atomic_load_explicit((const shm_word *)value->word, memory_order_acquire);
}

static bool holds(value_wait *wait) {
    wait->seen = load_word(wait->value);
    return symmem_value_holds(wait->value, wait->seen);
}

/* For the check of peers: what the source wrote before its end counts. */
static bool peek(const shm_wait *wait, int32_t rank) {
    const value_wait *own = (const value_wait *)wait;
    (void)rank;
    return symmem_value_holds(own->value, load_word(own->value));
}

/* Takes longer from time to time. A program's clock tells when there may be news. */
static void pause_wait(const value_wait *wait, uint32_t looks, uint64_t until_ns) {
    const symmem_clock *clock = shm_clock(wait->wait.peers->host);
    if (clock != NULL) {
        clock->wait(clock->arg, until_ns);
        return;
    }
    if (looks < LOOKS)
        return;
    if (looks < LOOKS + YIELDS) {
        sched_yield();
        return;
    }
    const bool is_new = looks < LOOKS + YIELDS + SHORT_SLEEPS;
    const struct timespec sleep = {.tv_sec = 0, .tv_nsec = is_new ? SHORT_NS : LONG_NS};
    shm_failpoint_notify(wait->wait.peers->host, "shm.sleep*");
    nanosleep(&sleep, NULL);
}

/* Returns OK once the word holds what is awaited. */
static symmem_status poll_word(value_wait *wait, int32_t *failed_rank_p) {
    const symmem_clock *clock = shm_clock(wait->wait.peers->host);
    const uint64_t tick_ns = shm_wait_tick_ns(wait->wait.peers);
    *failed_rank_p = -1;
    if (holds(wait))
        return SYMMEM_OK;
    wait->wait.start_ns = shm_now_ns(clock);
    const uint64_t limit_ns = wait->wait.timeout_ms * NS_PER_MS;
    const uint64_t deadline_ns = limit_ns > 0 ? wait->wait.start_ns + limit_ns : UINT64_MAX;
    uint64_t check_ns = wait->wait.start_ns + tick_ns;
    for (uint32_t looks = 0; !holds(wait); looks++) {
        const uint64_t now_ns = shm_now_ns(clock);
        const bool is_late = now_ns >= deadline_ns;
        if (is_late || now_ns >= check_ns) {
            symmem_status status = shm_wait_check(&wait->wait, failed_rank_p);
            if (status != SYMMEM_OK)
                return status;
            check_ns = now_ns + tick_ns;
        }
        if (is_late)
            return holds(wait) ? SYMMEM_OK : SYMMEM_TIMEOUT;
        pause_wait(wait, looks, deadline_ns < check_ns ? deadline_ns : check_ns);
    }
    return SYMMEM_OK;
}

static void describe_value(const value_wait *wait, symmem_fault *fault) {
    fault->actual = wait->seen;
    fault->own = (symmem_call_id){.kind = SYMMEM_CALL_WAIT_VALUE,
                                  .dtype = wait->value->bytes == sizeof(wide_word) ? SYMMEM_UINT64
                                                                                   : SYMMEM_UINT32,
                                  .op = (uint16_t)wait->value->compare,
                                  .count = wait->value->value};
}

static symmem_status run_wait_value(const shm_op *op, symmem_error_record *record_p) {
    value_wait wait = {.value = &op->u.value.wait};
    symmem_fault fault;
    int32_t failed_rank;
    shm_sync_prepare(op->instance, op->u.value.peers, op->u.value.operation, -1,
                     op->u.value.timeout_ms, &wait.wait);
    wait.wait.rank = op->u.value.wait.source;
    wait.wait.peek = peek;
    wait.seen = load_word(wait.value);
    symmem_status status = shm_signal_before(&wait.wait, "shm.value.before", &fault);
    if (status == SYMMEM_OK) {
        status = poll_word(&wait, &failed_rank);
        if (status != SYMMEM_OK)
            shm_wait_fault(&wait.wait, status, failed_rank, op->u.value.wait.source, &fault);
    }
    if (status != SYMMEM_OK)
        describe_value(&wait, &fault);
    return shm_signal_finish(&wait.wait, "shm.value.done*", status, &fault, record_p);
}

symmem_status shm_wait_value(void *instance, const symmem_peers *peers,
                             const symmem_value_wait *wait, const symmem_exec *exec) {
    shm_op op;
    shm_op_init(&op, instance, run_wait_value);
    op.reports_itself = true;
    op.u.value.peers = peers;
    op.u.value.wait = *wait;
    op.u.value.timeout_ms = exec->timeout_ms;
    op.u.value.operation = shm_operation(exec, "wait_value");
    return shm_submit(&op, exec, op.u.value.operation);
}
