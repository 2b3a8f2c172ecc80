/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives: their steps, as kernels on a stream. */
#include <stdlib.h>
#include <string.h>

#include "cuda/collective.h"
#include "cuda/collective_job.h"
#include "collective/algorithm.h"
#include "collective/collective.h"
#include "signal/composite.h"
#include "signal/plan.h"
#include "driver/error.h"
#include "signal/signal.h"
#include "memory/multicast.h"

/* One collective that is being enqueued. */
typedef struct collective_launch {
    cuda_launch launch; /* first, because enqueue gets it */
    symmem_cuda_collective_args args;
    CUfunction kernel, barrier, store_words;
    cuda_fast_kernels fast;  /* NULL: none of this dtype */
    const CUfunction *moves; /* of two ranks by LL */
    CUfunction chunked_moves;
    symmem_cuda_terms terms;
    cuda_links links;
    uint64_t *split_table; /* this rank's, on the device */
    const uint64_t *words; /* its contents; NULL: not an all-to-all */
} collective_launch;

size_t cuda_element_bytes(symmem_dtype dtype) {
    switch (dtype) {
    case SYMMEM_INT8:
    case SYMMEM_UINT8:
        return 1;
    case SYMMEM_INT16:
    case SYMMEM_UINT16:
    case SYMMEM_FLOAT16:
    case SYMMEM_BFLOAT16:
        return 2;
    case SYMMEM_INT32:
    case SYMMEM_UINT32:
    case SYMMEM_FLOAT32:
        return 4;
    default:
        return 8;
    }
}

static bool reduces(symmem_call_kind kind) {
    return kind == SYMMEM_CALL_ONE_SHOT_ALL_REDUCE || kind == SYMMEM_CALL_TWO_SHOT_ALL_REDUCE ||
           kind == SYMMEM_CALL_REDUCE_SCATTER || kind == SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER;
}

/* --- what the choice and the kernels need ------------------------------------------ */

/* With the table that the host can read. */
static symmem_cuda_job host_job(const collective_launch *c) {
    symmem_cuda_job job = c->args.job;
    job.buffers = c->args.small_buffers;
    return job;
}

/* Returns the most that a rank has for another one. In an all-to-all of two ranks each of them
 * knows it. */
static size_t pair_bytes(const collective_launch *c) {
    const symmem_cuda_job *job = &c->args.job;
    const symmem_cuda_exchange *moved = &c->args.exchange;
    if (job->form != SYMMEM_CUDA_ALL_TO_ALL)
        return job->count * job->element;
    if (job->world_size != 2)
        return SIZE_MAX;
    return moved->push_bytes > moved->pull_bytes ? moved->push_bytes : moved->pull_bytes;
}

/* Fills what does not depend on the algorithm, before anything is enqueued. */
static void fill_arguments(collective_launch *c) {
    const symmem_cuda_signal_args *signal = &c->launch.args;
    const symmem_cuda_job job = host_job(c);
    const symmem_cuda_ll_choice none = {0, 0};
    c->args.signal = *signal;
    if (job.world_size == 2 && symmem_cuda_is_move(job.form))
        c->args.exchange = symmem_cuda_exchange_of(&job, c->words);
    c->terms.channel = signal->channel;
    c->terms.share_device = c->links.share_device;
    c->terms.pair_bytes = pair_bytes(c);
    c->args.rounds =
        symmem_cuda_ll_layout_of(none, signal->world_size, signal->channel_count,
                                 c->terms.block_bytes, signal->channel, c->links.all_linked);
}

/* --- launches ----------------------------------------------------------------------- */

static CUresult launch(const cuda_instance *instance, collective_launch *c, CUfunction kernel,
                       unsigned int blocks, unsigned int threads, const cuda_arguments *args,
                       CUstream native) {
    cuda_plan_forget(&c->launch);
    CUresult result = cuda_launch_kernel(instance, kernel, blocks, threads, args->all, native);
    if (result == CUDA_SUCCESS)
        cuda_plan_note(&c->launch, kernel, blocks, threads, args);
    c->launch.begun = c->launch.begun || result == CUDA_SUCCESS;
    return result;
}

/* The words of the split table travel as arguments. So a graph keeps them, and the caller need
 * not. */
