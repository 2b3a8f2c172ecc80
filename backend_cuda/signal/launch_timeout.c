/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A call without a stream has a deadline, and so have its kernels. But theirs counts from when the
 * device begins them. The device may not begin them while others' work fills it or blocks their
 * queue, and the call has to return all the same.
 *
 * Then the call is abandoned. The handle is poisoned, on the device too, and the channel's calls
 * without a stream are stopped there. Kernels that had begun end by the poison or when their work
 * is done, and are waited for. Kernels that begin later access nothing but the signal memory of
 * their rank, so the caller may use its memory again. The instance owns them, as it owns the work
 * of a destroyed stream, with the references of the call. Until they are over there is no reset.
 */
#include <errno.h>
#include <stdlib.h>

#include "signal/launch_timeout.h"
#include "driver/clock.h"
#include "driver/device.h"
#include "inflight/inflight.h"
#include "driver/pinned.h"
#include "signal/peers.h"
#include "signal/signal.h"
#include "stream/stream.h"

#define LATE_MS 60000u
#define MOST_LATE_MS 86400000ul

/* From SYMMEM_CUDA_LATE_MS, in milliseconds. */
symmem_status cuda_launch_timeout_open(cuda_instance *instance) {
    const char *setting = secure_getenv("SYMMEM_CUDA_LATE_MS");
    char *end = NULL;
    instance->late_ms = LATE_MS;
    if (setting == NULL)
        return SYMMEM_OK;
    errno = 0;
    const unsigned long late_ms = strtoul(setting, &end, 10);
    if (setting[0] < '0' || setting[0] > '9' || *end != '\0' || errno != 0 || late_ms == 0 ||
        late_ms > MOST_LATE_MS)
        return instance->host->fail(instance->host, SYMMEM_INVALID_ARGUMENT, 0, "open",
                                    "SYMMEM_CUDA_LATE_MS is not in [1, %lu]: %.80s", MOST_LATE_MS,
                                    setting);
    instance->late_ms = (uint32_t)late_ms;
    return SYMMEM_OK;
}

static uint32_t sum_ms(uint32_t a_ms, uint32_t b_ms) {
    return a_ms > UINT32_MAX - b_ms ? UINT32_MAX : a_ms + b_ms;
}

static uint32_t fault_code(const cuda_launch *launch) {
    /* acquire; pairs with: the fence before the kernel's store */
    return __atomic_load_n(&launch->signal.fault->code, __ATOMIC_ACQUIRE);
}

/*
 * Returns the status of the call. A failure that one of its kernels reported is the cause. Kernels
 * after that, which have not begun, would have done nothing. The handle is poisoned in any case. A
 * failure that does not poison it would let the abandoned kernels run with the channel's next call.
 */
static symmem_status abandon(const cuda_launch *launch, uint64_t elapsed_ns) {
    const symmem_peers *peers = launch->signal.peers;
    const symmem_fault fault = {.operation = launch->signal.operation,
                                .stage = "device",
                                .status = SYMMEM_TIMEOUT,
                                .channel = launch->signal.channel,
                                .failed_rank = -1,
                                .elapsed_ns = elapsed_ns};
    const uint32_t code = fault_code(launch);
    symmem_error_record record;
    if (!cuda_fault_poisons(code))
        peers->host->signal_failed(peers, &fault, NULL);
    return code == 0 ? SYMMEM_TIMEOUT : cuda_take_fault(&launch->signal, &record);
}

/*
 * Returns whether none of the channel's stopped calls is at work. Blocks that find themselves
 * stopped still count in both words. A copy of both words reads them in unknown order. Blocks that
 * came after `begun` was read would hide in `ended` one that is at work. So `ended` comes from an
 * earlier copy.
 */
static bool is_quiet(cuda_instance *instance, const cuda_launch *launch) {
    const symmem_peers *peers = launch->signal.peers;
    const int32_t channel = launch->signal.channel;
    symmem_cuda_state earlier, later;
    if (channel < 0) /* it writes nothing but its fault */
        return true;
    return cuda_channel_read(instance, peers, channel, &earlier) == CUDA_SUCCESS &&
           cuda_channel_read(instance, peers, channel, &later) == CUDA_SUCCESS &&
           earlier.ended == later.begun;
}

static void leave_behind(cuda_instance *instance, int32_t device, cuda_launch *launch,
                         const symmem_exec *exec, cuda_private_stream *private_stream) {
    const cuda_needs needs = {.signal = &launch->signal};
    cuda_orphan(launch->orphan, private_stream->native, exec, &needs, launch->signal.operation);
    launch->orphan = NULL;
    cuda_private_stream_end(instance, device, private_stream);
}

CUresult cuda_launch_wait(cuda_instance *instance, int32_t device, cuda_launch *launch,
                          const symmem_exec *exec, cuda_private_stream *private_stream,
                          symmem_status *status_p) {
    const uint32_t limit_ms = launch->args.timeout_ms;
    const uint64_t begin_ns = cuda_now_ns();
    CUresult result =
        cuda_wait_idle(instance, private_stream->native,
                       limit_ms == 0 ? 0 : sum_ms(limit_ms, instance->late_ms), &launch->signal);
    if (result != CUDA_ERROR_NOT_READY) {
        cuda_private_stream_give(instance, device, private_stream);
        return result;
    }
    *status_p = abandon(launch, cuda_now_ns() - begin_ns);
    const bool stopped =
        !launch->stays &&
        cuda_channel_stop(instance, launch->signal.peers, launch->signal.channel) == CUDA_SUCCESS;
    do {
        result =
            cuda_wait_idle(instance, private_stream->native, instance->late_ms, &launch->signal);
        if (result == CUDA_ERROR_NOT_READY && stopped && is_quiet(instance, launch)) {
            leave_behind(instance, device, launch, exec, private_stream);
            return result;
        }
    } while (result == CUDA_ERROR_NOT_READY);
    if (result == CUDA_SUCCESS)
        cuda_small_block_give(launch->signal.fault);
    else
        cuda_forget_fault(instance, &launch->signal);
    cuda_private_stream_give(instance, device, private_stream);
    return CUDA_ERROR_NOT_READY;
}

/* A wait for a value has no channel. It may go on behind a reset, unless its call has given it up:
 * then nobody would expect what it still reports. */
static bool is_of(const cuda_signal_op *signal, const symmem_peers *peers, bool given_up) {
    return signal->peers == peers && (signal->channel >= 0 || given_up);
}

/* Also for a launch of a graph with such operations. */
static bool is_on(const cuda_pending *pending, const symmem_peers *peers) {
    const cuda_captured *held = pending->graph != NULL ? pending->graph->held : NULL;
    while (held != NULL && !is_of(&held->signal, peers, false))
        held = held->next;
    return is_of(&pending->signal, peers, pending->stream->given_up) || held != NULL;
}

/* The core knows the calls that succeeded, and has asked their streams. */
bool cuda_has_pending(cuda_instance *instance, const symmem_peers *peers) {
    cuda_collect(instance);
    /* A thread that has removed a finished entry has released it when this lock is free. */
    pthread_mutex_lock(&instance->collecting);
    pthread_mutex_lock(&instance->lock);
    const cuda_pending *pending = instance->pending;
    while (pending != NULL && !is_on(pending, peers))
        pending = pending->next;
    pthread_mutex_unlock(&instance->lock);
    pthread_mutex_unlock(&instance->collecting);
    return pending != NULL;
}
