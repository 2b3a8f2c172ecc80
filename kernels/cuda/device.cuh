// SPDX-License-Identifier: BSD-3-Clause
// For users' own kernels, on the pointers of a handle. symmem_handle_buffer_ptrs_dev and
// symmem_handle_signal_pad_ptrs_dev give the tables. symmem_handle_get_info gives rank, world size
// and the number of channels of a pad. Installed as <symmem/device.cuh>. CUDA C++17, from sm_70 on.
//
// Signals: a pad's slot is one word. `source` sets it from 0 to 1 in the pad of the receiving rank.
// That rank waits for 1 and sets it to 0 again. So a second put waits until the first is consumed,
// nothing is lost, and a graph that holds such kernels may be launched again. Each slot has one
// rank that puts and one that waits, and one thread of either at a time.
//
// Deadlines: every wait ends at its deadline, on the device's clock, and reports that. Nothing
// traps, and the context stays usable. After a false the slots are in an unknown state. The kernel
// should tell its host and end. All ranks then zero their own pad between two host barriers before
// they use it again. A wait checks at least once before its deadline ends it, so a signal that is
// present is taken. The clock may have a resolution of up to a millisecond. A wait spins. The
// kernels it waits for must be able to run, so all blocks of a waiting kernel must fit on the
// device at once.
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

#ifndef SYMMEM_CUDA_ON_HOST // the library's tests have CPU versions
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

__device__ inline uint64_t load_acquire(const uint64_t *word) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

__device__ inline void store_relaxed(uint32_t *word, uint32_t value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

__device__ inline void store_release(uint32_t *word, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

enum class order { relaxed, acquire, release, acq_rel };
constexpr order unfenced = order::relaxed; // the order of the put in sync_first_unfenced

// Stores `value` if the word is `expected`. Returns the old value.
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

// Adds to a word, here or on a peer, and returns the old value. Adds by peers need no other order.
template <order ORDER> __device__ inline uint32_t fetch_add(uint32_t *word, uint32_t value) {
    uint32_t found;
    if constexpr (ORDER == order::relaxed)
        asm volatile("atom.relaxed.sys.global.add.u32 %0, [%1], %2;"
                     : "=r"(found)
                     : "l"(word), "r"(value)
                     : "memory");
    else if constexpr (ORDER == order::acquire)
        asm volatile("atom.acquire.sys.global.add.u32 %0, [%1], %2;"
                     : "=r"(found)
                     : "l"(word), "r"(value)
                     : "memory");
    else if constexpr (ORDER == order::release)
        asm volatile("atom.release.sys.global.add.u32 %0, [%1], %2;"
                     : "=r"(found)
                     : "l"(word), "r"(value)
                     : "memory");
    else
        asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], %2;"
                     : "=r"(found)
                     : "l"(word), "r"(value)
                     : "memory");
    return found;
}

// Adds without an answer, so that no thread waits for the round trip to a peer.
template <order ORDER> __device__ inline void add(uint32_t *word, uint32_t value) {
    static_assert(ORDER == order::relaxed || ORDER == order::release, "it reads nothing");
    if constexpr (ORDER == order::relaxed)
        asm volatile("red.relaxed.sys.global.add.u32 [%0], %1;"
                     :
                     : "l"(word), "r"(value)
                     : "memory");
    else
        asm volatile("red.release.sys.global.add.u32 [%0], %1;"
                     :
                     : "l"(word), "r"(value)
                     : "memory");
}

// --- time --------------------------------------------------------------------------------

__device__ inline uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}
#endif

// A time of now_ns; 0: none.
struct deadline {
    uint64_t end_ns;
};

// Counted from now; 0: none.
__device__ inline deadline deadline_in_ms(uint32_t timeout_ms) {
    return {timeout_ms == 0 ? 0 : now_ns() + uint64_t(timeout_ms) * 1000000};
}

__device__ inline bool is_over(deadline limit) {
    return limit.end_ns != 0 && now_ns() >= limit.end_ns;
}

// --- signals, each by one thread -----------------------------------------------------------

// Returns the slot of `source` in the pad of `owner`. Channels are 0 to channel_count - 1.
__device__ inline uint32_t *signal_slot(void *const *pads, int32_t owner, int32_t world_size,
                                        int32_t channel, int32_t source) {
    return static_cast<uint32_t *>(pads[owner]) + size_t(channel) * size_t(world_size) +
           size_t(source);
}

// Changes the slot from `from` to `to`. Returns false if the deadline passed first; the slot is
// unchanged then. It polls with loads, because a failed exchange takes a round trip to the peer.
template <order ORDER>
__device__ inline bool exchange_slot(uint32_t *slot, uint32_t from, uint32_t to, deadline limit) {
    for (;;) {
        if (load_relaxed(slot) == from && exchange_if<ORDER>(slot, from, to) == from)
            return true;
        if (is_over(limit))
            return false;
    }
}

