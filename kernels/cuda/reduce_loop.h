/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The REDUCE step of a collective, executed by one thread of many: `lane` of `lanes`. CUDA C++, and
 * C++ for the unit test. One lane reads an element from its sources, in rank order, and stores it
 * to its destinations, of which one may be a source. Addresses decide which elements share a
 * register. They do not affect an element's result.
 */
#ifndef SYMMEM_KERNELS_CUDA_REDUCE_LOOP_H
#define SYMMEM_KERNELS_CUDA_REDUCE_LOOP_H

#include "cuda/move_loop.h"
#include "cuda/reduce_element.h"

/* --- what differs between dtypes: bits in memory, and the type of the computation ---- */

struct symmem_cuda_f32 {
    typedef uint32_t bits;
    typedef float value;
    static constexpr bool IN_PAIRS = false;
    SYMMEM_CUDA_BOTH value load(bits from) {
        return symmem_cuda_float(from);
    }
    SYMMEM_CUDA_BOTH bits store(value from) {
        return symmem_cuda_bits(from);
    }
    SYMMEM_CUDA_BOTH value combine(value a, value b, int32_t op) {
        return symmem_cuda_combine_float(a, b, op);
    }
    SYMMEM_CUDA_BOTH value finish(value sum, int32_t src_count, int32_t op) {
        return symmem_cuda_finish_float(sum, src_count, op);
    }
};

struct symmem_cuda_f16 : symmem_cuda_f32 {
    typedef uint16_t bits;
    SYMMEM_CUDA_BOTH value load(bits from) {
        return symmem_cuda_from_half(from);
    }
    SYMMEM_CUDA_BOTH bits store(value from) {
        return symmem_cuda_to_half(from);
    }
    static constexpr bool IN_PAIRS = true;
    SYMMEM_CUDA_BOTH uint32_t store_two(value low, value high) {
        return symmem_cuda_numbers_to_halves(low, high);
    }
};

struct symmem_cuda_bf16 : symmem_cuda_f32 {
    typedef uint16_t bits;
    SYMMEM_CUDA_BOTH value load(bits from) {
        return symmem_cuda_from_bfloat(from);
    }
    SYMMEM_CUDA_BOTH bits store(value from) {
        return symmem_cuda_to_bfloat(from);
    }
    static constexpr bool IN_PAIRS = true;
    SYMMEM_CUDA_BOTH uint32_t store_two(value low, value high) {
        return symmem_cuda_numbers_to_bfloats(low, high);
    }
};

struct symmem_cuda_f64 {
    typedef uint64_t bits;
    typedef double value;
    static constexpr bool IN_PAIRS = false;
    SYMMEM_CUDA_BOTH value load(bits from) {
        return symmem_cuda_double(from);
    }
    SYMMEM_CUDA_BOTH bits store(value from) {
        bits to;
        memcpy(&to, &from, sizeof to);
        return to;
    }
    SYMMEM_CUDA_BOTH value combine(value a, value b, int32_t op) {
        return symmem_cuda_combine_double(a, b, op);
    }
    SYMMEM_CUDA_BOTH value finish(value sum, int32_t src_count, int32_t op) {
        return symmem_cuda_finish_double(sum, src_count, op);
    }
};

template <typename Number> struct symmem_cuda_signed {
    typedef Number bits;
    typedef int64_t value;
    static constexpr bool IN_PAIRS = false;
    SYMMEM_CUDA_BOTH value load(bits from) {
        return from;
    }
    SYMMEM_CUDA_BOTH bits store(value from) {
        return static_cast<bits>(from);
    }
    SYMMEM_CUDA_BOTH value combine(value a, value b, int32_t op) {
        return symmem_cuda_combine_signed(a, b, op);
    }
    SYMMEM_CUDA_BOTH value finish(value sum, int32_t, int32_t) {
        return sum;
    }
};

template <typename Number> struct symmem_cuda_unsigned {
    typedef Number bits;
    typedef uint64_t value;
    static constexpr bool IN_PAIRS = false;
    SYMMEM_CUDA_BOTH value load(bits from) {
        return from;
    }
    SYMMEM_CUDA_BOTH bits store(value from) {
        return static_cast<bits>(from);
    }
    SYMMEM_CUDA_BOTH value combine(value a, value b, int32_t op) {
        return symmem_cuda_combine_unsigned(a, b, op);
    }
    SYMMEM_CUDA_BOTH value finish(value sum, int32_t, int32_t) {
        return sum;
    }
};

