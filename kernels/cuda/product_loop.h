/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Products, strided copies and local reductions, executed by one thread of many: `lane` of `lanes`.
 * CUDA C++, and C++ for the unit test. Each element of the result belongs to one lane.
 *
 * The portable product sums an element along k, in float32 (float64 for float64). Sums that a
 * library computed are also scaled, added and rounded here.
 */
#ifndef SYMMEM_KERNELS_CUDA_PRODUCT_LOOP_H
#define SYMMEM_KERNELS_CUDA_PRODUCT_LOOP_H

#include "cuda/product.h"
#include "cuda/reduce_loop.h"

template <typename Element>
SYMMEM_CUDA_BOTH typename Element::value symmem_cuda_load_at(const void *base, int64_t at) {
    return Element::load(static_cast<const typename Element::bits *>(base)[at]);
}

template <typename Element>
SYMMEM_CUDA_BOTH void symmem_cuda_store_at(void *base, int64_t at, typename Element::value value) {
    static_cast<typename Element::bits *>(base)[at] = Element::store(value);
}

/* --- products ----------------------------------------------------------------------- */

/* An element of the product, and its offset in out. */
struct symmem_cuda_element {
    int64_t row, column, at;
};

/* In the order of out's elements in memory. */
SYMMEM_CUDA_BOTH symmem_cuda_element symmem_cuda_element_of(const symmem_cuda_product &p,
                                                            int64_t i) {
    symmem_cuda_element e;
    if (p.out_column == 1) {
        e.row = i / p.n;
        e.column = i % p.n;
    } else {
        e.row = i % p.m;
        e.column = i / p.m;
    }
    e.at = e.row * p.out_row + e.column * p.out_column;
    return e;
}

template <typename Sum>
SYMMEM_CUDA_BOTH Sum symmem_cuda_scaled(const symmem_cuda_product &p, const symmem_cuda_element &e,
                                        Sum sum) {
    if (p.a_scale == nullptr)
        return sum;
    return sum * static_cast<Sum>(p.a_scale[p.a_scale_by_row ? e.row : 0] *
                                  p.b_scale[p.b_scale_by_column ? e.column : 0]);
}

template <typename Out, typename Sum>
SYMMEM_CUDA_BOTH void symmem_cuda_put(const symmem_cuda_product &p, const symmem_cuda_element &e,
                                      Sum sum) {
    if (p.accumulate)
        sum += static_cast<Sum>(symmem_cuda_load_at<Out>(p.out, e.at));
    symmem_cuda_store_at<Out>(p.out, e.at, static_cast<typename Out::value>(sum));
}

template <typename Sum>
SYMMEM_CUDA_BOTH void symmem_cuda_finish_element(const symmem_cuda_product &p,
                                                 const symmem_cuda_element &e, Sum sum) {
    sum = symmem_cuda_scaled(p, e, sum);
    if (p.out_real == SYMMEM_CUDA_REAL_F16)
        symmem_cuda_put<symmem_cuda_f16>(p, e, sum);
    else if (p.out_real == SYMMEM_CUDA_REAL_BF16)
        symmem_cuda_put<symmem_cuda_bf16>(p, e, sum);
    else if (p.out_real == SYMMEM_CUDA_REAL_F32)
        symmem_cuda_put<symmem_cuda_f32>(p, e, sum);
    else
        symmem_cuda_put<symmem_cuda_f64>(p, e, sum);
}

template <typename Element, typename Sum>
SYMMEM_CUDA_CALLED void symmem_cuda_run_product(const symmem_cuda_product &p, size_t lane,
                                                size_t lanes) {
    const int64_t count = p.m * p.n;
    for (int64_t i = static_cast<int64_t>(lane); i < count; i += static_cast<int64_t>(lanes)) {
        const symmem_cuda_element e = symmem_cuda_element_of(p, i);
        Sum sum = 0;
        for (int64_t l = 0; l < p.k; l++)
            sum += static_cast<Sum>(
                       symmem_cuda_load_at<Element>(p.a, e.row * p.a_row + l * p.a_column)) *
                   static_cast<Sum>(
                       symmem_cuda_load_at<Element>(p.b, l * p.b_row + e.column * p.b_column));
        symmem_cuda_finish_element(p, e, sum);
    }
}