// Release: the rank that waits for it sees what this thread wrote before, and what other threads of
// the block wrote before a __syncthreads() that came before it.
__device__ inline bool put(uint32_t *slot, deadline limit) {
    return exchange_slot<order::release>(slot, 0, 1, limit);
}

// Acquire: this thread sees what the source wrote before it put. After a __syncthreads() the whole
// block does.
__device__ inline bool wait(uint32_t *slot, deadline limit) {
    return exchange_slot<order::acquire>(slot, 1, 0, limit);
}

// --- a word's value, by one thread -------------------------------------------------------------
// Compares as unsigned numbers. `reached` is for counts that wrap and differ by no more than 2^31.

enum class compare { eq, ne, gt, ge, lt, le, reached };

template <compare HOW> __device__ inline bool compares(uint32_t found, uint32_t wanted) {
    switch (HOW) {
    case compare::eq:
        return found == wanted;
    case compare::ne:
        return found != wanted;
    case compare::gt:
        return found > wanted;
    case compare::ge:
        return found >= wanted;
    case compare::lt:
        return found < wanted;
    case compare::le:
        return found <= wanted;
    default:
        return static_cast<int32_t>(found - wanted) >= 0;
    }
}

// Acquire: this thread sees what came before the release that wrote the value. The word is not
// changed. Returns false if the deadline passed first.
template <compare HOW>
__device__ inline bool wait_until(const uint32_t *word, uint32_t wanted, deadline limit) {
    while (!compares<HOW>(load_acquire(word), wanted))
        if (is_over(limit))
            return false;
    return true;
}

// --- a block and the blocks of its number on all ranks -----------------------------------------
// All threads of the block call, with the same arguments, and get the same answer. It is false if a
// peer did not arrive in time. Block b uses channel first_channel + b. So the ranks launch the same
// number of blocks, and blocks of one number process the same pieces. Blocks are counted along x.

struct peers {
    void *const *pads;
    int32_t rank;
    int32_t world_size;
    int32_t first_channel;
};

// Everything that the putting threads have seen or written comes before the put, unless PUT is
// relaxed. What peers wrote before their put comes before what follows in the waiting threads.
template <order PUT = order::release>
__device__ inline bool exchange_signals(const peers &all, deadline limit) {
    const int32_t channel = all.first_channel + int32_t(blockIdx.x);
    const int32_t step = int32_t(blockDim.x * blockDim.y * blockDim.z);
    const int32_t first =
        int32_t(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    bool came = true;
    for (int32_t peer = first; peer < all.world_size; peer += step)
        came = exchange_slot<PUT>(signal_slot(all.pads, peer, all.world_size, channel, all.rank), 0,
                                  1, limit) &&
               came;
    for (int32_t peer = first; peer < all.world_size; peer += step)
        came = wait(signal_slot(all.pads, all.rank, all.world_size, channel, peer), limit) && came;
    return came;
}

// For the start of a kernel. The block sees what kernels wrote that ended before this one on the
// peers' streams. The put releases those writes, because no document says that a kernel's end
// releases them to other devices.
__device__ inline bool sync_first(const peers &all, deadline limit) {
    return __syncthreads_and(exchange_signals(all, limit));
}

// The same without a fence, which saves half a microsecond. It relies on the order of a stream. A
// kernel begins when everything that earlier kernels and copies of its stream wrote is complete, on
// peers too. CUDA's manual does not say so in as many words, but the library's own operations rely
// on it. Do not use it in a kernel that has written anything before, nor in one that begins before
// its predecessor has ended (programmatic dependent launch).
__device__ inline bool sync_first_unfenced(const peers &all, deadline limit) {
    return __syncthreads_and(exchange_signals<unfenced>(all, limit));
}

// For the middle of a kernel. Afterwards each block sees what the blocks of its number wrote
// before.
__device__ inline bool sync_between(const peers &all, deadline limit) {
    __syncthreads();
    return __syncthreads_and(exchange_signals(all, limit));
}

// For the end of a kernel. The peers' blocks of this number have finished reading here. So later
// kernels may write again, or read what peers have written here. It acquires for them, because no
// document says that a kernel's start acquires from other devices.
__device__ inline bool sync_last(const peers &all, deadline limit) {
    return sync_between(all, limit);
}

// --- sixteen bytes at once ----------------------------------------------------------------------
// Aligned to 16 bytes. Not torn within a word of 32 bits, but unordered. Signals order the
// accesses.

#ifndef SYMMEM_CUDA_ON_HOST
struct alignas(16) vec16 {
    uint32_t words[4];
};

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

// --- copies, here or to and from a peer ---------------------------------------------------------
// One thread copies each byte. The accesses are unordered, so a signal or a barrier must follow.

// Copies the share of thread `self` of `threads`.
__device__ inline void copy_share(char *to, const char *from, size_t bytes, size_t self,
                                  size_t threads) {
    constexpr size_t VEC = sizeof(vec16);
    constexpr int AT_ONCE = 4; // loads in flight
    const size_t to_align = (VEC - reinterpret_cast<uintptr_t>(to) % VEC) % VEC;
    const bool alike = (reinterpret_cast<uintptr_t>(from) + to_align) % VEC == 0;
    const size_t head = !alike || to_align > bytes ? bytes : to_align;
    const size_t vecs = (bytes - head) / VEC, behind = head + vecs * VEC;
    for (size_t i = self; i < head; i += threads)
        to[i] = from[i];
    for (size_t i = self; i < vecs; i += AT_ONCE * threads) {
        vec16 kept[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (i + k * threads < vecs)
                kept[k] = load_vec16(from + head + (i + k * threads) * VEC);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (i + k * threads < vecs)
                store_vec16(to + head + (i + k * threads) * VEC, kept[k]);
    }
    for (size_t i = behind + self; i < bytes; i += threads)
        to[i] = from[i];
}

// By all 32 lanes of a warp, in blocks counted along x. Fast if both addresses are equal modulo 16.
__device__ inline void copy_by_warp(void *to, const void *from, size_t bytes) {
    copy_share(static_cast<char *>(to), static_cast<const char *>(from), bytes, threadIdx.x % 32,
               32);
}

// By all threads of a block, counted along x.
__device__ inline void copy_by_block(void *to, const void *from, size_t bytes) {
    copy_share(static_cast<char *>(to), static_cast<const char *>(from), bytes, threadIdx.x,
               blockDim.x);
}

// --- lines: data with an arrival flag (as in NCCL's LL) ----------------------------------------
// A line is two words of 64 bits. Each has 32 bits of data and, above them, 32 bits of flag, and is
// written and read as a whole. So a reader that finds the expected flag has the data. Lines need no
// order, and no barrier after them. A flag must differ from all flags that lay there before, so
// number the rounds. With two alternating slots a rank can send the next round while a peer still
// reads. The peer's own next line says that it has read the one before. Lines are aligned to 16
// bytes.

struct line {
    uint64_t low, high;
};
static_assert(sizeof(line) == sizeof(vec16), "stored at once");

__device__ inline line make_line(uint64_t data, uint32_t flag) {
    const uint64_t above = static_cast<uint64_t>(flag) << 32;
    return {above | static_cast<uint32_t>(data), above | data >> 32};
}

__device__ inline bool is_full(const line &found, uint32_t flag) {
    return found.low >> 32 == flag && found.high >> 32 == flag;
}

__device__ inline uint64_t data_of(const line &found) {
    return found.high << 32 | static_cast<uint32_t>(found.low);
}

#ifndef SYMMEM_CUDA_ON_HOST
__device__ inline void store_line(line *to, const line &value) {
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};"
                 :
                 : "l"(to), "l"(value.low), "l"(value.high)
                 : "memory");
}

