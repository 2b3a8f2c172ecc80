// SPDX-License-Identifier: BSD-3-Clause
// Products, strided copies, local reductions and tiles of the device, compiled for the CPU: what
// lanes do one after the other, against the scalar references.
#include <cstring>
#include <vector>

#define MOST 48
#include "products.h"

#include "cuda/product_loop.h"
#include "cuda/tile_loop.h"

namespace {

const int LANES = 5;

int real_of(symmem_dtype dtype) {
    return dtype == SYMMEM_FLOAT64    ? SYMMEM_CUDA_REAL_F64
           : dtype == SYMMEM_FLOAT16  ? SYMMEM_CUDA_REAL_F16
           : dtype == SYMMEM_BFLOAT16 ? SYMMEM_CUDA_REAL_BF16
                                      : SYMMEM_CUDA_REAL_F32;
}

symmem_cuda_product args_of(const symmem_matmul &p) {
    symmem_cuda_product args = {};
    args.m = p.m;
    args.n = p.n;
    args.k = p.k;
    args.a = p.a;
    args.a_row = p.a_row;
    args.a_column = p.a_column;
    args.b = p.b;
    args.b_row = p.b_row;
    args.b_column = p.b_column;
    args.out = p.out;
    args.out_row = p.out_row;
    args.out_column = p.out_column;
    args.out_real = real_of(p.out_dtype);
    args.accumulate = p.accumulate;
    args.a_scale_by_row = p.a_scale_by_row;
    args.b_scale_by_column = p.b_scale_by_column;
    args.a_scale = p.a_scale;
    args.b_scale = p.b_scale;
    return args;
}

void run(symmem_dtype dtype, const symmem_cuda_product &args, size_t lane) {
    switch (dtype) {
    case SYMMEM_FLOAT32:
        return symmem_cuda_run_product<symmem_cuda_f32, float>(args, lane, LANES);
    case SYMMEM_FLOAT64:
        return symmem_cuda_run_product<symmem_cuda_f64, double>(args, lane, LANES);
    case SYMMEM_FLOAT16:
        return symmem_cuda_run_product<symmem_cuda_f16, float>(args, lane, LANES);
    case SYMMEM_BFLOAT16:
        return symmem_cuda_run_product<symmem_cuda_bf16, float>(args, lane, LANES);
    case SYMMEM_INT8:
        return symmem_cuda_run_product<symmem_cuda_signed<int8_t>, float>(args, lane, LANES);
    default:
        return symmem_cuda_run_product<symmem_cuda_unsigned<uint8_t>, float>(args, lane, LANES);
    }
}

const int64_t sides[][3] = {{1, 1, 1},  {17, 33, 20}, {40, 3, 40}, {1, 40, 3},
                            {40, 1, 3}, {5, 7, 0},    {0, 4, 4},   {4, 0, 4}};

TEST("products") {
    static const symmem_dtype pairs[][2] = {
        {SYMMEM_FLOAT32, SYMMEM_FLOAT32},   {SYMMEM_FLOAT64, SYMMEM_FLOAT64},
        {SYMMEM_FLOAT16, SYMMEM_FLOAT16},   {SYMMEM_FLOAT16, SYMMEM_FLOAT32},
        {SYMMEM_BFLOAT16, SYMMEM_BFLOAT16}, {SYMMEM_BFLOAT16, SYMMEM_FLOAT32}};
    for (const auto &pair : pairs)
        for (const auto &side : sides)
            for (unsigned layout = 0; layout < 16; layout++) {
                const symmem_matmul p = make(pair[0], pair[1], side[0], side[1], side[2], layout);
                for (size_t lane = 0; lane < LANES; lane++)
                    run(pair[0], args_of(p), lane);
                check(&p);
            }
}

TEST("scaled") {
    static const symmem_dtype dtypes[] = {SYMMEM_INT8, SYMMEM_UINT8, SYMMEM_FLOAT32,
                                          SYMMEM_BFLOAT16};
    static const symmem_dtype outs[] = {SYMMEM_FLOAT32, SYMMEM_BFLOAT16, SYMMEM_FLOAT16};
    for (const symmem_dtype dtype : dtypes)
        for (const symmem_dtype out : outs)
            for (unsigned layout = 16; layout < 128; layout++) {
                if ((layout & 16) == 0)
                    continue;
                const symmem_matmul p = make(dtype, out, 17, 34, 20, layout);
                for (size_t lane = 0; lane < LANES; lane++)
                    run(dtype, args_of(p), lane);
                check(&p);
            }
}

// Sums that were made elsewhere, in out's order.
template <typename Sum> void finish(symmem_dtype dtype, symmem_dtype out, unsigned layout) {
    symmem_matmul p = make(dtype, out, 17, 34, 20, layout), plain = p;
    std::vector<Sum> sums(17 * 34);
    plain.a_scale = nullptr;
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            double magnitude;
            const int64_t at = p.out_column == 1 ? i * p.n + j : j * p.m + i;
            sums[static_cast<size_t>(at)] =
                static_cast<Sum>(symmem_reference_matmul(&plain, i, j, &magnitude));
        }
    symmem_cuda_product args = args_of(p);
    args.sums = sums.data();
    for (size_t lane = 0; lane < LANES; lane++)
        symmem_cuda_run_finish<Sum>(args, lane, LANES);
    check(&p);
}

