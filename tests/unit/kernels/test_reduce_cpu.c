/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fast reductions against the scalar reference, bit for bit, with every instruction set that
 * the machine has. Each piece of memory lies between two pages that must not be touched.
 */

#include "cpu/reduce.h"
#include "random_elements.h"
#include "unit.h"

#define MOST_SOURCES 9
#define MOST_DESTINATIONS 3
#define MOST_COUNT 100003
#define MOST_BYTES (MOST_COUNT * 8)
#define MARK 0x5a
#define MARKED_BYTES 128

/* --- memory and data ---------------------------------------------------------------- */

/* Memory of the reductions: arenas, each between two inaccessible pages. */
typedef struct arena {
    char *start, *end;
} arena;

static arena sources[MOST_SOURCES], destinations[MOST_DESTINATIONS];
/* The sources as generated, and the reference's result. */
static char data[MOST_SOURCES][MOST_BYTES], expected[MOST_BYTES];
static char marks[MARKED_BYTES]; /* MARK everywhere */

static bool open_arena(arena *a) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = (MOST_BYTES + MARKED_BYTES + page) / page * page;
    char *all = mmap(NULL, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || mprotect(all + page, bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
    *a = (arena){all + page, all + page + bytes};
    return true;
}

static bool open_arenas(void) {
    bool open = true;
    memset(marks, MARK, sizeof marks);
    for (int k = 0; k < MOST_SOURCES; k++)
        open = open && open_arena(&sources[k]);
    for (int k = 0; k < MOST_DESTINATIONS; k++)
        open = open && open_arena(&destinations[k]);
    return open;
}

static void fill_data(symmem_dtype dtype, size_t count) {
    size_t bytes = symmem_dtype_size(dtype);
    for (int k = 0; k < MOST_SOURCES; k++) {
        for (size_t i = 0; i < count; i++) {
            uint64_t element = random_element(dtype);
            memcpy(data[k] + i * bytes, &element, bytes);
        }
    }
}

/* --- one call ----------------------------------------------------------------------- */

typedef struct call {
    symmem_cpu_isa isa;
    symmem_dtype dtype;
    symmem_reduce_op op;
    int32_t src_count, dst_count;
    size_t count;
    int32_t in_place; /* the source that is the first destination, or -1 */
    bool streaming, read_ahead;
    int32_t cached_count;
    bool at_end;
    size_t shift;
} call;

/* The k-th place: at the end of its arena, whatever alignment that gives; or some elements behind
 * its start, with at_end only every other one. */
static char *place(const arena *a, const call *c, int32_t k) {
    size_t bytes = symmem_dtype_size(c->dtype);
    return c->at_end && k % 2 == 0 ? a->end - c->count * bytes
                                   : a->start + (c->shift + (c->shift ? (size_t)k : 0)) * bytes;
}

/* Marks, or looks at the marks, before and after a place as far as the arena goes. */
static bool around(const arena *a, char *at, size_t bytes, bool look) {
    char *before = at - a->start > MARKED_BYTES ? at - MARKED_BYTES : a->start;
    char *end = at + bytes;
    char *after = a->end - end > MARKED_BYTES ? end + MARKED_BYTES : a->end;
    if (look)
        return memcmp(before, marks, (size_t)(at - before)) == 0 &&
               memcmp(end, marks, (size_t)(after - end)) == 0;
    memset(before, MARK, (size_t)(after - before));
    return true;
}

/* Whether the call did what the reference did, and nothing else. */
static bool runs_right(const call *c) {
    size_t bytes = c->count * symmem_dtype_size(c->dtype);
    const void *srcs[MOST_SOURCES];
    void *dsts[MOST_DESTINATIONS];
    const arena *dst_arenas[MOST_DESTINATIONS];
    for (int32_t k = 0; k < c->dst_count; k++) {
        bool in_place = k == 0 && c->in_place >= 0;
        dst_arenas[k] = in_place ? &sources[c->in_place] : &destinations[k];
        dsts[k] = place(dst_arenas[k], c, in_place ? c->in_place : k);
        around(dst_arenas[k], dsts[k], bytes, false);
    }
    for (int32_t k = 0; k < c->src_count; k++) {
        char *at = place(&sources[k], c, k);
        memcpy(at, data[k], bytes);
        srcs[k] = at;
    }
    symmem_cpu_reduce_args args = {.dsts = dsts,
                                   .dst_count = c->dst_count,
                                   .srcs = srcs,
                                   .src_count = c->src_count,
                                   .count = c->count,
                                   .streaming = c->streaming,
                                   .read_ahead = c->read_ahead,
                                   .cached_count = c->cached_count};
    symmem_cpu_reduce_find(c->isa, c->dtype, c->op)(&args);
    bool right = true;
    for (int32_t k = 0; k < c->dst_count; k++) {
        right = right && memcmp(dsts[k], expected, bytes) == 0;
        right = right && around(dst_arenas[k], dsts[k], bytes, true);
    }
    for (int32_t k = 0; k < c->src_count; k++)
        right = right && (k == c->in_place || memcmp(srcs[k], data[k], bytes) == 0);
    return right;
}

static unsigned long calls_run, calls_wrong;

static void check(const call *c) {
    calls_run++;
    if (runs_right(c))
        return;
    if (calls_wrong++ < 10)
        fprintf(stderr,
                "wrong: %s %s op %d, %d to %d, count %zu, in place %d, streaming %d, shift %zu%s\n",
                symmem_cpu_isa_name(c->isa), symmem_dtype_name(c->dtype), (int)c->op, c->src_count,
                c->dst_count, c->count, c->in_place, c->streaming, c->shift,
                c->at_end ? ", at the end" : "");
}

/* --- all calls ---------------------------------------------------------------------- */

/* With all that may vary, from call to call in other company. */
static void check_somehow(call c) {
    uint64_t choice = random_bits();
    c.dst_count = 1 + (int32_t)(choice % MOST_DESTINATIONS);
    c.in_place = (int32_t)((choice >> 8) % (unsigned)(c.src_count + 1)) - 1;
    c.streaming = choice >> 16 & 1;
    c.at_end = choice >> 17 & 1;
    c.shift = choice >> 18 & 3;
    c.read_ahead = choice >> 20 & 1;
    c.cached_count = (int32_t)((choice >> 21) % (unsigned)(c.dst_count + 1));
    check(&c);
}

static void check_plainly(call c) {
    c.dst_count = 1;
    c.in_place = -1;
    check(&c);
}

static const size_t larger_counts[] = {255,  256,  257,  509,  511,  512,  513,  997,
                                       1009, 1023, 1024, 1025, 2047, 2049, 4095, 4097};
static const size_t largest_counts[] = {
#ifndef SYMMEM_INSTRUMENTED /* which takes twenty times as long */
    65535, 65537, 99991,
#endif
    MOST_COUNT};

/* Every way of placing and storing, at counts that fill no register, several, and many quads. */
static void check_ways(call c) {
    static const size_t counts[] = {3, 70, 1009};
    for (unsigned way = 0; way < 3 * 2 * 2 * 2; way++) {
        c.count = counts[way % 3];
        c.streaming = way / 3 & 1;
        c.at_end = way / 6 & 1;
        c.shift = way / 12 & 1;
        for (c.dst_count = 1; c.dst_count <= MOST_DESTINATIONS; c.dst_count++) {
            for (c.in_place = -1; c.in_place < c.src_count; c.in_place++)
                check(&c);
        }
    }
}

static void check_pair(symmem_dtype dtype, symmem_reduce_op op, int32_t src_count) {
    const void *srcs[MOST_SOURCES];
    for (int32_t k = 0; k < src_count; k++)
        srcs[k] = data[k];
    bool large = src_count == 2 || (src_count == 3 && op == SYMMEM_SUM);
    bool supported =
        symmem_reference_reduce(expected, srcs, src_count, large ? MOST_COUNT : 4097, dtype, op);
    call c = {.dtype = dtype, .op = op, .src_count = src_count};
    for (c.isa = SYMMEM_CPU_PORTABLE; c.isa <= symmem_cpu_isa_best(); c.isa++) {
        CU_ASSERT_EQUAL(supported, symmem_cpu_reduce_find(c.isa, dtype, op) != NULL);
        if (!symmem_cpu_reduce_find(c.isa, dtype, op))
            continue;
        for (c.count = 0; c.count <= 130; c.count++) {
            if (src_count <= 3)
                check_plainly(c);
            check_somehow(c);
        }
        for (size_t i = 0; i < sizeof larger_counts / sizeof larger_counts[0]; i++) {
            c.count = larger_counts[i];
            check_somehow(c);
        }
        for (size_t i = 0; large && i < sizeof largest_counts / sizeof largest_counts[0]; i++) {
            c.count = largest_counts[i];
            check_somehow(c);
        }
        if (src_count <= 3)
            check_ways(c);
    }
}

TEST("every loop equals the reference") {
    for (int dtype = 0; dtype < SYMMEM_DTYPE_COUNT; dtype++) {
        fill_data((symmem_dtype)dtype, MOST_COUNT);
        for (int op = 0; op < SYMMEM_REDUCE_OP_COUNT; op++) {
            for (int32_t src_count = 1; src_count <= MOST_SOURCES; src_count++)
                check_pair((symmem_dtype)dtype, (symmem_reduce_op)op, src_count);
        }
    }
    CU_ASSERT_EQUAL(calls_wrong, 0);
    CU_ASSERT(calls_run > 100000);
}

/* Every 16-bit float with others, also such that the sum must be rounded. */
TEST("every 16-bit float") {
    enum { ALL = 65536, SHIFTS = 24 };
    static uint16_t every[ALL + SHIFTS * 2749], sum[ALL], right[ALL];
    for (size_t i = 0; i < sizeof every / sizeof every[0]; i++)
        every[i] = (uint16_t)i;
    for (int half = 0; half < 2; half++) {
        symmem_dtype dtype = half ? SYMMEM_FLOAT16 : SYMMEM_BFLOAT16;
        for (int shift = 0; shift < SHIFTS; shift++) {
            const void *srcs[] = {every, every + shift * 2749};
            void *dst = sum;
            symmem_cpu_reduce_args args = {
                .dsts = &dst, .dst_count = 1, .srcs = srcs, .src_count = 2, .count = ALL};
            symmem_reduce_op op = shift % 2 ? SYMMEM_AVG : SYMMEM_SUM;
            CU_ASSERT_TRUE(symmem_reference_reduce(right, srcs, 2, ALL, dtype, op));
            for (symmem_cpu_isa isa = SYMMEM_CPU_PORTABLE; isa <= symmem_cpu_isa_best(); isa++) {
                symmem_cpu_reduce_find(isa, dtype, op)(&args);
                CU_ASSERT(memcmp(sum, right, sizeof sum) == 0);
            }
        }
    }
}

TEST("what is found") {
    CU_ASSERT_PTR_NULL(symmem_cpu_reduce_find(SYMMEM_CPU_BEST, SYMMEM_DTYPE_COUNT, SYMMEM_SUM));
    CU_ASSERT_PTR_NULL(symmem_cpu_reduce_find(SYMMEM_CPU_BEST, (symmem_dtype)-1, SYMMEM_SUM));
    CU_ASSERT_PTR_NULL(
        symmem_cpu_reduce_find(SYMMEM_CPU_BEST, SYMMEM_UINT8, SYMMEM_REDUCE_OP_COUNT));
    CU_ASSERT_PTR_NULL(symmem_cpu_reduce_find(SYMMEM_CPU_BEST, SYMMEM_UINT8, (symmem_reduce_op)-1));
    CU_ASSERT_PTR_NULL(symmem_cpu_reduce_find(SYMMEM_CPU_BEST, SYMMEM_UINT8, SYMMEM_AVG));
    symmem_cpu_isa best = symmem_cpu_isa_best();
    printf("best here: %s ", symmem_cpu_isa_name(best));
    CU_ASSERT_PTR_EQUAL(symmem_cpu_reduce_find(SYMMEM_CPU_BEST, SYMMEM_FLOAT32, SYMMEM_SUM),
                        symmem_cpu_reduce_find(best, SYMMEM_FLOAT32, SYMMEM_SUM));
    CU_ASSERT_PTR_NULL(symmem_cpu_reduce_find(SYMMEM_CPU_ISA_COUNT, SYMMEM_UINT8, SYMMEM_SUM));
    CU_ASSERT_STRING_EQUAL(symmem_cpu_isa_name(SYMMEM_CPU_PORTABLE), "portable");
    CU_ASSERT_STRING_EQUAL(symmem_cpu_isa_name(SYMMEM_CPU_AVX2), "avx2");
    CU_ASSERT_STRING_EQUAL(symmem_cpu_isa_name(SYMMEM_CPU_AVX512), "avx512");
    CU_ASSERT_STRING_EQUAL(symmem_cpu_isa_name(SYMMEM_CPU_ISA_COUNT), "unknown");
}

static bool copies_right(size_t bytes, size_t from, size_t to, bool streaming) {
    char *src = sources[0].end - bytes - from, *dst = destinations[0].start + to;
    memcpy(src, data[0], bytes);
    around(&destinations[0], dst, bytes, false);
    symmem_cpu_copy(dst, src, bytes, streaming);
    bool right = memcmp(dst, data[0], bytes) == 0 && around(&destinations[0], dst, bytes, true);
    around(&destinations[0], dst, bytes, false);
    symmem_cpu_copy_to_readers(dst, src, bytes);
    return right && memcmp(dst, data[0], bytes) == 0 &&
           around(&destinations[0], dst, bytes, true) && memcmp(src, data[0], bytes) == 0;
}

TEST("copies") {
    static const size_t larger[] = {1023, 1024, 1025, 2047, 2048, 2049,  4095,
                                    4096, 4097, 4159, 4160, 8191, 65537, 400001};
    bool right = true;
    for (size_t i = 0; i < 300 + sizeof larger / sizeof larger[0]; i++) {
        size_t bytes = i < 300 ? i : larger[i - 300];
        for (size_t shift = 0; shift < 4; shift++) {
            right = right && copies_right(bytes, shift, 0, false);
            right = right && copies_right(bytes, shift, shift * 21, true);
            right = right && copies_right(bytes, 0, shift * 7, true);
        }
    }
    CU_ASSERT_TRUE(right);
}

int unit_setup(void) {
    return !open_arenas();
}
