/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work in flight on streams. An event follows each piece of work that holds references, may fail on
 * the device or keeps the host waiting (a host function). A thread that finds the event reached
 * reports failures to the core and releases the references. That thread is an entry that is about
 * to call work complete, or the instance's watcher. None of that happens in a callback of the
 * driver, which may not call the driver.
 */
#include <stdlib.h>
#include <string.h>

#include "all_to_all_v.h"
#include "inflight/inflight.h"
#include "stream/event.h"
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/error.h"
#include "driver/pinned.h"
#include "driver/staging.h"
#include "inflight/chunk_wait.h"
#include "inflight/spare.h"
#include "stream/foreign_capture.h"
#include "stream/graph.h"
#include "stream/stream.h"

/* How long a consequence waits for its cause, which may be another thread's call without a
 * stream. */
#define CAUSE_NS (20 * CUDA_NS_PER_MS)
#define CAUSE_PAUSE_NS 20000ull
#define TRIM 64 /* entries of a stream that may gather */

/* --- faults ------------------------------------------------------------------------- */

_Static_assert(sizeof(symmem_call_id) == sizeof(((symmem_cuda_fault *)0)->other),
               "a call as the device sees it");
_Static_assert(SYMMEM_MAX_WORLD_SIZE == SYMMEM_CUDA_MAX_RANKS, "both count the same ranks");

/* What fail_splits of kernels/cuda/splits.cuh leaves: the fault, the number found and the number
 * allowed. */
static void describe_splits(const uint32_t *words, symmem_fault *fault) {
    fault->own.kind = fault->other.kind = SYMMEM_CALL_ALL_TO_ALL_V;
    fault->stage = symmem_split_stage((symmem_split_fault)words[1]);
    memcpy(&fault->other.count, &words[2], sizeof fault->other.count);
    memcpy(&fault->own.count, &words[4], sizeof fault->own.count);
}

symmem_status cuda_take_fault(const cuda_signal_op *signal, symmem_error_record *record_p) {
    if (signal->peers == NULL)
        return cuda_take_chunk_fault(signal, record_p);
    symmem_cuda_fault *found = signal->fault;
    /* acquire; pairs with: the fence before the kernel's store. The kernel has ended. */
    uint32_t code = __atomic_load_n(&found->code, __ATOMIC_ACQUIRE);
    if (code == 0)
        return SYMMEM_OK;
    symmem_fault fault = {
        .operation = signal->operation,
        .status = (symmem_status)(-(int32_t)code),
        .channel = signal->channel,
        .failed_rank = found->failed_rank,
        .actual = found->actual,
        .elapsed_ns = found->elapsed_ns,
    };
    for (size_t i = 0; i < SYMMEM_MAX_WORLD_SIZE / 32; i++)
        fault.missing[i / 2] |= (uint64_t)found->missing[i] << (i % 2 * 32);
    if (fault.status == SYMMEM_MISMATCH) {
        fault.own = signal->call;
        memcpy(&fault.other, found->other, sizeof fault.other);
        if (fault.other.kind == SYMMEM_CALL_ALL_TO_ALL && fault.own.kind == fault.other.kind)
            fault.own.count = found->actual; /* their splits, which no call id has */
    }
    if (fault.status == SYMMEM_INVALID_ARGUMENT || fault.status == SYMMEM_OUT_OF_RANGE)
        describe_splits(found->other, &fault);
    if (signal->call.kind == SYMMEM_CALL_WAIT_VALUE) {
        fault.own = signal->call;
        memcpy(&fault.actual, found->other, sizeof fault.actual);
    }
    /* From now on the next launch of the same graph may write there, all of it. */
    __atomic_store_n(&found->code, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&found->claimed, 0, __ATOMIC_RELEASE);
    signal->peers->host->signal_failed(signal->peers, &fault, record_p);
    return fault.status;
}

void cuda_watch_lost(const cuda_signal_op *signal) {
    const symmem_peers *peers = signal->peers;
    if (peers == NULL)
        return;
    symmem_cuda_control *control = ((cuda_peers *)peers->priv)->control;
    for (int32_t rank = 0; rank < peers->world_size; rank++)
        if (rank != peers->rank && peers->host->peer_state(peers, rank) == SYMMEM_PEER_GONE)
            __atomic_fetch_or(&control->gone[rank / 32], 1u << (rank % 32), __ATOMIC_RELEASE);
}

void cuda_watch_peers(const cuda_signal_op *signal) {
    const symmem_peers *peers = signal->peers;
    cuda_watch_lost(signal);
    if (peers != NULL && peers->host->is_poisoned(peers))
        __atomic_store_n(&((cuda_peers *)peers->priv)->control->poisoned, 1, __ATOMIC_RELEASE);
}