TEST("finishing") {
    for (unsigned layout = 0; layout < 128; layout++) {
        finish<float>(SYMMEM_FLOAT32, SYMMEM_FLOAT32, layout);
        finish<float>(SYMMEM_BFLOAT16, SYMMEM_FLOAT16, layout);
        finish<float>(SYMMEM_FLOAT16, SYMMEM_BFLOAT16, layout);
        if ((layout & 16) == 0)
            finish<double>(SYMMEM_FLOAT64, SYMMEM_FLOAT64, layout);
    }
}

TEST("strided") {
    for (int32_t element = 1; element <= 8; element *= 2) {
        unsigned char src[2 * 3 * 4 * 8], dst[sizeof src];
        for (size_t i = 0; i < sizeof src; i++)
            src[i] = static_cast<unsigned char>(i);
        std::memset(dst, 0xee, sizeof dst);
        // (2, 3, 4) from the order 2, 0, 1 of dimensions to 1, 2, 0.
        symmem_cuda_strided copy = {};
        copy.count = 24;
        copy.element = element;
        copy.ndim = 3;
        const int64_t shape[] = {2, 3, 4}, from[] = {3, 1, 6}, to[] = {1, 8, 2};
        for (int d = 0; d < 3; d++) {
            copy.shape[d] = shape[d];
            copy.src_strides[d] = from[d];
            copy.dst_strides[d] = to[d];
        }
        copy.src = src;
        copy.dst = dst;
        for (size_t lane = 0; lane < LANES; lane++)
            symmem_cuda_run_strided(copy, lane, LANES);
        int wrong = 0;
        for (int64_t i = 0; i < 2; i++)
            for (int64_t j = 0; j < 3; j++)
                for (int64_t k = 0; k < 4; k++)
                    wrong += std::memcmp(dst + (i * 1 + j * 8 + k * 2) * element,
                                         src + (i * 3 + j * 1 + k * 6) * element,
                                         static_cast<size_t>(element)) != 0;
        for (size_t at = 24u * static_cast<size_t>(element); at < sizeof dst; at++)
            wrong += dst[at] != 0xee;
        CU_ASSERT_EQUAL(wrong, 0);
    }
    // A copy without dimensions moves one element.
    uint32_t one = 5, other = 0;
    symmem_cuda_strided copy = {};
    copy.count = 1;
    copy.element = 4;
    copy.src = &one;
    copy.dst = &other;
    symmem_cuda_run_strided(copy, 0, 1);
    CU_ASSERT_EQUAL(other, 5);
}

