/* SPDX-License-Identifier: BSD-3-Clause */
/* The scalar reference of the reductions, against values worked out by hand. */
#include <CUnit/Basic.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "reference/reduce.h"
#include "unit.h"

#define MOST_SOURCES 4

/* Bits in, bits out; source_count of them count. */
typedef struct row {
    symmem_dtype dtype;
    symmem_reduce_op op;
    int32_t src_count;
    uint64_t srcs[MOST_SOURCES];
    uint64_t expected;
} row;

#define F16 SYMMEM_FLOAT16
#define BF16 SYMMEM_BFLOAT16
#define F32 SYMMEM_FLOAT32
#define F64 SYMMEM_FLOAT64
#define SUM SYMMEM_SUM
#define AVG SYMMEM_AVG
#define MIN SYMMEM_MIN
#define MAX SYMMEM_MAX

/* Reduces one element at odd addresses. */
static uint64_t reduce_row(const row *r) {
    size_t bytes = symmem_reference_element_bytes(r->dtype, r->op);
    char in[MOST_SOURCES][16], out[16] = {0};
    const void *srcs[MOST_SOURCES];
    for (int k = 0; k < r->src_count; k++) {
        memcpy(in[k] + 1, &r->srcs[k], bytes);
        srcs[k] = in[k] + 1;
    }
    CU_ASSERT_TRUE(symmem_reference_reduce(out + 3, srcs, r->src_count, 1, r->dtype, r->op));
    uint64_t result = 0;
    memcpy(&result, out + 3, bytes);
    for (size_t i = 0; i < sizeof out; i++)
        CU_ASSERT(out[i] == 0 || (i >= 3 && i < 3 + bytes));
    return result;
}

static void check_rows(const row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t result = reduce_row(&rows[i]);
        CU_ASSERT_EQUAL(result, rows[i].expected);
        if (result != rows[i].expected)
            fprintf(stderr, "row %zu: %#llx, not %#llx\n", i, (unsigned long long)result,
                    (unsigned long long)rows[i].expected);
    }
}
#define CHECK_ROWS(rows) check_rows(rows, sizeof(rows) / sizeof((rows)[0]))

TEST("sums round once, in order") {
    static const row rows[] = {
        {F32, SUM, 2, {0x3f800000, 0x40000000}, 0x40400000},             /* 1 + 2 */
        {F32, SUM, 2, {0x3f800000, 0x33800000}, 0x3f800000},             /* a tie, to even */
        {F32, SUM, 2, {0x3f800001, 0x33800000}, 0x3f800002},             /* a tie, to even */
        {F32, SUM, 2, {0x3f800000, 0x33800001}, 0x3f800001},             /* just more */
        {F32, SUM, 3, {0x4b800000, 0x3f800000, 0x3f800000}, 0x4b800000}, /* 2^24 + 1 + 1 */
        {F32, SUM, 3, {0x3f800000, 0x3f800000, 0x4b800000}, 0x4b800001}, /* 1 + 1 + 2^24 */
        {F32, SUM, 2, {0x7f7fffff, 0x7f7fffff}, 0x7f800000},             /* overflow */
        {F32, SUM, 2, {0x00000001, 0x00000001}, 0x00000002},             /* denormals */
        {F32, SUM, 2, {0x00800000, 0x80000001}, 0x007fffff},             /* and into them */
        {F32, SUM, 2, {0x80000000, 0x80000000}, 0x80000000},             /* -0 - 0 */
        {F32, SUM, 2, {0x80000000, 0x00000000}, 0x00000000},             /* -0 + 0 */
        {F64, SUM, 2, {0x3ff0000000000000, 0x3ca0000000000000}, 0x3ff0000000000000},
        {F64, SUM, 2, {0x3ff0000000000001, 0x3ca0000000000000}, 0x3ff0000000000002},
        {F64, SUM, 2, {1, 1}, 2},
        /* float16: 2048 + 1 + 1 is 2050 only if rounded once; 65504 + 16 is a tie, to infinity */
        {F16, SUM, 3, {0x6800, 0x3c00, 0x3c00}, 0x6801},
        {F16, SUM, 2, {0x6800, 0x3c00}, 0x6800},         /* 2049: to even */
        {F16, SUM, 2, {0x6801, 0x3c00}, 0x6802},         /* 2051: to even */
        {F16, SUM, 2, {0x7bff, 0x4c00}, 0x7c00},         /* 65504 + 16 */
        {F16, SUM, 2, {0x7bff, 0x4bff}, 0x7bff},         /* 65504 + 15.99 */
        {F16, SUM, 3, {0x7bff, 0x7bff, 0xfbff}, 0x7bff}, /* too much only on the way */
        {F16, SUM, 2, {0x0001, 0x0001}, 0x0002},
        {F16, SUM, 2, {0x0400, 0x8001}, 0x03ff},
        {F16, SUM, 2, {0x03ff, 0x0001}, 0x0400},
        {F16, SUM, 2, {0x8000, 0x8000}, 0x8000},
        /* bfloat16: 256 + 1 + 1 */
        {BF16, SUM, 3, {0x4380, 0x3f80, 0x3f80}, 0x4381},
        {BF16, SUM, 2, {0x4380, 0x3f80}, 0x4380},
        {BF16, SUM, 2, {0x4381, 0x3f80}, 0x4382},
        {BF16, SUM, 2, {0x7f7f, 0x7f7f}, 0x7f80},
        {BF16, SUM, 3, {0x7f7f, 0x7b00, 0xff7f}, 0x7b00}, /* no overflow on the way */
        {BF16, SUM, 2, {0x0001, 0x0001}, 0x0002},
        {BF16, SUM, 2, {0x0080, 0x8001}, 0x007f},
    };
    CHECK_ROWS(rows);
}

