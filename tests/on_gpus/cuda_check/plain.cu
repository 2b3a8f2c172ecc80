// SPDX-License-Identifier: BSD-3-Clause
// Plain stores of a user's kernels into a peer's memory, and then the library's signal or barrier,
// or one block's by symmem/device.cuh: what was stored is there for the peer's next kernel. On the
// CPU the suite's litmus.*stores*, signal.message_passing_direct and
// barrier.plain_writes_are_visible show that, with stores of the CPU's own.
#include "check.cuh"

#include <symmem/device.cuh>

#include <cstdlib>

static constexpr int32_t DATA = 0, CREDIT = 1, OTHERS = 2; // channels
static constexpr unsigned int BLOCKS = 24, THREADS = 256;
static constexpr size_t WORDS_MOST = MOST * 4;

static __host__ __device__ uint32_t word_of(uint32_t writer, uint32_t generation, size_t i) {
    return (writer + 1) * 2654435761u ^ generation * 40503u ^
           static_cast<uint32_t>(i) * 2246822519u;
}

// So that ranks arrive in every order: up to 30 us, another time for each rank and generation.
static __device__ void skew(uint32_t rank, uint32_t generation) {
    const uint32_t draw = word_of(rank, generation, 77) >> 8;
    const uint64_t end_ns = symmem::now_ns() + (draw % 4 == 0 ? draw % 30000 : 0);
    while (symmem::now_ns() < end_ns) {
    }
}

static __device__ void fill(uint32_t *to, size_t count, uint32_t writer, uint32_t generation) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += size_t(gridDim.x) * blockDim.x)
        to[i] = word_of(writer, generation, i);
}

static __global__ void store(uint32_t *to, size_t count, uint32_t writer, uint32_t generation) {
    skew(writer, generation);
    fill(to, count, writer, generation);
}

static __global__ void compare(const uint32_t *from, size_t count, uint32_t writer,
                               uint32_t generation, uint32_t reader, unsigned int *wrong) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += size_t(gridDim.x) * blockDim.x)
        if (from[i] != word_of(writer, generation, i))
            atomicAdd(wrong, 1);
    skew(reader + 100, generation);
}

// The last of the blocks that are through signals for all.
static __global__ void store_and_signal(uint32_t *to, size_t count, uint32_t writer,
                                        uint32_t generation, unsigned int *through, uint32_t *slot,
                                        uint32_t timeout_ms, unsigned int *wrong) {
    skew(writer + blockIdx.x, generation);
    fill(to, count, writer, generation);
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    __threadfence_system(); // release; pairs with: the fence of the block that finds itself the
                            // last
    if (atomicAdd(through, 1) != gridDim.x - 1)
        return;
    __threadfence_system();
    *through = 0;
    if (*static_cast<volatile unsigned int *>(wrong) == 0 && // or each would wait for nothing
        !symmem::put(slot, symmem::deadline_in_ms(timeout_ms)))
        atomicAdd(wrong, 1);
}

static __global__ void await(uint32_t *slot, uint32_t timeout_ms, unsigned int *wrong) {
    if (*static_cast<volatile unsigned int *>(wrong) == 0 &&
        !symmem::wait(slot, symmem::deadline_in_ms(timeout_ms)))
        atomicAdd(wrong, 1);
}