/* --- pending work ------------------------------------------------------------------- */

symmem_status cuda_pending_make(cuda_stream *stream, const char *operation,
                                cuda_pending **pending_p) {
    return cuda_spare_take(stream, operation, pending_p);
}

void cuda_pending_drop(cuda_instance *instance, cuda_pending *pending) {
    if (pending != NULL)
        cuda_spare_give(instance, pending);
}

static CUresult mark(cuda_instance *instance, cuda_pending *pending) {
    CUresult result = pending->done != NULL
                          ? CUDA_SUCCESS
                          : cuda_event_take(instance, pending->device, &pending->done);
    if (result == CUDA_SUCCESS)
        result = instance->driver.EventRecord(pending->done->native, pending->stream->native);
    if (result != CUDA_SUCCESS && pending->done != NULL) { /* it would be over at once */
        cuda_event_give(instance, pending->done);
        pending->done = NULL;
    }
    return result;
}

/* Not if a capture of the program forbids the query. */
static bool is_end(CUresult result) {
    return result != CUDA_ERROR_NOT_READY && !cuda_is_capture_error(result);
}

/* If the driver records no event, this waits for the end of the work, as long as calls without a
 * deadline of their own do. Orphans are not waited for, because they are late already. */
static CUresult mark_or_wait(cuda_instance *instance, cuda_pending *pending,
                             const cuda_signal_op *signal) {
    const cuda_stream *stream = pending->stream;
    const CUresult result = mark(instance, pending);
    if (result == CUDA_SUCCESS || stream->given_up)
        return result;
    const bool entered = cuda_reenter(instance, pending->device); /* see context.c for queries */
    pending->ended = is_end(cuda_wait_idle(instance, stream->native, instance->late_ms, signal));
    if (entered)
        cuda_leave(instance);
    return result;
}

symmem_status cuda_pending_add(cuda_pending *pending, const symmem_exec *exec,
                               const cuda_needs *needs, const char *operation) {
    cuda_stream *stream = pending->stream;
    cuda_instance *instance = stream->instance;
    const uint64_t notes = atomic_load_explicit(&stream->notes, memory_order_acquire);
    const CUresult result = mark_or_wait(instance, pending, needs->signal);
    if (result != CUDA_SUCCESS)
        cuda_staging_give_up(needs->staging);
    pending->graph = needs->graph;
    pending->staging = needs->staging;
    pending->told = needs->told;
    if (needs->signal != NULL && needs->signal != &pending->signal)
        pending->signal = *needs->signal;
    for (int32_t i = 0; exec != NULL && i < exec->ref_count; i++) {
        pending->refs[pending->ref_count++] = exec->refs[i];
        exec->refs[i].retain(exec->refs[i].object);
    }
    pthread_mutex_lock(&instance->lock);
    if (needs->end_p != NULL && pending->done != NULL) {
        /* relaxed: it was the entry's alone, and others get it with the lock */
        atomic_store_explicit(&pending->done->users, 2, memory_order_relaxed);
        *needs->end_p = pending->done;
    }
    pending->number = ++instance->last_number;
    const uint64_t last = atomic_load_explicit(&stream->notes, memory_order_relaxed);
    pending->unordered = last != notes;
    /* release; pairs with: the load before a mark */
    atomic_store_explicit(&stream->notes, last + 1, memory_order_release);
    stream->users++;
    if (stream->users > (stream->trim_at > 0 ? stream->trim_at : TRIM))
        atomic_store(&stream->crowded, true);
    if (needs->graph != NULL)
        needs->graph->users++;
    if (instance->pending == NULL) /* the watcher waits for nothing else */
        pthread_cond_signal(&instance->work);
    *instance->pending_end = pending;
    instance->pending_end = &pending->next;
    atomic_fetch_add(&instance->pending_count, 1);
    cuda_spare_prepare(stream);
    pthread_mutex_unlock(&instance->lock);
    if (result == CUDA_SUCCESS || needs->told) /* the reason of the failure has been reported */
        return SYMMEM_OK;
    return cuda_fail(instance, result, operation);
}

bool cuda_pending_rest(cuda_pending *pending, const symmem_exec *exec, const cuda_needs *needs,
                       const char *operation) {
    cuda_instance *instance = pending->stream->instance;
    cuda_needs all = *needs;
    const bool entered = cuda_reenter(instance, pending->device);
    CUresult result =
        cuda_wait_idle(instance, pending->stream->native, instance->late_ms, needs->signal);
    if (entered)
        cuda_leave(instance);
    if (result != CUDA_SUCCESS)
        cuda_staging_give_up(needs->staging);
    all.told = true;
    if (result == CUDA_ERROR_NOT_READY) {
        (void)cuda_pending_add(pending, exec, &all, operation);
        return false;
    }
    if (result != CUDA_SUCCESS)
        pending->block = NULL; /* a kernel may still write there */
    cuda_spare_give(instance, pending);
    return result == CUDA_SUCCESS;
}