static CUresult write_split_table(const cuda_instance *instance, collective_launch *c,
                                  CUstream native) {
    size_t words = SYMMEM_CUDA_SPLIT_TABLE_WORDS(c->args.job.world_size);
    CUresult result = CUDA_SUCCESS;
    for (size_t at = 0; at < words && result == CUDA_SUCCESS; at += SYMMEM_CUDA_MAX_WORDS) {
        size_t count = words - at < SYMMEM_CUDA_MAX_WORDS ? words - at : SYMMEM_CUDA_MAX_WORDS;
        symmem_cuda_store_words_args args = {.to = c->split_table + at, .count = (uint32_t)count};
        memcpy(args.words, c->words + at, count * sizeof args.words[0]);
        result = launch(instance, c, c->store_words, 1, SYMMEM_CUDA_MAX_WORDS,
                        &(cuda_arguments){&args, sizeof args, NULL}, native);
    }
    return result;
}

/* For an all-to-all: the bytes that come to this rank. */
static size_t part_bytes(const collective_launch *c) {
    return c->words == NULL
               ? 0
               : (size_t)c->words[SYMMEM_CUDA_SPLIT_TABLE_WORDS(c->args.job.world_size) - 1];
}

static CUresult run_step(const cuda_instance *instance, collective_launch *c,
                         const symmem_cuda_step *step, CUstream native) {
    symmem_cuda_signal_args *signal = &c->args.signal;
    signal->phase = step->first ? SYMMEM_CUDA_FIRST : SYMMEM_CUDA_LATER;
    if (step->kind == SYMMEM_CUDA_SYNC)
        return launch(instance, c, c->barrier, 1, cuda_barrier_threads(signal->world_size),
                      &(cuda_arguments){signal, sizeof *signal, signal}, native);
    size_t bytes = symmem_cuda_step_bytes(&c->args.job, step, part_bytes(c));
    if (bytes == 0 && step->kind != SYMMEM_CUDA_AGREE)
        return CUDA_SUCCESS;
    c->args.step = *step;
    return launch(instance, c, c->kernel, cuda_blocks_for(bytes), SYMMEM_CUDA_COLLECTIVE_THREADS,
                  &CUDA_ARGUMENTS(c->args), native);
}

/* --- fast kernels for the common cases --------------------------------------------- */

/* Calls without a stream may be abandoned, which these kernels do not support. */
static bool may_use_small_barrier(const collective_launch *c, symmem_cuda_small_barrier *small) {
    return c->args.job.world_size >= 2 && !c->args.job.checking &&
           c->launch.args.stream != SYMMEM_CUDA_NO_STREAM &&
           cuda_small_barrier_of(&c->launch, small);
}

static bool may_use_fast_kernel(const collective_launch *c, symmem_cuda_fast_args *args) {
    const symmem_cuda_job *job = &c->args.job;
    *args = (symmem_cuda_fast_args){.signal = c->args.signal, .op = (uint16_t)job->op};
    return c->fast.blocks != NULL && (job->op == SYMMEM_CUDA_SUM || job->op == SYMMEM_CUDA_AVG) &&
           may_use_small_barrier(c, &args->small);
}

static bool fast_ll(const collective_launch *c, symmem_cuda_ll_args *args) {
    symmem_cuda_fast_args fast;
    if (!may_use_fast_kernel(c, &fast))
        return false;
    const symmem_cuda_job job = host_job(c);
    const symmem_cuda_pushed pushed = symmem_cuda_pushed_of(&job);
    const size_t bytes = job.count * job.element;
    if (((uintptr_t)pushed.src | (uintptr_t)pushed.own | (uintptr_t)pushed.dst | bytes) %
            SYMMEM_CUDA_LL_LINE_BYTES !=
        0)
        return false;
    *args = (symmem_cuda_ll_args){.small = fast.small,
                                  .rounds = c->args.rounds,
                                  .units = (uint32_t)(bytes / SYMMEM_CUDA_LL_LINE_BYTES),
                                  .op = job.op,
                                  .from = pushed.src,
                                  .own = pushed.own,
                                  .to = pushed.dst,
                                  .signal = c->args.signal};
    return true;
}

static bool are_units(const symmem_cuda_fast_args *args, int32_t sources, size_t bytes) {
    uintptr_t all = bytes;
    for (int32_t i = 0; i < sources; i++)
        all |= (uintptr_t)args->from[i];
    for (int32_t i = 0; i < args->targets; i++)
        all |= (uintptr_t)args->to[i];
    return all % 16 == 0;
}

