// SPDX-License-Identifier: BSD-3-Clause
// What the kernels' source needs to be compiled for the CPU: a block is some threads of this
// process, and one block runs at a time. So `__shared__` is static. A warp has one thread, or, for
// the tests that ask for it, as many as on the device.
#ifndef UNIT_CUDA_ON_HOST_H
#define UNIT_CUDA_ON_HOST_H

#include <cstdint>
#include <cstdlib>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#define SYMMEM_CUDA_ON_HOST
#define __device__
// Kernels that are not called here are not compiled.
#define __global__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __noinline__

struct host_place {
    unsigned int x, y, z;
};

#ifdef CUDA_ON_HOST_ALONE // a block of one thread; several may run at once
#define __shared__ static thread_local
static thread_local host_place threadIdx, blockIdx, blockDim = {1, 1, 1}, gridDim = {1, 1, 1};

// FAKE_CUDA_JITTER: now and then a rank falls behind between two steps of a kernel.
static inline void host_jitter() {
    static const bool on = getenv("FAKE_CUDA_JITTER") != nullptr;
    static uint32_t calls;
    const struct timespec pause = {0, 4000000};
    const uint32_t number = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (on && ((number ^ static_cast<uint32_t>(getpid())) * 2654435761u >> 24) % 4 == 0)
        nanosleep(&pause, nullptr);
}

static inline void __syncthreads() {
    host_jitter();
}

static inline bool __syncthreads_and(bool own) {
    host_jitter();
    return own;
}
#elif defined(CUDA_ON_HOST_WARPS) // a block of whole warps
#include "cuda_warp.h"
#else
#define __shared__ static
static thread_local host_place threadIdx;
static host_place blockIdx, blockDim = {1, 1, 1}, gridDim = {1, 1, 1};
static pthread_barrier_t host_block;

static inline void __syncthreads() {
    pthread_barrier_wait(&host_block);
}

static inline bool __syncthreads_and(bool own) {
    static bool all;
    if (threadIdx.x == 0)
        all = true;
    __syncthreads();
    if (!own)
        __atomic_store_n(&all, false, __ATOMIC_RELAXED);
    __syncthreads();
    const bool found = __atomic_load_n(&all, __ATOMIC_RELAXED);
    __syncthreads(); // before the next one begins
    return found;
}
#endif

#ifndef CUDA_ON_HOST_WARPS
#define SYMMEM_CUDA_LONE_LANE // what a kernel's warp shares out its one thread does
static inline void __syncwarp() {}

static inline bool __all_sync(uint32_t, bool own) {
    return own;
}

static inline void host_look(const uint32_t *) {}
static inline void host_unordered() {}
#endif

