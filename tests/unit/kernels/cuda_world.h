// SPDX-License-Identifier: BSD-3-Clause
// All ranks of a collective of the device's, run on the CPU one after the other, from barrier to
// barrier, and watched for races; what their memory is to look like after it, by the scalar
// reference; and one test of that. Of cuda_collective.cpp.
#ifndef UNIT_CUDA_WORLD_H
#define UNIT_CUDA_WORLD_H

#include <CUnit/Basic.h>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cuda/collective_job.h"
#include "cuda/reduce_loop.h"
#include "random_elements.h"

namespace {

typedef std::vector<char> bytes;
const size_t SPARE = 96; // around each tensor
const int MOST_RANKS = 9;

// --- one world ---------------------------------------------------------------------------

// A test's call, which is the same on all ranks except for pointers.
struct test {
    symmem_call_kind kind;
    symmem_dtype dtype;
    symmem_reduce_op op;
    int ranks;
    size_t count;     // as in the call
    size_t in_bytes;  // of each rank's private input; 0: none
    size_t out_bytes; // of each rank's private output; 0: none
    size_t buffer_bytes;
    size_t offset;
    size_t in_row, out_row;
    size_t in_shift, out_shift; // elements
    bool out_is_in;
    bool checking;
    int root;
};

struct rank_memory {
    bytes buffer, in, out, signals;
    char *in_at, *out_at;
};

struct world {
    rank_memory rank[MOST_RANKS];
    void *buffers[MOST_RANKS], *signals[MOST_RANKS];
    symmem_cuda_job job[MOST_RANKS];
    std::vector<size_t> in_splits[MOST_RANKS], out_splits[MOST_RANKS];
};

char *aligned(bytes &memory) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(memory.data()) + SPARE;
    return memory.data() + SPARE + (64 - at % 64) % 64;
}

void fill(char *at, size_t size, symmem_dtype dtype) {
    const size_t element = symmem_reference_element_bytes(dtype, SYMMEM_SUM);
    for (size_t i = 0; i + element <= size; i += element) {
        const uint64_t bits = random_element(dtype);
        memcpy(at + i, &bits, element);
    }
}

void make_rank(world &w, const test &t, int r) {
    const size_t element = symmem_reference_element_bytes(t.dtype, SYMMEM_SUM);
    rank_memory &m = w.rank[r];
    m.buffer.assign(t.buffer_bytes + 4 * SPARE, 0x5a);
    m.in.assign(t.in_bytes + 4 * SPARE, 0x5b);
    m.out.assign(t.out_bytes + 4 * SPARE, 0x5c);
    m.signals.assign(sizeof(uint64_t) * SYMMEM_CUDA_SPLIT_TABLE_WORDS(t.ranks) + 4 * SPARE, 0);
    w.buffers[r] = aligned(m.buffer);
    w.signals[r] = aligned(m.signals);
    fill(static_cast<char *>(w.buffers[r]), t.buffer_bytes, t.dtype);
    m.in_at = t.in_bytes > 0 ? aligned(m.in) + t.in_shift * element : nullptr;
    if (m.in_at != nullptr)
        fill(m.in_at, t.in_bytes, t.dtype);
    m.out_at = t.out_bytes > 0 ? aligned(m.out) + t.out_shift * element : nullptr;
    if (t.out_is_in)
        m.out_at = m.in_at;
}

symmem_collective call_of(const world &w, const test &t, int r) {
    symmem_collective call;
    memset(&call, 0, sizeof call);
    call.kind = t.kind;
    call.dtype = t.dtype;
    call.op = t.op;
    call.root = t.root;
    call.count = t.count;
    call.offset = t.offset;
    call.in_row = t.in_row;
    call.out_row = t.out_row;
    call.in = w.rank[r].in_at;
    call.out = w.rank[r].out_at;
    return call;
}

void make_world(world &w, const test &t) {
    const size_t element = symmem_reference_element_bytes(t.dtype, SYMMEM_SUM);
    for (int r = 0; r < t.ranks; r++)
        make_rank(w, t, r);
    for (int r = 0; r < t.ranks; r++) {
        const symmem_collective call = call_of(w, t, r);
        w.job[r] = symmem_cuda_job_of(&call, r, t.ranks, element, t.checking);
        w.job[r].buffers = w.buffers;
        w.job[r].signals = w.signals;
    }
}

// --- races ----------------------------------------------------------------------------

struct access {
    const char *begin, *end;
    int rank;
    bool writes;
};

typedef std::vector<access> accesses;

void note(accesses &list, int rank, const char *at, size_t size, bool writes) {
    if (size > 0)
        list.push_back(access{at, at + size, rank, writes});
}

