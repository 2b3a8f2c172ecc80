/* SPDX-License-Identifier: BSD-3-Clause */
/* Which devices are found to be linked, and by whose word: see links.c. */
#include "memory/mapping.h"
#include "signal/links.h"
#include "unit_main.h"

#define DEVICES 3

static cuda_mapping mappings[DEVICES]; /* rank r's state is in mapping r, of device r */
static bool unknown;                   /* the memory is not from memory/ */
static int dropped;
static int32_t apart = -1; /* a device without NVLink */

static CUuuid uuid_of(int32_t device) {
    CUuuid uuid = {{(char)(device + 1)}};
    return uuid;
}

cuda_mapping *cuda_mapping_at(CUdeviceptr address) {
    return unknown ? NULL : &mappings[address - 1];
}

void cuda_mapping_drop(const cuda_driver *driver, cuda_mapping *mapping) {
    (void)driver, (void)mapping;
    dropped++;
}

static CUresult get_device(CUdevice *device_p, int ordinal) {
    *device_p = ordinal;
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid_p, CUdevice device) {
    *uuid_p = uuid_of(device);
    return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value_p, CUdevice_P2PAttribute attribute, CUdevice one,
                              CUdevice other) {
    CU_ASSERT_EQUAL(attribute, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
    *value_p = one != apart && other != apart;
    return CUDA_SUCCESS;
}

static cuda_instance instance = {.driver = {.DeviceGet = get_device,
                                            .DeviceGetUuid = get_uuid,
                                            .DeviceGetP2PAttribute = get_attribute},
                                 .device_count = DEVICES};

/* Ranks of the context; their devices' numbers are the same. */
static const int32_t members[2] = {2, 0};

static cuda_links find(void) {
    void *signals[2] = {(void *)(uintptr_t)3, (void *)(uintptr_t)1};
    const symmem_peers peers = {
        .rank = 1, .world_size = 2, .signals = signals, .global_ranks = members};
    for (int32_t device = 0; device < DEVICES; device++)
        mappings[device].maker = uuid_of(device);
    dropped = 0;
    return cuda_links_find(&instance, &peers);
}

static int told;
static bool knows_all;

static bool tell(const cuda_instance *self, int32_t rank, CUuuid *uuid_p) {
    CU_ASSERT(self == &instance && (rank == 0 || rank == 2));
    told++;
    *uuid_p = uuid_of(rank);
    return rank == 0 || knows_all;
}

TEST("devices of memory that was mapped here") {
    apart = -1;
    CU_ASSERT(find().all_linked && dropped == 2);
    apart = 2;
    CU_ASSERT_FALSE(find().all_linked);
    unknown = true;
    CU_ASSERT_FALSE(find().all_linked);
    unknown = false;
}

TEST("devices that another backend names, by the ranks of the context") {
    apart = -1;
    unknown = true;
    instance.find_device = tell;
    knows_all = true;
    CU_ASSERT(find().all_linked && told == 2 && dropped == 0);
    apart = 2;
    CU_ASSERT_FALSE(find().all_linked);
    apart = -1;
    knows_all = false;
    CU_ASSERT_FALSE(find().all_linked);
    instance.find_device = NULL;
    unknown = false;
}
