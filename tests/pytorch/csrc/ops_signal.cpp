// SPDX-License-Identifier: BSD-3-Clause
// Operations that write and await words: data followed by a signal that is a value, and a product
// whose input arrives in chunks. NCCL's signal is the first 64-bit word of the handle's signal pad,
// and what waits for it takes any value that is as large; NVSHMEM's is a word in a symmetric tensor
// of the caller's, and what waits for it wants that very value. Neither is reset by waiting.
#include "ops.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace symmem_torch {
namespace {

using Tensor = at::Tensor;
using Clock = std::chrono::steady_clock;
using HandlePtr = c10::intrusive_ptr<Handle>;

const char world_name[] = "0";

uint64_t *word_at(void *address, const char *name) {
    TORCH_CHECK(address && reinterpret_cast<uintptr_t>(address) % sizeof(uint64_t) == 0, name,
                " must be in the reach of this rank, at a multiple of 8 bytes");
    return static_cast<uint64_t *>(address);
}

/* The first word of a rank's signal pad. */
uint64_t *pad_word(const HandlePtr &handle, int64_t rank) {
    auto of = handle->rank_of(rank, "peer");
    TORCH_CHECK(handle->info().signal_pad_size >= sizeof(uint64_t),
                "the signal pad has no room for a signal of 8 bytes");
    return word_at(handle->get_signal_pad_ptrs()[of], "the signal pad");
}

/* The word of a rank's that a symmetric tensor begins with. */
uint64_t *tensor_word(const HandlePtr &handle, const Tensor &sigpad, int64_t rank) {
    auto of = handle->rank_of(rank, "peer");
    TORCH_CHECK(sigpad.is_contiguous() && sigpad.nbytes() >= sizeof(uint64_t),
                "sigpad must be contiguous and have 8 bytes at least");
    auto base = static_cast<char *>(handle->get_buffer_ptrs()[of]);
    auto place = sum(handle->info().offset, place_of(sigpad), "a place");
    return word_at(base ? base + place : nullptr, "sigpad");
}

void put_data(const Tensor &tensor, const HandlePtr &handle, int64_t peer) {
    View view(tensor, "tensor", Elements::bits);
    check(symmem_put(handle->raw(), handle->rank_of(peer, "peer"), place_of(tensor),
                     tensor.data_ptr(), tensor.nbytes(), nullptr));
}

/* A rank that sees the signal sees the data. */
void raise(uint64_t *word, int64_t signal) {
    __atomic_store_n(word, static_cast<uint64_t>(signal), __ATOMIC_RELEASE);
}

/* Gives the processor away, for the rank that is waited for may want it, and soon sleeps. */
template <typename Reached>
void await(const HandlePtr &handle, const char *operation, const uint64_t *word, int64_t signal,
           Reached &&reached) {
    auto begin = Clock::now();
    auto limit = std::chrono::milliseconds(handle->timeout_ms());
    auto pause = std::chrono::microseconds(0);
    for (auto seen = __atomic_load_n(word, __ATOMIC_ACQUIRE); !reached(seen);
         seen = __atomic_load_n(word, __ATOMIC_ACQUIRE)) {
        auto waited = Clock::now() - begin;
        TORCH_CHECK(limit.count() == 0 || waited < limit, "symmem ", operation, ": the signal is ",
                    seen, " and not ", signal, " [TIMEOUT, group ", handle->group(), ", rank ",
                    handle->info().rank, ", after ",
                    std::chrono::duration_cast<std::chrono::milliseconds>(waited).count(), " ms]");
        if (waited < std::chrono::microseconds(50)) {
            std::this_thread::yield();
        } else {
            pause = std::min(pause + std::chrono::microseconds(5), std::chrono::microseconds(500));
            std::this_thread::sleep_for(pause);
        }
    }
}

void nccl_put_with_signal(const Tensor &tensor, int64_t signal, int64_t peer) {
    auto handle = handle_of(tensor, world_name);
    auto word = pad_word(handle, peer);
    put_data(tensor, handle, peer);
    raise(word, signal);
}

void nccl_wait_for_signal(const Tensor &sigpad, int64_t signal) {
    auto handle = handle_of(sigpad, world_name);
    await(handle, "nccl_wait_for_signal", pad_word(handle, handle->info().rank), signal,
          [&](uint64_t seen) { return seen >= static_cast<uint64_t>(signal); });
}

void nvshmem_put_with_signal(const Tensor &tensor, const Tensor &sigpad, int64_t signal,
                             int64_t peer) {
    auto handle = handle_of(tensor, world_name);
    auto word = tensor_word(handle_of(sigpad, world_name), sigpad, peer);
    put_data(tensor, handle, peer);
    raise(word, signal);
}

void nvshmem_wait_for_signal(const Tensor &sigpad, int64_t signal, int64_t peer) {
    auto handle = handle_of(sigpad, world_name);
    handle->rank_of(peer, "peer");
    await(handle, "nvshmem_wait_for_signal", tensor_word(handle, sigpad, handle->info().rank),
          signal, [&](uint64_t seen) { return seen == static_cast<uint64_t>(signal); });
}

Tensor async_input_mm(const Tensor &a, const Tensor &b, const Tensor &signals, int64_t pivot) {
    TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0),
                "a and b must be matrices that can be multiplied");
    TORCH_CHECK(signals.scalar_type() == at::kUInt32 && signals.dim() == 1,
                "a_chunk_signals must be a flat uint32 tensor");
    TORCH_CHECK(a.scalar_type() == b.scalar_type(), "a and b must have one dtype");
    auto world = World::current();
    auto whole = b.contiguous(); // a is not there yet, b is
    auto out = at::empty({a.size(0), b.size(1)}, a.options());
    View from(a, "a"), by(whole, "b"), words(signals, "a_chunk_signals"), to(out, "out");
    check(symmem_async_input_mm(world->context(), from, by, words, pivot, to,
                                SYMMEM_TIMEOUT_DEFAULT, nullptr));
    return out;
}

} // namespace
} // namespace symmem_torch

TORCH_LIBRARY_IMPL(symm_mem, CPU, m) {
    using namespace symmem_torch;
    m.impl("nccl_put_with_signal", kernel<&nccl_put_with_signal>());
    m.impl("nccl_wait_for_signal", kernel<&nccl_wait_for_signal>());
    m.impl("nvshmem_put_with_signal", kernel<&nvshmem_put_with_signal>());
    m.impl("nvshmem_wait_for_signal", kernel<&nvshmem_wait_for_signal>());
    m.impl("_async_input_mm", kernel<&async_input_mm>());
}