__device__ inline line load_line(const line *from) {
    line found;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(found.low), "=l"(found.high)
                 : "l"(from)
                 : "memory");
    return found;
}

// The lanes of a warp store and load their parts of a wide line at the same time.
template <bool WIDE> __device__ inline void store_line_of(line *to, const line &value, uint32_t) {
    store_line(to, value);
}

// Clears *full unless the flag is there. In a wide line only the lane with the flag knows.
template <bool WIDE>
__device__ inline line load_line_of(const line *from, uint32_t lane, uint32_t flag, bool *full) {
    const line found = load_line(from);
    *full = *full && (WIDE ? lane % 8 != 7 || found.high == flag : is_full(found, flag));
    return found;
}
#endif

// By one thread. Returns false if the deadline passed first.
__device__ inline bool await_line(const line *from, uint32_t flag, deadline limit,
                                  uint64_t *data_p) {
    for (;;) {
        const line found = load_line(from);
        if (is_full(found, flag)) {
            *data_p = data_of(found);
            return true;
        }
        if (is_over(limit))
            return false;
    }
}

// Wide lines have 128 bytes, of which the last eight are the flag. A warp has four of them. Each
// lane has 16 bytes, in the order of the lanes. The last one of eight lanes has 8 bytes and the
// flag. All lanes call. Wide lines are aligned to 128 bytes. They rely on what no manual promises:
// the stores of eight lanes to one such line arrive as a whole. Between devices with NVLink they
// do, and NCCL's LL128 relies on it. Elsewhere use lines of 16 bytes.
__device__ inline void store_wide_line(line *to, line own, uint32_t flag) {
    const uint32_t lane = threadIdx.x % 32;
    if (lane % 8 == 7)
        own.high = flag;
    __syncwarp();
    store_line_of<true>(to + lane, own, lane);
}

// The same for all lanes. *found_p gets the lane's part.
__device__ inline bool await_wide_line(const line *from, uint32_t flag, deadline limit,
                                       line *found_p) {
    const uint32_t lane = threadIdx.x % 32;
    for (;;) {
        bool full = true;
        *found_p = load_line_of<true>(from + lane, lane, flag, &full);
        if (__all_sync(~0u, full))
            return true;
        if (__all_sync(~0u, is_over(limit)))
            return false;
    }
}

} // namespace symmem

#endif
