/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations through a multicast address: launches of the kernels of multimem.cu, alone or between
 * two barriers. Never run on hardware.
 */
#include "cuda/multimem.h"

#include <string.h>

#include "cuda/collective_plan.h"
#include "memory/multicast.h"

static int32_t type_of(symmem_dtype dtype) {
    switch (dtype) {
    case SYMMEM_FLOAT16:
        return SYMMEM_MULTIMEM_F16;
    case SYMMEM_BFLOAT16:
        return SYMMEM_MULTIMEM_BF16;
    case SYMMEM_FLOAT32:
        return SYMMEM_MULTIMEM_F32;
    case SYMMEM_FLOAT64:
        return SYMMEM_MULTIMEM_F64;
    case SYMMEM_INT32:
        return SYMMEM_MULTIMEM_S32;
    case SYMMEM_UINT32:
        return SYMMEM_MULTIMEM_U32;
    case SYMMEM_INT64:
        return SYMMEM_MULTIMEM_S64;
    case SYMMEM_UINT64:
        return SYMMEM_MULTIMEM_U64;
    default:
        return SYMMEM_MULTIMEM_NONE;
    }
}

static size_t multimem_element_bytes(symmem_dtype dtype) {
    const bool is_byte = dtype == SYMMEM_INT8 || dtype == SYMMEM_UINT8;
    const bool is_short = dtype == SYMMEM_INT16 || dtype == SYMMEM_UINT16;
    return is_byte ? 1 : is_short ? 2 : symmem_multimem_element(type_of(dtype));
}

static symmem_status check_pair(const cuda_instance *instance, symmem_dtype dtype,
                                symmem_reduce_op op, const char *operation) {
    if (symmem_multimem_reduces(type_of(dtype), (int32_t)op))
        return SYMMEM_OK;
    return instance->host->fail(instance->host, SYMMEM_UNSUPPORTED, 0, operation,
                                "multicast cannot do operation %d on dtype %d", (int)op,
                                (int)dtype);
}

static symmem_multimem_address place_of(const symmem_peers *peers, void *address, size_t offset) {
    const cuda_peers *own = peers->priv;
    return (symmem_multimem_address){.multicast = address,
                                     .buffers = (void *const *)(uintptr_t)own->tables,
                                     .offset = offset,
                                     .world_size = peers->world_size};
}

static symmem_multimem_address place_behind(symmem_multimem_address place, size_t bytes) {
    place.multicast += bytes;
    place.offset += bytes;
    return place;
}

/* A thread processes a line at a time. */
static CUresult launch_lines(const cuda_instance *instance, CUfunction kernel, size_t bytes,
                             void *args, CUstream native) {
    return bytes == 0 ? CUDA_SUCCESS
                      : cuda_launch_kernel(instance, kernel, cuda_blocks_for(bytes),
                                           SYMMEM_MULTIMEM_THREADS, args, native);
}

/* --- stores and reductions alone ---------------------------------------------------- */

/* Moves between the multicast address and memory that the device sees, whose base stands for
 * `base`. */
typedef struct lines_mover {
    cuda_mover mover; /* first, because move gets it */
    const char *operation;
    const cuda_multimem_kernels *kernels;
    symmem_multimem_address place;
    CUdeviceptr base; /* of the multicast address */
    int32_t type;     /* of a reduction */
    int32_t op;
    const symmem_cuda_state *state;
} lines_mover;

static CUresult move_store(const cuda_instance *instance, const cuda_mover *opaque, CUdeviceptr dst,
                           CUdeviceptr src, size_t bytes, CUstream native) {
    const lines_mover *lines = (const lines_mover *)(const void *)opaque;
    symmem_multimem_store_args args = {.to =
                                           place_behind(lines->place, (size_t)(dst - lines->base)),
                                       .from = (const char *)(uintptr_t)src,
                                       .bytes = bytes,
                                       .state = lines->state};
    return launch_lines(instance, lines->kernels->store, bytes, &args, native);
}

static CUresult move_reduce(const cuda_instance *instance, const cuda_mover *opaque,
                            CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream native) {
    const lines_mover *lines = (const lines_mover *)(const void *)opaque;
    symmem_multimem_reduce_args args = {.from =
                                            place_behind(lines->place, (size_t)(src - lines->base)),
                                        .to = (char *)(uintptr_t)dst,
                                        .count = bytes / symmem_multimem_element(lines->type),
                                        .type = lines->type,
                                        .op = lines->op,
                                        .state = lines->state};
    return launch_lines(instance, lines->kernels->reduce, bytes, &args, native);
}