cuda_pending *cuda_orphan_make(cuda_instance *instance, int32_t device) {
    cuda_pending *orphan = calloc(1, sizeof *orphan);
    cuda_stream *stream = calloc(1, sizeof *stream);
    if (orphan == NULL || stream == NULL) {
        free(orphan);
        free(stream);
        return NULL;
    }
    *stream = (cuda_stream){.instance = instance, .device = device, .users = 1, .given_up = true};
    orphan->device = device;
    orphan->stream = stream;
    return orphan;
}

void cuda_orphan_drop(cuda_pending *orphan) {
    if (orphan != NULL)
        free(orphan->stream);
    free(orphan);
}

void cuda_orphan(cuda_pending *orphan, CUstream native, const symmem_exec *exec,
                 const cuda_needs *needs, const char *operation) {
    if (orphan == NULL)
        return;
    cuda_stream *stream = orphan->stream;
    stream->native = native;
    (void)cuda_pending_add(orphan, exec, needs, operation);
    cuda_stream_drop(stream);
}

/* Work without an event is not over until the context is lost, which any of its streams shows. */
static CUresult ask(const cuda_instance *instance, const cuda_pending *pending) {
    if (pending->done != NULL)
        return instance->driver.EventQuery(pending->done->native);
    CUresult result = instance->driver.StreamQuery(instance->devices[pending->device].control);
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
}

/* Also if the context is lost and nothing runs any more. */
static bool is_over(const cuda_instance *instance, const cuda_pending *pending) {
    if (pending->ended || !cuda_reenter(instance, pending->device))
        return true;
    CUresult result = ask(instance, pending);
    cuda_leave(instance);
    return is_end(result);
}

/* The cause is reported first, or the core would take the consequence for it. Its kernel ends as
 * soon as it has poisoned the state. */
bool cuda_is_consequence(const cuda_signal_op *signal) {
    return signal->fault != NULL && signal->peers != NULL &&
           __atomic_load_n(&signal->fault->code, __ATOMIC_ACQUIRE) == -(uint32_t)SYMMEM_POISONED &&
           signal->fault->failed_rank == signal->peers->rank &&
           !signal->peers->host->is_poisoned(signal->peers);
}

void cuda_await_cause(cuda_instance *instance, const cuda_signal_op *signal) {
    const uint64_t end_ns = cuda_now_ns() + CAUSE_NS;
    while (cuda_is_consequence(signal) && cuda_now_ns() < end_ns) {
        cuda_collect(instance);
        cuda_sleep_ns(CAUSE_PAUSE_NS);
    }
}

static bool has_failed(const cuda_signal_op *signal) {
    return signal->fault != NULL && __atomic_load_n(&signal->fault->code, __ATOMIC_ACQUIRE) != 0;
}

static bool has_poisoned(const cuda_signal_op *signal) {
    return signal->peers != NULL && has_failed(signal) &&
           cuda_fault_poisons(__atomic_load_n(&signal->fault->code, __ATOMIC_ACQUIRE));
}

/* For a launch: whether it has failed, and none of its operations is the cause. */
static bool follows(const cuda_pending *pending) {
    bool failed = false;
    if (pending->graph == NULL)
        return cuda_is_consequence(&pending->signal);
    for (const cuda_captured *held = pending->graph->held; held != NULL; held = held->next) {
        if (has_failed(&held->signal) && !cuda_is_consequence(&held->signal))
            return false;
        failed = failed || has_failed(&held->signal);
    }
    return failed;
}

static bool ask_for(cuda_instance *instance, const cuda_pending *pending) {
    cuda_stream *stream = pending->stream;
    const bool over = is_over(instance, pending);
    if (over && !pending->unordered)
        stream->over_to = pending->number;
    else if (!over && pending->done != NULL)
        stream->busy_at = instance->looks;
    return over;
}

/* Whether the end of `pending` shows that earlier work of the stream is over. */
static bool is_mark_of(const cuda_pending *pending, const cuda_stream *stream) {
    return pending->stream == stream && !pending->unordered && pending->done != NULL;
}

