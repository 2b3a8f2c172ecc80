/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-alls whose splits lie in memory: one kernel, which reads them. */
#include <string.h>

#include "all_to_all_v.h"
#include "collective/collective.h"
#include "collective/splits.h"
#include "cuda/splits.h"
#include "driver/error.h"
#include "signal/plan.h"
#include "signal/signal.h"

_Static_assert((int)SYMMEM_SPLIT_NEGATIVE == (int)SYMMEM_CUDA_SPLIT_NEGATIVE &&
                   (int)SYMMEM_SPLIT_OFFSET_ORDER == (int)SYMMEM_CUDA_SPLIT_OFFSET_ORDER &&
                   (int)SYMMEM_SPLIT_FAULT_COUNT == (int)SYMMEM_CUDA_SPLIT_FAULTS,
               "one order of faults");

/* Of all ranks, which may share a device. */
#define MAX_BLOCKS_ALL_RANKS 128
/* Bytes of a handle's memory for which there is a block. With two ranks its lines take nearly as
 * many, and one rank sends another one half at the most, unless the parts differ. */
#define BYTES_PER_BLOCK ((size_t)SYMMEM_CUDA_SPLIT_THREADS / 32 * SYMMEM_CUDA_ROUND_BYTES)

/* One that is being enqueued. */
typedef struct splits_launch {
    cuda_launch launch; /* first, because enqueue gets it */
    symmem_cuda_splits_args args;
    CUfunction kernel, barrier;
    unsigned int blocks;
} splits_launch;

/* The number of blocks is the same on all ranks, although inputs and splits are not: it follows
 * from the memory that the handle shares, in which the inputs lie. */
static unsigned int block_count(const symmem_peers *peers, int32_t channel, int32_t way) {
    const cuda_peers *own = peers->priv;
    const size_t ranks = (size_t)peers->world_size;
    size_t most = MAX_BLOCKS_ALL_RANKS / ranks, blocks = peers->buffer_bytes / BYTES_PER_BLOCK;
    if (way == SYMMEM_CUDA_SPLIT_PIECES)
        return 1;
    if (most > SYMMEM_CUDA_MAX_SYNC_BLOCKS)
        most = SYMMEM_CUDA_MAX_SYNC_BLOCKS;
    const size_t warps = symmem_cuda_ll_warps(peers->world_size, own->block_bytes, channel);
    if (way == SYMMEM_CUDA_SPLIT_LINES && most > warps) /* one warp's lines for each block */
        most = warps;
    blocks = blocks < most ? blocks : most;
    return (unsigned int)(blocks > 1 ? blocks : 1);
}

/* The warps of all blocks that have a slot for data: what goes from one rank to another by lines is
 * at most what fits into these. The slots of the blocks' tables come first. 0 if rows or buffers
 * are not made of units. It is the same on all ranks. */
static uint32_t data_warps(const symmem_peers *peers, const splits_launch *s, size_t slots) {
    const size_t warps = (size_t)s->blocks * SYMMEM_CUDA_SPLIT_THREADS / 32;
    const size_t unit = SYMMEM_CUDA_LL_LINE_BYTES, left = slots > s->blocks ? slots - s->blocks : 0;
    if (s->args.way != SYMMEM_CUDA_SPLIT_LINES || s->args.job.row_bytes % unit != 0 ||
        (uintptr_t)peers->buffers[peers->rank] % unit != 0)
        return 0;
    return (uint32_t)(warps < left ? warps : left);
}

static CUresult launch_one(const cuda_instance *instance, splits_launch *s, CUfunction kernel,
                           unsigned int blocks, unsigned int threads, const cuda_arguments *args,
                           CUstream native) {
    cuda_plan_forget(&s->launch);
    const CUresult result =
        cuda_launch_kernel(instance, kernel, blocks, threads, args->all, native);
    if (result == CUDA_SUCCESS)
        cuda_plan_note(&s->launch, kernel, blocks, threads, args);
    s->launch.begun = s->launch.begun || result == CUDA_SUCCESS;
    return result;
}

