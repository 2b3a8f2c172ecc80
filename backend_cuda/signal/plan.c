/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The launches of operations that are called again and again. A program calls few different
 * operations on a channel, each with the same arguments, and what is launched follows from the
 * arguments alone. So the kernel, its grid and its arguments are kept for the next call.
 */
#include "signal/plan.h"

#include <stdlib.h>
#include <string.h>

#define WAYS 4                  /* of collectives; a barrier has one of its own */
#define MIX 0x9e3779b97f4a7c15u /* the golden ratio, which spreads values over the highest bits */

struct cuda_plans {
    cuda_plan barrier, collectives[WAYS];
};

static bool is_planned(const symmem_collective *call, const symmem_exec *exec) {
    return exec->stream != NULL && exec->capture_known && exec->capture == 0 &&
           exec->composite == NULL && exec->call.kind == SYMMEM_CALL_NONE &&
           (call == NULL || (call->size >= sizeof *call && call->kind != SYMMEM_CALL_ALL_TO_ALL));
}

static size_t way_of(const symmem_collective *call) {
    uint64_t mixed = (uint64_t)call->kind + call->count;
    mixed = (mixed ^ (uintptr_t)call->out) * MIX;
    mixed = (mixed ^ (uintptr_t)call->in) * MIX;
    return (size_t)((mixed ^ call->offset) * MIX >> 32) % WAYS;
}

static cuda_plans *plans_of(cuda_peers *own, int32_t channel) {
    if (own->plans == NULL)
        return NULL;
    if (own->plans[channel] == NULL)
        own->plans[channel] = calloc(1, sizeof *own->plans[channel]);
    return own->plans[channel];
}

cuda_plan *cuda_plan_of(const symmem_peers *peers, int32_t channel, const symmem_collective *call,
                        const symmem_exec *exec) {
    cuda_plans *plans = is_planned(call, exec) ? plans_of(peers->priv, channel) : NULL;
    if (plans == NULL || call == NULL)
        return plans != NULL ? &plans->barrier : NULL;
    cuda_plan *plan = &plans->collectives[way_of(call)];
    if (memcmp(&plan->call, call, sizeof *call) != 0) {
        plan->kernel = NULL;
        plan->call = *call;
    }
    return plan;
}

void cuda_plan_forget(cuda_launch *launch) {
    if (launch->plan != NULL)
        launch->plan->kernel = NULL;
    if (launch->begun)
        launch->plan = NULL;
}

void cuda_plan_note(cuda_launch *launch, CUfunction kernel, unsigned int blocks,
                    unsigned int threads, const cuda_arguments *arguments) {
    cuda_plan *plan = launch->plan;
    if (plan == NULL || arguments->bytes > sizeof plan->arguments || arguments->signal == NULL)
        return;
    char *kept = (char *)&plan->arguments;
    memcpy(kept, arguments->all, arguments->bytes);
    plan->signal = (symmem_cuda_signal_args *)(void *)(kept + ((char *)arguments->signal -
                                                               (char *)arguments->all));
    plan->blocks = blocks;
    plan->threads = threads;
    plan->kernel = kernel;
}

CUresult cuda_plan_launch(const cuda_instance *instance, cuda_plan *plan, symmem_cuda_fault *fault,
                          const symmem_exec *exec) {
    const cuda_stream *stream = exec->stream;
    plan->signal->fault = fault;
    plan->signal->timeout_ms = exec->timeout_ms;
    plan->signal->stream = cuda_stream_name(stream);
    return cuda_launch_kernel(instance, plan->kernel, plan->blocks, plan->threads, &plan->arguments,
                              stream->native);
}

void cuda_plans_free(cuda_peers *own, int32_t channel_count) {
    for (int32_t channel = 0; own->plans != NULL && channel < channel_count; channel++)
        free(own->plans[channel]);
    free(own->plans);
    own->plans = NULL;
}