/* --- loops -------------------------------------------------------------------------- */

/* `Count` adjacent elements: one, or a whole unit. */
template <typename Bits, int Count> struct symmem_cuda_group { Bits at[Count]; };

template <typename Group> SYMMEM_CUDA_BOTH Group symmem_cuda_load_group(const char *from) {
    Group group;
    if (sizeof group == sizeof(symmem_cuda_unit)) {
        const symmem_cuda_unit unit = *reinterpret_cast<const symmem_cuda_unit *>(from);
        memcpy(&group, &unit, sizeof group);
    } else {
        group = *reinterpret_cast<const Group *>(from);
    }
    return group;
}

template <typename Group> SYMMEM_CUDA_BOTH void symmem_cuda_store_group(char *to, Group group) {
    if (sizeof group == sizeof(symmem_cuda_unit)) {
        symmem_cuda_unit unit;
        memcpy(&unit, &group, sizeof group);
        *reinterpret_cast<symmem_cuda_unit *>(to) = unit;
    } else {
        *reinterpret_cast<Group *>(to) = group;
    }
}

/* Reduces the elements at byte `from` of the sources to byte `to` of the destinations. */
template <typename Element, int Count>
SYMMEM_CUDA_BOTH void symmem_cuda_reduce_group(const symmem_cuda_job &job,
                                               const symmem_cuda_step &step, size_t from,
                                               size_t to) {
    typedef symmem_cuda_group<typename Element::bits, Count> group;
    typename Element::value sum[Count];
    group bits = symmem_cuda_load_group<group>(symmem_cuda_source(&job, &step, 0) + from);
    for (int i = 0; i < Count; i++)
        sum[i] = Element::load(bits.at[i]);
    for (int32_t k = 1; k < job.world_size; k++) {
        bits = symmem_cuda_load_group<group>(symmem_cuda_source(&job, &step, k) + from);
        for (int i = 0; i < Count; i++)
            sum[i] = Element::combine(sum[i], Element::load(bits.at[i]), job.op);
    }
    for (int i = 0; i < Count; i++)
        bits.at[i] = Element::store(Element::finish(sum[i], job.world_size, job.op));
    const int32_t targets = symmem_cuda_targets(&job, &step);
    for (int32_t k = 0; k < targets; k++)
        symmem_cuda_store_group(symmem_cuda_target(&job, &step, k) + to, bits);
}

/* True if all sources and destinations have whole units at the same elements. */
SYMMEM_CUDA_CALLED bool symmem_cuda_are_alike(const symmem_cuda_job &job,
                                              const symmem_cuda_step &step) {
    const char *first = symmem_cuda_source(&job, &step, 0);
    uintptr_t apart = 0;
    for (int32_t k = 1; k < job.world_size; k++)
        apart |= (uintptr_t)first ^ (uintptr_t)symmem_cuda_source(&job, &step, k);
    const int32_t targets = symmem_cuda_targets(&job, &step);
    for (int32_t k = 0; k < targets; k++)
        apart |= (uintptr_t)first ^ (uintptr_t)symmem_cuda_target(&job, &step, k);
    return apart % sizeof(symmem_cuda_unit) == 0;
}

template <typename Element>
SYMMEM_CUDA_CALLED void symmem_cuda_reduce_singly(const symmem_cuda_job &job,
                                                  const symmem_cuda_step &step, size_t begin,
                                                  size_t end, size_t lane, size_t lanes) {
    const size_t bytes = sizeof(typename Element::bits);
    for (size_t i = begin + lane; i < end; i += lanes)
        symmem_cuda_reduce_group<Element, 1>(job, step, i * bytes, i * bytes);
}

/* Every element of out lies in a row. The rows of a source may have a larger stride. */
template <typename Element>
SYMMEM_CUDA_CALLED void symmem_cuda_reduce_rows(const symmem_cuda_job &job,
                                                const symmem_cuda_step &step, size_t lane,
                                                size_t lanes) {
    const size_t bytes = sizeof(typename Element::bits);
    for (size_t i = lane; i < step.count; i += lanes) {
        const size_t from = i / step.row * step.row_step + i % step.row;
        symmem_cuda_reduce_group<Element, 1>(job, step, from * bytes, i * bytes);
    }
}

/* Sources and destinations of a world of at most `Most` ranks, in registers, so that no table is
 * read between two loads. */