/* For the step of c->args. */
static bool fast_per_block(const collective_launch *c, symmem_cuda_fast_args *args) {
    const symmem_cuda_step *step = &c->args.step;
    if (!may_use_fast_kernel(c, args) || !symmem_cuda_has_fast_kernel(c->args.job.world_size) ||
        step->kind != SYMMEM_CUDA_REDUCE ||
        (step->row != step->row_step && step->row != step->count))
        return false;
    const symmem_cuda_job job = host_job(c);
    const size_t bytes = step->count * job.element;
    args->units = (uint32_t)(bytes / 16); /* of the data of all blocks, 32 MiB at most */
    args->targets = (uint16_t)symmem_cuda_targets(&job, step);
    for (int32_t k = 0; k < job.world_size; k++)
        args->from[k] = symmem_cuda_source(&job, step, k);
    for (int32_t k = 0; k < args->targets; k++)
        args->to[k] = symmem_cuda_target(&job, step, k);
    return are_units(args, job.world_size, bytes);
}

/* More ranks mean fewer blocks, and fewer units of each source in flight for a thread. Then it uses
 * more threads. */
static CUresult launch_fast(const cuda_instance *instance, collective_launch *c,
                            unsigned int blocks, symmem_cuda_fast_args *args, CUstream native) {
    const bool two = args->small.ranks == 2;
    const bool wide = !two && args->units > (size_t)blocks * SYMMEM_CUDA_COLLECTIVE_THREADS;
    return launch(instance, c,
                  two    ? c->fast.blocks_of_two
                  : wide ? c->fast.wide
                         : c->fast.blocks,
                  blocks, wide ? SYMMEM_CUDA_WIDE_THREADS : SYMMEM_CUDA_COLLECTIVE_THREADS,
                  &CUDA_ARGUMENTS(*args), native);
}

static CUresult enqueue_per_block(const cuda_instance *instance, collective_launch *c,
                                  unsigned int blocks, CUstream native) {
    symmem_cuda_cursor place = {0};
    symmem_cuda_step step;
    bool found = symmem_cuda_next(&c->args.job, &place, &step); /* the barrier */
    CUresult result = CUDA_SUCCESS;
    if (c->args.job.checking)
        result = run_step(instance, c, &step, native);
    found = found && symmem_cuda_next(&c->args.job, &place, &c->args.step);
    if (!found || result != CUDA_SUCCESS)
        return found ? result : CUDA_ERROR_INVALID_VALUE;
    symmem_cuda_fast_args fast;
    if (fast_per_block(c, &fast))
        return launch_fast(instance, c, blocks, &fast, native);
    c->args.algorithm =
        c->args.job.checking ? SYMMEM_CUDA_PER_BLOCK_AFTER_BARRIER : SYMMEM_CUDA_PER_BLOCK;
    if (c->args.job.checking)
        c->args.signal.phase = SYMMEM_CUDA_LATER;
    return launch(instance, c, c->kernel, blocks, SYMMEM_CUDA_COLLECTIVE_THREADS,
                  &CUDA_ARGUMENTS(c->args), native);
}

static CUfunction fast_ll_kernel(const collective_launch *c) {
    const int32_t ranks = c->args.job.world_size;
    const bool is_short = c->args.rounds.units == SYMMEM_CUDA_SHORT_UNITS;
    if (symmem_cuda_is_whole_scatter(&c->args.job))
        return c->fast.scatter[is_short];
    return c->fast.ll[is_short][ranks == 2 ? 0 : ranks <= 4 ? 1 : 2];
}

static bool fast_moves(const collective_launch *c, symmem_cuda_moves_args *args) {
    const symmem_cuda_exchange *moved = &c->args.exchange;
    const size_t all = (uintptr_t)moved->push | (uintptr_t)moved->pull |
                       (uintptr_t)moved->own_from | (uintptr_t)moved->own_to | moved->push_bytes |
                       moved->pull_bytes | moved->own_bytes;
    *args = (symmem_cuda_moves_args){
        .rounds = c->args.rounds, .exchange = *moved, .signal = c->args.signal};
    return c->args.job.world_size == 2 && symmem_cuda_is_move(c->args.job.form) &&
           all % SYMMEM_CUDA_LL_LINE_BYTES == 0 && may_use_small_barrier(c, &args->small);
}

