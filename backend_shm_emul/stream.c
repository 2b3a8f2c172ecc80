/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: a queue of operations and a thread that runs them in order. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"
#include "capture.h"
#include "cgroup.h"
#include "error.h"
#include "op.h"
#include "wait.h"

void shm_instance_free(shm_instance *self) {
    pthread_mutex_destroy(&self->busy_lock);
    pthread_mutex_destroy(&self->blas_lock);
    pthread_cond_destroy(&self->stream_gone);
    pthread_mutex_destroy(&self->lock);
    free(self->slots_used);
    free(self);
}

/* --- life --------------------------------------------------------------------------- */

static void retain_locked(shm_stream *stream) {
    stream->reference_count++;
}

static void release(shm_stream *stream) {
    shm_instance *instance = stream->instance;
    pthread_mutex_lock(&instance->lock);
    bool last = --stream->reference_count == 0;
    if (last) {
        pthread_cond_destroy(&stream->done);
        pthread_cond_destroy(&stream->work);
        pthread_mutex_destroy(&stream->lock);
        if (stream->next)
            stream->next->previous = stream->previous;
        *(stream->previous ? &stream->previous->next : &instance->streams) = stream->next;
        free(stream);
        if (!instance->closed) /* later no thread waits, and the clock may be no more */
            shm_cond_wake(instance->clock, &instance->stream_gone);
    }
    bool all = last && instance->closed && !instance->streams;
    pthread_mutex_unlock(&instance->lock);
    if (all)
        shm_instance_free(instance);
}

/* The stream's first operation is enqueued (begin) or its last one ended (end). With the stream's
 * lock. */
static void begin_work(shm_stream *stream) {
    shm_instance *instance = stream->instance;
    pthread_mutex_lock(&instance->busy_lock);
    stream->next_busy = instance->busy;
    stream->previous_busy = NULL;
    if (stream->next_busy)
        stream->next_busy->previous_busy = stream;
    instance->busy = stream;
    pthread_mutex_unlock(&instance->busy_lock);
}

static void end_work(shm_stream *stream) {
    shm_instance *instance = stream->instance;
    pthread_mutex_lock(&instance->busy_lock);
    if (stream->next_busy)
        stream->next_busy->previous_busy = stream->previous_busy;
    *(stream->previous_busy ? &stream->previous_busy->next_busy : &instance->busy) =
        stream->next_busy;
    pthread_mutex_unlock(&instance->busy_lock);
}

static void keep_failure(shm_stream *stream, const symmem_error_record *record) {
    pthread_mutex_lock(&stream->lock);
    if (!stream->failed)
        stream->failure = *record;
    stream->failed = true;
    pthread_mutex_unlock(&stream->lock);
}

/* Only an operation with references keeps the instance, and so the host, open. Events and host
 * functions may run after both have gone. */
static void notify_done(const shm_op *op, const char *name) {
    if (op->ref_count > 0)
        shm_failpoint_notify(op->instance->host, name);
}

static void run_one(shm_stream *stream, shm_op *op) {
    symmem_error_record record;
    memset(&record, 0, sizeof record);
    op->runner = stream;
    notify_done(op, "shm.op.before*");
    shm_stream *told = op->report ? op->report : stream;
    symmem_status status = shm_op_run(op, told, &record);
    notify_done(op, "shm.op.done*");
    if (status != SYMMEM_OK) {
        record.status = status;
        keep_failure(told, &record);
    }
    shm_op_free(op); /* before the operation counts as done, so that nothing of it remains */
}

static void *worker(void *argument) {
    shm_stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->first && !stream->stopping)
            shm_cond_wait(stream->instance->clock, &stream->work, &stream->lock, 0);
        shm_op *op = stream->first;
        if (!op)
            break;
        stream->first = op->next;
        pthread_mutex_unlock(&stream->lock);
        run_one(stream, op);
        pthread_mutex_lock(&stream->lock);
        if (++stream->completed == stream->enqueued)
            end_work(stream);
        shm_cond_wake(stream->instance->clock, &stream->done);
    }
    pthread_mutex_unlock(&stream->lock);
    /* Told first: after the release the instance may be closed, and the clock no more. */
    const symmem_clock *clock = stream->instance->clock;
    if (clock != NULL)
        clock->threads(clock->arg, -1);
    release(stream);
    return NULL;
}

/* A worker takes none of the process's signals, except those for its own faults. */
static void block_signals_except_faults(sigset_t *set) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigfillset(set);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(set, faults[i]);
}

