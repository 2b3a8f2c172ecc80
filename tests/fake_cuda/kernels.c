/* SPDX-License-Identifier: BSD-3-Clause */
/* Put, wait and barrier of kernels/cuda/signal.cu for one thread of the host. */
#include <string.h>
#include <time.h>

#include "cuda/signal.h"
#include "fake.h"

enum { OK = 0, TIMEOUT = 6, PEER_LOST = 7, MISMATCH = 8, POISONED = 13, CORRUPT = 28 };
enum operation { BARRIER, PUT, WAIT };

typedef struct verdict {
    uint32_t code;
    int32_t failed_rank;
    uint32_t actual, epoch;
    uint32_t missing[SYMMEM_CUDA_MAX_RANKS / 32];
    uint32_t other[SYMMEM_CUDA_CALL_WORDS];
} verdict;

typedef const symmem_cuda_signal_args *args_p;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t load(const uint32_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint32_t *word_at(args_p args, int32_t owner, size_t offset) {
    return (uint32_t *)(void *)((char *)args->signals[owner] + offset);
}

static bool attempt(args_p args, enum operation op, int32_t rank, verdict *v) {
    if (op == BARRIER) {
        v->actual = load(word_at(
            args, args->rank,
            symmem_cuda_arrival_at(args->world_size, args->channel_count, args->channel, rank)));
        return (int32_t)(v->actual - v->epoch) >= 0;
    }
    uint32_t from = op == PUT ? 0 : 1;
    uint32_t *slot =
        op == PUT
            ? word_at(args, rank, symmem_cuda_slot_at(args->world_size, args->channel, args->rank))
            : word_at(args, args->rank, symmem_cuda_slot_at(args->world_size, args->channel, rank));
    v->actual = from;
    return __atomic_compare_exchange_n(slot, &v->actual, 1 - from, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

static bool own_poisoned(args_p args) {
    return load(&args->control->poisoned) != 0 || load(word_at(args, args->rank, 0)) != 0;
}

static uint32_t check(args_p args, int32_t rank, uint64_t start_ns, int32_t *failed_rank) {
    *failed_rank = rank;
    if ((load(&args->control->gone[rank / 32]) >> (rank % 32) & 1) != 0)
        return PEER_LOST;
    if (rank != args->rank && load(word_at(args, rank, 0)) != 0)
        return POISONED;
    *failed_rank = args->rank;
    if (own_poisoned(args))
        return POISONED;
    *failed_rank = -1;
    if (args->timeout_ms != 0 && now_ns() - start_ns >= (uint64_t)args->timeout_ms * 1000000)
        return TIMEOUT;
    return OK;
}

static void wait_for(args_p args, enum operation op, int32_t rank, uint64_t start_ns, verdict *v) {
    const struct timespec pause = {.tv_nsec = 20000};
    while (!attempt(args, op, rank, v)) {
        int32_t failed_rank = rank;
        uint32_t code =
            op != BARRIER && v->actual > 1 ? CORRUPT : check(args, rank, start_ns, &failed_rank);
        if (code == OK) {
            nanosleep(&pause, NULL);
            continue;
        }
        if (code != CORRUPT && attempt(args, op, rank, v))
            return;
        v->code = code;
        v->failed_rank = failed_rank;
        if (code == TIMEOUT || code == PEER_LOST)
            v->missing[rank / 32] |= 1u << (rank % 32);
        return;
    }
}

static void fail(args_p args, verdict *v, uint64_t start_ns) {
    symmem_cuda_fault *fault = args->fault;
    int32_t count = 0, last = -1;
    for (int32_t i = 0; i < SYMMEM_CUDA_MAX_RANKS / 32; i++) {
        count += __builtin_popcount(v->missing[i]);
        if (v->missing[i] != 0)
            last = 32 * i + 31 - __builtin_clz(v->missing[i]);
    }
    if (v->failed_rank < 0 && count == 1)
        v->failed_rank = last;
    if (v->code != MISMATCH)
        __atomic_store_n(word_at(args, args->rank, 0), 1, __ATOMIC_RELEASE);
    if (load(&fault->code) != OK)
        return;
    fault->failed_rank = v->failed_rank;
    fault->elapsed_ns = now_ns() - start_ns;
    fault->actual = v->code == CORRUPT ? v->actual : 0;
    memcpy(fault->missing, v->missing, sizeof fault->missing);
    memcpy(fault->other, v->other, sizeof fault->other);
    __atomic_store_n(&fault->code, v->code, __ATOMIC_RELEASE);
}

static uint32_t *call_of(args_p args, int32_t rank, uint32_t epoch) {
    return word_at(
        args, rank,
        symmem_cuda_call_at(args->world_size, args->channel_count, args->channel, epoch));
}

static void compare_calls(args_p args, verdict *v) {
    for (int32_t rank = 0; rank < args->world_size; rank++) {
        memcpy(v->other, call_of(args, rank, v->epoch), sizeof v->other);
        if (v->other[0] != 0 && memcmp(v->other, args->call, sizeof v->other) != 0) {
            v->code = MISMATCH;
            v->failed_rank = rank;
            return;
        }
    }
}

static void meet(args_p args, uint64_t start_ns, verdict *v) {
    uint32_t *epoch =
        word_at(args, args->rank,
                symmem_cuda_epoch_at(args->world_size, args->channel_count, args->channel));
    v->epoch = *epoch = *epoch + 1;
    memcpy(call_of(args, args->rank, v->epoch), args->call, sizeof args->call);
    for (int32_t rank = 0; rank < args->world_size; rank++)
        if (rank != args->rank)
            __atomic_store_n(word_at(args, rank,
                                     symmem_cuda_arrival_at(args->world_size, args->channel_count,
                                                            args->channel, args->rank)),
                             v->epoch, __ATOMIC_RELEASE);
    for (int32_t rank = 0; rank < args->world_size && v->code == OK; rank++)
        if (rank != args->rank)
            wait_for(args, BARRIER, rank, start_ns, v);
    for (int32_t rank = 0; rank < args->world_size; rank++)
        if ((v->code == TIMEOUT || v->code == PEER_LOST) && rank != args->rank &&
            !attempt(args, BARRIER, rank, v))
            v->missing[rank / 32] |= 1u << (rank % 32);
    if (v->code == OK && args->call[0] != 0)
        compare_calls(args, v);
}

static void run(args_p args, enum operation op) {
    const uint64_t start_ns = now_ns();
    verdict v = {.failed_rank = -1};
    if (own_poisoned(args)) {
        v.code = POISONED;
        v.failed_rank = args->rank;
    } else if (op == BARRIER) {
        meet(args, start_ns, &v);
    } else {
        wait_for(args, op, args->peer, start_ns, &v);
    }
    if (v.code != OK)
        fail(args, &v, start_ns);
}

static void run_barrier(const void *args) {
    run(args, BARRIER);
}

static void run_put(const void *args) {
    run(args, PUT);
}

static void run_wait(const void *args) {
    run(args, WAIT);
}

fake_kernel fake_find_kernel(const char *name) {
    static const struct {
        const char *name;
        fake_kernel kernel;
    } kernels[] = {{"symmem_barrier", run_barrier},
                   {"symmem_put_signal", run_put},
                   {"symmem_wait_signal", run_wait}};
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return kernels[i].kernel;
    return NULL;
}

size_t fake_kernel_bytes(void) {
    return sizeof(symmem_cuda_signal_args);
}
