// SPDX-License-Identifier: BSD-3-Clause
// The collectives of the device, with all ranks and lanes run on the CPU one after the other. Plan,
// loops and arithmetic are those of the kernels. The results are compared with the scalar reference
// bit for bit. On a device lanes and ranks run at once. Two checks stand in for that: no rank may
// write, between two barrier phases, what another one touches, and the result is the same for every
// order of ranks and lanes.
#include "unit_main.h"
#include "cuda_world.h"
#include "cuda/collective.h"

namespace {

// --- all forms, with every dtype, op, count and place ---------------------------------------

const int worlds[] = {1, 2, 3, 4, 8, 9};
const size_t counts[] = {0, 1, 2, 3, 7, 16, 33, 64, 257, 1031};

template <typename Visit> void for_each_pair(Visit visit) {
    for (int d = 0; d < SYMMEM_DTYPE_COUNT; d++)
        for (int o = 0; o < SYMMEM_REDUCE_OP_COUNT; o++) {
            const symmem_dtype dtype = static_cast<symmem_dtype>(d);
            const symmem_reduce_op op = static_cast<symmem_reduce_op>(o);
            if (symmem_reference_element_bytes(dtype, op) != 0)
                visit(dtype, op);
        }
}

// A test of a pair with places that depend on nothing but chance.
test some_test(symmem_call_kind kind, symmem_dtype dtype, symmem_reduce_op op, int ranks,
               size_t count) {
    const size_t element = symmem_reference_element_bytes(dtype, op);
    test t = {};
    t.kind = kind;
    t.dtype = dtype;
    t.op = op;
    t.ranks = ranks;
    t.count = count;
    t.offset = (random_bits() % 3 == 0 ? random_bits() % 20 : 0) * element;
    t.in_shift = random_bits() % 2 ? random_bits() % 5 : 0;
    t.out_shift = random_bits() % 2 ? random_bits() % 5 : t.offset / element;
    t.checking = random_bits() % 2 != 0;
    t.root = static_cast<int>(random_bits() % static_cast<unsigned>(ranks));
    t.buffer_bytes = t.offset + count * element;
    return t;
}

template <typename Change> void sweep(symmem_call_kind kind, Change change) {
    for_each_pair([&](symmem_dtype dtype, symmem_reduce_op op) {
        for (const int ranks : worlds)
            for (const size_t count : counts) {
                test t = some_test(kind, dtype, op, ranks, count);
                const size_t size = count * symmem_reference_element_bytes(dtype, op);
                change(t, size);
                check(t);
            }
    });
}

TEST("one-shot") {
    sweep(SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, [](test &t, size_t size) { t.out_bytes = size; });
}

// The least that the contracts call enough, too.
void passing(test &t, size_t size, size_t least) {
    const size_t rooms[] = {t.count, least, t.count / 3, t.count + 5};
    t.in_bytes = size;
    t.in_row = rooms[random_bits() % 4];
    t.in_row = t.in_row < least ? least : t.in_row;
    t.out_is_in = random_bits() % 3 == 0;
    t.out_bytes = t.out_is_in ? 0 : size;
    if (t.count > 300 && t.in_row < 10)
        t.in_row = 40;
}

TEST("one-shot copy") {
    sweep(SYMMEM_CALL_ONE_SHOT_ALL_REDUCE,
          [](test &t, size_t size) { passing(t, size, t.count < 2 ? t.count : 2); });
}

TEST("two-shot in place") {
    sweep(SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, [](test &, size_t) {});
}

TEST("two-shot copy in place") {
    sweep(SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, [](test &t, size_t size) { t.in_bytes = size; });
}

TEST("two-shot out") {
    sweep(SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, [](test &t, size_t size) { t.out_bytes = size; });
}

TEST("two-shot copy") {
    sweep(SYMMEM_CALL_TWO_SHOT_ALL_REDUCE,
          [](test &t, size_t size) { passing(t, size, t.count < 3 ? t.count : 3); });
}

TEST("reduce-scatter") {
    sweep(SYMMEM_CALL_REDUCE_SCATTER, [](test &t, size_t size) {
        const size_t rows = t.count % 3 == 0 ? 3 : t.count % 7 == 0 ? 7 : 1;
        t.out_row = t.count / rows;
        t.in_row = t.out_row * static_cast<size_t>(t.ranks);
        t.out_bytes = size;
        t.buffer_bytes = t.offset + size * static_cast<size_t>(t.ranks);
    });
}

TEST("low-contention reduce-scatter") {
    for (int push = 0; push < 2; push++)
        sweep(SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER, [&](test &t, size_t size) {
            t.out_bytes = size;
            t.in_bytes = push ? size * static_cast<size_t>(t.ranks) : 0;
            t.buffer_bytes = t.offset + size * static_cast<size_t>(t.ranks);
        });
}

TEST("all-gather") {
    for (int push = 0; push < 2; push++)
        sweep(SYMMEM_CALL_ALL_GATHER, [&](test &t, size_t size) {
            const size_t all = size * static_cast<size_t>(t.ranks);
            t.in_bytes = push ? size : 0;
            t.out_bytes = push ? 0 : all;
            t.buffer_bytes = t.offset + (push ? all : size);
        });
}

TEST("broadcast") {
    sweep(SYMMEM_CALL_BROADCAST, [](test &, size_t) {});
}

// --- all to all ---------------------------------------------------------------------------

const size_t MOST_PART = 70;

void show_boards(world &w, const test &t) {
    for (int r = 0; r < t.ranks; r++) {
        symmem_collective call = call_of(w, t, r);
        call.in_splits = w.in_splits[r].data();
        call.out_splits = w.out_splits[r].data();
        call.in = w.job[r].in;
        symmem_cuda_fill_split_table(&w.job[r], &call, w.buffers[r],
                                     static_cast<uint64_t *>(w.signals[r]));
        w.job[r].buffer_bytes = t.buffer_bytes;
        w.job[r].out_bytes = symmem_cuda_out_spaces(&w.job[r])[t.ranks];
    }
}

// Splits at random, and inputs at different places of the ranks' buffers.
void make_parts(world &w, test &t) {
    const size_t element = symmem_reference_element_bytes(t.dtype, SYMMEM_SUM);
    const size_t n = static_cast<size_t>(t.ranks);
    t.buffer_bytes = (n * MOST_PART + 40) * element;
    t.out_bytes = n * MOST_PART * element;
    make_world(w, t);
    for (size_t r = 0; r < n; r++) {
        w.in_splits[r].assign(n, 0);
        w.out_splits[r].assign(n, 0);
        w.job[r].in = static_cast<const char *>(w.buffers[r]) + random_bits() % 40 * element;
    }
    for (size_t r = 0; r < n; r++)
        for (size_t p = 0; p < n; p++)
            w.in_splits[r][p] = w.out_splits[p][r] =
                random_bits() % 4 == 0 ? 0 : random_bits() % MOST_PART;
}

bytes parts_of(const world &w, const test &t, size_t r) {
    const size_t element = symmem_reference_element_bytes(t.dtype, SYMMEM_SUM);
    bytes result;
    for (size_t p = 0; p < static_cast<size_t>(t.ranks); p++) {
        const char *at = w.job[p].in;
        for (size_t q = 0; q < r; q++)
            at += w.in_splits[p][q] * element;
        const size_t sent = w.in_splits[p][r], room = w.out_splits[r][p];
        result.insert(result.end(), at, at + (sent < room ? sent : room) * element);
        for (size_t i = sent; i < room; i++) // nothing comes there
            result.insert(result.end(), element, 0x5c);
    }
    return result;
}

TEST("all-to-all") {
    static world w;
    for (int round = 0; round < 600; round++) {
        const symmem_dtype dtype = static_cast<symmem_dtype>(round % SYMMEM_DTYPE_COUNT);
        test t = some_test(SYMMEM_CALL_ALL_TO_ALL, dtype, SYMMEM_SUM, worlds[round % 6], 0);
        picture wanted, found;
        int meetings = 0;
        make_parts(w, t);
        if (!t.checking && round % 2) // the shorter is moved
            w.out_splits[0][0] += 3;
        show_boards(w, t);
        take(wanted, w, t);
        for (int r = 0; r < t.ranks; r++) {
            const bytes result = parts_of(w, t, static_cast<size_t>(r));
            put_out(wanted, w, r, result, 0, result.size());
        }
        CU_ASSERT(run_world(w, t, manner{31, round % 2 != 0}, &meetings));
        CU_ASSERT_EQUAL(meetings, t.checking ? 3 : 2);
        take(found, w, t);
        CU_ASSERT(same(wanted, found, w, t));
    }
}

// The splits of one pair differ. Both ranks report their own pair with both numbers, and the other
// ranks report that pair, too.
TEST("all-to-all dispute") {
    static world w;
    for (int round = 0; round < 200; round++) {
        test t = some_test(SYMMEM_CALL_ALL_TO_ALL, SYMMEM_INT32, SYMMEM_SUM, worlds[round % 6], 0);
        make_parts(w, t);
        const int from = static_cast<int>(random_bits() % static_cast<unsigned>(t.ranks));
        const int to = static_cast<int>(random_bits() % static_cast<unsigned>(t.ranks));
        if (round % 5 != 0)
            w.out_splits[to][static_cast<size_t>(from)] += 2;
        const size_t sent = w.in_splits[from][static_cast<size_t>(to)];
        const size_t room = w.out_splits[to][static_cast<size_t>(from)];
        show_boards(w, t);
        for (int r = 0; r < t.ranks; r++)
            symmem_cuda_publish_split_check(&w.job[r]);
        for (int r = 0; r < t.ranks; r++) {
            const symmem_cuda_split_mismatch found = symmem_cuda_find_split_mismatch(&w.job[r]);
            if (sent == room) {
                CU_ASSERT_EQUAL(found.rank, -1);
                continue;
            }
            CU_ASSERT_EQUAL(found.rank, r == to ? from : to);
            CU_ASSERT_EQUAL(found.own, r == to ? room : r == from ? sent : 0);
            CU_ASSERT_EQUAL(found.other, r == to ? sent : r == from ? room : 0);
        }
    }
}

// Values that a faulty peer may write into its split table and into this rank's. They move no data,
// and the rank that is blamed exists.
TEST("all-to-all corrupt") {
    static world w;
    for (int round = 0; round < 400; round++) {
        test t = some_test(SYMMEM_CALL_ALL_TO_ALL, SYMMEM_INT32, SYMMEM_SUM, worlds[round % 6], 0);
        make_parts(w, t);
        show_boards(w, t);
        const int p = static_cast<int>(random_bits() % static_cast<unsigned>(t.ranks));
        symmem_cuda_job *job = &w.job[0];
        CU_ASSERT_EQUAL(symmem_cuda_invalid_split(job), t.ranks);
        uint64_t *theirs = static_cast<uint64_t *>(w.signals[p]);
        uint64_t *rooms = static_cast<uint64_t *>(w.signals[0]) + t.ranks + 3;
        const uint64_t odd[] = {UINT64_MAX, UINT64_MAX - 3, t.buffer_bytes + 4, 0x414141414141u};
        uint64_t *const words[] = {&theirs[0], &theirs[1], &rooms[p], &rooms[p + 1]};
        uint64_t *const word = words[round % 4], right = *word;
        *word = odd[round / 4 % 4];
        if (round % 4 < 2) // otherwise its neighbor may be wrong as well
            CU_ASSERT_EQUAL(symmem_cuda_invalid_split(job), p);
        CU_ASSERT(symmem_cuda_invalid_split(job) < t.ranks);
        CU_ASSERT_EQUAL(symmem_cuda_fetch_of(job, symmem_cuda_invalid_split(job)).bytes, 0);
        *word = right;
        for (int r = 0; r < t.ranks; r++)
            symmem_cuda_publish_split_check(&w.job[r]);
        theirs[t.ranks + 1] = round % 2 ? static_cast<uint64_t>(t.ranks) + 1 : 0x3fffffff;
        const symmem_cuda_split_mismatch found = symmem_cuda_find_split_mismatch(job);
        CU_ASSERT(found.corrupt);
        CU_ASSERT_EQUAL(found.rank, p);
    }
}

// --- the plan -----------------------------------------------------------------------------

// Every element is in just one rank's shard, and shards begin where lines do.
TEST("shards") {
    const size_t elements[] = {1, 2, 4, 8};
    for (int round = 0; round < 20000; round++) {
        symmem_cuda_job job = {};
        job.world_size = 1 + static_cast<int32_t>(random_bits() % 1024);
        job.element = elements[round % 4];
        const size_t count = random_bits() >> (random_bits() % 61 + 3);
        CU_ASSERT_EQUAL(symmem_cuda_shard(&job, count, 0), 0);
        CU_ASSERT_EQUAL(symmem_cuda_shard(&job, count, job.world_size), count);
        size_t before = 0;
        for (int32_t r = 1; r <= job.world_size; r++) {
            const size_t begin = symmem_cuda_shard(&job, count, r);
            CU_ASSERT(begin >= before);
            CU_ASSERT(begin == count || begin * job.element % SYMMEM_CUDA_SHARD_UNIT == 0);
            before = begin;
        }
    }
}

// Any two places and sizes, with the bytes around them.
TEST("moves") {
    bytes from(300), to(300), wanted(300);
    for (int round = 0; round < 20000; round++) {
        for (size_t i = 0; i < from.size(); i++) {
            from[i] = static_cast<char>(random_bits());
            to[i] = static_cast<char>(random_bits());
        }
        const size_t at = random_bits() % 40, src = random_bits() % 40;
        const size_t size = random_bits() % (random_bits() % 2 ? 250 : 20);
        wanted = to;
        memcpy(wanted.data() + at, from.data() + src, size);
        const size_t lanes = 1 + random_bits() % 9;
        const symmem_cuda_segment segment = {to.data() + at, from.data() + src, size};
        for (size_t lane = lanes; lane-- > 0;)
            symmem_cuda_move(segment, lane, lanes);
        CU_ASSERT(to == wanted);
    }
}

// --- arithmetic ---------------------------------------------------------------------------

// Two numbers at once are as each for itself; NaNs are seen.
void check_pair(float low, float high) {
    const bool numbers = !std::isnan(low) && !std::isnan(high);
    CU_ASSERT_EQUAL(symmem_cuda_are_numbers(low, high), numbers);
    if (!numbers)
        return;
    CU_ASSERT_EQUAL(symmem_cuda_numbers_to_halves(low, high),
                    symmem_reference_to_half(low) |
                        static_cast<uint32_t>(symmem_reference_to_half(high)) << 16);
    CU_ASSERT_EQUAL(symmem_cuda_numbers_to_bfloats(low, high),
                    symmem_reference_to_bfloat(low) |
                        static_cast<uint32_t>(symmem_reference_to_bfloat(high)) << 16);
}

TEST("half conversions") {
    float other = 1;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const uint16_t half = static_cast<uint16_t>(bits);
        CU_ASSERT_EQUAL(symmem_cuda_bits(symmem_cuda_from_half(half)),
                        symmem_cuda_bits(symmem_reference_from_half(half)));
        CU_ASSERT_EQUAL(symmem_cuda_bits(symmem_cuda_from_bfloat(half)),
                        symmem_cuda_bits(symmem_reference_from_bfloat(half)));
    }
    // Every upper half, with lower halves at and around the rounding boundaries.
    static const uint32_t lows[] = {0,      1,      0xfff,  0x1000, 0x1001,
                                    0x1fff, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t high = 0; high < 0x10000; high++)
        for (const uint32_t low : lows)
            for (uint32_t middle = 0; middle < 0x10000; middle += 0x2000) {
                const float value = symmem_cuda_float(high << 16 | ((middle + low) & 0xffffu));
                CU_ASSERT_EQUAL(symmem_cuda_to_half(value), symmem_reference_to_half(value));
                CU_ASSERT_EQUAL(symmem_cuda_to_bfloat(value), symmem_reference_to_bfloat(value));
                check_pair(value, other);
                other = value;
            }
}

