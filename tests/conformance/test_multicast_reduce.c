/* SPDX-License-Identifier: BSD-3-Clause */
/* Multicast with every dtype, operation, count, place and alignment, against a scalar reference. */
#include <math.h>

#include "case_help.h"
#include "ops_help.h"

#define ELEMENTS 1100u
#define GUARD 32u
#define CANARY 0xE7

/* --- elements --------------------------------------------------------------------------------- */

/* What rank `rank` has at place i: small, with another sign and order of the ranks at each place,
 * and its mean over the ranks a whole number; integers have both ends of their range as well. */
static int64_t value_of(symmem_dtype dtype, int32_t rank, int32_t world_size, size_t i) {
    int64_t middle = (int64_t)(i * 5 % 15) - 7 + (ops_is_unsigned(dtype) ? 16 : 0);
    int64_t place = ((int64_t)rank + (int64_t)i) % world_size;
    if (ops_is_float(dtype) || i % 7 != 3)
        return middle + 2 * place - (world_size - 1);
    uint32_t bits = 8 * (uint32_t)symmem_dtype_size(dtype);
    if (ops_is_unsigned(dtype))
        return place % 2 ? (int64_t)(UINT64_MAX >> (64 - bits)) : 0;
    int64_t most = (int64_t)(UINT64_MAX >> (65 - bits));
    return place % 2 ? most : -most - 1;
}

static int64_t combine(symmem_dtype dtype, symmem_reduce_op op, int64_t a, int64_t b) {
    if (op == SYMMEM_SUM || op == SYMMEM_AVG)
        return (int64_t)((uint64_t)a + (uint64_t)b);
    bool less = ops_is_unsigned(dtype) ? (uint64_t)a < (uint64_t)b : a < b;
    return less == (op == SYMMEM_MIN) ? a : b;
}

static void encode_expected(symmem_dtype dtype, symmem_reduce_op op, int32_t world_size, size_t i,
                            void *to) {
    int64_t result = value_of(dtype, 0, world_size, i);
    for (int32_t r = 1; r < world_size; r++)
        result = combine(dtype, op, result, value_of(dtype, r, world_size, i));
    ops_encode(to, dtype, op == SYMMEM_AVG ? result / world_size : result);
}

/* --- every kind of reduction ------------------------------------------------------------------ */

struct reduction {
    symmem_handle *handle;
    symmem_dtype dtype;
    symmem_reduce_op op;
    size_t element;
    uint8_t *expected; /* ELEMENTS elements */
    uint8_t *found;    /* with room on both sides */
    int done, refused;
};

static bool all_are(const uint8_t *bytes, size_t count) {
    return equal_bytes(bytes, count, CANARY) == count;
}

/* `count` elements from place `at` to a destination `shift` elements behind its usual place. */
static void reduce_once(struct tk *t, struct reduction *r, size_t at, size_t count, size_t shift) {
    size_t bytes = count * r->element;
    uint8_t *to = r->found + GUARD + shift * r->element;
    size_t behind = (size_t)(r->found + 2 * GUARD + ELEMENTS * 8 - (to + bytes));
    memset(r->found, CANARY, 2 * GUARD + ELEMENTS * 8);
    symmem_status status =
        symmem_multimem_ld_reduce(r->handle, at * r->element, to, count, r->dtype, r->op, NULL);
    bool whole = all_are(r->found, GUARD + shift * r->element);
    if (status == SYMMEM_UNSUPPORTED) {
        r->refused++;
        TK_CHECK(t, whole && all_are(to, bytes + behind));
        return;
    }
    r->done++;
    if (!TK_OK(t, status))
        return;
    TK_CHECK_MSG(t,
                 whole && all_are(to + bytes, behind) &&
                     memcmp(to, r->expected + at * r->element, bytes) == 0,
                 "dtype %d, op %d: %zu elements at place %zu", (int)r->dtype, (int)r->op, count,
                 at);
}

static void reduce_all_counts(struct tk *t, struct reduction *r) {
    static const size_t counts[] = {63, 64, 65, 127, 130, 257, 1009, 1021};
    for (size_t i = 0; i < ELEMENTS; i++)
        encode_expected(r->dtype, r->op, t->world_size, i, r->expected + i * r->element);
    r->done = r->refused = 0;
    for (size_t count = 0; count <= 35 && !tk_failed(t); count++)
        reduce_once(t, r, count % 5, count, count / 5 % 3);
    for (size_t i = 0; i < TK_COUNT(counts) && !tk_failed(t); i++)
        reduce_once(t, r, i, counts[i], i % 4);
    TK_CHECK_MSG(t, r->done == 0 || r->refused == 0, "some counts of dtype %d, op %d are refused",
                 (int)r->dtype, (int)r->op);
    if (r->dtype == SYMMEM_INT32 && r->op == SYMMEM_SUM)
        TK_CHECK(t, r->refused == 0);
}

static symmem_handle *multicast_handle(struct tk *t) {
    symmem_handle *handle = tk_handle(t, ELEMENTS * 8, tk_world_group(t));
    TK_REQUIRE(t, info_of(t, handle).multicast_ptr != NULL);
    return handle;
}

