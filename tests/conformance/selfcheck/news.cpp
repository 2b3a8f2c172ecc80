// SPDX-License-Identifier: BSD-3-Clause
// Stands for a backend in C++: what it has from operator new it forgets, or gives back.
#include <cstddef>
#include <limits>
#include <new>

#define EXPORTED __attribute__((visibility("default")))

extern "C" {
EXPORTED const void *symmem_backend_entry(unsigned abi);
EXPORTED bool selfcheck_new_forgets(std::size_t bytes);
EXPORTED bool selfcheck_new_gives_back(std::size_t bytes);
EXPORTED bool selfcheck_new_throws();
}

// What makes it a backend to the ledger.
const void *symmem_backend_entry(unsigned) {
    return nullptr;
}

bool selfcheck_new_forgets(std::size_t bytes) {
    void *volatile forgotten = ::operator new(bytes);
    return forgotten != nullptr;
}

// By each of the operators.
bool selfcheck_new_gives_back(std::size_t bytes) {
    constexpr std::align_val_t alignment{256};
    void *volatile at = ::operator new(bytes);
    ::operator delete(at, bytes);
    at = ::operator new(bytes, std::nothrow);
    ::operator delete(at, std::nothrow);
    at = ::operator new[](bytes);
    ::operator delete[](at);
    at = ::operator new[](bytes, std::nothrow);
    ::operator delete[](at, bytes);
    at = ::operator new(bytes, alignment);
    bool aligned = reinterpret_cast<std::size_t>(at) % 256 == 0;
    ::operator delete(at, alignment);
    at = ::operator new[](bytes, alignment, std::nothrow);
    aligned = aligned && reinterpret_cast<std::size_t>(at) % 256 == 0;
    ::operator delete[](at, bytes, alignment);
    return aligned;
}

// Where there is no memory.
bool selfcheck_new_throws() {
    volatile std::size_t much = std::numeric_limits<std::ptrdiff_t>::max();
    void *volatile none = ::operator new(much, std::nothrow);
    try {
        void *volatile at = ::operator new[](much);
        ::operator delete[](at);
        return false;
    } catch (const std::bad_alloc &) {
        return none == nullptr;
    }
}