static symmem_status run_lines_now(cuda_instance *instance, int32_t device,
                                   const lines_mover *lines, CUdeviceptr dst, CUdeviceptr src,
                                   size_t bytes) {
    cuda_private_stream *private_stream;
    cuda_staging *staging = NULL;
    CUresult result = cuda_private_stream_take(instance, device, &private_stream);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, lines->operation);
    result = cuda_move_enqueue(instance, private_stream->native, dst, src, bytes, &lines->mover,
                               &staging);
    CUresult ended = cuda_wait_idle(instance, private_stream->native, 0, NULL);
    if (result == CUDA_SUCCESS)
        result = ended;
    if (ended == CUDA_SUCCESS)
        cuda_staging_give(staging);
    cuda_private_stream_give(instance, device, private_stream);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, lines->operation);
}

static symmem_status run_lines_on(cuda_instance *instance, const lines_mover *lines,
                                  CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                  const symmem_exec *exec) {
    cuda_stream *stream = exec->stream;
    cuda_pending *pending = NULL;
    uint64_t id = 0;
    symmem_status status = cuda_capture_join(instance, exec, lines->operation, &id);
    if (status == SYMMEM_OK && id == 0)
        status = cuda_pending_make(stream, lines->operation, &pending);
    if (status != SYMMEM_OK)
        return status;
    cuda_needs needs = {.staging = NULL};
    CUresult result = cuda_composite_begin(instance, exec, stream->native);
    if (result == CUDA_SUCCESS)
        result = cuda_move_enqueue(instance, stream->native, dst, src, bytes, &lines->mover,
                                   &needs.staging);
    if (result != CUDA_SUCCESS) {
        if (id != 0)
            cuda_captured_rest(instance, id, exec);
        cuda_copy_end_failed(instance, pending, exec, &needs, lines->operation);
        return cuda_fail(instance, result, lines->operation);
    }
    if (exec->ref_count == 0 && needs.staging == NULL) {
        cuda_pending_drop(instance, pending);
        return SYMMEM_OK;
    }
    return id != 0 ? cuda_captured_add(instance, id, exec, &needs, lines->operation)
                   : cuda_pending_add(pending, exec, &needs, lines->operation);
}

static symmem_status run_lines(cuda_instance *instance, const symmem_peers *peers,
                               lines_mover *lines, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                               const symmem_exec *exec) {
    lines->kernels = cuda_multimem_kernels_of(instance, peers->device);
    if (exec->stream != NULL && exec->composite != NULL)
        lines->state = cuda_state_of(exec->composite);
    cuda_collect(instance);
    symmem_status status = cuda_enter(instance, peers->device, lines->operation);
    if (status != SYMMEM_OK)
        return status;
    status = exec->stream == NULL ? run_lines_now(instance, peers->device, lines, dst, src, bytes)
                                  : run_lines_on(instance, lines, dst, src, bytes, exec);
    cuda_leave(instance);
    return status;
}

static symmem_status find(cuda_instance *instance, const symmem_peers *peers, void *address,
                          size_t bytes, lines_mover *lines) {
    size_t offset;
    if (!cuda_multicast_offset(instance, address, bytes, &offset))
        return instance->host->fail(instance->host, SYMMEM_OUT_OF_RANGE, 0, lines->operation,
                                    "%p and %zu bytes are not inside a multicast range", address,
                                    bytes);
    lines->place = place_of(peers, address, offset);
    lines->base = cuda_address(address);
    return SYMMEM_OK;
}

symmem_status cuda_multimem_store(void *opaque, const symmem_peers *peers, void *address,
                                  const void *src, size_t bytes, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    lines_mover lines = {.mover = {.move = move_store},
                         .operation = exec->operation != NULL ? exec->operation : "multimem_store"};
    symmem_status status = find(instance, peers, address, bytes, &lines);
    return status == SYMMEM_OK ? run_lines(instance, peers, &lines, cuda_address(address),
                                           cuda_address(src), bytes, exec)
                               : status;
}

symmem_status cuda_multimem_ld_reduce(void *opaque, const symmem_peers *peers, const void *address,
                                      void *dst, size_t count, symmem_dtype dtype,
                                      symmem_reduce_op op, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    lines_mover lines = {.mover = {.move = move_reduce},
                         .operation = "multimem_ld_reduce",
                         .type = type_of(dtype),
                         .op = (int32_t)op};
    symmem_status status = check_pair(instance, dtype, op, lines.operation);
    if (status != SYMMEM_OK)
        return status;
    const size_t bytes = count * multimem_element_bytes(dtype); /* inside a range, says the core */
    status = find(instance, peers, (void *)(uintptr_t)address, bytes, &lines);
    return status == SYMMEM_OK ? run_lines(instance, peers, &lines, cuda_address(dst),
                                           cuda_address(address), bytes, exec)
                               : status;
}

