/* SPDX-License-Identifier: BSD-3-Clause */
/* What backend_cuda makes of a share that a peer sends: see memory.c. */

#include "memory/mapping.h"
#include "unit_main.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "driver/fabric.h"
#include "memory/memory.h"
#include "memory/suballoc.h"

#define OWN_PROCESS 7u
#define MAPPED 65536u

/* What a share's bytes hold, as memory.c has it. */
typedef struct share_bytes {
    cuda_origin from;
    uint64_t offset, mapped_bytes, series;
    CUuuid maker;
} share_bytes;

static cuda_mapping own = {.address = 0x10000, .mapped_bytes = MAPPED};
static CUdeviceptr imported_at;
static int found, imported;
static symmem_status said;

/* --- what memory.c calls ---------------------------------------------------------------------- */

bool cuda_mapping_is_of(cuda_origin from) {
    return from.process == OWN_PROCESS;
}

cuda_mapping *cuda_mapping_find(cuda_origin from, size_t mapped_bytes) {
    found++;
    return from.process == OWN_PROCESS && mapped_bytes == MAPPED ? &own : NULL;
}

CUresult cuda_mapping_import(const cuda_driver *driver, CUmemGenericAllocationHandle handle,
                             int32_t device, cuda_mapping *mapping) {
    (void)driver, (void)device;
    CU_ASSERT_EQUAL(handle, 43);
    mapping->address = imported_at = 0x90000;
    imported++;
    return CUDA_SUCCESS;
}

static CUresult import_handle(CUmemGenericAllocationHandle *memory_p, void *handle,
                              CUmemAllocationHandleType type) {
    (void)handle, (void)type;
    *memory_p = 43;
    return CUDA_SUCCESS;
}

CUresult cuda_mapping_allow(const cuda_driver *driver, cuda_mapping *mapping, int32_t device) {
    (void)driver, (void)mapping, (void)device;
    return CUDA_SUCCESS;
}

void cuda_mapping_add_imported(cuda_mapping *mapping, cuda_origin from) {
    mapping->from = from;
}

void cuda_mapping_drop(const cuda_driver *driver, cuda_mapping *mapping) {
    (void)driver;
    if (mapping != &own)
        free(mapping);
}

symmem_status cuda_enter(cuda_instance *instance, int32_t device, const char *operation) {
    (void)instance, (void)device, (void)operation;
    return SYMMEM_OK;
}

void cuda_leave(const cuda_instance *instance) {
    (void)instance;
}

symmem_status cuda_failpoint(const cuda_instance *instance, const char *name) {
    (void)instance, (void)name;
    return SYMMEM_OK;
}

/* Not for an import that succeeds. */
#define NEVER(declaration, result)                                                                 \
    declaration {                                                                                  \
        CU_FAIL("called");                                                                         \
        result;                                                                                    \
    }
#pragma GCC diagnostic ignored "-Wunused-parameter"
NEVER(int cuda_descriptors_error(void), return 0)
NEVER(CUmemAllocationProp cuda_memory_property(int32_t device, bool fabric),
      return (CUmemAllocationProp){0})
NEVER(CUresult cuda_device_uuid(const cuda_driver *driver, int32_t device, CUuuid *uuid_p),
      return CUDA_SUCCESS)
NEVER(void cuda_fabric_export(const cuda_driver *driver, CUmemGenericAllocationHandle memory,
                              symmem_share *share), )
NEVER(CUresult cuda_fabric_import(const cuda_driver *driver, const symmem_share *share,
                                  CUmemGenericAllocationHandle *memory_p),
      return CUDA_SUCCESS)
NEVER(bool cuda_fabric_is_offered(cuda_instance *instance, int32_t device), return false)
NEVER(bool cuda_fabric_may_be_why(CUresult result), return false)
NEVER(void cuda_fabric_was_why(cuda_instance *instance, int32_t device, CUresult with,
                               CUresult without), )
NEVER(symmem_status cuda_fail(const cuda_instance *instance, CUresult result,
                              const char *operation),
      return SYMMEM_SYSTEM)