namespace {

struct passing {
    symmem_stream *stream;
    void *const *buffers; // for the host
    void *const *pads;
    unsigned int *wrong, *through; // on the device
    int next, previous;
    int operations, failed; // of the library's, that were refused
};

size_t count_of(uint32_t generation) {
    static const size_t counts[] = {1, 4, 64, 1000, 4096, 65536, WORDS_MOST};
    return counts[generation % 7];
}

uint32_t *words_of(const passing &p, int rank) {
    return static_cast<uint32_t *>(p.buffers[rank]);
}

void ask(passing &p, symmem_status status) {
    p.operations++;
    p.failed += status == SYMMEM_OK ? 0 : 1;
}

void signal_next(check &c, passing &p, int32_t channel) {
    ask(p, symmem_put_signal(c.handle, p.next, channel, LIMIT_MS, p.stream));
    ask(p, symmem_wait_signal(c.handle, p.previous, channel, LIMIT_MS, p.stream));
}

// What I stored has been read.
void give_credit(check &c, passing &p) {
    ask(p, symmem_put_signal(c.handle, p.previous, CREDIT, LIMIT_MS, p.stream));
    ask(p, symmem_wait_signal(c.handle, p.next, CREDIT, LIMIT_MS, p.stream));
}

void compare_own(check &c, const passing &p, uint32_t generation) {
    compare<<<BLOCKS, THREADS, 0, c.stream>>>(words_of(p, c.rank), count_of(generation),
                                              static_cast<uint32_t>(p.previous), generation,
                                              static_cast<uint32_t>(c.rank), p.wrong);
}

// The host waits for nothing in between.
void by_signal(check &c, passing &p, uint32_t generation) {
    store<<<BLOCKS, THREADS, 0, c.stream>>>(words_of(p, p.next), count_of(generation),
                                            static_cast<uint32_t>(c.rank), generation);
    signal_next(c, p, DATA);
    compare_own(c, p, generation);
    give_credit(c, p);
}

void by_one_block(check &c, passing &p, uint32_t generation) {
    const int32_t channel = OTHERS % c.info.channel_count;
    const auto slot = [&](int owner, int source) {
        return static_cast<uint32_t *>(p.pads[owner]) +
               static_cast<size_t>(c.world) * static_cast<size_t>(channel) + source;
    };
    store_and_signal<<<BLOCKS, THREADS, 0, c.stream>>>(
        words_of(p, p.next), count_of(generation), static_cast<uint32_t>(c.rank), generation,
        p.through, slot(p.next, c.rank), LIMIT_MS, p.wrong);
    await<<<1, 1, 0, c.stream>>>(slot(c.rank, p.previous), LIMIT_MS, p.wrong);
    compare_own(c, p, generation);
    give_credit(c, p);
}

// Stored at home and read by all.
void by_barrier(check &c, passing &p, uint32_t generation) {
    store<<<BLOCKS, THREADS, 0, c.stream>>>(words_of(p, c.rank), count_of(generation),
                                            static_cast<uint32_t>(c.rank), generation);
    ask(p, symmem_barrier(c.handle, DATA, LIMIT_MS, p.stream));
    for (int rank = 0; rank < c.world; rank++)
        compare<<<BLOCKS, THREADS, 0, c.stream>>>(words_of(p, rank), count_of(generation),
                                                  static_cast<uint32_t>(rank), generation,
                                                  static_cast<uint32_t>(c.rank), p.wrong);
    ask(p, symmem_barrier(c.handle, DATA, LIMIT_MS, p.stream));
}

void pass(check &c, passing &p, const char *what,
          void (*round)(check &c, passing &p, uint32_t generation)) {
    constexpr uint32_t ROUNDS = 350;
    unsigned int wrong = 1;
    p.operations = p.failed = 0;
    need(c, "nothing is wrong yet",
         cudaMemset(p.wrong, 0, sizeof *p.wrong) == cudaSuccess &&
             cudaDeviceSynchronize() == cudaSuccess);
    host_barrier(c);
    for (uint32_t generation = 1; generation <= ROUNDS; generation++)
        round(c, p, generation);
    const symmem_status status = symmem_stream_synchronize(p.stream, LIMIT_MS);
    need(c, "what is wrong",
         cudaMemcpy(&wrong, p.wrong, sizeof wrong, cudaMemcpyDeviceToHost) == cudaSuccess);
    expect(c, what, status == SYMMEM_OK && wrong == 0 && p.failed == 0,
           "%u generations, %u words wrong, %d of %d operations refused, %s", ROUNDS, wrong,
           p.failed, p.operations, symmem_status_name(status));
    if (status != SYMMEM_OK)
        exit(1); // kernels may still be under way
    host_barrier(c);
}

} // namespace

void check_plain(check &c) {
    passing p = {};
    p.next = (c.rank + 1) % c.world;
    p.previous = (c.rank + c.world - 1) % c.world;
    need(c, "memory",
         cudaMalloc(&p.wrong, sizeof *p.wrong) == cudaSuccess &&
             cudaMalloc(&p.through, sizeof *p.through) == cudaSuccess &&
             cudaMemset(p.through, 0, sizeof *p.through) == cudaSuccess &&
             cudaDeviceSynchronize() == cudaSuccess);
    need(c, "wrap", symmem_stream_wrap(c.context, c.device, c.stream, &p.stream) == SYMMEM_OK);
    need(c, "pointers",
         symmem_handle_buffer_ptrs(c.handle, &p.buffers) == SYMMEM_OK &&
             symmem_handle_signal_pad_ptrs(c.handle, &p.pads) == SYMMEM_OK);
    pass(c, p, "plain stores, then a signal", by_signal);
    pass(c, p, "plain stores of all blocks, then one's signal", by_one_block);
    pass(c, p, "plain stores, then a barrier", by_barrier);
    need(c, "the wrapper's end", symmem_stream_destroy(p.stream) == SYMMEM_OK);
    (void)cudaFree(p.through);
    (void)cudaFree(p.wrong);
}