void note_step(accesses &list, const symmem_cuda_job &job, const symmem_cuda_step &step) {
    const size_t size = step.count * job.element;
    if (step.kind == SYMMEM_CUDA_MOVE) {
        for (int32_t i = 0; i < symmem_cuda_segments(&job, &step); i++) {
            const symmem_cuda_segment s = symmem_cuda_segment_of(&job, &step, i);
            if (s.dst != s.src) {
                note(list, job.rank, s.src, s.bytes, false);
                note(list, job.rank, s.dst, s.bytes, true);
            }
        }
    } else if (step.kind == SYMMEM_CUDA_SWAP) {
        note(list, job.rank, symmem_cuda_at(&job, job.rank, step.offset), size, true);
    } else if (step.kind == SYMMEM_CUDA_REDUCE) {
        const size_t rows = step.row > 0 ? step.count / step.row : 0;
        for (int32_t k = 0; k < job.world_size; k++)
            for (size_t row = 0; row < rows; row++)
                note(list, job.rank,
                     symmem_cuda_source(&job, &step, k) + row * step.row_step * job.element,
                     step.row * job.element, false);
        for (int32_t k = 0; k < symmem_cuda_targets(&job, &step); k++)
            note(list, job.rank, symmem_cuda_target(&job, &step, k), size, true);
    }
}

bool races(const accesses &list) {
    for (size_t i = 0; i < list.size(); i++)
        for (size_t j = 0; j < i; j++)
            if (list[i].rank != list[j].rank && (list[i].writes || list[j].writes) &&
                list[i].begin < list[j].end && list[j].begin < list[i].end)
                return true;
    return false;
}

// --- running ----------------------------------------------------------------------------

template <typename Element>
void run_reduce(const symmem_cuda_job &job, const symmem_cuda_step &step, size_t lane,
                size_t lanes) {
    symmem_cuda_run_reduce<Element>(job, step, lane, lanes);
}

typedef void (*reduce_fn)(const symmem_cuda_job &, const symmem_cuda_step &, size_t, size_t);

reduce_fn reduce_of(symmem_dtype dtype) {
    switch (dtype) {
    case SYMMEM_UINT8:
        return run_reduce<symmem_cuda_unsigned<uint8_t>>;
    case SYMMEM_INT8:
        return run_reduce<symmem_cuda_signed<int8_t>>;
    case SYMMEM_UINT16:
        return run_reduce<symmem_cuda_unsigned<uint16_t>>;
    case SYMMEM_INT16:
        return run_reduce<symmem_cuda_signed<int16_t>>;
    case SYMMEM_UINT32:
        return run_reduce<symmem_cuda_unsigned<uint32_t>>;
    case SYMMEM_INT32:
        return run_reduce<symmem_cuda_signed<int32_t>>;
    case SYMMEM_UINT64:
        return run_reduce<symmem_cuda_unsigned<uint64_t>>;
    case SYMMEM_INT64:
        return run_reduce<symmem_cuda_signed<int64_t>>;
    case SYMMEM_FLOAT16:
        return run_reduce<symmem_cuda_f16>;
    case SYMMEM_BFLOAT16:
        return run_reduce<symmem_cuda_bf16>;
    case SYMMEM_FLOAT64:
        return run_reduce<symmem_cuda_f64>;
    default:
        return run_reduce<symmem_cuda_f32>;
    }
}

// The order in which lanes and ranks run.
struct manner {
    size_t lanes;
    bool backwards;
};

void run_step(const symmem_cuda_job &job, const symmem_cuda_step &step, symmem_dtype dtype,
              const manner &how) {
    for (size_t i = 0; i < how.lanes; i++) {
        const size_t lane = how.backwards ? how.lanes - 1 - i : i;
        if (step.kind == SYMMEM_CUDA_MOVE)
            symmem_cuda_run_move(job, step, lane, how.lanes);
        else if (step.kind == SYMMEM_CUDA_SWAP)
            symmem_cuda_run_swap(job, step, lane, how.lanes);
        else
            reduce_of(dtype)(job, step, lane, how.lanes);
    }
}

enum stop { ENDED, MET, AGREED };

// The steps of one rank up to its next barrier, if `runs`; else they are only noted.
stop run_rank(world &w, const test &t, int r, symmem_cuda_cursor *place, const manner &how,
              accesses &list) {
    symmem_cuda_step step;
    while (symmem_cuda_next(&w.job[r], place, &step)) {
        if (step.kind == SYMMEM_CUDA_SYNC)
            return MET;
        if (step.kind == SYMMEM_CUDA_AGREE)
            return AGREED;
        CU_ASSERT_EQUAL(step.first, !place->met);
        note_step(list, w.job[r], step);
        run_step(w.job[r], step, t.dtype, how);
    }
    return ENDED;
}

// Ranks run from barrier to barrier; false if they race or do not synchronize. *meetings_p: how
// often.
bool run_world(world &w, const test &t, const manner &how, int *meetings_p) {
    symmem_cuda_cursor places[MOST_RANKS] = {};
    for (*meetings_p = 0;; ++*meetings_p) {
        accesses list;
        stop stopped[MOST_RANKS] = {};
        for (int i = 0; i < t.ranks; i++) {
            const int r = how.backwards ? t.ranks - 1 - i : i;
            stopped[r] = run_rank(w, t, r, &places[r], how, list);
        }
        for (int r = 1; r < t.ranks; r++)
            if (stopped[r] != stopped[0])
                return false;
        if (races(list))
            return false;
        if (stopped[0] == ENDED)
            return true;
    }
}

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

// Bytes of the buffers, from `offset` on, that a form of the call may change.
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