TEST("NaN, infinity, zero, one source") {
    static const row rows[] = {
        {F32, SUM, 2, {0x7f800000, 0x3f800000}, 0x7f800000},
        {F32, SUM, 2, {0xff800000, 0x7f7fffff}, 0xff800000},
        {F32, SUM, 2, {0x7f800000, 0xff800000}, 0x7fc00000},
        {F32, SUM, 2, {0xffc12345, 0x3f800000}, 0x7fc00000},
        {F32, SUM, 2, {0x3f800000, 0x7f800001}, 0x7fc00000},
        {F64, SUM, 2, {0x7ff0000000000000, 0xfff0000000000000}, 0x7ff8000000000000},
        {F64, MAX, 2, {0, 0xfff0000000000001}, 0x7ff8000000000000},
        {F16, SUM, 2, {0x7c00, 0xfc00}, 0x7e00},
        {F16, SUM, 2, {0xfc01, 0x3c00}, 0x7e00},
        {BF16, SUM, 2, {0x7f80, 0xff80}, 0x7fc0},
        {BF16, MIN, 2, {0x3f80, 0xffff}, 0x7fc0},
        /* NaN anywhere, min and max */
        {F32, MIN, 3, {0x7fc00001, 0x3f800000, 0x40000000}, 0x7fc00000},
        {F32, MIN, 3, {0x3f800000, 0xffc00000, 0x40000000}, 0x7fc00000},
        {F32, MAX, 3, {0x3f800000, 0x40000000, 0x7f800001}, 0x7fc00000},
        {F16, MAX, 2, {0x3c00, 0x7e01}, 0x7e00},
        /* of equal zeros the earlier */
        {F32, MIN, 2, {0x80000000, 0x00000000}, 0x80000000},
        {F32, MIN, 2, {0x00000000, 0x80000000}, 0x00000000},
        {F32, MAX, 2, {0x80000000, 0x00000000}, 0x80000000},
        {F32, MAX, 2, {0x00000000, 0x80000000}, 0x00000000},
        {F64, MAX, 2, {0x8000000000000000, 0}, 0x8000000000000000},
        {F16, MIN, 2, {0x0000, 0x8000}, 0x0000},
        {BF16, MAX, 2, {0x8000, 0x0000}, 0x8000},
        {F32, MIN, 2, {0xff800000, 0xff7fffff}, 0xff800000},
        {F32, MAX, 2, {0x00000001, 0x80000001}, 0x00000001},
        {F16, MIN, 2, {0x0001, 0x0002}, 0x0001},
        /* one source: its bits */
        {F32, SUM, 1, {0xffa12345}, 0xffa12345},
        {F16, AVG, 1, {0xfc01}, 0xfc01},
        {F64, MAX, 1, {0x7ff0000000000001}, 0x7ff0000000000001},
        {BF16, MIN, 1, {0x8000}, 0x8000},
    };
    CHECK_ROWS(rows);
}