ON_MULTICAST(multicast, reduce_every_kind, "SM-MCAST-09,SM-MCAST-04,SM-MCAST-08",
             .needs = SYMMEM_CAP_MULTICAST, .ranks = {2, 4}, .flags = TK_PLAIN_MEMORY) {
    struct reduction r = {.handle = multicast_handle(t),
                          .expected = tk_scratch(t, ELEMENTS * 8),
                          .found = tk_scratch(t, ELEMENTS * 8 + 2 * GUARD)};
    uint8_t *own = tk_scratch(t, ELEMENTS * 8);
    for (int dtype = 0; dtype < SYMMEM_DTYPE_COUNT; dtype++) {
        r.dtype = (symmem_dtype)dtype;
        r.element = symmem_dtype_size(r.dtype);
        for (size_t i = 0; i < ELEMENTS; i++)
            ops_encode(own + i * r.element, r.dtype, value_of(r.dtype, t->rank, t->world_size, i));
        tk_write(t, r.handle, t->rank, 0, own, ELEMENTS * r.element);
        TK_OK(t, symmem_barrier(r.handle, 0, LONG_MS, NULL));
        for (int op = 0; op < SYMMEM_REDUCE_OP_COUNT; op++) {
            r.op = (symmem_reduce_op)op;
            tk_checkpoint(t, "dtype %d, op %d", dtype, op);
            reduce_all_counts(t, &r);
        }
        tk_expect_data(t, r.handle, t->rank, 0, own, ELEMENTS * r.element);
        TK_OK(t, symmem_barrier(r.handle, 0, LONG_MS, NULL));
    }
}

/* --- odd values ------------------------------------------------------------------------------- */

/* Zeros of both signs, infinities, NaNs of any payload, and what might serve as a sentinel. */
ON_MULTICAST(multicast, odd_floats, "SM-MCAST-09", .needs = SYMMEM_CAP_MULTICAST, .ranks = {2, 4},
             .flags = TK_PLAIN_MEMORY) {
    static const uint32_t bits[] = {0x80000000u, 0,           0x7f800000u, 0xff800000u, 0x7fc00000u,
                                    0xffffffffu, 0x7f800001u, 0xffc12345u, 0x00000001u, 1u << 23};
    enum { KINDS = TK_COUNT(bits), PLACES = KINDS * KINDS };
    symmem_handle *handle = multicast_handle(t);
    uint32_t own[PLACES];
    float sums[PLACES];
    for (size_t i = 0; i < PLACES; i++) /* every pair comes together at some place */
        own[i] = bits[t->rank % 2 ? i / KINDS : i % KINDS];
    tk_write(t, handle, t->rank, 0, own, sizeof(own));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_OK(t, symmem_multimem_ld_reduce(handle, 0, sums, PLACES, SYMMEM_FLOAT32, SYMMEM_SUM, NULL));
    for (size_t i = 0; i < PLACES; i++) {
        float expected = 0;
        for (int32_t r = 0; r < t->world_size; r++) {
            float next;
            memcpy(&next, &bits[r % 2 ? i / KINDS : i % KINDS], 4);
            expected = r == 0 ? next : expected + next;
        }
        TK_CHECK_MSG(t, isnan(expected) ? isnan(sums[i]) : sums[i] == expected,
                     "place %zu: %g, not %g", i, (double)sums[i], (double)expected);
    }
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_data(t, handle, t->rank, 0, own, sizeof(own)); /* not made canonical in place */
}

/* What a reduction must not flush. Subnormal values and those of the first binade above have one
 * distance, so their bits add like their values. */
ON_MULTICAST(multicast, subnormals_add_up, "SM-MCAST-09", .needs = SYMMEM_CAP_MULTICAST,
             .ranks = {2, 4}, .flags = TK_PLAIN_MEMORY) {
    enum { PLACES = 24 };
    static const symmem_dtype dtypes[] = {SYMMEM_FLOAT16, SYMMEM_BFLOAT16};
    symmem_handle *handle = multicast_handle(t);
    uint16_t own[PLACES], expected[PLACES], sums[PLACES];
    for (int32_t i = 0; i < PLACES; i++) {
        own[i] = (uint16_t)(i + t->rank);
        expected[i] = (uint16_t)(t->world_size * i + t->world_size * (t->last) / 2);
    }
    tk_write(t, handle, t->rank, 0, own, sizeof(own));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    for (size_t i = 0; i < TK_COUNT(dtypes); i++) {
        symmem_status status =
            symmem_multimem_ld_reduce(handle, 0, sums, PLACES, dtypes[i], SYMMEM_SUM, NULL);
        if (status != SYMMEM_UNSUPPORTED && TK_OK(t, status))
            TK_CHECK_MSG(t, memcmp(sums, expected, sizeof(sums)) == 0,
                         "sums of subnormal values of dtype %d", (int)dtypes[i]);
    }
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* --- stores of every size --------------------------------------------------------------------- */

ON_MULTICAST(multicast, stores_move_exactly, "SM-MCAST-03", .needs = SYMMEM_CAP_MULTICAST,
             .ranks = {2, 4}, .flags = TK_PLAIN_MEMORY) {
    enum { STEP = 64, SIZES = 41, SHIFTS = 3, BYTES = STEP * SIZES * SHIFTS };
    uint8_t source[SIZES + SHIFTS];
    uint8_t expected[BYTES];
    symmem_handle *handle = multicast_handle(t);
    memset(expected, 0, sizeof(expected));
    for (size_t i = 0; i < sizeof(source); i++)
        source[i] = (uint8_t)(i + 1);
    for (size_t size = 0; size < SIZES; size++)
        for (size_t shift = 0; shift < SHIFTS; shift++) {
            size_t at = (size * SHIFTS + shift) * STEP + shift * 5 + size % 8;
            memcpy(expected + at, source + shift, size);
            if (t->rank == (int32_t)(size % (size_t)t->world_size))
                TK_OK(t, symmem_multimem_store(handle, at, source + shift, size, NULL));
        }
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_data(t, handle, t->rank, 0, expected, BYTES);
}
