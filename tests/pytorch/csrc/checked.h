// SPDX-License-Identifier: BSD-3-Clause
// Numbers of PyTorch's, which have 64 bits and any value, as symmem takes them. What does not fit
// is an exception.
#pragma once

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace symmem_torch {

/* A number as a smaller type, none of whose values beyond `largest` is meant. */
template <typename To>
To narrow(int64_t value, const char *name, To largest = std::numeric_limits<To>::max()) {
    constexpr auto smallest = static_cast<int64_t>(std::numeric_limits<To>::min());
    TORCH_CHECK(value >= smallest && value <= static_cast<int64_t>(largest), "symmem: ", name,
                " must be in [", smallest, ", ", largest, "] (got ", value, ") [OUT_OF_RANGE]");
    return static_cast<To>(value);
}

inline size_t not_negative(int64_t value, const char *name) {
    TORCH_CHECK(value >= 0, "symmem: ", name, " must be non-negative (got ", value,
                ") [OUT_OF_RANGE]");
    return static_cast<size_t>(value);
}

inline size_t product(size_t a, size_t b, const char *name) {
    size_t result;
    TORCH_CHECK(!__builtin_mul_overflow(a, b, &result), "symmem: ", name, ", ", a, " times ", b,
                ", is more than any memory has [OUT_OF_RANGE]");
    return result;
}

inline size_t sum(size_t a, size_t b, const char *name) {
    size_t result;
    TORCH_CHECK(!__builtin_add_overflow(a, b, &result), "symmem: ", name, ", ", a, " and ", b,
                ", is more than any memory has [OUT_OF_RANGE]");
    return result;
}

} // namespace symmem_torch
