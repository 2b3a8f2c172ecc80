// SPDX-License-Identifier: BSD-3-Clause
// What check.c runs on the device: writes to peers on one side of a barrier, a look on the other.
#include <nccl_device.h>

#include <cstdint>

// The host's side of these is C, which has no declaration of them: it reads them from here.
static constexpr ncclDevCommRequirements requirements() {
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
    ncclDevCommRequirements result = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
    ncclDevCommRequirements result = {};
#endif
    result.lsaBarrierCount = 1;
    return result;
}

extern "C" __device__ ncclDevCommRequirements check_requirements = requirements();
extern "C" __device__ uint64_t check_sizes[2] = {sizeof(ncclDevCommRequirements),
                                                 sizeof(ncclDevComm)};

static __device__ void write(uint32_t *const *buffers, int rank, int count, uint32_t round) {
    for (int peer = static_cast<int>(threadIdx.x); peer < count;
         peer += static_cast<int>(blockDim.x))
        *static_cast<volatile uint32_t *>(buffers[peer] + rank) = round;
}

// No rank is further than the next round, because that needs this rank at the next barrier.
static __device__ void look(uint32_t *const *buffers, int rank, int count, uint32_t round,
                            uint32_t *wrong) {
    for (int peer = static_cast<int>(threadIdx.x); peer < count;
         peer += static_cast<int>(blockDim.x)) {
        uint32_t found = *static_cast<volatile uint32_t *>(buffers[rank] + peer);
        if (found != round && found != round + 1)
            atomicAdd(wrong, 1u);
    }
}

extern "C" __global__ void check_write(uint32_t *const *buffers, int rank, int count,
                                       uint32_t round) {
    write(buffers, rank, count, round);
}

extern "C" __global__ void check_look(uint32_t *const *buffers, int rank, int count, uint32_t round,
                                      uint32_t *wrong) {
    look(buffers, rank, count, round, wrong);
}

// NCCL's barrier between the two, for which the load/store team has to be the whole world.
extern "C" __global__ void check_both(const ncclDevComm comm, uint32_t *const *buffers, int rank,
                                      int count, uint32_t round, uint32_t *wrong) {
    write(buffers, rank, count, round);
    ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), 0);
    barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
    look(buffers, rank, count, round, wrong);
}
