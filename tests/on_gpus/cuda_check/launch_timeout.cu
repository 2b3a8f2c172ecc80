// SPDX-License-Identifier: BSD-3-Clause
// A device all of whose room a user's kernel takes: a call without a stream comes back all the
// same, and when there is room again everything works.
#include "check.cuh"

#include <cstring>

#include <symmem/device.cuh>

static __global__ void __launch_bounds__(1024)
    take_room(const uint32_t *released, symmem::deadline limit) {
    while (symmem::load_relaxed(released) == 0 && !symmem::is_over(limit))
        ;
}

static __global__ void start(symmem::deadline *limit, uint32_t ms) {
    *limit = symmem::deadline_in_ms(ms);
}

// As many threads as the device can hold; they end by themselves after some seconds.
static void fill_device(check &c) {
    constexpr uint32_t MOST_MS = 15000;
    cudaDeviceProp properties;
    symmem::deadline *at = nullptr, limit = {0};
    need(c, "properties",
         cudaGetDeviceProperties(&properties, c.device) == cudaSuccess &&
             cudaMalloc(&at, sizeof *at) == cudaSuccess);
    start<<<1, 1, 0, c.stream>>>(at, MOST_MS);
    need(c, "the device's clock",
         cudaMemcpyAsync(&limit, at, sizeof limit, cudaMemcpyDeviceToHost, c.stream) ==
                 cudaSuccess &&
             cudaStreamSynchronize(c.stream) == cudaSuccess && limit.end_ns != 0);
    (void)cudaFree(at);
    c.words[RELEASED] = 0;
    const int each = properties.maxThreadsPerMultiProcessor / 1024;
    take_room<<<static_cast<unsigned int>(properties.multiProcessorCount * each), 1024, 0,
                c.stream>>>(c.words_dev + RELEASED, limit);
    need(c, "a kernel that takes all room", cudaGetLastError() == cudaSuccess);
    sleep_ms(200);
}

static void call(check &c) {
    constexpr uint32_t SHORT_MS = 300;
    symmem_error_record record;
    if (c.rank == 0)
        fill_device(c);
    host_barrier(c);
    const double begin_s = now_s();
    const symmem_status status =
        symmem_barrier(c.handle, 0, c.rank == 0 ? SHORT_MS : LIMIT_MS, nullptr);
    const double took_s = now_s() - begin_s;
    symmem_last_error(&record);
    if (c.rank == 0)
        expect(c, "a call that the device does not begin",
               status == SYMMEM_TIMEOUT && strcmp(record.stage, "device") == 0 && took_s < 8,
               "%s, stage '%s', after %.3f s", symmem_status_name(status), record.stage, took_s);
    else
        expect(c, "its peer", status == SYMMEM_POISONED && took_s < 8, "%s after %.3f s",
               symmem_status_name(status), took_s);
}

// The ranks' answers are the same ones, so they stay in step.
static void recover(check &c) {
    symmem_status status = symmem_handle_reset(c.handle, LIMIT_MS);
    expect(c, "a reset before", status == SYMMEM_BUSY, "%s", symmem_status_name(status));
    c.words[RELEASED] = 1;
    for (int i = 0; status == SYMMEM_BUSY && i < 100; i++) {
        sleep_ms(20);
        status = symmem_handle_reset(c.handle, LIMIT_MS);
    }
    expect(c, "a reset after", status == SYMMEM_OK, "%s", symmem_status_name(status));
    status = symmem_barrier(c.handle, 0, LIMIT_MS, nullptr);
    expect(c, "a barrier after", status == SYMMEM_OK, "%s", symmem_status_name(status));
    need(c, "the user's kernel", cudaStreamSynchronize(c.stream) == cudaSuccess);
}

void check_launch_timeout(check &c) {
    const symmem_status status = symmem_barrier(c.handle, 0, LIMIT_MS, nullptr);
    expect(c, "a barrier", status == SYMMEM_OK, "%s", symmem_status_name(status));
    call(c);
    recover(c);
}