TEST("averages divide once") {
    static const row rows[] = {
        {F32, AVG, 2, {0x3f800000, 0x40000000}, 0x3fc00000},           /* 1.5 */
        {F32, AVG, 3, {0x3f800000, 0, 0}, 0x3eaaaaab},                 /* 1/3 */
        {F32, AVG, 3, {0x40e00000, 0, 0}, 0x40155555},                 /* 7/3, not 7 * (1/3) */
        {F32, AVG, 2, {0x7f7fffff, 0x7f7fffff}, 0x7f800000},           /* the sum overflows */
        {F32, AVG, 2, {0x00000001, 0x00000000}, 0x00000000},           /* half a denormal */
        {F32, AVG, 2, {0x00000001, 0x00000002}, 0x00000002},           /* 1.5 of them */
        {F64, AVG, 3, {0x3ff0000000000000, 0, 0}, 0x3fd5555555555555}, /* 1/3 */
        {F16, AVG, 2, {0x7bff, 0x7bff}, 0x7bff},                       /* in float32 */
        {F16, AVG, 3, {0x3c00, 0, 0}, 0x3555},                         /* 1/3 */
        {BF16, AVG, 3, {0x3f80, 0, 0}, 0x3eab},                        /* 1/3 */
        {BF16, AVG, 2, {0x7f80, 0xff80}, 0x7fc0},
    };
    CHECK_ROWS(rows);
}

TEST("integers wrap") {
    static const row rows[] = {
        {SYMMEM_UINT8, SUM, 2, {200, 100}, 44},
        {SYMMEM_INT8, SUM, 2, {0x7f, 1}, 0x80},
        {SYMMEM_INT16, SUM, 2, {0x7fff, 1}, 0x8000},
        {SYMMEM_UINT16, SUM, 2, {0xffff, 2}, 1},
        {SYMMEM_INT32, SUM, 2, {0x7fffffff, 1}, 0x80000000},
        {SYMMEM_UINT32, SUM, 3, {0xffffffff, 0xffffffff, 5}, 3},
        {SYMMEM_INT64, SUM, 2, {INT64_MAX, 1}, 1ull << 63},
        {SYMMEM_UINT64, SUM, 2, {UINT64_MAX, 2}, 1},
        {SYMMEM_INT8, MIN, 2, {0x80, 0x7f}, 0x80},
        {SYMMEM_UINT8, MIN, 2, {0x80, 0x7f}, 0x7f},
        {SYMMEM_INT16, MAX, 2, {0x8000, 0x7fff}, 0x7fff},
        {SYMMEM_UINT16, MAX, 2, {0x8000, 0x7fff}, 0x8000},
        {SYMMEM_INT32, MIN, 3, {0, 0xffffffff, 1}, 0xffffffff},
        {SYMMEM_UINT32, MIN, 3, {1, 0xffffffff, 0}, 0},
        {SYMMEM_INT64, MAX, 2, {UINT64_MAX, 0}, 0},
        {SYMMEM_UINT64, MAX, 2, {UINT64_MAX, 0}, UINT64_MAX},
        {SYMMEM_INT64, MIN, 2, {1ull << 63, INT64_MAX}, 1ull << 63},
        {SYMMEM_UINT64, MIN, 2, {1ull << 63, INT64_MAX}, INT64_MAX},
    };
    CHECK_ROWS(rows);
}

