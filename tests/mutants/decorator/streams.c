/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams that are out of order, keep nothing, or have a thread that is in the way. */
#include "decorator.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

static symmem_status ignore_event(void *instance, void *stream, void *event) {
    (void)instance, (void)stream, (void)event;
    return SYMMEM_OK;
}

static symmem_status do_not_wait(void *instance, void *stream, uint32_t timeout_ms,
                                 symmem_error_record *record_p) {
    (void)instance, (void)stream, (void)timeout_ms, (void)record_p;
    return SYMMEM_OK;
}

static symmem_status create_on_device_zero(void *instance, int32_t device, void **stream_p) {
    (void)device;
    return real->stream_create(instance, 0, stream_p);
}

ON_SIGNAL(at_once, call->exec.stream = NULL)

static void take_time(void *arg) {
    (void)arg;
    mutant_sleep_ms(3);
}

/* Not changed but for the time it takes to write to a peer. */
static symmem_status copy_slowly(void *instance, int32_t device, void *dst, const void *src,
                                 size_t bytes, const symmem_exec *exec) {
    if (exec->stream && real->host_fn && mutant_is_a_peers(dst))
        (void)real->host_fn(instance, exec->stream, take_time, NULL);
    return real->copy(instance, device, dst, src, bytes, exec);
}

/* --- work that keeps no memory ---------------------------------------------------- */

ON_SIGNAL(keep_none, if (call->exec.stream) call->exec.ref_count = 0)

static symmem_status copy_keeps_none(void *instance, int32_t device, void *dst, const void *src,
                                     size_t bytes, const symmem_exec *exec) {
    struct signal_call bare = {.exec = *exec};
    (void)keep_none(&bare);
    return real->copy(instance, device, dst, src, bytes, &bare.exec);
}

/* Without references while the stream captures. */
static symmem_exec captured_bare(void *instance, const symmem_exec *exec) {
    symmem_exec bare = *exec;
    uint64_t capture = 0;
    if (exec->stream && real->capture_id(instance, exec->stream, &capture) == SYMMEM_OK &&
        capture != 0)
        bare.ref_count = 0;
    return bare;
}

static symmem_status copy_captured_bare(void *instance, int32_t device, void *dst, const void *src,
                                        size_t bytes, const symmem_exec *exec) {
    const symmem_exec bare = captured_bare(instance, exec);
    return real->copy(instance, device, dst, src, bytes, &bare);
}

static symmem_status barrier_captured_bare(void *instance, const symmem_peers *peers,
                                           int32_t channel, const symmem_exec *exec) {
    const symmem_exec bare = captured_bare(instance, exec);
    return real->barrier(instance, peers, channel, &bare);
}

/* --- an argument that is read where the caller's frame was ------------------------ */

struct kept {
    void *dst;
    const uint32_t *value; /* into the caller's frame */
    size_t count;
};

static void late_memset(void *arg) {
    struct kept *kept = arg;
    for (size_t i = 0; i < kept->count; i++)
        ((uint32_t *)kept->dst)[i] = *kept->value;
    free(kept);
}

/* What other calls leave where the frame was. */
static void __attribute__((noinline)) reuse_stack(void) {
    volatile char other[512];
    for (size_t i = 0; i < sizeof other; i++)
        other[i] = 0x5a;
}

static symmem_status __attribute__((noinline))
enqueue(void *instance, void *dst, uint32_t value, size_t count, const symmem_exec *exec) {
    volatile uint32_t frame = value;
    struct kept *kept = malloc(sizeof *kept);
    if (!kept)
        return SYMMEM_OUT_OF_MEMORY;
    *kept = (struct kept){.dst = dst, .count = count};
    kept->value = (const uint32_t *)(uintptr_t)&frame;
    return real->host_fn(instance, exec->stream, late_memset, kept);
}

static symmem_status memset_late(void *instance, int32_t device, void *dst, uint32_t value,
                                 size_t count, const symmem_exec *exec) {
    if (!exec->stream || !real->host_fn)
        return real->memset32(instance, device, dst, value, count, exec);
    symmem_status status = enqueue(instance, dst, value, count, exec);
    reuse_stack();
    return status;
}

/* --- a thread as old as the instance that blocks all signals, those of its faults too */

static pthread_t thread; /* of the one context that there is at a time */
static void *served;     /* its instance */
static atomic_bool over;

static void *idle(void *nothing) {
    while (!atomic_load(&over))
        mutant_sleep_ms(1);
    return nothing;
}

static symmem_status open_with_thread(const symmem_host *host, const symmem_backend_config *config,
                                      void **instance_p) {
    symmem_status status = real->open(host, config, instance_p);
    sigset_t all, before;
    if (status != SYMMEM_OK || served != NULL)
        return status;
    atomic_store(&over, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, idle, NULL) == 0)
        served = *instance_p;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static void close_with_thread(void *instance) {
    if (instance == served) {
        atomic_store(&over, true);
        pthread_join(thread, NULL);
        served = NULL;
    }
    real->close(instance);
}

const struct mutant stream_mutants[] = {
    {"stream_ignores_events", .entries.stream_wait_event = ignore_event},
    {"synchronize_does_not_wait", .entries.stream_synchronize = do_not_wait},
    {"streams_of_device_zero", .entries.stream_create = create_on_device_zero},
    {"barrier_ignores_stream", .on = ON_BARRIER, .before = at_once},
    {"signal_overtakes_stream", .entries.copy = copy_slowly, .on = ON_PUT, .before = at_once,
     .watches_imports = true},
    {"stream_keeps_no_memory", .entries.copy = copy_keeps_none, .on = ON_BARRIER,
     .before = keep_none},
    {"graph_keeps_no_memory",
     .entries = {.copy = copy_captured_bare, .barrier = barrier_captured_bare}},
    {"memset_keeps_pointer", .entries.memset32 = memset_late},
    {"thread_blocks_faults", .entries = {.open = open_with_thread, .close = close_with_thread}},
    {.name = NULL},
};