template <int Most> struct symmem_cuda_ends {
    const char *from[Most];
    char *to[Most];
    int32_t ranks, targets, op;
};

template <int Most>
SYMMEM_CUDA_BOTH symmem_cuda_ends<Most>
symmem_cuda_ends_of(const symmem_cuda_job &job, const symmem_cuda_step &step, size_t begin) {
    symmem_cuda_ends<Most> ends;
    ends.ranks = job.world_size;
    ends.targets = symmem_cuda_targets(&job, &step);
    ends.op = job.op;
#pragma unroll
    for (int k = 0; k < Most; k++) {
        ends.from[k] = k < ends.ranks ? symmem_cuda_source(&job, &step, k) + begin : NULL;
        ends.to[k] = k < ends.targets ? symmem_cuda_target(&job, &step, k) + begin : NULL;
    }
    return ends;
}

/* Finishes sums and means for storing, with one branch for all instead of one for each. If Element
 * can store two at once, it does so when all are numbers. */
template <typename Element, int Count>
SYMMEM_CUDA_BOTH void symmem_cuda_end_all(typename Element::value *sums, int32_t ranks, int32_t op,
                                          typename Element::bits *bits) {
    if (op == SYMMEM_CUDA_AVG)
#pragma unroll
        for (int i = 0; i < Count; i++)
            sums[i] = Element::finish(sums[i], ranks, SYMMEM_CUDA_AVG);
    if constexpr (Element::IN_PAIRS) {
        bool numbers = true;
#pragma unroll
        for (int i = 0; i < Count; i += 2)
            numbers = numbers & symmem_cuda_are_numbers(sums[i], sums[i + 1]);
#pragma unroll
        for (int i = 0; numbers && i < Count; i += 2) {
            const uint32_t both = Element::store_two(sums[i], sums[i + 1]);
            bits[i] = (uint16_t)both;
            bits[i + 1] = (uint16_t)(both >> 16);
        }
        if (numbers)
            return;
    }
#pragma unroll
    for (int i = 0; i < Count; i++) /* a mean is already divided */
        bits[i] = Element::store(Element::finish(sums[i], ranks, SYMMEM_CUDA_SUM));
}

/* Sums and means. All loads of `Units` units are in flight before the first of them is used,
 * because one from a peer takes as long as thousands of sums. `apart`: bytes from unit to unit. */
template <typename Element, int Most, int Units>
SYMMEM_CUDA_BOTH void symmem_cuda_reduce_together(const symmem_cuda_ends<Most> &ends, size_t at,
                                                  size_t apart) {
    const int count = sizeof(symmem_cuda_unit) / sizeof(typename Element::bits);
    typedef symmem_cuda_group<typename Element::bits, count> group;
    group bits[Units][Most];
#pragma unroll
    for (int u = 0; u < Units; u++)
#pragma unroll
        for (int k = 0; k < Most; k++)
            if (k < ends.ranks)
                bits[u][k] = symmem_cuda_load_group<group>(ends.from[k] + at + (size_t)u * apart);
#pragma unroll
    for (int u = 0; u < Units; u++) {
        group result;
        typename Element::value sums[count];
#pragma unroll
        for (int i = 0; i < count; i++) {
            sums[i] = Element::load(bits[u][0].at[i]);
#pragma unroll
            for (int k = 1; k < Most; k++)
                if (k < ends.ranks)
                    sums[i] =
                        Element::combine(sums[i], Element::load(bits[u][k].at[i]), SYMMEM_CUDA_SUM);
        }
        symmem_cuda_end_all<Element, count>(sums, ends.ranks, ends.op, result.at);
#pragma unroll
        for (int k = 0; k < Most; k++)
            if (k < ends.targets)
                symmem_cuda_store_group(ends.to[k] + at + (size_t)u * apart, result);
    }
}

template <typename Element, int Most, int Units>
SYMMEM_CUDA_BOTH void symmem_cuda_reduce_between(const symmem_cuda_ends<Most> &ends, size_t units,
                                                 size_t lane, size_t lanes) {
    const size_t bytes = sizeof(symmem_cuda_unit);
    size_t i = lane;
    for (; i < units && units - i > (Units - 1) * lanes; i += Units * lanes)
        symmem_cuda_reduce_together<Element, Most, Units>(ends, i * bytes, lanes * bytes);
    for (; i < units; i += lanes)
        symmem_cuda_reduce_together<Element, Most, 1>(ends, i * bytes, 0);
}

