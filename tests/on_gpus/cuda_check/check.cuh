// SPDX-License-Identifier: BSD-3-Clause
// What the files of symmem-cuda-check share.
#ifndef SYMMEM_CUDA_CHECK_CUH
#define SYMMEM_CUDA_CHECK_CUH

#include <cuda_runtime.h>
#include <symmem/symmem.h>

#include <cstdint>

constexpr uint32_t LIMIT_MS = 30000;
constexpr size_t MOST = 100000; // times four floats, of each rank's buffer

struct check {
    int rank, world, device, failures;
    symmem_context *context;
    symmem_group *group;
    symmem_handle *handle;
    symmem_handle_info info;
    void *memory;
    void *const *buffers, *const *pads; // on the device
    cudaStream_t stream;
    volatile uint32_t *words; // host memory that the device reads and writes
    uint32_t *words_dev;
};

enum { LATE, RECEIVED, RELEASED, WORDS };

// Prints one line, and counts what is not good.
void expect(check &c, const char *what, bool good, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// Required for all that follows.
void need(check &c, const char *what, bool good);
void host_barrier(check &c); // of the hosts
double now_s();
void sleep_ms(int ms);

void check_crosswise(check &c);      // crosswise.cu
void check_elsewhere(check &c);      // elsewhere.cu
void check_header(check &c);         // header.cu
void check_halves(check &c);         // halves.cu
void check_plain(check &c);          // plain.cu
void check_reset(check &c);          // elsewhere.cu; the device's memory is gone
void check_starts(check &c);         // starts.cu
void check_topology(check &c);       // topology.cu
void check_launch_timeout(check &c); // launch_timeout.cu

#endif
