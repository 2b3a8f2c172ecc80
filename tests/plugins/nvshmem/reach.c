/* SPDX-License-Identifier: BSD-3-Clause */
/* The group reach, for peers to whose memory nvshmem_ptr gives no pointer. */
#include "state.h"
#include "calls.h"

/* NVSHMEM takes the calls of one thread at a time. */
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;

typedef struct transfer {
    cuda_work work; /* first: the CUDA backend knows it by this */
    cuda_mover mover;
    const symmem_peers *peers; /* NULL: not known */
    int32_t peer, pe;
    bool is_get, was_poisoned;
    CUdeviceptr to, from;
    size_t bytes;
    uint32_t value;
} transfer;

/* What one call puts is there before the stream goes on: quiet then has nothing to wait for but
 * streams that have not come to it. */
static CUresult move(const cuda_instance *instance, const cuda_mover *mover, CUdeviceptr to,
                     CUdeviceptr from, size_t bytes, CUstream stream) {
    const transfer *self =
        (const transfer *)(const void *)((const char *)mover - offsetof(transfer, mover));
    (void)instance;
    pthread_mutex_lock(&calls);
    if (self->is_get)
        nvshmemx_getmem_on_stream((void *)to, (const void *)from, bytes, self->pe, stream);
    else
        nvshmemx_putmem_on_stream((void *)to, (const void *)from, bytes, self->pe, stream);
    nvshmemx_quiet_on_stream(stream);
    pthread_mutex_unlock(&calls);
    return CUDA_SUCCESS; /* NVSHMEM's say of no error */
}

static symmem_status enqueue_move(cuda_instance *instance, cuda_work *work, CUstream stream) {
    const transfer *self = (const transfer *)work;
    const CUresult result = cuda_move_enqueue(instance, stream, self->to, self->from, self->bytes,
                                              &self->mover, &work->staging);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, work->operation);
}

static symmem_status enqueue_word(cuda_instance *instance, cuda_work *work, CUstream stream) {
    const transfer *self = (const transfer *)work;
    (void)instance;
    pthread_mutex_lock(&calls);
    nvshmemx_uint32_p_on_stream((uint32_t *)self->to, self->value, self->pe, stream);
    nvshmemx_quiet_on_stream(stream); /* so that the next word comes later */
    pthread_mutex_unlock(&calls);
    return SYMMEM_OK;
}

static symmem_status enqueue_quiet(cuda_instance *instance, cuda_work *work, CUstream stream) {
    (void)instance, (void)work;
    pthread_mutex_lock(&calls);
    nvshmemx_quiet_on_stream(stream);
    pthread_mutex_unlock(&calls);
    return SYMMEM_OK;
}

/* Of a call without a stream, while it waits. */
static symmem_status look(cuda_instance *instance, const cuda_work *work) {
    const transfer *self = (const transfer *)work;
    const symmem_host *host = instance->host;
    if (self->peers == NULL)
        return SYMMEM_OK;
    if (!self->was_poisoned && host->is_poisoned(self->peers))
        return host->fail(host, SYMMEM_POISONED, 0, work->operation, "given up: it is poisoned");
    if (self->peer >= 0 && host->peer_state(self->peers, self->peer) == SYMMEM_PEER_GONE)
        return host->fail(host, SYMMEM_PEER_LOST, 0, work->operation, "its process has ended");
    return SYMMEM_OK;
}

/* `at` NULL: no peer in particular. */
static symmem_status run(cuda_instance *instance, transfer *what, const char *operation,
                         const symmem_peers *peers, const symmem_place *at,
                         const symmem_exec *exec) {
    const symmem_kit_member *member = state_of(instance)->member;
    what->work.operation = operation;
    what->work.device = state_of(instance)->device;
    what->work.look = look;
    what->mover.move = move;
    what->peers = peers;
    what->peer = at == NULL ? -1 : at->peer;
    what->pe = at == NULL ? -1 : member->heap->places[at->rank].rank;
    what->was_poisoned = peers != NULL && instance->host->is_poisoned(peers);
    return cuda_work_run(instance, &what->work, exec);
}

/* A peer's place by this rank's address for it. */
static CUdeviceptr find(cuda_instance *instance, const symmem_place *at) {
    const symmem_kit_heap *heap = state_of(instance)->member->heap;
    return cuda_address(heap->base) + heap->places[at->rank].shift + at->offset;
}

static symmem_status reach_put(void *instance, const symmem_place *to, const void *src,
                               size_t bytes, const symmem_exec *exec) {
    transfer what = {.work = {.enqueue = enqueue_move},
                     .to = find(instance, to),
                     .from = cuda_address(src),
                     .bytes = bytes};
    return run(instance, &what, "put", to->peers, to, exec);
}

static symmem_status reach_get(void *instance, const symmem_place *from, void *dst, size_t bytes,
                               const symmem_exec *exec) {
    transfer what = {.work = {.enqueue = enqueue_move},
                     .is_get = true,
                     .to = cuda_address(dst),
                     .from = find(instance, from),
                     .bytes = bytes};
    return run(instance, &what, "get", from->peers, from, exec);
}

static symmem_status reach_write(void *instance, const symmem_place *to, uint32_t value,
                                 const symmem_exec *exec) {
    transfer what = {.work = {.enqueue = enqueue_word}, .to = find(instance, to), .value = value};
    return run(instance, &what, "write_value32", to->peers, to, exec);
}

static symmem_status reach_quiet(void *instance, const symmem_peers *peers,
                                 const symmem_exec *exec) {
    transfer what = {.work = {.enqueue = enqueue_quiet}};
    if (state_of(instance)->member->heap == NULL) /* a world of one */
        return SYMMEM_OK;
    return run(instance, &what, "quiet", peers, NULL, exec);
}

const symmem_reach_ops nvshmem_reach = {
    .size = sizeof(symmem_reach_ops),
    .put = reach_put,
    .get = reach_get,
    .write_value32 = reach_write,
    .quiet = reach_quiet,
};