/* If that entry is over, so are all before it. Otherwise nothing is known of them. */
static void ask_for_newest(cuda_instance *instance, const cuda_pending *first) {
    cuda_stream *stream = first->stream;
    const cuda_pending *newest = NULL;
    stream->asked_at = instance->collections;
    for (const cuda_pending *next = first->next; next != NULL; next = next->next)
        newest = is_mark_of(next, stream) ? next : newest;
    if (newest != NULL && is_over(instance, newest))
        stream->over_to = newest->number;
}

/* Without a mark it is not over before the context is lost, whatever else is. */
static bool is_known_over(const cuda_pending *pending) {
    return is_mark_of(pending, pending->stream) && pending->number <= pending->stream->over_to;
}

/* Work of one stream ends in order. So one query may tell of many entries, and entries after an
 * unfinished one are not queried. It is not so if two threads may have added entries in another
 * order. */
static bool is_found_over(cuda_instance *instance, const cuda_pending *pending) {
    const cuda_stream *stream = pending->stream;
    if (pending->unordered)
        return ask_for(instance, pending);
    if (!is_known_over(pending) && stream->busy_at != instance->looks &&
        stream->asked_at != instance->collections)
        ask_for_newest(instance, pending);
    if (is_known_over(pending))
        return true;
    return stream->busy_at != instance->looks && ask_for(instance, pending);
}

/* asking: by queries, and not only what is known. held_back_p: there is another one, which follows
 * from a failure that is not known yet. */
static cuda_pending *take_finished(cuda_instance *instance, bool asking, bool with_consequences,
                                   bool *held_back_p) {
    pthread_mutex_lock(&instance->lock);
    cuda_pending **link = &instance->pending;
    instance->looks++;
    for (; *link != NULL; link = &(*link)->next) {
        if (!(asking ? is_found_over(instance, *link) : is_known_over(*link)))
            continue;
        if (with_consequences || !follows(*link))
            break;
        *held_back_p = true;
    }
    cuda_pending *pending = *link;
    if (pending != NULL) {
        *link = pending->next;
        if (pending->next == NULL)
            instance->pending_end = link;
    }
    pthread_mutex_unlock(&instance->lock);
    return pending;
}

void cuda_check_fault(cuda_stream *stream, const cuda_signal_op *signal) {
    symmem_error_record record;
    if (signal->fault == NULL || cuda_take_fault(signal, &record) == SYMMEM_OK)
        return;
    pthread_mutex_lock(&stream->instance->lock);
    if (stream->record.status == SYMMEM_OK)
        stream->record = record;
    pthread_mutex_unlock(&stream->instance->lock);
}

/* Causes first. */
static void look_for_faults(cuda_stream *stream, const cuda_captured *first) {
    for (const cuda_captured *held = first; held != NULL; held = held->next)
        if (!cuda_is_consequence(&held->signal))
            cuda_check_fault(stream, &held->signal);
    for (const cuda_captured *held = first; held != NULL; held = held->next)
        cuda_check_fault(stream, &held->signal);
}

void cuda_forget_fault(cuda_instance *instance, const cuda_signal_op *signal) {
    if (instance->forget_fault != NULL && signal->fault != NULL)
        instance->forget_fault(instance, signal->fault);
}

/* --- consecutive launches of one graph --------------------------------------------- */

static const cuda_captured *find_poisoning(const cuda_captured *held) {
    while (held != NULL && !has_poisoned(&held->signal))
        held = held->next;
    return held;
}

/* They find the handle poisoned, but only the first failure is recorded. */
static void warn_later_launches(cuda_instance *instance, const cuda_pending *failed,
                                const cuda_captured *by) {
    pthread_mutex_lock(&instance->lock);
    for (cuda_pending *other = instance->pending; other != NULL; other = other->next)
        if (other->graph == failed->graph && other->number > failed->number)
            other->poisoned_by = by;
    pthread_mutex_unlock(&instance->lock);
}

/* Reports it for the launch's first operation on that handle. */
static void tell_poisoned(const cuda_pending *pending) {
    cuda_stream *stream = pending->stream;
    const symmem_peers *peers = pending->poisoned_by->signal.peers;
    const cuda_captured *held = pending->graph->held;
    symmem_error_record record;
    while (held->signal.peers != peers)
        held = held->next;
    const symmem_fault fault = {.operation = held->signal.operation,
                                .status = SYMMEM_POISONED,
                                .channel = held->signal.channel,
                                .failed_rank = peers->rank};
    peers->host->signal_failed(peers, &fault, &record);
    pthread_mutex_lock(&stream->instance->lock);
    if (stream->record.status == SYMMEM_OK)
        stream->record = record;
    pthread_mutex_unlock(&stream->instance->lock);
}