/* Ranks that compare their calls do so in a barrier kernel before. */
static CUresult enqueue_general(const cuda_instance *instance, collective_launch *c,
                                unsigned int blocks, unsigned int threads,
                                symmem_cuda_algorithm algorithm, CUstream native) {
    const symmem_cuda_step meeting = {.kind = SYMMEM_CUDA_SYNC, .first = true};
    const bool checking = c->args.job.checking;
    CUresult result = checking ? run_step(instance, c, &meeting, native) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    c->args.algorithm = (int32_t)algorithm + (checking ? 1 : 0); /* the same, AFTER_BARRIER */
    if (checking)
        c->args.signal.phase = SYMMEM_CUDA_LATER;
    return launch(instance, c, c->kernel, blocks, threads, &CUDA_ARGUMENTS(c->args), native);
}

static CUresult enqueue_ll(const cuda_instance *instance, collective_launch *c,
                           const cuda_choice *chosen, CUstream native) {
    symmem_cuda_ll_args fast;
    symmem_cuda_moves_args moves;
    c->args.rounds.warps = chosen->rounds.warps;
    c->args.rounds.units = chosen->rounds.units;
    if (fast_moves(c, &moves))
        return launch(instance, c, c->moves[chosen->rounds.units == SYMMEM_CUDA_SHORT_UNITS],
                      chosen->blocks, SYMMEM_CUDA_LL_THREADS, &CUDA_ARGUMENTS(moves), native);
    if (fast_ll(c, &fast))
        return launch(instance, c, fast_ll_kernel(c), chosen->blocks, SYMMEM_CUDA_LL_THREADS,
                      &CUDA_ARGUMENTS(fast), native);
    return enqueue_general(instance, c, chosen->blocks, SYMMEM_CUDA_LL_THREADS, SYMMEM_CUDA_LL,
                           native);
}

static CUresult enqueue_chunked(const cuda_instance *instance, collective_launch *c,
                                unsigned int blocks, CUstream native) {
    symmem_cuda_ll_args fast;
    symmem_cuda_moves_args moves;
    c->args.rounds.chunks_ahead =
        symmem_cuda_chunks_ahead(c->terms.pair_bytes, blocks, c->args.rounds.chunk_slots);
    if (fast_moves(c, &moves))
        return launch(instance, c, c->chunked_moves, blocks, SYMMEM_CUDA_CHUNK_THREADS,
                      &CUDA_ARGUMENTS(moves), native);
    if (fast_ll(c, &fast))
        return launch(instance, c, c->fast.chunks, blocks, SYMMEM_CUDA_CHUNK_THREADS,
                      &CUDA_ARGUMENTS(fast), native);
    return enqueue_general(instance, c, blocks, SYMMEM_CUDA_COLLECTIVE_THREADS, SYMMEM_CUDA_CHUNKS,
                           native);
}

static CUresult enqueue_steps(const cuda_instance *instance, collective_launch *c,
                              CUstream native) {
    symmem_cuda_cursor place = {0};
    symmem_cuda_step step;
    CUresult result = CUDA_SUCCESS;
    c->args.algorithm = SYMMEM_CUDA_ONE_STEP;
    while (result == CUDA_SUCCESS && symmem_cuda_next(&c->args.job, &place, &step))
        result = run_step(instance, c, &step, native);
    return result;
}

/* LL and chunks need no split table on the device. */
static CUresult launch_chosen(const cuda_instance *instance, collective_launch *c,
                              const cuda_choice *chosen, CUstream native) {
    if (chosen->algorithm == SYMMEM_CUDA_LL)
        return enqueue_ll(instance, c, chosen, native);
    if (chosen->algorithm == SYMMEM_CUDA_CHUNKS)
        return enqueue_chunked(instance, c, chosen->blocks, native);
    CUresult result = c->words != NULL ? write_split_table(instance, c, native) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    if (chosen->algorithm == SYMMEM_CUDA_PER_BLOCK)
        return enqueue_per_block(instance, c, chosen->blocks, native);
    if (chosen->algorithm == SYMMEM_CUDA_ONE_STEP)
        return enqueue_steps(instance, c, native);
    c->args.algorithm = SYMMEM_CUDA_ONE_BLOCK;
    return launch(instance, c, c->kernel, chosen->blocks, SYMMEM_CUDA_COLLECTIVE_THREADS,
                  &CUDA_ARGUMENTS(c->args), native);
}

