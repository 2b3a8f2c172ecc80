/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives: their steps, as kernels on a stream. */
#include <stdlib.h>
#include <string.h>

#include "cuda/collective.h"
#include "cuda/collective_job.h"
#include "collective/collective.h"
#include "signal/composite.h"
#include "driver/error.h"
#include "signal/signal.h"
#include "memory/multicast.h"

#define SMALL_BYTES ((size_t)64 << 10) /* of a step: below this one block runs all steps */
#define PIECE_BYTES ((size_t)1 << 20)  /* the same if there are many steps */
#define MANY_STEPS 16
#define MOST_STEPS 256

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

static size_t element_bytes(symmem_dtype dtype) {
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

/* --- how many kernels and blocks ---------------------------------------------------- */

/* For an all-to-all: what comes to this rank. */
static size_t bytes_of(const collective_launch *c, const symmem_cuda_step *step) {
    size_t parts = c->words != NULL
                       ? (size_t)c->words[SYMMEM_CUDA_SPLIT_TABLE_WORDS(c->args.job.world_size) - 1]
                       : 0;
    return symmem_cuda_step_bytes(&c->args.job, step, parts);
}

/* Very many steps would fill the stream's queue, and the call would wait. It uses the steps of the
 * first rank, whose shards are the longest, because all ranks must choose alike if they compare
 * their calls. */
static bool is_for_one_block(const collective_launch *c) {
    symmem_cuda_job first = c->args.job;
    symmem_cuda_cursor place = {0};
    symmem_cuda_step step;
    size_t most = 0;
    int32_t steps = 0;
    first.rank = 0;
    while (steps <= MOST_STEPS && symmem_cuda_next(&first, &place, &step)) {
        size_t bytes = bytes_of(c, &step);
        most = bytes > most ? bytes : most;
        steps++;
    }
    return steps > MOST_STEPS || most <= (steps > MANY_STEPS ? PIECE_BYTES : SMALL_BYTES);
}

/* The bytes for which each block has one pass, in a kernel with a barrier per block. */
#define BYTES_PER_BLOCK ((size_t)SYMMEM_CUDA_COLLECTIVE_THREADS * 16)
/* Beyond this, barriers do not matter, and more blocks help. */
#define PER_BLOCK_MAX_BYTES ((size_t)32 << 20)
#define PER_BLOCK_MAX_BYTES_TWO_RANKS ((size_t)512 << 20)
/* Up to this, half the blocks suffice, and leave room for other kernels. */
#define FEW_BLOCKS_MAX_BYTES ((size_t)4 << 20)
#define MAX_BLOCKS_ALL_RANKS 128 /* limited, because ranks may share a device */

/* The data of all blocks of a rank, from values that are the same on all ranks. */
static size_t largest_segment_bytes(const symmem_cuda_job *job) {
    size_t bytes = job->count * job->element, ranks = (size_t)job->world_size;
    if (job->form == SYMMEM_CUDA_IN_PLACE)
        return bytes / ranks;
    bool gathers = job->form == SYMMEM_CUDA_GATHER_PULL || job->form == SYMMEM_CUDA_GATHER_PUSH;
    return gathers ? bytes * ranks : bytes;
}

/* The number of blocks that each have a barrier, the same on all ranks. 0: this algorithm is not
 * used. */
static unsigned int per_block_count(const collective_launch *c) {
    const symmem_cuda_job *job = &c->args.job;
    size_t bytes = largest_segment_bytes(job),
           blocks = (bytes + BYTES_PER_BLOCK - 1) / BYTES_PER_BLOCK;
    size_t most = MAX_BLOCKS_ALL_RANKS / (size_t)job->world_size;
    size_t limit = job->world_size == 2 ? PER_BLOCK_MAX_BYTES_TWO_RANKS : PER_BLOCK_MAX_BYTES;
    if (c->launch.args.channel >= SYMMEM_CUDA_SYNC_BLOCK_CHANNELS || bytes > limit ||
        !symmem_cuda_has_one_step(job->form))
        return 0;
    size_t places = bytes <= FEW_BLOCKS_MAX_BYTES ? SYMMEM_CUDA_MAX_SYNC_BLOCKS / 2
                                                  : SYMMEM_CUDA_MAX_SYNC_BLOCKS;
    most = most < 1 ? 1 : most > places ? places : most;
    return (unsigned int)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* --- launches ----------------------------------------------------------------------- */

static CUresult launch(const cuda_instance *instance, collective_launch *c, CUfunction kernel,
                       unsigned int blocks, unsigned int threads, void *args, CUstream native) {
    CUresult result = cuda_launch_kernel(instance, kernel, blocks, threads, args, native);
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
        result = launch(instance, c, c->store_words, 1, SYMMEM_CUDA_MAX_WORDS, &args, native);
    }
    return result;
}

static CUresult run_step(const cuda_instance *instance, collective_launch *c,
                         const symmem_cuda_step *step, CUstream native) {
    symmem_cuda_signal_args *signal = &c->args.signal;
    signal->phase = step->first ? SYMMEM_CUDA_FIRST : SYMMEM_CUDA_LATER;
    if (step->kind == SYMMEM_CUDA_SYNC)
        return launch(instance, c, c->barrier, 1, cuda_barrier_threads(signal->world_size), signal,
                      native);
    size_t bytes = bytes_of(c, step);
    if (bytes == 0 && step->kind != SYMMEM_CUDA_AGREE)
        return CUDA_SUCCESS;
    c->args.step = *step;
    return launch(instance, c, c->kernel, cuda_blocks_for(bytes), SYMMEM_CUDA_COLLECTIVE_THREADS,
                  &c->args, native);
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

/* With the table that the host can read. */
static symmem_cuda_job host_job(const collective_launch *c) {
    symmem_cuda_job job = c->args.job;
    job.buffers = c->args.small_buffers;
    return job;
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
                  blocks, wide ? SYMMEM_CUDA_WIDE_THREADS : SYMMEM_CUDA_COLLECTIVE_THREADS, args,
                  native);
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
    return launch(instance, c, c->kernel, blocks, SYMMEM_CUDA_COLLECTIVE_THREADS, &c->args, native);
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
    return launch(instance, c, c->kernel, blocks, threads, &c->args, native);
}

/* A block waits for the peer's block of its number and for no other. So two operations that ranks
 * begin in different orders both make progress as long as neither fills its device. Then some
 * blocks of the second one have room, and after them the next. The general kernels use at most 128
 * registers a thread. So four blocks of 128 threads fit on a multiprocessor. An H100 and an H200
 * have 132 multiprocessors. */
_Static_assert(SYMMEM_CUDA_ROUNDS_LARGE / (2 * SYMMEM_CUDA_ROUND_BYTES) /
                       (SYMMEM_CUDA_LL_THREADS / 32) <
                   4 * 132,
               "an operation by lines leaves room for another one");

static CUresult enqueue_ll(const cuda_instance *instance, collective_launch *c,
                           symmem_cuda_ll_choice rounds, CUstream native) {
    const unsigned int warps = SYMMEM_CUDA_LL_THREADS / 32;
    const unsigned int blocks = (rounds.warps + warps - 1) / warps;
    symmem_cuda_ll_args fast;
    symmem_cuda_moves_args moves;
    c->args.rounds.warps = rounds.warps;
    c->args.rounds.units = rounds.units;
    if (fast_moves(c, &moves))
        return launch(instance, c, c->moves[rounds.units == SYMMEM_CUDA_SHORT_UNITS], blocks,
                      SYMMEM_CUDA_LL_THREADS, &moves, native);
    if (fast_ll(c, &fast))
        return launch(instance, c, fast_ll_kernel(c), blocks, SYMMEM_CUDA_LL_THREADS, &fast,
                      native);
    return enqueue_general(instance, c, blocks, SYMMEM_CUDA_LL_THREADS, SYMMEM_CUDA_LL, native);
}

static CUresult enqueue_chunked(const cuda_instance *instance, collective_launch *c,
                                unsigned int blocks, CUstream native) {
    symmem_cuda_ll_args fast;
    symmem_cuda_moves_args moves;
    if (fast_moves(c, &moves))
        return launch(instance, c, c->chunked_moves, blocks, SYMMEM_CUDA_CHUNK_THREADS, &moves,
                      native);
    if (fast_ll(c, &fast))
        return launch(instance, c, c->fast.chunks, blocks, SYMMEM_CUDA_CHUNK_THREADS, &fast,
                      native);
    return enqueue_general(instance, c, blocks, SYMMEM_CUDA_COLLECTIVE_THREADS, SYMMEM_CUDA_CHUNKS,
                           native);
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

/* Chooses what does not depend on how the operation proceeds, before anything is enqueued. */
static void choose_parameters(collective_launch *c) {
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

static CUresult enqueue_collective(cuda_instance *instance, cuda_launch *opaque, CUstream native) {
    collective_launch *c = (collective_launch *)opaque;
    symmem_cuda_cursor place = {0};
    symmem_cuda_step step;
    choose_parameters(c);
    const symmem_cuda_ll_choice rounds = symmem_cuda_ll_choice_of(&c->args.job, &c->terms);
    const unsigned int chunk_blocks = symmem_cuda_chunk_blocks(&c->args.job, &c->terms);
    if (rounds.warps > 0)
        return enqueue_ll(instance, c, rounds, native);
    if (chunk_blocks > 0)
        return enqueue_chunked(instance, c, chunk_blocks, native);
    CUresult result = c->words != NULL ? write_split_table(instance, c, native) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    bool small = is_for_one_block(c);
    unsigned int blocks = small && c->args.job.checking ? 0 : per_block_count(c);
    if (blocks > 0)
        return enqueue_per_block(instance, c, blocks, native);
    c->args.algorithm = small ? SYMMEM_CUDA_ONE_BLOCK : SYMMEM_CUDA_ONE_STEP;
    if (small)
        return launch(instance, c, c->kernel, 1, SYMMEM_CUDA_COLLECTIVE_THREADS, &c->args, native);
    while (result == CUDA_SUCCESS && symmem_cuda_next(&c->args.job, &place, &step))
        result = run_step(instance, c, &step, native);
    return result;
}

/* --- the call ----------------------------------------------------------------------- */

static void prepare(const cuda_instance *instance, const symmem_peers *peers, int32_t channel,
                    const symmem_collective *call, const symmem_exec *exec, collective_launch *c) {
    const cuda_device *device = &instance->devices[peers->device];
    const cuda_peers *own = peers->priv;
    size_t table_bytes = sizeof(void *) * (size_t)peers->world_size;
    symmem_cuda_job *job = &c->args.job;
    *job = symmem_cuda_job_of(call, peers->rank, peers->world_size, element_bytes(call->dtype),
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

symmem_status cuda_collective(void *opaque, const symmem_peers *peers, int32_t channel,
                              const symmem_collective *call, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    collective_launch c = {.words = NULL};
    uint64_t *words = NULL;
#ifdef SYMMEM_CUDA_MULTICAST
    if (cuda_is_multimem(call->kind))
        return cuda_multimem_collective(instance, peers, channel, call, exec);
#endif
    if (!symmem_cuda_supports(call->kind))
        return instance->host->fail(instance->host, SYMMEM_UNSUPPORTED, 0, call->name,
                                    "this backend has no such collective");
    (void)cuda_failpoint(instance, "cuda.collective*"); /* peers have counted on this rank by now */
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