template <typename Element, int Most, int Units>
SYMMEM_CUDA_CALLED void symmem_cuda_reduce_few(const symmem_cuda_job &job,
                                               const symmem_cuda_step &step, size_t begin,
                                               size_t units, size_t lane, size_t lanes) {
    symmem_cuda_reduce_between<Element, Most, Units>(symmem_cuda_ends_of<Most>(job, step, begin),
                                                     units, lane, lanes);
}

/* Job and step are copied, so that no store can change what the next load needs. */
template <typename Element>
SYMMEM_CUDA_CALLED void symmem_cuda_reduce_many(const symmem_cuda_job &job,
                                                const symmem_cuda_step &step, size_t begin,
                                                size_t units, size_t lane, size_t lanes) {
    const symmem_cuda_job own_job = job;
    const symmem_cuda_step own_step = step;
    const int per_unit = sizeof(symmem_cuda_unit) / sizeof(typename Element::bits);
    for (size_t i = lane; i < units; i += lanes) {
        const size_t at = begin + i * sizeof(symmem_cuda_unit);
        symmem_cuda_reduce_group<Element, per_unit>(own_job, own_step, at, at);
    }
}

/* Reduces whole units starting at byte `begin`. The most frequent cases have their own code. */
template <typename Element>
SYMMEM_CUDA_BOTH void symmem_cuda_reduce_units(const symmem_cuda_job &job,
                                               const symmem_cuda_step &step, size_t begin,
                                               size_t units, size_t lane, size_t lanes) {
    const bool adds = job.op == SYMMEM_CUDA_SUM || job.op == SYMMEM_CUDA_AVG;
    if (sizeof(typename Element::bits) == 1 || !adds)
        symmem_cuda_reduce_many<Element>(job, step, begin, units, lane, lanes);
    else if (job.world_size == 2)
        symmem_cuda_reduce_few<Element, 2, 4>(job, step, begin, units, lane, lanes);
    else if (job.world_size <= 4)
        symmem_cuda_reduce_few<Element, 4, 2>(job, step, begin, units, lane, lanes);
    else if (job.world_size <= 8)
        symmem_cuda_reduce_few<Element, 8, 1>(job, step, begin, units, lane, lanes);
    else
        symmem_cuda_reduce_many<Element>(job, step, begin, units, lane, lanes);
}

/* Copies the bits of one source. */
SYMMEM_CUDA_CALLED void symmem_cuda_reduce_alone(const symmem_cuda_job &job,
                                                 const symmem_cuda_step &step, size_t lane,
                                                 size_t lanes) {
    const int32_t targets = symmem_cuda_targets(&job, &step);
    for (int32_t k = 0; k < targets; k++) {
        const symmem_cuda_segment segment = {symmem_cuda_target(&job, &step, k),
                                             symmem_cuda_source(&job, &step, 0),
                                             step.count * job.element};
        symmem_cuda_move(segment, lane, lanes);
    }
}

template <typename Element>
SYMMEM_CUDA_CALLED void symmem_cuda_run_reduce(const symmem_cuda_job &job,
                                               const symmem_cuda_step &step, size_t lane,
                                               size_t lanes) {
    const size_t bytes = sizeof(typename Element::bits);
    const size_t per_unit = sizeof(symmem_cuda_unit) / bytes;
    if (step.count == 0)
        return;
    if (job.world_size == 1) {
        symmem_cuda_reduce_alone(job, step, lane, lanes);
        return;
    }
    if (step.row != step.row_step && step.row != step.count) {
        symmem_cuda_reduce_rows<Element>(job, step, lane, lanes);
        return;
    }
    if (!symmem_cuda_are_alike(job, step)) {
        symmem_cuda_reduce_singly<Element>(job, step, 0, step.count, lane, lanes);
        return;
    }
    const size_t head = symmem_cuda_head_bytes(symmem_cuda_source(&job, &step, 0),
                                               sizeof(symmem_cuda_unit), step.count * bytes) /
                        bytes;
    const size_t units = (step.count - head) / per_unit, tail = head + units * per_unit;
    symmem_cuda_reduce_singly<Element>(job, step, 0, head, lane, lanes);
    symmem_cuda_reduce_units<Element>(job, step, head * bytes, units, lane, lanes);
    symmem_cuda_reduce_singly<Element>(job, step, tail, step.count, lane, lanes);
}

#endif