template <typename Element> void reduce(symmem_dtype dtype) {
    const size_t bytes = sizeof(typename Element::bits), count = 37, stride = 40 * bytes;
    std::vector<unsigned char> src(5 * stride), dst(count * bytes), wanted(count * bytes);
    uint32_t seed = 9;
    for (unsigned char &byte : src) {
        seed = seed * 1664525u + 1013904223u;
        byte = static_cast<unsigned char>(seed >> 24);
    }
    for (int op = 0; op < SYMMEM_REDUCE_OP_COUNT; op++)
        for (int32_t sources = 1; sources <= 5; sources++) {
            const void *srcs[5];
            for (int32_t s = 0; s < sources; s++)
                srcs[s] = src.data() + static_cast<size_t>(s) * stride;
            if (!symmem_reference_reduce(wanted.data(), srcs, sources, count, dtype,
                                         static_cast<symmem_reduce_op>(op)))
                continue;
            symmem_cuda_local_reduce args = {};
            args.count = count;
            args.src = src.data();
            args.src_stride = stride;
            args.dst = dst.data();
            args.src_count = sources;
            args.op = op;
            for (size_t lane = 0; lane < LANES; lane++)
                symmem_cuda_run_local_reduce<Element>(args, lane, LANES);
            CU_ASSERT(std::memcmp(dst.data(), wanted.data(), dst.size()) == 0);
        }
}

/* Tiles of three ranks' buffers, with rows of every alignment, by all lanes of two blocks. */
template <typename Element> void reduce_tile(symmem_dtype dtype, uint64_t rows, uint64_t row) {
    const size_t bytes = sizeof(typename Element::bits), src_row = row + 5, dst_row = row + 3;
    const size_t place = 3 * bytes, source = (rows * src_row + 8) * bytes;
    const size_t result = (rows * dst_row + 8) * bytes, lanes = 2 * SYMMEM_CUDA_PRODUCT_THREADS;
    std::vector<unsigned char> buffers[3], out(result, 0xee), wanted(result, 0xee);
    symmem_cuda_tile tile = {};
    uint32_t seed = 11;
    for (int r = 0; r < 3; r++) {
        for (size_t i = 0; i < source; i++)
            buffers[r].push_back(
                static_cast<unsigned char>((seed = seed * 1664525u + 1013904223u) >> 24));
        tile.small_buffers[r] = buffers[r].data();
    }
    for (uint64_t i = 0; i < rows; i++) {
        const void *srcs[3];
        for (int r = 0; r < 3; r++)
            srcs[r] = buffers[r].data() + place + i * src_row * bytes;
        CU_ASSERT(symmem_reference_reduce(wanted.data() + bytes + i * dst_row * bytes, srcs, 3, row,
                                          dtype, SYMMEM_SUM));
    }
    tile.dst = reinterpret_cast<char *>(out.data()) + bytes;
    tile.offset = place;
    tile.rows = rows;
    tile.row = row;
    tile.src_row_bytes = src_row * bytes;
    tile.dst_row_bytes = dst_row * bytes;
    tile.ranks = 3;
    tile.op = SYMMEM_CUDA_SUM;
    tile.element = static_cast<int32_t>(bytes);
    tile.row_lanes = symmem_cuda_row_lanes(rows, row * bytes);
    for (size_t lane = 0; lane < lanes; lane++)
        symmem_cuda_run_tile<Element>(tile, lane, lanes);
    CU_ASSERT(out == wanted);
}

TEST("tiles") {
    static const uint64_t shapes[][2] = {{1, 1}, {1, 5000}, {2, 1}, {3, 16}, {700, 3}, {5, 1031}};
    for (const auto &side : shapes) {
        reduce_tile<symmem_cuda_unsigned<uint8_t>>(SYMMEM_UINT8, side[0], side[1]);
        reduce_tile<symmem_cuda_signed<int16_t>>(SYMMEM_INT16, side[0], side[1]);
        reduce_tile<symmem_cuda_unsigned<uint32_t>>(SYMMEM_UINT32, side[0], side[1]);
        reduce_tile<symmem_cuda_signed<int64_t>>(SYMMEM_INT64, side[0], side[1]);
    }
}

TEST("reductions") {
    reduce<symmem_cuda_f32>(SYMMEM_FLOAT32);
    reduce<symmem_cuda_f64>(SYMMEM_FLOAT64);
    reduce<symmem_cuda_f16>(SYMMEM_FLOAT16);
    reduce<symmem_cuda_bf16>(SYMMEM_BFLOAT16);
    reduce<symmem_cuda_signed<int8_t>>(SYMMEM_INT8);
    reduce<symmem_cuda_unsigned<uint8_t>>(SYMMEM_UINT8);
    reduce<symmem_cuda_signed<int32_t>>(SYMMEM_INT32);
    reduce<symmem_cuda_unsigned<uint64_t>>(SYMMEM_UINT64);
}

} // namespace
