// SPDX-License-Identifier: BSD-3-Clause
// The kernels of kernels/cuda/multimem.cu with many lanes, on the CPU: every dtype and operation
// that they do, counts and places, against the scalar reference; nothing beside it is touched.
// [SM-MCAST-03, SM-MCAST-09]
#define CUDA_ON_HOST_ALONE
#include "cuda_on_host.h"

#include <cstdio>
#include <cstdlib>

#include "multimem_on_host.h"

#include "cuda/multimem.cu"

extern "C" {
#include "reference/reduce.h"
}

namespace {

constexpr int RANKS = 3;
constexpr size_t BYTES = 4096, BLOCKS = 3, THREADS = 5;

alignas(16) char range[BYTES]; // stands for the multicast range; must not be touched
alignas(16) char buffers[RANKS][BYTES], before[RANKS][BYTES], other[BYTES];
void *table[RANKS];
int failures;

void check(bool holds, const char *what, int type, int op, size_t count, size_t at) {
    if (holds)
        return;
    if (failures++ < 20)
        std::printf("FAILED: %s: type %d, op %d, %zu at byte %zu\n", what, type, op, count, at);
}

template <typename Args> void run(void (*kernel)(const Args), const Args &args) {
    gridDim.x = BLOCKS;
    blockDim.x = THREADS;
    for (blockIdx.x = 0; blockIdx.x < BLOCKS; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < THREADS; threadIdx.x++)
            kernel(args);
}

const struct {
    int32_t type;
    symmem_dtype dtype;
    size_t element;
} kinds[] = {{SYMMEM_MULTIMEM_F16, SYMMEM_FLOAT16, 2}, {SYMMEM_MULTIMEM_BF16, SYMMEM_BFLOAT16, 2},
             {SYMMEM_MULTIMEM_F32, SYMMEM_FLOAT32, 4}, {SYMMEM_MULTIMEM_F64, SYMMEM_FLOAT64, 8},
             {SYMMEM_MULTIMEM_S32, SYMMEM_INT32, 4},   {SYMMEM_MULTIMEM_U32, SYMMEM_UINT32, 4},
             {SYMMEM_MULTIMEM_S64, SYMMEM_INT64, 8},   {SYMMEM_MULTIMEM_U64, SYMMEM_UINT64, 8}};

symmem_multimem_address place_at(size_t at) {
    return {range + at, table, at, RANKS};
}

void fill() {
    for (size_t i = 0; i < BYTES; i++) {
        for (int rank = 0; rank < RANKS; rank++)
            buffers[rank][i] = static_cast<char>(std::rand());
        other[i] = static_cast<char>(std::rand());
    }
    memcpy(before, buffers, sizeof before);
}

bool same(const void *a, const void *b, size_t bytes) {
    return memcmp(a, b, bytes) == 0;
}

void reduce_once(size_t kind, int32_t op, size_t count, size_t at, bool back) {
    const size_t bytes = count * kinds[kind].element;
    const void *sources[RANKS];
    static char expected[BYTES], out[BYTES + 64];
    fill();
    for (int rank = 0; rank < RANKS; rank++)
        sources[rank] = before[rank] + at;
    const bool done = symmem_reference_reduce(expected, sources, RANKS, count, kinds[kind].dtype,
                                              static_cast<symmem_reduce_op>(op));
    check(done, "no reference", kinds[kind].type, op, count, at);
    memset(out, 0x77, sizeof out);
    char *to = out + 16 + at % 24 / 8 * 8;
    const symmem_multimem_reduce_args args = {
        place_at(at), back ? nullptr : to, count, kinds[kind].type, op, nullptr};
    run<symmem_multimem_reduce_args>(symmem_multicast_reduce, args);
    if (!back) {
        bool right = same(buffers, before, sizeof buffers) && same(to, expected, bytes);
        for (const char *byte = out; byte < out + sizeof out; byte++)
            right = right && ((byte >= to && byte < to + bytes) || *byte == 0x77);
        check(right, "out", kinds[kind].type, op, count, at);
        return;
    }
    for (int rank = 0; rank < RANKS; rank++)
        memcpy(before[rank] + at, expected, bytes);
    check(same(buffers, before, sizeof buffers), "in place", kinds[kind].type, op, count, at);
}

void store_once(size_t bytes, size_t at, size_t from) {
    fill();
    const symmem_multimem_store_args args = {place_at(at), other + from, bytes, nullptr};
    run<symmem_multimem_store_args>(symmem_multicast_store, args);
    for (int rank = 0; rank < RANKS; rank++)
        memcpy(before[rank] + at, other + from, bytes);
    check(same(buffers, before, sizeof buffers), "store", 0, 0, bytes, at);
}

void check_failed_operation() {
    const symmem_cuda_state failed = {0, 1, 0, 0, 0, 0};
    fill();
    const symmem_multimem_store_args args = {place_at(0), other, 64, &failed};
    run<symmem_multimem_store_args>(symmem_multicast_store, args);
    check(same(buffers, before, sizeof buffers), "a failed operation goes on", 0, 0, 64, 0);
}

} // namespace

// Every place is in a rank's buffer; stores of instructions come here once for each.
extern "C" int fake_multicast_find(const void *address, size_t bytes, char **places) {
    const size_t at = static_cast<size_t>(static_cast<const char *>(address) - range);
    check(at < BYTES && at + bytes <= BYTES && at % bytes == 0, "an access", 0, 0, bytes, at);
    for (int rank = 0; rank < RANKS; rank++)
        places[rank] = buffers[rank] + at;
    return RANKS;
}

int main() {
    for (int rank = 0; rank < RANKS; rank++)
        table[rank] = buffers[rank];
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
        for (int32_t op = 0; op < SYMMEM_REDUCE_OP_COUNT; op++)
            for (size_t count = 0; symmem_multimem_reduces(kinds[kind].type, op) && count < 70;
                 count += count < 20 ? 1 : 7)
                for (size_t place = 0; place < 9; place++)
                    reduce_once(kind, op, count, 64 + place * kinds[kind].element, count % 2 != 0);
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
        reduce_once(kind, SYMMEM_CUDA_SUM, 401, 48, true); // lanes have several lines each
    for (size_t bytes = 0; bytes < 100; bytes++)
        for (size_t at = 0; at < 20; at++)
            store_once(bytes, 32 + at, bytes % 19);
    store_once(3001, 33, 34);
    check_failed_operation();
    std::printf("%d failures\n", failures);
    return failures != 0;
}