NEVER(size_t cuda_granule_bytes(size_t driver_bytes), return 0)
NEVER(void cuda_granule_close(cuda_instance *instance, int32_t device), )
NEVER(void cuda_granule_open(cuda_instance *instance, int32_t device, cuda_mapping *mapping,
                             size_t bytes), )
NEVER(void cuda_granule_take(cuda_instance *instance, int32_t device, size_t bytes,
                             size_t *offset_p, cuda_mapping **mapping_p), )
NEVER(bool cuda_granules_are_used(const cuda_instance *instance), return false)
NEVER(void cuda_imports_keep(cuda_instance *instance, int32_t device, cuda_mapping *mapping), )
NEVER(symmem_status cuda_fail_timeout(const cuda_instance *instance, const char *operation),
      return SYMMEM_TIMEOUT)
NEVER(void cuda_mapping_add_own(cuda_mapping *mapping), )
NEVER(CUresult cuda_mapping_create(cuda_instance *instance, int32_t device, bool fabric,
                                   cuda_mapping *mapping),
      return CUDA_SUCCESS)
NEVER(CUresult cuda_mapping_descriptor(const cuda_driver *driver, cuda_mapping *mapping, int *fd_p),
      return CUDA_SUCCESS)
NEVER(symmem_status cuda_no_memory(const cuda_instance *instance, const char *operation),
      return SYMMEM_OUT_OF_MEMORY)

/* --- shares -------------------------------------------------------------------------------------
 */

static symmem_status fail_sizes(const symmem_host *host, symmem_status status, int32_t system_errno,
                                const char *operation, uint64_t expected, uint64_t actual) {
    (void)host, (void)system_errno, (void)operation, (void)expected, (void)actual;
    said = status;
    return status;
}

static const symmem_host host = {.size = sizeof host, .fail_sizes = fail_sizes};
static cuda_instance instance = {.host = &host,
                                 .driver = {.MemImportFromShareableHandle = import_handle}};

static symmem_status import(uint64_t process, int32_t same_process, uint64_t offset, void **ptr_p) {
    const share_bytes bytes = {.from = {process, 1, 5}, .offset = offset, .mapped_bytes = MAPPED};
    symmem_share share = {.kind = SYMMEM_SHARE_FD,
                          .fd = 3,
                          .mapped_bytes = MAPPED - offset,
                          .same_process = same_process};
    symmem_memory memory = {.ptr = NULL};
    memcpy(share.bytes, &bytes, sizeof bytes);
    found = imported = 0;
    symmem_status status = cuda_memory_map(&instance, 0, &share, 512, &memory);
    *ptr_p = memory.ptr;
    if (status == SYMMEM_OK)
        cuda_mapping_drop(&instance.driver, memory.priv);
    return status;
}

/* That memory is this process's own is for the core to say, who knows where the share is from. */
TEST("a peer that names this process's memory") {
    void *ptr;
    CU_ASSERT_EQUAL(import(OWN_PROCESS, 1, 4096, &ptr), SYMMEM_OK);
    CU_ASSERT(imported == 0 && (uintptr_t)ptr == own.address + 4096);
    CU_ASSERT_EQUAL(import(OWN_PROCESS, 0, 4096, &ptr), SYMMEM_OK);
    CU_ASSERT(imported == 1 && (uintptr_t)ptr == imported_at + 4096);
    CU_ASSERT_EQUAL(import(OWN_PROCESS + 1, 0, 0, &ptr), SYMMEM_OK);
    CU_ASSERT(found == 1 && imported == 1);
}

/* Kernels read words of 16 bytes there. */
TEST("an offset at which no memory begins") {
    void *ptr;
    for (uint64_t offset = 1; offset < 4096; offset *= 2)
        CU_ASSERT_EQUAL(import(OWN_PROCESS, 1, offset, &ptr), SYMMEM_MISMATCH);
    CU_ASSERT_EQUAL(import(OWN_PROCESS, 1, MAPPED, &ptr), SYMMEM_MISMATCH);
    CU_ASSERT_EQUAL(import(OWN_PROCESS, 1, UINT64_MAX - 4095, &ptr), SYMMEM_MISMATCH);
    CU_ASSERT_EQUAL(said, SYMMEM_MISMATCH);
}