template <typename Sum>
SYMMEM_CUDA_CALLED void symmem_cuda_run_finish(const symmem_cuda_product &p, size_t lane,
                                               size_t lanes) {
    const int64_t count = p.m * p.n;
    for (int64_t i = static_cast<int64_t>(lane); i < count; i += static_cast<int64_t>(lanes))
        symmem_cuda_finish_element(p, symmem_cuda_element_of(p, i),
                                   static_cast<const Sum *>(p.sums)[i]);
}

/* --- strided copies ----------------------------------------------------------------- */

template <typename Unit>
SYMMEM_CUDA_BOTH void symmem_cuda_copy_elements(const symmem_cuda_strided &copy, size_t lane,
                                                size_t lanes) {
    for (uint64_t i = lane; i < copy.count; i += lanes) {
        uint64_t rest = i;
        int64_t from = 0, to = 0;
        for (int32_t d = copy.ndim - 1; d >= 0; d--) {
            const uint64_t side = static_cast<uint64_t>(copy.shape[d]);
            const int64_t at = static_cast<int64_t>(rest % side);
            rest /= side;
            from += at * copy.src_strides[d];
            to += at * copy.dst_strides[d];
        }
        static_cast<Unit *>(copy.dst)[to] = static_cast<const Unit *>(copy.src)[from];
    }
}

SYMMEM_CUDA_CALLED void symmem_cuda_run_strided(const symmem_cuda_strided &copy, size_t lane,
                                                size_t lanes) {
    if (copy.element == 8)
        symmem_cuda_copy_elements<uint64_t>(copy, lane, lanes);
    else if (copy.element == 4)
        symmem_cuda_copy_elements<uint32_t>(copy, lane, lanes);
    else if (copy.element == 2)
        symmem_cuda_copy_elements<uint16_t>(copy, lane, lanes);
    else
        symmem_cuda_copy_elements<uint8_t>(copy, lane, lanes);
}

/* --- local reductions --------------------------------------------------------------- */

/* The data of one access. */
template <typename Bits> struct alignas(16) symmem_cuda_packed {
    static constexpr int elements = 16 / sizeof(Bits);
    Bits at[elements];
};

/* Returns the whole units at the start, if all addresses are multiples of 16 bytes there. */
SYMMEM_CUDA_BOTH uint64_t symmem_cuda_whole_units(const symmem_cuda_local_reduce &reduce,
                                                  size_t element) {
    const uintptr_t places = reinterpret_cast<uintptr_t>(reduce.src) |
                             reinterpret_cast<uintptr_t>(reduce.dst) |
                             static_cast<uintptr_t>(reduce.src_stride);
    return places % 16 == 0 ? reduce.count * element / 16 : 0;
}

/* Reduces the i-th T, which is a unit or an element. With one source it copies the bits. */
template <typename Element, typename T, typename Bits, int COUNT>
SYMMEM_CUDA_BOTH void symmem_cuda_reduce_at(const symmem_cuda_local_reduce &reduce, uint64_t i) {
    const char *src = static_cast<const char *>(reduce.src);
    typename Element::value sums[COUNT];
    T some = reinterpret_cast<const T *>(src)[i];
    Bits *bits = reinterpret_cast<Bits *>(&some);
    for (int e = 0; e < COUNT; e++)
        sums[e] = Element::load(bits[e]);
    for (int32_t s = 1; s < reduce.src_count; s++) {
        some = reinterpret_cast<const T *>(src + static_cast<uint64_t>(s) * reduce.src_stride)[i];
        for (int e = 0; e < COUNT; e++)
            sums[e] = Element::combine(sums[e], Element::load(bits[e]), reduce.op);
    }
    if (reduce.src_count > 1)
        for (int e = 0; e < COUNT; e++)
            bits[e] = Element::store(Element::finish(sums[e], reduce.src_count, reduce.op));
    static_cast<T *>(reduce.dst)[i] = some;
}

template <typename Element>
SYMMEM_CUDA_CALLED void symmem_cuda_run_local_reduce(const symmem_cuda_local_reduce &args,
                                                     size_t lane, size_t lanes) {
    typedef typename Element::bits bits;
    typedef symmem_cuda_packed<bits> unit;
    // in registers; a reference would be read from memory
    const symmem_cuda_local_reduce reduce = args;
    const uint64_t units = symmem_cuda_whole_units(reduce, sizeof(bits));
    for (uint64_t i = lane; i < units; i += lanes)
        symmem_cuda_reduce_at<Element, unit, bits, unit::elements>(reduce, i);
    for (uint64_t i = units * unit::elements + lane; i < reduce.count; i += lanes)
        symmem_cuda_reduce_at<Element, bits, bits, 1>(reduce, i);
}

#endif