/* Every half: its value worked out with ldexp, and back again; then what lies between two. */
TEST("every float16 and what lies between") {
    unsigned wrong = 0;
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        uint16_t half = (uint16_t)bits;
        int exponent = half >> 10 & 31, mantissa = half & 1023;
        float value = symmem_reference_from_half(half);
        if (exponent == 31 && mantissa) {
            wrong += !isnan(value) || (symmem_reference_to_half(value) | 0x8000) != 0xfe00;
            continue;
        }
        double exact = exponent == 31  ? (double)INFINITY
                       : exponent == 0 ? ldexp(mantissa, -24)
                                       : ldexp(1024 + mantissa, exponent - 25);
        exact = half & 0x8000 ? -exact : exact;
        wrong += (double)value != exact || !signbit(value) != !(half & 0x8000);
        wrong += symmem_reference_to_half(value) != half;
        if (exponent == 31)
            continue;
        /* halfway to the next: exact in float32 except at the largest, where 65520 follows */
        double next = exponent == 30 && mantissa == 1023
                          ? 65536.0
                          : (double)symmem_reference_from_half((uint16_t)((half & 0x7fff) + 1));
        float middle = (float)((fabs(exact) + next) / 2);
        uint16_t sign = half & 0x8000, low = half & 0x7fff;
        float signed_middle = sign ? -middle : middle, far = sign ? -INFINITY : INFINITY;
        uint16_t even = (uint16_t)(sign | (low + (low & 1)));
        wrong += symmem_reference_to_half(signed_middle) != even;
        wrong += symmem_reference_to_half(nextafterf(signed_middle, far)) != (sign | (low + 1));
        wrong += symmem_reference_to_half(nextafterf(signed_middle, 0)) != half;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_EQUAL(symmem_reference_to_half(FLT_MAX), 0x7c00);
    CU_ASSERT_EQUAL(symmem_reference_to_half(-0x1p-149f), 0x8000);
}

TEST("every bfloat16 and what lies between") {
    unsigned wrong = 0;
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        uint16_t half = (uint16_t)bits;
        uint32_t wide = bits << 16, got;
        float value = symmem_reference_from_bfloat(half);
        memcpy(&got, &value, sizeof got);
        wrong += got != wide;
        if (isnan(value)) {
            wrong += symmem_reference_to_bfloat(value) != (half | 0x40);
            continue;
        }
        wrong += symmem_reference_to_bfloat(value) != half;
        if (isinf(value))
            continue;
        for (uint32_t low = 0x7fff; low <= 0x8001; low++) {
            uint32_t between = wide | low;
            uint16_t up = low > 0x8000 || (low == 0x8000 && half & 1);
            memcpy(&value, &between, sizeof value);
            wrong += symmem_reference_to_bfloat(value) != half + up;
        }
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

TEST("pairs of dtype and op") {
    unsigned supported = 0;
    for (int dtype = -1; dtype <= SYMMEM_DTYPE_COUNT; dtype++) {
        for (int op = -1; op <= SYMMEM_REDUCE_OP_COUNT; op++) {
            uint64_t in[2] = {1, 1}, out = 7;
            const void *srcs[] = {&in[0], &in[1]};
            symmem_dtype d = (symmem_dtype)dtype;
            symmem_reduce_op o = (symmem_reduce_op)op;
            size_t bytes = symmem_reference_element_bytes(d, o);
            bool done = symmem_reference_reduce(&out, srcs, 2, 1, d, o);
            CU_ASSERT_EQUAL(done, bytes != 0);
            CU_ASSERT(done ? bytes == symmem_dtype_size(d) : out == 7);
            supported += done;
        }
    }
    CU_ASSERT_EQUAL(supported, 12 * 3 + 4); /* avg of floats only */
    CU_ASSERT_EQUAL(symmem_reference_element_bytes(SYMMEM_INT32, SYMMEM_AVG), 0);
}

TEST("in place, and nothing") {
    int32_t a[5] = {1, 2, 3, 4, 5}, b[5] = {10, 20, 30, 40, 50};
    const void *srcs[] = {b, a};
    CU_ASSERT_TRUE(symmem_reference_reduce(a, srcs, 2, 4, SYMMEM_INT32, SYMMEM_SUM));
    CU_ASSERT(a[0] == 11 && a[1] == 22 && a[2] == 33 && a[3] == 44 && a[4] == 5 && b[0] == 10);
    CU_ASSERT_TRUE(symmem_reference_reduce(a, srcs, 2, 0, SYMMEM_INT32, SYMMEM_SUM));
    CU_ASSERT(a[0] == 11);
    const void *one[] = {a};
    CU_ASSERT_TRUE(symmem_reference_reduce(a, one, 1, 5, SYMMEM_INT32, SYMMEM_MAX));
    CU_ASSERT(a[0] == 11 && a[4] == 5);
}
