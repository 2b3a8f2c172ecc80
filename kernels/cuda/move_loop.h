/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MOVE and SWAP steps of a collective, executed by one thread of many: `lane` of `lanes`. CUDA
 * C++, and C++ for the unit test. Lanes access nothing beyond a segment's bytes, and no two lanes
 * access one byte.
 */
#ifndef SYMMEM_KERNELS_CUDA_MOVE_LOOP_H
#define SYMMEM_KERNELS_CUDA_MOVE_LOOP_H

#include "cuda/collective_plan.h"

struct alignas(16) symmem_cuda_unit {
    uint64_t low, high;
};

/* Four at a time, so that four loads are in flight. */
template <typename Unit>
SYMMEM_CUDA_BOTH void symmem_cuda_move_units(char *to, const char *from, size_t count, size_t lane,
                                             size_t lanes) {
    Unit *dst = reinterpret_cast<Unit *>(to);
    const Unit *src = reinterpret_cast<const Unit *>(from);
    size_t i = lane;
    for (; i < count && count - i > 3 * lanes; i += 4 * lanes) {
        const Unit a = src[i], b = src[i + lanes], c = src[i + 2 * lanes], d = src[i + 3 * lanes];
        dst[i] = a;
        dst[i + lanes] = b;
        dst[i + 2 * lanes] = c;
        dst[i + 3 * lanes] = d;
    }
    for (; i < count; i += lanes)
        dst[i] = src[i];
}

template <typename Unit>
SYMMEM_CUDA_BOTH void symmem_cuda_swap_units(char *one, char *other, size_t count, size_t lane,
                                             size_t lanes) {
    Unit *a = reinterpret_cast<Unit *>(one), *b = reinterpret_cast<Unit *>(other);
    for (size_t i = lane; i < count; i += lanes) {
        const Unit kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

/* Returns the largest unit to which both addresses have the same alignment: 16, 8, 4, 2 or 1. */
SYMMEM_CUDA_BOTH size_t symmem_cuda_unit_bytes(const void *a, const void *b) {
    uintptr_t apart = ((uintptr_t)a ^ (uintptr_t)b) | 16;
    return (size_t)(apart & (~apart + 1));
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_head_bytes(const void *at, size_t unit, size_t bytes) {
    size_t head = (unit - (uintptr_t)at % unit) % unit;
    return head < bytes ? head : bytes;
}

/* Moves the lead, the body in whole units, and the rest. Passed by reference the segment would lie
 * on a stack, and a kernel with a stack starts later. */
SYMMEM_CUDA_CALLED void symmem_cuda_move(symmem_cuda_segment segment, size_t lane, size_t lanes) {
    char *dst = segment.dst;
    const char *src = segment.src;
    if (dst == src || segment.bytes == 0)
        return;
    const size_t unit = symmem_cuda_unit_bytes(dst, src);
    const size_t head = symmem_cuda_head_bytes(dst, unit, segment.bytes);
    const size_t count = (segment.bytes - head) / unit, body = head + count * unit;
    symmem_cuda_move_units<char>(dst, src, head, lane, lanes);
    if (unit == 16)
        symmem_cuda_move_units<symmem_cuda_unit>(dst + head, src + head, count, lane, lanes);
    else if (unit == 8)
        symmem_cuda_move_units<uint64_t>(dst + head, src + head, count, lane, lanes);
    else if (unit == 4)
        symmem_cuda_move_units<uint32_t>(dst + head, src + head, count, lane, lanes);
    else if (unit == 2)
        symmem_cuda_move_units<uint16_t>(dst + head, src + head, count, lane, lanes);
    else
        symmem_cuda_move_units<char>(dst + head, src + head, count, lane, lanes);
    symmem_cuda_move_units<char>(dst + body, src + body, segment.bytes - body, lane, lanes);
}

SYMMEM_CUDA_CALLED void symmem_cuda_run_move(const symmem_cuda_job &job,
                                             const symmem_cuda_step &step, size_t lane,
                                             size_t lanes) {
    const int32_t count = symmem_cuda_segments(&job, &step);
    for (int32_t i = 0; i < count; i++)
        symmem_cuda_move(symmem_cuda_segment_of(&job, &step, i), lane, lanes);
}

/* Elements have 1, 2, 4 or 8 bytes, and both addresses are aligned to that. */
SYMMEM_CUDA_CALLED void symmem_cuda_run_swap(const symmem_cuda_job &job,
                                             const symmem_cuda_step &step, size_t lane,
                                             size_t lanes) {
    char *out = job.out + step.at, *own = symmem_cuda_at(&job, job.rank, step.offset);
    if (job.element == 8)
        symmem_cuda_swap_units<uint64_t>(out, own, step.count, lane, lanes);
    else if (job.element == 4)
        symmem_cuda_swap_units<uint32_t>(out, own, step.count, lane, lanes);
    else if (job.element == 2)
        symmem_cuda_swap_units<uint16_t>(out, own, step.count, lane, lanes);
    else
        symmem_cuda_swap_units<char>(out, own, step.count, lane, lanes);
}

#endif
