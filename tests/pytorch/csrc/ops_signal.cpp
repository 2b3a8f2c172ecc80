// SPDX-License-Identifier: BSD-3-Clause
// Operations that write and await words and signals, and a product whose input arrives in chunks.
// NCCL's signal is a count for each rank, or the first 64-bit word of the handle's signal pad,
// where a wait takes any value that is as large. NVSHMEM's is a word in a symmetric tensor of the
// caller's, and a wait for it wants that very value. Waiting takes from a count and leaves a word.
#include "ops.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace symmem_torch {
namespace {

using Tensor = at::Tensor;
using Clock = std::chrono::steady_clock;

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
void raise(const HandlePtr &handle, uint64_t *word, int64_t signal) {
    int64_t shape = 1;
    DLTensor tensor{};
    tensor.data = word;
    tensor.ndim = 1;
    tensor.dtype = {kDLUInt, 64, 1};
    tensor.shape = &shape;
    check(symmem_stream_write_value64(handle->context(), &tensor, 0, static_cast<uint64_t>(signal),
                                      nullptr));
}

/* For a word outside the tensor's block, for which symmem has no wait. Gives the processor away,
 * for the rank that is waited for may want it, and soon sleeps. */
void await(const HandlePtr &handle, const char *operation, const uint64_t *word, uint64_t signal) {
    auto begin = Clock::now();
    auto limit = std::chrono::milliseconds(handle->timeout_ms());
    auto pause = std::chrono::microseconds(0);
    for (auto seen = __atomic_load_n(word, __ATOMIC_ACQUIRE); seen < signal;
         seen = __atomic_load_n(word, __ATOMIC_ACQUIRE)) {
        auto waited = Clock::now() - begin;
        auto is_late = limit.count() != 0 && waited >= limit;
        auto poison = symmem_handle_status(handle->raw(), nullptr);
        TORCH_CHECK(!is_late && poison == SYMMEM_OK, "symmem ", operation, ": the signal is ", seen,
                    " and not ", signal, " [",
                    symmem_status_name(poison == SYMMEM_OK ? SYMMEM_TIMEOUT : SYMMEM_POISONED),
                    ", group ", handle->group(), ", rank ", handle->info().rank, ", after ",
                    std::chrono::duration_cast<std::chrono::milliseconds>(waited).count(), " ms]");
        if (waited < std::chrono::microseconds(50)) {
            std::this_thread::yield();
        } else {
            pause = std::min(pause + std::chrono::microseconds(5), std::chrono::microseconds(500));
            std::this_thread::sleep_for(pause);
        }
    }
}

/* --- signals ---------------------------------------------------------------------------------- */

void nccl_put_signal(const Tensor &src, const Memory &memory, int64_t peer) {
    View view(src, "src", Elements::bits);
    auto &handle = our_handle(memory.get());
    check(symmem_window_put_signal(handle.raw(), handle.rank_of(peer, "peer"), 0, src.data_ptr(),
                                   src.nbytes(), default_channel, handle.timeout_ms(), nullptr));
}

void nccl_wait_signal(const Memory &memory, int64_t peer) {
    auto &handle = our_handle(memory.get());
    symmem_window_wait wait{handle.rank_of(peer, "peer"), 1};
    check(symmem_window_wait_signal(handle.raw(), 1, &wait, default_channel, handle.timeout_ms(),
                                    nullptr));
}

void nccl_put_with_signal(const Tensor &tensor, int64_t signal, int64_t peer) {
    auto handle = handle_of(tensor, world_name);
    auto word = pad_word(handle, peer);
    put_data(tensor, handle, peer);
    raise(handle, word, signal);
}

void nccl_wait_for_signal(const Tensor &sigpad, int64_t signal) {
    auto handle = handle_of(sigpad, world_name);
    await(handle, "nccl_wait_for_signal", pad_word(handle, handle->info().rank),
          static_cast<uint64_t>(signal));
}

void nvshmem_put_with_signal(const Tensor &tensor, const Tensor &sigpad, int64_t signal,
                             int64_t peer) {
    auto handle = handle_of(tensor, world_name);
    auto words = handle_of(sigpad, world_name);
    auto word = tensor_word(words, sigpad, peer);
    put_data(tensor, handle, peer);
    raise(words, word, signal);
}

void nvshmem_wait_for_signal(const Tensor &sigpad, int64_t signal, int64_t peer) {
    auto handle = handle_of(sigpad, world_name);
    auto source = handle->rank_of(peer, "peer");
    tensor_word(handle, sigpad, handle->info().rank);
    check(symmem_wait_value64(handle->raw(), handle->info().rank, place_of(sigpad), SYMMEM_EQ,
                              static_cast<uint64_t>(signal), source, handle->timeout_ms(),
                              nullptr));
}

/* --- words ------------------------------------------------------------------------------------ */

symmem_compare comparison(const std::string &name) {
    static const char *const names[] = {"eq", "ne", "gt", "ge", "lt", "le"};
    static_assert(std::size(names) == SYMMEM_COMPARE_COUNT);
    auto found = std::find(std::begin(names), std::end(names), name);
    TORCH_CHECK(found != std::end(names),
                "symmem: compare must be eq, ne, gt, ge, lt or le (got \"", name,
                "\") [INVALID_ARGUMENT]");
    return static_cast<symmem_compare>(found - std::begin(names));
}

void write_value(const Tensor &tensor, int64_t offset, int64_t value) {
    View words(tensor, "tensor");
    auto world = World::current();
    auto is_small = tensor.scalar_type() == at::kUInt32;
    check(is_small ? symmem_stream_write_value32(world->context(), words, offset, value, nullptr)
                   : symmem_stream_write_value64(world->context(), words, offset,
                                                 static_cast<uint64_t>(value), nullptr));
}

/* A value of 64 bits comes with the bits that it has as a signed number. */
void wait_value(const Memory &memory, int64_t rank, int64_t offset, const std::string &compare,
                int64_t value, int64_t source, bool is_small, int64_t timeout_ms) {
    auto &handle = our_handle(memory.get());
    auto place = not_negative(offset, "offset");
    auto limit = narrow<uint32_t>(timeout_ms, "timeout_ms", SYMMEM_TIMEOUT_DEFAULT - 1);
    limit = limit == 0 ? handle.timeout_ms() : limit;
    auto of = handle.rank_of(rank), by = handle.rank_of(source, "source");
    auto how = comparison(compare);
    check(is_small ? symmem_wait_value32(handle.raw(), of, place, how,
                                         narrow<uint32_t>(value, "value"), by, limit, nullptr)
                   : symmem_wait_value64(handle.raw(), of, place, how, static_cast<uint64_t>(value),
                                         by, limit, nullptr));
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
    m.impl("nccl_put_signal", kernel<&nccl_put_signal>());
    m.impl("nccl_put_with_signal", kernel<&nccl_put_with_signal>());
    m.impl("nccl_wait_for_signal", kernel<&nccl_wait_for_signal>());
    m.impl("nvshmem_put_with_signal", kernel<&nvshmem_put_with_signal>());
    m.impl("nvshmem_wait_for_signal", kernel<&nvshmem_wait_for_signal>());
    m.impl("_async_input_mm", kernel<&async_input_mm>());
}

// Without a tensor there is no device to dispatch by.
TORCH_LIBRARY_IMPL(symm_mem, CompositeExplicitAutograd, m) {
    using namespace symmem_torch;
    m.impl("nccl_wait_signal", kernel<&nccl_wait_signal>());
}

TORCH_LIBRARY_FRAGMENT(symmem, m) {
    using namespace symmem_torch;
    m.def("write_value(Tensor(a!) tensor, int offset, int value) -> ()");
    m.def("wait_value", &wait_value);
}

TORCH_LIBRARY_IMPL(symmem, CPU, m) {
    using namespace symmem_torch;
    m.impl("write_value", kernel<&write_value>());
}