static inline void __threadfence_system() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline uint32_t atomicCAS(uint32_t *word, uint32_t expected, uint32_t value) {
    __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

static inline uint32_t atomicAdd(uint32_t *word, uint32_t value) {
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

static inline void atomicOr(uint32_t *word, uint32_t bits) {
    __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
}

static inline int __popc(uint32_t bits) {
    return __builtin_popcount(bits);
}

static inline int __clz(uint32_t bits) {
    return __builtin_clz(bits);
}

static inline uint32_t load_volatile(const uint32_t *word) {
    host_look(word);
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

// What kernels/cuda/state.cuh has for the device.
// Where a test says so, another kernel's failure is written there while a block looks: its first
// thread has been before that.
static const uint64_t *host_fails_meanwhile;

static inline uint64_t load_state(const uint64_t *word) {
    const uint64_t found = __atomic_load_n(word, __ATOMIC_RELAXED);
    return word == host_fails_meanwhile && threadIdx.x != 0 ? ~found : found;
}

static inline void store_state(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

// What kernels/cuda/device.cuh has for the device.
namespace symmem {

static inline uint64_t now_ns() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// Who looks lets others run: there are fewer cores than threads. Who has found the same many times
// over sleeps instead, for longer and longer, or each wait for a limit takes a core.
static inline void host_give_way(const void *place, uint64_t value) {
    static thread_local const void *last;
    static thread_local uint64_t found;
    static thread_local unsigned int times;
    times = place == last && value == found ? times + 1 : 0;
    last = place;
    found = value;
    if (times < 32) {
        sched_yield();
        return;
    }
    const unsigned int us = times < 36 ? (times - 31) * 50 : times < 64 ? 250 : 2000;
    const struct timespec pause = {0, us * 1000};
    nanosleep(&pause, nullptr);
}

static inline uint32_t load_acquire(const uint32_t *word) {
    const uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    host_give_way(word, value);
    return value;
}

static inline uint64_t load_acquire(const uint64_t *word) {
    const uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    host_give_way(word, value);
    return value;
}

static inline void store_release(uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

// What came before the kernel is complete, which here nothing but a release says.
static inline void signal_unfenced(uint32_t *word, uint32_t value) {
    store_release(word, value);
}

template <typename Unit> static inline void store_streaming(Unit *to, const Unit &unit) {
    *to = unit;
}

static inline void count_up(uint32_t *word) {
    __atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
}

static inline uint32_t load_count(const uint32_t *word) {
    const uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    host_give_way(word, value);
    return value;
}

static inline uint32_t load_relaxed(const uint32_t *word) {
    host_unordered();
    const uint32_t value = __atomic_load_n(word, __ATOMIC_RELAXED);
    host_give_way(word, value);
    return value;
}

static inline void store_relaxed(uint32_t *word, uint32_t value) {
    host_unordered();
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

// Words of 32 bits are whole, as on the device.
struct alignas(16) vec16 {
    uint32_t words[4];
};

static inline vec16 load_vec16(const void *from) {
    vec16 v;
    for (int i = 0; i < 4; i++)
        v.words[i] = __atomic_load_n(static_cast<const uint32_t *>(from) + i, __ATOMIC_RELAXED);
    return v;
}

static inline void store_vec16(void *to, const vec16 &v) {
    for (int i = 0; i < 4; i++)
        __atomic_store_n(static_cast<uint32_t *>(to) + i, v.words[i], __ATOMIC_RELAXED);
}

// kernels/cuda/device.cuh has the type, which is defined only later.
// The halves come one by one, this or that first, now and then with time between them: more rarely
// after a while, since beside others who compute each time may take milliseconds.
template <typename Line> static inline void store_line(Line *to, const Line &value) {
    static thread_local unsigned int stores;
    const bool low_first = ++stores % 2 == 0;
    __atomic_store_n(low_first ? &to->low : &to->high, low_first ? value.low : value.high,
                     __ATOMIC_RELAXED);
    if (stores % (stores < 2048 ? 61 : 1021) == 0)
        sched_yield();
    __atomic_store_n(low_first ? &to->high : &to->low, low_first ? value.high : value.low,
                     __ATOMIC_RELAXED);
}

// Most lines have arrived, and polling a thousand times takes microseconds: yield now and then.
template <typename Line> static inline Line load_line(const Line *from) {
    static thread_local unsigned int looks;
    if (++looks % 1024 == 0)
        host_give_way(from, __atomic_load_n(&from->low, __ATOMIC_RELAXED));
    return {__atomic_load_n(&from->low, __ATOMIC_RELAXED),
            __atomic_load_n(&from->high, __ATOMIC_RELAXED)};
}

// The parts of a wide line arrive one by one, the part with the flag last, and a lane waits for the
// others. A lane that has seen the flag has the whole line, and each lane polls for itself.
template <bool WIDE, typename Line>
static inline void store_line_of(Line *to, const Line &value, uint32_t lane) {
    const bool has_flag = lane % 8 == 7;
    if (!WIDE) {
        store_line(to, value);
        return;
    }
    if (!has_flag)
        store_line(to, value);
    __syncwarp();
    if (has_flag) {
        __atomic_store_n(&to->low, value.low, __ATOMIC_RELAXED);
        __atomic_store_n(&to->high, value.high, __ATOMIC_RELEASE);
    }
}

template <bool WIDE, typename Line>
static inline Line load_line_of(const Line *from, uint32_t lane, uint32_t flag, bool *full) {
    if (!WIDE) {
        const Line found = load_line(from);
        *full = *full && is_full(found, flag);
        return found;
    }
    const Line *last = from + 7 - lane % 8;
    *full = __atomic_load_n(&last->high, __ATOMIC_ACQUIRE) == flag && *full;
    const Line found = load_line(from);
    return found;
}

enum class order { relaxed, acquire, release, acq_rel };
// As in signal_unfenced.
constexpr order unfenced = order::release;

template <order> static inline uint32_t fetch_add(uint32_t *word, uint32_t value) {
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}

template <order> static inline void add(uint32_t *word, uint32_t value) {
    __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
}

template <order ORDER>
static inline uint32_t exchange_if(uint32_t *word, uint32_t expected, uint32_t value) {
    constexpr int DONE = ORDER == order::relaxed   ? __ATOMIC_RELAXED
                         : ORDER == order::acquire ? __ATOMIC_ACQUIRE
                         : ORDER == order::release ? __ATOMIC_RELEASE
                                                   : __ATOMIC_ACQ_REL;
    constexpr int NOT_DONE =
        ORDER == order::relaxed || ORDER == order::release ? __ATOMIC_RELAXED : __ATOMIC_ACQUIRE;
    __atomic_compare_exchange_n(word, &expected, value, false, DONE, NOT_DONE);
    return expected;
}

} // namespace symmem

#endif