static CUresult enqueue_collective(cuda_instance *instance, cuda_launch *opaque, CUstream native) {
    collective_launch *c = (collective_launch *)opaque;
    fill_arguments(c);
    const cuda_choice chosen = cuda_choose(&c->args.job, &c->terms, part_bytes(c));
    return launch_chosen(instance, c, &chosen, native);
}

/* --- the call ----------------------------------------------------------------------- */

static void prepare(const cuda_instance *instance, const symmem_peers *peers, int32_t channel,
                    const symmem_collective *call, const symmem_exec *exec, collective_launch *c) {
    const cuda_device *device = &instance->devices[peers->device];
    const cuda_peers *own = peers->priv;
    size_t table_bytes = sizeof(void *) * (size_t)peers->world_size;
    symmem_cuda_job *job = &c->args.job;
    *job = symmem_cuda_job_of(call, peers->rank, peers->world_size, cuda_element_bytes(call->dtype),
                              exec->call.kind != SYMMEM_CALL_NONE);
    job->buffers = (void *const *)(uintptr_t)own->tables;
    job->signals = (void *const *)(uintptr_t)(own->tables + 2 * table_bytes);
    if (peers->world_size <= SYMMEM_CUDA_SMALL_RANKS)
        memcpy(c->args.small_buffers, peers->buffers, table_bytes);
    job->split_table_at =
        symmem_cuda_split_table_at(peers->world_size, peers->channel_count, channel);
    c->links = own->links;
    c->launch.signal.operation = call->name;
    c->launch.enqueue = enqueue_collective;
    c->kernel = reduces(call->kind) ? device->kernels.collective[call->dtype]
                                    : device->kernels.collective_bytes;
    if (reduces(call->kind))
        c->fast = device->kernels.fast[call->dtype];
    c->moves = device->kernels.moves;
    c->chunked_moves = device->kernels.chunked_moves;
    c->terms.block_bytes = own->block_bytes;
    c->barrier = device->kernels.barrier;
    c->store_words = device->kernels.store_words;
    c->split_table =
        (uint64_t *)(void *)((char *)peers->signals[peers->rank] + job->split_table_at);
}

/* For the first time, or without a plan. */
static symmem_status run_new(cuda_instance *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_collective *call, const symmem_exec *exec,
                             cuda_plan *plan) {
    collective_launch c = {.launch = {.plan = plan}};
    uint64_t *words = NULL;
    prepare(instance, peers, channel, call, exec, &c);
    if (call->kind == SYMMEM_CALL_ALL_TO_ALL) {
        words = malloc(sizeof *words * SYMMEM_CUDA_SPLIT_TABLE_WORDS(peers->world_size));
        if (words == NULL)
            return cuda_no_memory(instance, call->name);
        symmem_cuda_fill_split_table(&c.args.job, call, peers->buffers[peers->rank], words);
        c.args.job.buffer_bytes = peers->buffer_bytes;
        c.args.job.out_bytes = words[2 * peers->world_size + 3]; /* where the last part ends */
        c.words = words;
    }
    symmem_status status = cuda_launch_run(instance, peers, -1, channel, exec, &c.launch);
    free(words);
    return status;
}

symmem_status cuda_collective(void *opaque, const symmem_peers *peers, int32_t channel,
                              const symmem_collective *call, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
#ifdef SYMMEM_CUDA_MULTICAST
    if (cuda_is_multimem(call->kind))
        return cuda_multimem_collective(instance, peers, channel, call, exec);
#endif
    if (!symmem_cuda_supports(call->kind))
        return instance->host->fail(instance->host, SYMMEM_UNSUPPORTED, 0, call->name,
                                    "this backend has no such collective");
    (void)cuda_failpoint(instance, "cuda.collective*"); /* peers have counted on this rank by now */
    cuda_plan *plan = cuda_plan_of(peers, channel, call, exec);
    if (plan != NULL && plan->kernel != NULL)
        return cuda_launch_planned(instance, peers, channel, exec, plan, call->name);
    return run_new(instance, peers, channel, call, exec, plan);
}