static void look_at_launch(cuda_instance *instance, const cuda_pending *pending) {
    const cuda_captured *poisoning = find_poisoning(pending->graph->held);
    look_for_faults(pending->stream, pending->graph->held);
    if (poisoning != NULL)
        warn_later_launches(instance, pending, poisoning);
    else if (pending->poisoned_by != NULL)
        tell_poisoned(pending);
}

static void finish(cuda_instance *instance, cuda_pending *pending) {
    cuda_forget_fault(instance, &pending->signal);
    if (!pending->told)
        cuda_check_fault(pending->stream, &pending->signal);
    if (pending->signal.fault != pending->block)
        cuda_small_block_give(pending->signal.fault);
    cuda_staging_give(pending->staging);
    if (pending->graph != NULL) {
        look_at_launch(instance, pending);
        cuda_graph_drop(instance, pending->graph);
    }
    for (int32_t i = 0; i < pending->ref_count; i++)
        pending->refs[i].release(pending->refs[i].object);
    cuda_stream_drop(pending->stream);
    cuda_spare_give(instance, pending);
    atomic_fetch_sub(&instance->pending_count, 1);
}

static _Thread_local int collects; /* nesting depth in this thread */

bool cuda_is_collecting(void) {
    return collects > 0;
}

void cuda_collect(cuda_instance *instance) {
    if (atomic_load(&instance->pending_count) == 0 && atomic_load(&instance->foreign_count) == 0)
        return;
    pthread_mutex_lock(&instance->collecting);
    collects++;
    instance->collections++;
    const uint64_t begin_ns = cuda_now_ns(), patience_ns = begin_ns + CAUSE_NS;
    for (;;) {
        bool held_back = false;
        bool impatient = cuda_now_ns() >= patience_ns;
        cuda_pending *pending = take_finished(instance, true, impatient, &held_back);
        if (pending != NULL) {
            finish(instance, pending);
        } else if (cuda_foreign_captures_check(instance, begin_ns) || held_back) {
            cuda_sleep_ns(CAUSE_PAUSE_NS);
        } else {
            break;
        }
    }
    collects--;
    pthread_mutex_unlock(&instance->collecting);
}

/* --- many entries of one stream ----------------------------------------------------- */

/* Returns the entry in the middle, if any. lock held. */
static const cuda_pending *middle_of(const cuda_instance *instance, const cuda_stream *stream) {
    const cuda_pending *middle = NULL;
    int32_t count = 0, at = 0;
    for (const cuda_pending *next = instance->pending; next != NULL; next = next->next)
        count += is_mark_of(next, stream);
    for (const cuda_pending *next = instance->pending; next != NULL && at <= count / 2;
         next = next->next)
        if (is_mark_of(next, stream)) {
            middle = next;
            at++;
        }
    return middle;
}

void cuda_trim(cuda_stream *stream) {
    cuda_instance *instance = stream->instance;
    cuda_pending *pending;
    bool held_back;
    if (!atomic_load(&stream->crowded))
        return;
    pthread_mutex_lock(&instance->collecting);
    collects++;
    pthread_mutex_lock(&instance->lock);
    const cuda_pending *middle = middle_of(instance, stream);
    if (middle != NULL && is_over(instance, middle))
        stream->over_to = middle->number;
    pthread_mutex_unlock(&instance->lock);
    while ((pending = take_finished(instance, false, false, &held_back)) != NULL)
        finish(instance, pending);
    pthread_mutex_lock(&instance->lock);
    stream->trim_at = stream->users + TRIM;
    atomic_store(&stream->crowded, false);
    pthread_mutex_unlock(&instance->lock);
    collects--;
    pthread_mutex_unlock(&instance->collecting);
}

/* --- failures that are known to be there -------------------------------------------- */

static bool has_failed_with(const cuda_signal_op *signal, const symmem_peers *peers) {
    return signal->peers == peers && has_failed(signal);
}

static bool has_one_failed(const cuda_captured *held, const symmem_peers *peers) {
    while (held != NULL && !has_failed_with(&held->signal, peers))
        held = held->next;
    return held != NULL;
}

bool cuda_has_failed_work(cuda_instance *instance, const symmem_peers *peers) {
    bool found = false;
    pthread_mutex_lock(&instance->lock);
    for (const cuda_pending *next = instance->pending; next != NULL && !found; next = next->next)
        found = has_failed_with(&next->signal, peers) ||
                (next->graph != NULL && has_one_failed(next->graph->held, peers));
    for (const cuda_capture *next = instance->foreign_captures; next != NULL && !found;
         next = next->next)
        found = has_one_failed(next->held, peers);
    pthread_mutex_unlock(&instance->lock);
    return found;
}
