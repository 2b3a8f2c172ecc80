// SPDX-License-Identifier: BSD-3-Clause
// Waits for the value of a word, by one small block. Included by signal.cu, whose checks it shares.
#ifndef SYMMEM_CUDA_VALUE_CUH
#define SYMMEM_CUDA_VALUE_CUH

namespace {

__device__ uint64_t load_value(const symmem_cuda_value_args &args) {
    return args.bytes == 8 ? symmem::load_acquire(reinterpret_cast<const uint64_t *>(args.word))
                           : uint64_t{load_acquire(reinterpret_cast<const uint32_t *>(args.word))};
}

// symmem_compare's comparisons. symmem_value_holds of backend.h is the host's.
__device__ bool value_holds(const symmem_cuda_value_args &args, uint64_t found) {
    switch (args.compare) {
    case SYMMEM_CUDA_EQ:
        return found == args.value;
    case SYMMEM_CUDA_NE:
        return found != args.value;
    case SYMMEM_CUDA_GT:
        return found > args.value;
    case SYMMEM_CUDA_GE:
        return found >= args.value;
    case SYMMEM_CUDA_LT:
        return found < args.value;
    default:
        return found <= args.value;
    }
}

// Called by one thread. Returns the value last seen. A failure is decided in *result.
__device__ uint64_t wait_for_value(const symmem_cuda_value_args &args,
                                   const symmem_cuda_signal_args &signal, op_result *result) {
    uint64_t checked = now_ns() >> CHECK_EVERY;
    for (;;) {
        uint64_t found = load_value(args);
#pragma unroll 1
        for (int i = 1; i < LOOKS_BETWEEN_CHECKS && !value_holds(args, found); i++)
            found = load_value(args);
        if (value_holds(args, found))
            return found;
        if (!is_check_due(signal, result->start_ns, &checked))
            continue;
        int32_t failed_rank = signal.peer;
        const uint32_t code = check(signal, signal.peer, result->start_ns, &failed_rank);
        if (code == OK)
            continue;
        // What the source wrote before it ended or was poisoned counts, so look again.
        found = load_value(args);
        if (value_holds(args, found))
            return found;
        if (code == TIMEOUT || code == PEER_LOST)
            result->missing[signal.peer / 32] = 1u << (signal.peer % 32);
        decide(result, code, failed_rank, 0);
        return found;
    }
}

} // namespace

// A failure has the value last seen where a MISMATCH has the other rank's call.
extern "C" __global__ void symmem_wait_value(const symmem_cuda_value_args args) {
    __shared__ op_result result;
    __shared__ symmem_cuda_signal_args kept;
    const uint64_t start_ns = now_ns();
    keep(args.signal, &kept);
    begin(&result, start_ns);
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    uint64_t seen = 0;
    if (own_poisoned(kept))
        decide(&result, POISONED, args.signal.rank, 0);
    else
        seen = wait_for_value(args, kept, &result);
    __threadfence_system();
    result.other[0] = static_cast<uint32_t>(seen);
    result.other[1] = static_cast<uint32_t>(seen >> 32);
    if (result.code != OK)
        fail(kept, &result);
}

#endif