static int start_worker(shm_stream *stream) {
    sigset_t others;
    sigset_t before;
    const symmem_clock *clock = stream->instance->clock;
    block_signals_except_faults(&others);
    int error = pthread_sigmask(SIG_BLOCK, &others, &before);
    if (error != 0)
        return error;
    if (clock != NULL)
        clock->threads(clock->arg, 1);
    error = pthread_create(&stream->worker, NULL, worker, stream);
    if (clock != NULL && error != 0)
        clock->threads(clock->arg, -1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int init_stream(shm_stream *stream, shm_instance *instance, int32_t device) {
    stream->instance = instance;
    stream->device = device;
    stream->reference_count = 2; /* the owner's and the worker's */
    int error = pthread_mutex_init(&stream->lock, NULL);
    if (error != 0)
        return error;
    error = shm_cond_init(&stream->work);
    if (error != 0)
        goto destroy_lock;
    error = shm_cond_init(&stream->done);
    if (error != 0)
        goto destroy_work;
    return 0;

destroy_work:
    pthread_cond_destroy(&stream->work);
destroy_lock:
    pthread_mutex_destroy(&stream->lock);
    return error;
}

static symmem_status fail_thread(const shm_instance *instance, int error) {
    symmem_status status =
        shm_fail_errno(instance->host, error, "stream_create", "starting a stream's thread");
    shm_memory_left *memory = error == EAGAIN ? malloc(sizeof *memory) : NULL;
    if (memory && shm_cgroup_tasks(instance->root, memory) && memory->left == 0)
        shm_explain(instance->host, " (pids.max of the control group %.120s is %llu)",
                    memory->where, (unsigned long long)memory->limit);
    free(memory);
    return status;
}

symmem_status shm_stream_create(void *instance, int32_t device, void **stream_p) {
    shm_instance *self = instance;
    symmem_status status = shm_failpoint(self->host, "shm.stream.thread");
    if (status != SYMMEM_OK)
        return status;
    shm_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return shm_out_of_memory(self->host, "stream_create");
    int error = init_stream(stream, self, device);
    if (error != 0) {
        free(stream);
        return shm_fail_errno(self->host, error, "stream_create", "creating a stream");
    }
    /* The lock is held until `worker` is set, because other threads compare it. */
    pthread_mutex_lock(&self->lock);
    stream->next = self->streams;
    if (stream->next)
        stream->next->previous = stream;
    self->streams = stream;
    error = start_worker(stream);
    pthread_mutex_unlock(&self->lock);
    if (error != 0) {
        release(stream);
        release(stream);
        return fail_thread(self, error);
    }
    *stream_p = stream;
    return SYMMEM_OK;
}

void shm_stream_destroy(void *instance, void *stream) {
    shm_stream *self = stream;
    shm_failpoint_notify(((shm_instance *)instance)->host, "shm.stream.destroy*");
    shm_capture_abandon(self);
    pthread_t thread = self->worker;
    pthread_mutex_lock(&self->lock);
    self->stopping = true;
    /* Running work keeps the stream until it ends. Its own thread comes here inside of work only.
     */
    bool join = self->enqueued == self->completed;
    shm_cond_wake(self->instance->clock, &self->work);
    pthread_mutex_unlock(&self->lock);
    if (join)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    release(self);
}

bool shm_stream_stopping(shm_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    bool stopping = stream->stopping;
    pthread_mutex_unlock(&stream->lock);
    return stopping;
}

/* --- work --------------------------------------------------------------------------- */

void shm_stream_push(shm_stream *stream, shm_op *first, shm_op *last, uint64_t count) {
    if (!first)
        return;
    pthread_mutex_lock(&stream->lock);
    if (stream->first)
        stream->last->next = first;
    else
        stream->first = first;
    stream->last = last;
    if (stream->enqueued == stream->completed)
        begin_work(stream);
    stream->enqueued += count;
    shm_cond_wake(stream->instance->clock, &stream->work);
    pthread_mutex_unlock(&stream->lock);
}

static bool is_capturing(shm_stream *stream) {
    pthread_mutex_lock(&stream->instance->lock);
    bool capturing = stream->capture != NULL;
    pthread_mutex_unlock(&stream->instance->lock);
    return capturing;
}

/* Fills the thread's record and *record_p with a failure of the wait itself. */
static symmem_status fail_wait(shm_stream *stream, symmem_status status, uint64_t elapsed_ns,
                               const char *text, symmem_error_record *record_p) {
    const symmem_host *host = stream->instance->host;
    memset(record_p, 0, sizeof *record_p);
    record_p->status = status;
    record_p->rank = -1;
    record_p->channel = -1;
    record_p->failed_rank = -1;
    record_p->elapsed_ns = elapsed_ns;
    snprintf(record_p->operation, sizeof record_p->operation, "stream_synchronize");
    snprintf(record_p->message, sizeof record_p->message, "%s", text);
    return host->fail(host, status, 0, "stream_synchronize", "%s", text);
}

/* Waits until everything that is enqueued now has ended. With the stream's lock. Returns false if
 * the deadline passed. */
static bool wait_done_locked(shm_stream *stream, uint64_t deadline_ns) {
    uint64_t target = stream->enqueued;
    bool in_time = true;
    while (stream->completed < target && in_time)
        in_time = shm_cond_wait(stream->instance->clock, &stream->done, &stream->lock, deadline_ns);
    return stream->completed >= target;
}

symmem_status shm_stream_synchronize(void *instance, void *stream, uint32_t timeout_ms,
                                     symmem_error_record *record_p) {
    (void)instance;
    shm_stream *self = stream;
    if (is_capturing(self))
        return fail_wait(self, SYMMEM_CAPTURE, 0, "the stream captures", record_p);
    const symmem_clock *clock = self->instance->clock;
    uint64_t start_ns = shm_now_ns(clock);
    uint64_t deadline_ns = shm_deadline_ns(clock, timeout_ms);
    pthread_mutex_lock(&self->lock);
    bool done = wait_done_locked(self, deadline_ns);
    symmem_status status = SYMMEM_OK;
    if (done && self->failed) {
        *record_p = self->failure;
        status = self->failure.status;
        self->failed = false;
    }
    pthread_mutex_unlock(&self->lock);
    if (!done)
        return fail_wait(self, SYMMEM_TIMEOUT, shm_now_ns(clock) - start_ns,
                         "the stream's work goes on", record_p);
    return status;
}

symmem_status shm_stream_query(void *instance, void *stream, bool *idle_p) {
    shm_instance *self = instance;
    shm_stream *asked = stream;
    if (is_capturing(asked))
        return self->host->fail(self->host, SYMMEM_CAPTURE, 0, "stream_query",
                                "the stream captures");
    pthread_mutex_lock(&asked->lock);
    *idle_p = asked->enqueued == asked->completed;
    pthread_mutex_unlock(&asked->lock);
    return SYMMEM_OK;
}

/* Collects the device's streams that have work, except the caller's own, each with a reference.
 * Returns NULL without memory. */
static shm_stream **collect_streams(shm_instance *self, int32_t device, size_t *count_p) {
    pthread_mutex_lock(&self->lock);
    pthread_mutex_lock(&self->busy_lock); /* a stream whose work goes on stays alive */
    size_t count = 0;
    for (shm_stream *stream = self->busy; stream; stream = stream->next_busy)
        count++;
    shm_stream **streams = calloc(count + 1, sizeof(shm_stream *));
    size_t used = 0;
    for (shm_stream *stream = self->busy; streams && stream; stream = stream->next_busy) {
        if (stream->device != device || pthread_equal(stream->worker, pthread_self()))
            continue;
        retain_locked(stream);
        streams[used++] = stream;
    }
    pthread_mutex_unlock(&self->busy_lock);
    pthread_mutex_unlock(&self->lock);
    *count_p = used;
    return streams;
}

symmem_status shm_device_synchronize(void *instance, int32_t device, uint32_t timeout_ms) {
    shm_instance *self = instance;
    uint64_t deadline_ns = shm_deadline_ns(self->clock, timeout_ms);
    symmem_status status = shm_failpoint(self->host, "shm.synchronize");
    if (status != SYMMEM_OK)
        return status;
    size_t count;
    shm_stream **streams = collect_streams(self, device, &count);
    if (!streams)
        return shm_out_of_memory(self->host, "device_synchronize");
    bool done = true;
    for (size_t i = 0; i < count; i++) {
        pthread_mutex_lock(&streams[i]->lock);
        done = done && wait_done_locked(streams[i], deadline_ns);
        pthread_mutex_unlock(&streams[i]->lock);
        release(streams[i]);
    }
    free(streams);
    return done ? SYMMEM_OK
                : self->host->fail(self->host, SYMMEM_TIMEOUT, 0, "device_synchronize",
                                   "work on device %d goes on", (int)device);
}
