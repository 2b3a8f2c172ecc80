// SPDX-License-Identifier: BSD-3-Clause
// Counted signals, by one small block each. Included by signal.cu, whose checks it shares.
//
// For each channel and each pair of ranks there are three words that only grow, and wrap. The
// source has one that says how many signals it has given, and writes the same number to the peer.
// The peer has one that says how many its waits have taken. Each word has one writer, so a source
// need not read what the peer has, nor use an atomic operation there.
#ifndef SYMMEM_CUDA_COUNTS_CUH
#define SYMMEM_CUDA_COUNTS_CUH

namespace {

__device__ uint32_t *count_word(const symmem_cuda_counts_args &args,
                                const symmem_cuda_signal_args &signal, int32_t which, int32_t owner,
                                int32_t rank) {
    return word_at(signal, owner,
                   symmem_cuda_count_at(args.counts_at, signal.world_size, signal.channel_count,
                                        which, signal.channel, rank));
}

// Returns how many signals of the rank no wait has taken.
__device__ uint32_t untaken(const symmem_cuda_counts_args &args,
                            const symmem_cuda_signal_args &signal, int32_t rank) {
    const uint32_t came =
        load_acquire(count_word(args, signal, SYMMEM_CUDA_CAME, signal.rank, rank));
    return came - load_volatile(count_word(args, signal, SYMMEM_CUDA_TAKEN, signal.rank, rank));
}

// A number that cannot be ends the wait, too.
__device__ bool have_come(uint32_t found, uint32_t needed) {
    return found >= needed;
}

// Called by one thread for one entry of the list.
__device__ void wait_for_count(const symmem_cuda_counts_args &args,
                               const symmem_cuda_signal_args &signal, int32_t entry,
                               op_result *result) {
    const int32_t rank = args.list[entry].rank;
    const uint32_t needed = args.list[entry].count;
    uint64_t checked = now_ns() >> CHECK_EVERY;
    for (;;) {
        uint32_t found = untaken(args, signal, rank);
#pragma unroll 1
        for (int i = 1; i < LOOKS_BETWEEN_CHECKS && !have_come(found, needed); i++)
            found = untaken(args, signal, rank);
        if (have_come(found, needed)) {
            if (found > INT32_MAX)
                decide(result, CORRUPT, rank, found);
            return;
        }
        if (load_volatile(&result->code) != OK)
            return;
        if (!is_check_due(signal, result->start_ns, &checked))
            continue;
        int32_t failed_rank = rank;
        const uint32_t code = check(signal, rank, result->start_ns, &failed_rank);
        // What the source gave before it ended or was poisoned counts, so look again.
        if (code == OK || have_come(untaken(args, signal, rank), needed))
            continue;
        if (code == TIMEOUT || code == PEER_LOST)
            atomicOr(&result->missing[rank / 32], 1u << (rank % 32));
        decide(result, code, failed_rank, 0);
        return;
    }
}

// Adds the ranks that lack signals when another thread gives up.
__device__ void collect_lacking(const symmem_cuda_counts_args &args,
                                const symmem_cuda_signal_args &signal, op_result *result) {
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < args.list_count;
         i += static_cast<int32_t>(blockDim.x)) {
        const int32_t rank = args.list[i].rank;
        if (!have_come(untaken(args, signal, rank), args.list[i].count))
            atomicOr(&result->missing[rank / 32], 1u << (rank % 32));
    }
}

} // namespace

// The list has one entry, for the peer.
extern "C" __global__ void symmem_signal_count(const symmem_cuda_counts_args args) {
    __shared__ op_result result;
    __shared__ symmem_cuda_signal_args kept;
    const uint64_t start_ns = now_ns();
    keep(args.signal, &kept);
    begin(&result, start_ns);
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    if (own_poisoned(kept)) {
        decide(&result, POISONED, kept.rank, 0);
        __threadfence_system();
        fail(kept, &result);
        return;
    }
    uint32_t *given = count_word(args, kept, SYMMEM_CUDA_GIVEN, kept.rank, kept.peer);
    const uint32_t number = load_volatile(given) + args.list[0].count;
    *given = number; // only this rank's kernels read it, one after the other
    __threadfence_system();
    store_release(count_word(args, kept, SYMMEM_CUDA_CAME, kept.peer, kept.rank), number);
}

extern "C" __global__ void symmem_wait_counts(const symmem_cuda_counts_args args) {
    __shared__ op_result result;
    __shared__ symmem_cuda_signal_args kept;
    const uint64_t start_ns = now_ns();
    keep(args.signal, &kept);
    begin(&result, start_ns);
    __syncthreads();
    if (threadIdx.x == 0 && own_poisoned(kept))
        decide(&result, POISONED, kept.rank, 0);
    __syncthreads();
    if (result.code == OK)
        for (int32_t i = static_cast<int32_t>(threadIdx.x); i < args.list_count;
             i += static_cast<int32_t>(blockDim.x))
            wait_for_count(args, kept, i, &result);
    __syncthreads();
    if (result.code == TIMEOUT || result.code == PEER_LOST)
        collect_lacking(args, kept, &result);
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int32_t i = 0; i < args.list_count && result.code == OK; i++)
        *count_word(args, kept, SYMMEM_CUDA_TAKEN, kept.rank, args.list[i].rank) +=
            args.list[i].count; // as `given` above
    __threadfence_system();
    if (result.code != OK)
        fail(kept, &result);
}

#endif
