// SPDX-License-Identifier: BSD-3-Clause
// A block of whole warps on the CPU: each lane is a thread of this process, and one block runs at a
// time. What lanes do together gives what it gives on the device and no more: a vote or a shuffle
// puts nothing in order, so that ThreadSanitizer sees where a __syncwarp() is missing.
#ifndef UNIT_CUDA_WARP_H
#define UNIT_CUDA_WARP_H

#include <condition_variable>
#include <linux/futex.h>
#include <mutex>
#include <sys/syscall.h>
#include <thread>
#include <vector>

#define __shared__ static

static const unsigned int LANES = 32, MOST_WARPS = 3;

static thread_local host_place threadIdx;
static host_place blockIdx, blockDim = {1, 1, 1}, gridDim = {1, 1, 1};

// Now and then, one time of so many (a power of two), a thread falls behind the others of its warp
// and block.
static inline void host_fall_behind(uint32_t times, useconds_t pause) {
    static uint32_t calls;
    const uint32_t number = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (((number ^ static_cast<uint32_t>(getpid())) * 2654435761u >> 16) % times == 0)
        usleep(pause);
}

static inline void host_come_late() {
    host_fall_behind(32, 20);
}

// --- a block -----------------------------------------------------------------------------------

// Who has left is not waited for any more.
class host_block {
  public:
    void open(unsigned int threads) {
        present = threads;
        arrived = 0;
        all = true;
    }

    // Whether all say so.
    bool sync_ranks(bool own) {
        std::unique_lock<std::mutex> lock(mutex);
        const unsigned int seen = turn;
        all = all && own;
        arrived++;
        go_on();
        changed.wait(lock, [&] { return turn != seen; });
        return all_said; // until this thread comes for the next time
    }

    void leave() {
        const std::lock_guard<std::mutex> lock(mutex);
        present--;
        go_on();
    }

  private:
    void go_on() {
        if (arrived == 0 || arrived < present)
            return;
        all_said = all;
        all = true;
        arrived = 0;
        turn++;
        changed.notify_all();
    }

    std::mutex mutex;
    std::condition_variable changed;
    unsigned int present = 0, arrived = 0, turn = 0;
    bool all = true, all_said = true;
};

static host_block host_block;

static inline void __syncthreads() {
    host_come_late();
    (void)host_block.sync_ranks(true);
}

static inline bool __syncthreads_and(bool own) {
    host_come_late();
    const bool all = host_block.sync_ranks(own);
    host_fall_behind(64, 5000); // with its work: long enough for peers to see what is not done yet
    return all;
}

// --- a warp ------------------------------------------------------------------------------------

struct host_warp {
    uint32_t arrivals; // at all its synchronizations
    uint32_t values[2][LANES];
};

static host_warp host_warps[MOST_WARPS];
static thread_local unsigned int host_exchanges;

// All lanes of the warp, each of which waits for the others.
template <int ARRIVE, int LOOK> static void host_meet_lanes() {
    uint32_t *arrivals = &host_warps[threadIdx.x / LANES].arrivals;
    const uint32_t before = __atomic_fetch_add(arrivals, 1, ARRIVE);
    const uint32_t all = before / LANES * LANES + LANES;
    if (before + 1 == all)
        syscall(SYS_futex, arrivals, FUTEX_WAKE_PRIVATE, LANES, nullptr, nullptr, 0);
    for (;;) {
        const uint32_t seen = __atomic_load_n(arrivals, LOOK);
        if (static_cast<int32_t>(seen - all) >= 0)
            return;
        syscall(SYS_futex, arrivals, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    }
}

// What each lane has, for all of them. It stays until all have come for the next exchange: the one
// after that is where this was. The fences are for the values: ThreadSanitizer, which does not know
// them, takes nothing else for ordered.
static inline const uint32_t *host_exchange(uint32_t own) {
    uint32_t *values = host_warps[threadIdx.x / LANES].values[host_exchanges++ % 2];
    host_come_late();
    __atomic_store_n(&values[threadIdx.x % LANES], own, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    host_meet_lanes<__ATOMIC_RELAXED, __ATOMIC_RELAXED>();
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return values;
}

static inline void __syncwarp() {
    host_come_late();
    host_meet_lanes<__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE>();
}

static inline bool __all_sync(uint32_t, bool own) {
    const uint32_t *values = host_exchange(own);
    bool all = true;
    for (unsigned int lane = 0; lane < LANES; lane++)
        all = __atomic_load_n(&values[lane], __ATOMIC_RELAXED) != 0 && all;
    return all;
}

static inline uint64_t __shfl_sync(uint32_t, uint64_t own, int from) {
    const uint32_t half[2] = {static_cast<uint32_t>(own), static_cast<uint32_t>(own >> 32)};
    uint64_t found = 0;
    for (int i = 0; i < 2; i++) {
        const uint32_t *values = host_exchange(half[i]);
        const uint64_t value = __atomic_load_n(&values[from & 31], __ATOMIC_RELAXED);
        found |= value << 32 * i;
    }
    return found;
}

// --- a word that changes while a kernel looks --------------------------------------------------

static uint32_t *host_trap;
static uint32_t host_looks_left; // before it is 1

static inline void host_look(const uint32_t *word) {
    if (word == host_trap && __atomic_fetch_sub(&host_looks_left, 1, __ATOMIC_RELAXED) == 1)
        __atomic_store_n(host_trap, 1, __ATOMIC_RELAXED);
}

// By which ranks of few tell each other nothing: no kernel that runs here does so.
[[noreturn]] static inline void host_unordered() {
    abort();
}

// --- launches ----------------------------------------------------------------------------------

static void (*host_ready)(); // once, when a block's threads are made and before they begin
static std::mutex host_beginning;

static inline void host_await_beginning() {
    const std::lock_guard<std::mutex> begun(host_beginning);
}

static inline void host_tell_ready(std::unique_lock<std::mutex> &beginning) {
    host_ready();
    host_ready = nullptr;
    beginning.unlock();
}

template <typename Kernel> static void host_run_block(const Kernel &kernel) {
    std::vector<std::thread> threads;
    std::unique_lock<std::mutex> beginning(host_beginning, std::defer_lock);
    host_block.open(blockDim.x);
    if (host_ready != nullptr)
        beginning.lock();
    for (unsigned int i = 0; i < blockDim.x; i++)
        threads.emplace_back([&kernel, i] {
            threadIdx.x = i;
            host_await_beginning();
            kernel();
            host_block.leave();
        });
    if (beginning.owns_lock())
        host_tell_ready(beginning);
    for (std::thread &thread : threads)
        thread.join();
}

// Block after block: each waits for those of its number only.
template <typename Kernel>
static void host_run(unsigned int blocks, unsigned int warps, const Kernel &kernel) {
    gridDim.x = blocks;
    blockDim.x = warps * LANES;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        host_run_block(kernel);
}

#endif
