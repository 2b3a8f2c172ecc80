/* SPDX-License-Identifier: BSD-3-Clause */
/* A call that was stopped at the launch timeout returns only once none of its blocks runs. See
 * launch_timeout.c. */

#include "cuda_internal.h"
#include "unit_main.h"
#include "driver/clock.h"
#include "driver/device.h"
#include "inflight/inflight.h"
#include "signal/launch_timeout.h"
#include "driver/pinned.h"
#include "signal/peers.h"
#include "signal/signal.h"
#include "stream/stream.h"

#define BUSY_ROUNDS 5
#define MOST_ROUNDS 50

/* One block runs for a while. Other blocks, which find that the call was stopped, begin and end. */
static struct device {
    int rounds, stopped_blocks;
    bool ended_first; /* which word a look reads first */
    bool left, left_busy;
} device;

static bool is_busy(void) {
    return device.rounds < BUSY_ROUNDS;
}

static uint32_t begun(void) {
    return 1 + (uint32_t)device.stopped_blocks;
}

static uint32_t ended(void) {
    return begun() - (is_busy() ? 1 : 0);
}

/* --- what launch_timeout.c calls ------------------------------------------------------- */

/* A block begins and ends between the reads of the two words, until there are no more blocks. */
CUresult cuda_channel_read(cuda_instance *instance, const symmem_peers *peers, int32_t channel,
                           symmem_cuda_state *state_p) {
    memset(state_p, 0, sizeof *state_p);
    if (device.ended_first)
        state_p->ended = ended();
    else
        state_p->begun = begun();
    device.stopped_blocks += device.rounds < MOST_ROUNDS / 2;
    if (device.ended_first)
        state_p->begun = begun();
    else
        state_p->ended = ended();
    return CUDA_SUCCESS;
}

CUresult cuda_channel_stop(cuda_instance *instance, const symmem_peers *peers, int32_t channel) {
    return CUDA_SUCCESS;
}

/* The stopped blocks keep the stream busy. */
CUresult cuda_wait_idle(cuda_instance *instance, CUstream native, uint32_t timeout_ms,
                        const cuda_signal_op *signal) {
    return ++device.rounds < MOST_ROUNDS ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

void cuda_orphan(cuda_pending *orphan, CUstream native, const symmem_exec *exec,
                 const cuda_needs *needs, const char *operation) {
    device.left = true;
    device.left_busy = is_busy();
}

symmem_status cuda_take_fault(const cuda_signal_op *signal, symmem_error_record *record_p) {
    return SYMMEM_TIMEOUT;
}

uint64_t cuda_now_ns(void) {
    return 0;
}

void cuda_small_block_give(void *piece) {}

void cuda_forget_fault(cuda_instance *instance, const cuda_signal_op *signal) {}

void cuda_private_stream_give(cuda_instance *instance, int32_t index,
                              cuda_private_stream *private_stream) {}

void cuda_private_stream_end(cuda_instance *instance, int32_t index,
                             cuda_private_stream *private_stream) {}

void cuda_collect(cuda_instance *instance) {}

/* --------------------------------------------------------------------------------------- */

static void signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                          symmem_error_record *record_p) {
    CU_ASSERT_EQUAL(fault->status, SYMMEM_TIMEOUT);
}

static void withdraw(bool ended_first) {
    static const symmem_host host = {.size = sizeof host, .signal_failed = signal_failed};
    static const symmem_peers peers = {.size = sizeof peers, .host = &host};
    static cuda_instance instance = {.late_ms = 1};
    static symmem_cuda_fault fault;
    cuda_launch launch = {.args = {.timeout_ms = 1}, .signal = {.peers = &peers, .fault = &fault}};
    cuda_private_stream private_stream = {.native = NULL};
    symmem_status status = SYMMEM_OK;
    device = (struct device){.ended_first = ended_first};
    const CUresult result = cuda_launch_wait(&instance, 0, &launch, NULL, &private_stream, &status);
    CU_ASSERT(result == CUDA_ERROR_NOT_READY && status == SYMMEM_TIMEOUT);
    CU_ASSERT(device.left && !device.left_busy);
}

TEST("begun is read first") {
    withdraw(false);
}

TEST("ended is read first") {
    withdraw(true);
}