/* --- collectives: barrier, store or reduce, barrier -------------------------------- */

typedef struct multimem_launch {
    cuda_launch launch; /* first, because enqueue gets it */
    CUfunction barrier;
    const cuda_multimem_kernels *kernels;
    bool stores;
    size_t bytes; /* that this rank moves */
    symmem_multimem_store_args store;
    symmem_multimem_reduce_args reduce;
} multimem_launch;

bool cuda_is_multimem(symmem_call_kind kind) {
    return kind >= SYMMEM_CALL_MULTIMEM_ALL_REDUCE && kind <= SYMMEM_CALL_MULTIMEM_ALL_GATHER;
}

static CUresult sync_ranks(const cuda_instance *instance, multimem_launch *m,
                           symmem_cuda_phase phase, CUstream native) {
    symmem_cuda_signal_args args = m->launch.args;
    args.phase = (int32_t)phase;
    return cuda_launch_kernel(instance, m->barrier, 1, cuda_barrier_threads(args.world_size), &args,
                              native);
}

static CUresult enqueue_multimem(cuda_instance *instance, cuda_launch *opaque, CUstream native) {
    multimem_launch *m = (multimem_launch *)opaque;
    CUresult result = sync_ranks(instance, m, SYMMEM_CUDA_FIRST, native);
    if (result != CUDA_SUCCESS)
        return result;
    m->launch.begun = true;
    result = m->stores ? launch_lines(instance, m->kernels->store, m->bytes, &m->store, native)
                       : launch_lines(instance, m->kernels->reduce, m->bytes, &m->reduce, native);
    return result == CUDA_SUCCESS ? sync_ranks(instance, m, SYMMEM_CUDA_LATER, native) : result;
}

/* Computes what this rank does between the barriers. */
static void plan(const symmem_peers *peers, const symmem_collective *call, multimem_launch *m) {
    const size_t element = multimem_element_bytes(call->dtype);
    symmem_cuda_job job = {.world_size = peers->world_size, .element = element};
    symmem_multimem_address place = place_of(peers, call->multicast, call->offset);
    size_t begin = 0, count = call->count;
    m->stores = call->kind == SYMMEM_CALL_MULTIMEM_ALL_GATHER;
    if (m->stores) {
        place = place_behind(place, (size_t)peers->rank * count * element);
    } else if (call->kind == SYMMEM_CALL_MULTIMEM_ALL_REDUCE) {
        begin = symmem_cuda_shard(&job, count, peers->rank);
        count = symmem_cuda_shard(&job, count, peers->rank + 1) - begin;
    } else if (call->kind == SYMMEM_CALL_MULTIMEM_ONE_SHOT_REDUCE && peers->rank != call->root) {
        count = 0;
    }
    m->bytes = count * element;
    m->store.to = place;
    m->store.from = call->in;
    m->store.bytes = m->bytes;
    m->reduce.from = place_behind(place, begin * element);
    m->reduce.to = call->out; /* NULL of the first kind */
    m->reduce.count = count;
    m->reduce.type = type_of(call->dtype);
    m->reduce.op = (int32_t)call->op;
}

symmem_status cuda_multimem_collective(cuda_instance *instance, const symmem_peers *peers,
                                       int32_t channel, const symmem_collective *call,
                                       const symmem_exec *exec) {
    if (call->multicast == NULL || instance->multicast == NULL)
        return instance->host->fail(instance->host, SYMMEM_UNSUPPORTED, 0, call->name,
                                    "there is no multicast address");
    symmem_status status = SYMMEM_OK;
    if (call->kind != SYMMEM_CALL_MULTIMEM_ALL_GATHER)
        status = check_pair(instance, call->dtype, call->op, call->name);
    if (status != SYMMEM_OK)
        return status;
    (void)cuda_failpoint(instance, "cuda.multimem*"); /* peers have counted on this rank by now */
    multimem_launch m = {
        .launch = {.enqueue = enqueue_multimem, .signal = {.operation = call->name}, .stays = true},
        .barrier = instance->devices[peers->device].kernels.barrier,
        .kernels = cuda_multimem_kernels_of(instance, peers->device)};
    plan(peers, call, &m);
    char *own = peers->signals[peers->rank];
    m.store.state = m.reduce.state =
        (const symmem_cuda_state *)(const void *)(own + symmem_cuda_state_at(peers->world_size,
                                                                             peers->channel_count,
                                                                             channel));
    return cuda_launch_run(instance, peers, -1, channel, exec, &m.launch);
}
