// SPDX-License-Identifier: BSD-3-Clause
// What the ranks' memory is to look like after a collective, by the scalar reference, and one test
// of that. Of cuda_collective.cpp.
#ifndef UNIT_CUDA_EXPECT_H
#define UNIT_CUDA_EXPECT_H

#include "cuda_world.h"

namespace {

// --- what is to come out ------------------------------------------------------------------

// Rank r's share of the input of a reduction, wherever that is.
const char *input_of(const world &w, const test &t, int r) {
    return w.rank[r].in_at != nullptr ? w.rank[r].in_at
                                      : static_cast<const char *>(w.buffers[r]) + t.offset;
}

bytes reduced(const world &w, const test &t, size_t elements) {
    const void *srcs[MOST_RANKS];
    bytes result(elements * symmem_reference_element_bytes(t.dtype, t.op));
    for (int r = 0; r < t.ranks; r++)
        srcs[r] = input_of(w, t, r);
    CU_ASSERT(symmem_reference_reduce(result.data(), srcs, t.ranks, elements, t.dtype, t.op));
    return result;
}

// All that a rank can see, to be compared as a whole. Scratch of a copy form is left out.
struct picture {
    bytes buffer[MOST_RANKS], in[MOST_RANKS], out[MOST_RANKS];
};

void take(picture &p, const world &w, const test &t) {
    for (int r = 0; r < t.ranks; r++) {
        p.buffer[r] = w.rank[r].buffer;
        p.in[r] = w.rank[r].in;
        p.out[r] = w.rank[r].out;
    }
}

void put(bytes &image, const bytes &memory, const char *at, const char *from, size_t size) {
    if (size > 0)
        memcpy(image.data() + (at - memory.data()), from, size);
}

void put_out(picture &p, const world &w, int r, const bytes &result, size_t begin, size_t size) {
    const rank_memory &m = w.rank[r];
    if (m.out_at == m.in_at)
        put(p.in[r], m.in, m.out_at, result.data() + begin, size);
    else
        put(p.out[r], m.out, m.out_at, result.data() + begin, size);
}

void put_buffer(picture &p, const world &w, int r, size_t offset, const char *from, size_t size) {
    put(p.buffer[r], w.rank[r].buffer, static_cast<char *>(w.buffers[r]) + offset, from, size);
}

void expect_all_reduce(picture &p, const world &w, const test &t) {
    const bytes result = reduced(w, t, t.count);
    for (int r = 0; r < t.ranks; r++) {
        if (w.rank[r].out_at != nullptr)
            put_out(p, w, r, result, 0, result.size());
        else
            put_buffer(p, w, r, t.offset, result.data(), result.size());
    }
}

void expect_scatter(picture &p, const world &w, const test &t) {
    const size_t element = symmem_reference_element_bytes(t.dtype, t.op);
    const size_t row = t.out_row > 0 ? t.out_row : t.count, rows = row > 0 ? t.count / row : 0;
    const bytes result = reduced(w, t, t.count * static_cast<size_t>(t.ranks));
    for (int r = 0; r < t.ranks; r++) {
        bytes part;
        for (size_t i = 0; i < rows; i++) {
            const size_t from = (i * static_cast<size_t>(t.ranks) + static_cast<size_t>(r)) * row;
            part.insert(part.end(), result.data() + from * element,
                        result.data() + (from + row) * element);
        }
        put_out(p, w, r, part, 0, part.size());
    }
}

void expect_gather(picture &p, const world &w, const test &t) {
    const size_t size = t.count * symmem_reference_element_bytes(t.dtype, SYMMEM_SUM);
    bytes result;
    for (int r = 0; r < t.ranks; r++)
        result.insert(result.end(), input_of(w, t, r), input_of(w, t, r) + size);
    for (int r = 0; r < t.ranks; r++) {
        if (w.rank[r].out_at != nullptr)
            put_out(p, w, r, result, 0, result.size());
        else
            put_buffer(p, w, r, t.offset, result.data(), result.size());
    }
}

void expect_broadcast(picture &p, const world &w, const test &t) {
    const size_t size = t.count * symmem_reference_element_bytes(t.dtype, SYMMEM_SUM);
    const char *from = static_cast<const char *>(w.buffers[t.root]) + t.offset;
    for (int r = 0; r < t.ranks; r++)
        put_buffer(p, w, r, t.offset, from, size);
}

void expect(picture &p, const world &w, const test &t) {
    if (t.count == 0)
        return;
    switch (t.kind) {
    case SYMMEM_CALL_ALL_GATHER:
        expect_gather(p, w, t);
        break;
    case SYMMEM_CALL_BROADCAST:
        expect_broadcast(p, w, t);
        break;
    case SYMMEM_CALL_REDUCE_SCATTER:
    case SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER:
        expect_scatter(p, w, t);
        break;
    default:
        expect_all_reduce(p, w, t);
    }
}

// What a form may leave behind in the buffers, in bytes from `offset` on.
size_t scratch_bytes(const test &t) {
    const size_t element = symmem_reference_element_bytes(t.dtype, SYMMEM_SUM);
    if (t.in_bytes == 0 || t.out_bytes + (t.out_is_in ? 1 : 0) == 0)
        return 0;
    if (t.kind == SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER)
        return t.count * element * static_cast<size_t>(t.ranks);
    return (t.in_row < t.count ? t.in_row : t.count) * element;
}

bool same(const picture &wanted, picture found, const world &w, const test &t) {
    const size_t scratch = scratch_bytes(t);
    for (int r = 0; r < t.ranks; r++) {
        if (scratch > 0) {
            const char *at = static_cast<const char *>(w.buffers[r]) + t.offset;
            put(found.buffer[r], w.rank[r].buffer, at,
                wanted.buffer[r].data() + (at - w.rank[r].buffer.data()), scratch);
        }
        if (found.buffer[r] != wanted.buffer[r] || found.in[r] != wanted.in[r] ||
            found.out[r] != wanted.out[r])
            return false;
    }
    return true;
}

int runs = 0;

void check(const test &t) {
    static const manner manners[] = {{1, false}, {5, true}, {64, false}, {67, true}};
    const manner &how = manners[runs++ % 4];
    static world w;
    picture wanted, found;
    int meetings = 0;
    make_world(w, t);
    take(wanted, w, t);
    expect(wanted, w, t);
    const bool ran = run_world(w, t, how, &meetings);
    take(found, w, t);
    const bool right = ran && meetings > 0 && same(wanted, found, w, t);
    CU_ASSERT(right);
    if (!right)
        printf(
            "\n  kind %d dtype %d op %d ranks %d count %zu offset %zu in %zu out %zu rows %zu %zu "
            "shifts %zu %zu same %d checking %d: %s",
            t.kind, t.dtype, t.op, t.ranks, t.count, t.offset, t.in_bytes, t.out_bytes, t.in_row,
            t.out_row, t.in_shift, t.out_shift, t.out_is_in, t.checking,
            ran ? "wrong bytes" : "ranks race or do not synchronize");
}

} // namespace

#endif