// Pairs and triples of the values where rules begin and end, in every order.
TEST("special values") {
    static const uint64_t specials[] = {0,      1,      2,      0x3ff,  0x400,  0x7f,   0x80,
                                        0x3c00, 0x3f80, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7f7f,
                                        0x7f80, 0x7f81, 0x7fc0, 0x7fff, 0x5555};
    const int n = static_cast<int>(sizeof specials / sizeof specials[0]);
    for_each_pair([&](symmem_dtype dtype, symmem_reduce_op op) {
        const size_t element = symmem_reference_element_bytes(dtype, op);
        test t = some_test(SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, dtype, op, 3, 4u * n * n * n);
        t.offset = t.out_shift = 0;
        t.buffer_bytes = t.out_bytes = t.count * element;
        static world w;
        make_world(w, t);
        for (int i = 0; i < 4 * n * n * n; i++)
            for (int r = 0; r < 3; r++) {
                const int which = r == 0 ? i / 4 % n : r == 1 ? i / 4 / n % n : i / 4 / n / n;
                uint64_t bits = specials[which];
                if (element > 2) // the same exponents, in a wider type
                    bits <<= 8 * element - 16;
                if (i >> r & 1)
                    bits ^= 1ull << (8 * element - 1);
                memcpy(static_cast<char *>(w.buffers[r]) + static_cast<size_t>(i) * element, &bits,
                       element);
            }
        picture wanted, found;
        int meetings;
        take(wanted, w, t);
        expect(wanted, w, t);
        CU_ASSERT(run_world(w, t, manner{16, false}, &meetings));
        take(found, w, t);
        CU_ASSERT(same(wanted, found, w, t));
    });
}

} // namespace

// Slots are free when their number comes up again, whatever the ranks choose; numbers wrap.
TEST("chunks under way") {
    const size_t mib = 1u << 20;
    for (const size_t shared : {8 * mib, 128 * mib, 1024 * mib})
        for (const size_t bytes : {mib, 16 * mib, 256 * mib, 1024 * mib})
            for (const uint32_t blocks : {1u, 128u}) {
                const uint32_t slots = symmem_cuda_chunk_slots(shared);
                const uint32_t ahead = symmem_cuda_chunks_ahead(bytes, blocks, slots);
                CU_ASSERT_TRUE(ahead >= 1 && 2 * (ahead + 1) <= slots);
                CU_ASSERT_TRUE((slots & (slots - 1)) == 0 && slots <= SYMMEM_CUDA_CHUNK_SLOTS_MOST);
            }
    CU_ASSERT_EQUAL(symmem_cuda_chunks_ahead(16 * mib, 128, 8), 1);
    CU_ASSERT_EQUAL(symmem_cuda_chunks_ahead(256 * mib, 128, 8), 3);
}