/* Ranks that compare their calls do so in a barrier kernel before. */
static CUresult enqueue_splits(cuda_instance *instance, cuda_launch *opaque, CUstream native) {
    splits_launch *s = (splits_launch *)opaque;
    symmem_cuda_signal_args *signal = &s->args.signal;
    *signal = s->launch.args;
    s->args.after_barrier = s->launch.signal.call.kind != SYMMEM_CALL_NONE;
    if (s->args.after_barrier) {
        signal->phase = SYMMEM_CUDA_FIRST;
        const CUresult result =
            launch_one(instance, s, s->barrier, 1, cuda_barrier_threads(signal->world_size),
                       &(cuda_arguments){signal, sizeof *signal, signal}, native);
        if (result != CUDA_SUCCESS)
            return result;
        /* The operation's last kernel. A block that starts late must meet its peers even if another
         * one has found wrong splits, which every rank finds and which poison nothing. */
        signal->phase = SYMMEM_CUDA_ALONE;
    }
    return launch_one(instance, s, s->kernel, s->blocks, SYMMEM_CUDA_SPLIT_THREADS,
                      &CUDA_ARGUMENTS(s->args), native);
}

static symmem_cuda_splits_job job_of(const symmem_peers *peers, const symmem_collective *call) {
    const symmem_splits *splits = &call->splits;
    const cuda_peers *own = peers->priv;
    symmem_cuda_splits_job job = {
        .splits = splits->in,
        .offsets = splits->in_offsets,
        .results = splits->out,
        .out = call->out,
        .buffers = (void *const *)(uintptr_t)own->tables,
        .in_rows = splits->in_rows,
        .out_rows = splits->out_rows,
        .align = splits->align,
        .buffer_bytes = peers->buffer_bytes,
        .experts = (uint32_t)splits->experts,
        .element = (uint32_t)cuda_element_bytes(call->dtype),
        .rank = peers->rank,
        .ranks = peers->world_size,
    };
    job.row_bytes = (uint64_t)call->in_row * job.element;
    if (call->in != NULL)
        job.base = (uint64_t)((const char *)call->in - (const char *)peers->buffers[peers->rank]);
    return job;
}

static void prepare_splits(const cuda_instance *instance, const symmem_peers *peers,
                           int32_t channel, const symmem_collective *call, splits_launch *s) {
    const cuda_kernels *kernels = &instance->devices[peers->device].kernels;
    const cuda_peers *own = peers->priv;
    const int32_t ranks = peers->world_size, channels = peers->channel_count;
    symmem_cuda_ll_choice rounds = {0, SYMMEM_CUDA_ROUND_UNITS};
    s->launch.signal.operation = call->name;
    s->launch.enqueue = enqueue_splits;
    s->kernel = kernels->splits;
    s->barrier = kernels->barrier;
    s->args.job = job_of(peers, call);
    s->args.way =
        (int32_t)symmem_cuda_split_way_of(ranks, call->splits.experts, channel, own->block_bytes);
    s->args.table_at = symmem_cuda_has_parts(ranks, channel)
                           ? symmem_cuda_parts_at(ranks, channels, own->block_bytes, channel)
                           : symmem_cuda_split_table_at(ranks, channels, channel);
    s->args.piece = symmem_cuda_split_piece(ranks, channel);
    s->blocks = block_count(peers, channel, s->args.way);
    rounds.warps = data_warps(peers, s, symmem_cuda_ll_warps(ranks, own->block_bytes, channel));
    s->args.rounds = symmem_cuda_ll_layout_of(rounds, ranks, channels, own->block_bytes, channel,
                                              own->links.all_linked);
    s->args.of_two = ranks == 2 && rounds.warps > 0 && own->links.all_linked;
    symmem_cuda_set_row_limits(&s->args);
    if (ranks <= SYMMEM_CUDA_SMALL_RANKS)
        memcpy(s->args.small_buffers, peers->buffers, sizeof(void *) * (size_t)ranks);
}

symmem_status cuda_collective_splits(void *opaque, const symmem_peers *peers, int32_t channel,
                                     const symmem_collective *call, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    if (call->kind != SYMMEM_CALL_ALL_TO_ALL_V ||
        call->splits.experts > INT32_MAX / (uint32_t)peers->world_size)
        return instance->host->fail(instance->host, SYMMEM_UNSUPPORTED, 0, call->name,
                                    "this backend has no such collective");
    (void)cuda_failpoint(instance, "cuda.collective*"); /* peers have counted on this rank by now */
    cuda_plan *plan = cuda_plan_of(peers, channel, call, exec);
    if (plan != NULL && plan->kernel != NULL)
        return cuda_launch_planned(instance, peers, channel, exec, plan, call->name);
    splits_launch s = {.launch = {.plan = plan}};
    prepare_splits(instance, peers, channel, call, &s);
    return cuda_launch_run(instance, peers, -1, channel, exec, &s.launch);
}
