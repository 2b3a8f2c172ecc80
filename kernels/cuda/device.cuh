// SPDX-License-Identifier: BSD-3-Clause
// For users' own kernels, on the pointers of a handle: symmem_handle_buffer_ptrs_dev and
// symmem_handle_signal_pad_ptrs_dev give the tables, symmem_handle_get_info rank, world size and
// how many channels a pad has. Installed as <symmem/device.cuh>. CUDA C++17, from sm_70 on.
//
// Signals
//   A pad's slot is one word: `source` puts it from 0 to 1 in the pad of the rank that is to know,
//   and that rank waits for 1 and makes it 0 again. So a second put waits for the first to be
//   consumed, nothing is lost, and a graph that holds such kernels may be launched again. Each slot
//   has one rank that puts and one that waits, and one thread of either at a time.
//
// Deadlines
//   Every wait ends with its deadline, on the device's clock, and says so: nothing traps, and the
//   context goes on working. After a false the slots are in an unknown state: the kernel should
//   tell its host and end, and all ranks zero their own pad between two host barriers before they
//   use it again. A deadline does not end before it was looked at once: a signal that is there is
//   taken. The clock may have a step of up to a millisecond. A wait spins; what it waits for must
//   be able to run, so all blocks of a kernel that waits must fit on the device at once.
//
// Orderings are system-wide, on the access itself.
#ifndef SYMMEM_DEVICE_CUH
#define SYMMEM_DEVICE_CUH

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#error "symmem/device.cuh needs sm_70 or later, for system-wide acquire and release"
#endif

namespace symmem {

#ifndef SYMMEM_CUDA_ON_HOST // the library's own tests have others, for the CPU
// --- words -------------------------------------------------------------------------------

__device__ inline uint32_t load_relaxed(const uint32_t *word) {
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ inline uint32_t load_acquire(const uint32_t *word) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ inline void store_relaxed(uint32_t *word, uint32_t value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

__device__ inline void store_release(uint32_t *word, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

enum class order { relaxed, acquire, release, acq_rel };

// `value` if the word is `expected`; what it was.
template <order ORDER>
__device__ inline uint32_t exchange_if(uint32_t *word, uint32_t expected, uint32_t value) {
    uint32_t found;
    if constexpr (ORDER == order::relaxed)
        asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;"
                     : "=r"(found)
                     : "l"(word), "r"(expected), "r"(value)
                     : "memory");
    else if constexpr (ORDER == order::acquire)
        asm volatile("atom.acquire.sys.global.cas.b32 %0, [%1], %2, %3;"
                     : "=r"(found)
                     : "l"(word), "r"(expected), "r"(value)
                     : "memory");
    else if constexpr (ORDER == order::release)
        asm volatile("atom.release.sys.global.cas.b32 %0, [%1], %2, %3;"
                     : "=r"(found)
                     : "l"(word), "r"(expected), "r"(value)
                     : "memory");
    else
        asm volatile("atom.acq_rel.sys.global.cas.b32 %0, [%1], %2, %3;"
                     : "=r"(found)
                     : "l"(word), "r"(expected), "r"(value)
                     : "memory");
    return found;
}

// --- time --------------------------------------------------------------------------------

__device__ inline uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}
#endif

// On now_ns; 0: none.
struct deadline {
    uint64_t end_ns;
};

// From now on; 0: none.
__device__ inline deadline deadline_in_ms(uint32_t timeout_ms) {
    return {timeout_ms == 0 ? 0 : now_ns() + uint64_t(timeout_ms) * 1000000};
}

__device__ inline bool is_over(deadline limit) {
    return limit.end_ns != 0 && now_ns() >= limit.end_ns;
}

// --- signals, each by one thread -----------------------------------------------------------

// The slot of `source` in the pad of `owner`. Channels from 0 to channel_count - 1.
__device__ inline uint32_t *signal_slot(void *const *pads, int32_t owner, int32_t world_size,
                                        int32_t channel, int32_t source) {
    return static_cast<uint32_t *>(pads[owner]) + size_t(channel) * size_t(world_size) +
           size_t(source);
}

// From `from` to `to`; false: the deadline passed first, and the slot is as it was. Looks by plain
// loads, for a failed exchange costs a journey to the peer and back as well.
template <order ORDER>
__device__ inline bool turn_slot(uint32_t *slot, uint32_t from, uint32_t to, deadline limit) {
    for (;;) {
        if (load_relaxed(slot) == from && exchange_if<ORDER>(slot, from, to) == from)
            return true;
        if (is_over(limit))
            return false;
    }
}

// Release: whoever waits for it sees what this thread wrote before, and what other threads of the
// block wrote before a __syncthreads() that came before it.
__device__ inline bool put(uint32_t *slot, deadline limit) {
    return turn_slot<order::release>(slot, 0, 1, limit);
}

// Acquire: this thread sees what the source wrote before it put, and after a __syncthreads() the
// block does.
__device__ inline bool wait(uint32_t *slot, deadline limit) {
    return turn_slot<order::acquire>(slot, 1, 0, limit);
}

// --- a block and the blocks of its number on all ranks -----------------------------------------
// All threads of the block call, with the same arguments; all get the same answer, false if some
// peer did not come in time. Block b uses channel first_channel + b, so the ranks launch the same
// number of blocks, and blocks of one number do the same pieces of work. Blocks are counted along
// x.

struct peers {
    void *const *pads;
    int32_t rank;
    int32_t world_size;
    int32_t first_channel;
};

// What the threads that put have seen or written comes before, and what peers put before comes
// before what follows in the threads that wait.
__device__ inline bool exchange_signals(const peers &all, deadline limit) {
    const int32_t channel = all.first_channel + int32_t(blockIdx.x);
    const int32_t step = int32_t(blockDim.x * blockDim.y * blockDim.z);
    const int32_t first =
        int32_t(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    bool came = true;
    for (int32_t peer = first; peer < all.world_size; peer += step)
        came = put(signal_slot(all.pads, peer, all.world_size, channel, all.rank), limit) && came;
    for (int32_t peer = first; peer < all.world_size; peer += step)
        came = wait(signal_slot(all.pads, all.rank, all.world_size, channel, peer), limit) && came;
    return came;
}

// First in a kernel: the block sees what kernels that ended before this one on the peers' streams
// have written. The put releases that: nothing says that a kernel's end does so for other devices.
__device__ inline bool meet_first(const peers &all, deadline limit) {
    return __syncthreads_and(exchange_signals(all, limit));
}

// In between: afterwards each block sees what the blocks of its number wrote before.
__device__ inline bool meet_between(const peers &all, deadline limit) {
    __syncthreads();
    return __syncthreads_and(exchange_signals(all, limit));
}

// Last in a kernel: the peers' blocks of this number have read what they wanted here, and kernels
// that follow may write again, or read what peers have written here. Acquires for that: nothing
// says that a kernel's beginning does so for other devices.
__device__ inline bool meet_last(const peers &all, deadline limit) {
    return meet_between(all, limit);
}

// --- sixteen bytes at once ----------------------------------------------------------------------
// Aligned to 16 bytes. Not torn within a word of 32 bits, and in no order: signals order them.

struct alignas(16) vec16 {
    uint32_t words[4];
};

#ifndef SYMMEM_CUDA_ON_HOST
__device__ inline vec16 load_vec16(const void *from) {
    vec16 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
                 : "l"(from)
                 : "memory");
    return v;
}

__device__ inline void store_vec16(void *to, const vec16 &v) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(v.words[0]), "r"(v.words[1]), "r"(v.words[2]), "r"(v.words[3])
                 : "memory");
}
#endif

} // namespace symmem

#endif
