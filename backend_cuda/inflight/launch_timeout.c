/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A call without a stream has a limit, and so have its kernels; but theirs counts from when the
 * device begins them. It may not do so for as long as others' work leaves no room for them or holds
 * up their queue, and the call has to come back all the same.
 *
 * It is then withdrawn: the handle is poisoned, on the device too, and the channel's calls without
 * a stream are stopped there. What had begun ends by the poison or when its work is done, and is
 * waited for. What begins only then touches nothing but the signal memory of its rank: the caller's
 * memory is the caller's again. It is left to the instance as the work of a stream that was
 * destroyed is, with the references of the call; until it is over there is no reset.
 */
#include <errno.h>
#include <stdlib.h>

#include "cuda_internal.h"

#define LATE_MS 60000u
#define MOST_LATE_MS 86400000ul

/* By SYMMEM_CUDA_LATE_MS, in milliseconds. */
symmem_status cuda_withdrawn_open(cuda_instance *instance) {
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
 * The status of the call. What a kernel of it has told is the cause, and those behind that have not
 * begun would have done nothing. The handle is poisoned in any case: after a MISMATCH, which leaves
 * it as it was, the channel's next call would set free what this one leaves.
 */
static symmem_status withdraw(const cuda_launch *launch, uint64_t elapsed_ns) {
    const symmem_peers *peers = launch->signal.peers;
    const symmem_fault fault = {.operation = launch->signal.operation,
                                .stage = "device",
                                .status = SYMMEM_TIMEOUT,
                                .channel = launch->signal.channel,
                                .failed_rank = -1,
                                .elapsed_ns = elapsed_ns};
    const uint32_t code = fault_code(launch);
    symmem_error_record record;
    if (code == 0 || code == -(uint32_t)SYMMEM_MISMATCH)
        peers->host->signal_failed(peers, &fault, NULL);
    return code == 0 ? SYMMEM_TIMEOUT : cuda_take_fault(&launch->signal, &record);
}

/*
 * Nothing of the channel's stopped calls is at work. Blocks that find themselves stopped come and
 * go overlapped_work, and count as well: in a copy of both words, of which nobody says which is
 * read first, those that came after `begun` was would stand in `ended` for one that is at work. So
 * `ended` is of an earlier copy.
 */
static bool is_quiet(cuda_instance *instance, const cuda_launch *launch) {
    const symmem_peers *peers = launch->signal.peers;
    const int32_t channel = launch->signal.channel;
    symmem_cuda_state earlier, later;
    return cuda_channel_look(instance, peers, channel, &earlier) == CUDA_SUCCESS &&
           cuda_channel_look(instance, peers, channel, &later) == CUDA_SUCCESS &&
           earlier.ended == later.begun;
}

static void leave_behind(cuda_instance *instance, int32_t device, cuda_launch *launch,
                         const symmem_exec *exec, cuda_lane *lane) {
    const cuda_needs needs = {.signal = &launch->signal};
    cuda_leave_behind(launch->leaving, lane->native, exec, &needs, launch->signal.operation);
    launch->leaving = NULL;
    cuda_lane_end(instance, device, lane);
}

CUresult cuda_launch_wait(cuda_instance *instance, int32_t device, cuda_launch *launch,
                          const symmem_exec *exec, cuda_lane *lane, symmem_status *status_p) {
    const uint32_t limit_ms = launch->args.timeout_ms;
    const uint64_t begin_ns = cuda_now_ns();
    CUresult result =
        cuda_wait_idle(instance, lane->native,
                       limit_ms == 0 ? 0 : sum_ms(limit_ms, instance->late_ms), &launch->signal);
    if (result != CUDA_ERROR_NOT_READY) {
        cuda_lane_give(instance, device, lane);
        return result;
    }
    *status_p = withdraw(launch, cuda_now_ns() - begin_ns);
    const bool stopped =
        !launch->stays &&
        cuda_channel_stop(instance, launch->signal.peers, launch->signal.channel) == CUDA_SUCCESS;
    do {
        result = cuda_wait_idle(instance, lane->native, instance->late_ms, &launch->signal);
        if (result == CUDA_ERROR_NOT_READY && stopped && is_quiet(instance, launch)) {
            leave_behind(instance, device, launch, exec, lane);
            return result;
        }
    } while (result == CUDA_ERROR_NOT_READY);
    if (result == CUDA_SUCCESS)
        cuda_piece_give(launch->signal.fault);
    else
        cuda_forget_fault(instance, &launch->signal);
    cuda_lane_give(instance, device, lane);
    return CUDA_ERROR_NOT_READY;
}

/* A launch of a graph with such operations, too. */
static bool is_on(const cuda_pending *pending, const symmem_peers *peers) {
    const cuda_captured *held = pending->graph != NULL ? pending->graph->held : NULL;
    while (held != NULL && held->signal.peers != peers)
        held = held->next;
    return pending->signal.peers == peers || held != NULL;
}

/* The core knows of calls that have gone well, and has asked the streams for those. */
bool cuda_has_pending(cuda_instance *instance, const symmem_peers *peers) {
    cuda_collect(instance);
    /* Whoever has taken something out that is over is done with it. */
    pthread_mutex_lock(&instance->collecting);
    pthread_mutex_lock(&instance->lock);
    const cuda_pending *pending = instance->pending;
    while (pending != NULL && !is_on(pending, peers))
        pending = pending->next;
    pthread_mutex_unlock(&instance->lock);
    pthread_mutex_unlock(&instance->collecting);
    return pending != NULL;
}
