/* SPDX-License-Identifier: BSD-3-Clause */
/* What backend_cuda makes of a driver's answers about fabric handles: see fabric.c. */

#include "cuda_internal.h"
#include "unit_main.h"
#include "driver/fabric.h"

static int asked, exported;
static int supported;
static CUresult answer; /* of whatever is called */
static CUmemFabricHandle imported;
static int said;

static CUresult attribute(int *value_p, CUdevice_attribute wanted, CUdevice device) {
    CU_ASSERT_EQUAL(wanted, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
    asked++;
    *value_p = supported;
    return answer;
}

static CUresult export_handle(void *handle, CUmemGenericAllocationHandle memory,
                              CUmemAllocationHandleType type, unsigned long long flags) {
    CU_ASSERT(memory == 42 && type == CU_MEM_HANDLE_TYPE_FABRIC && flags == 0);
    exported++;
    memset(handle, 17, sizeof(CUmemFabricHandle));
    return answer;
}

static CUresult import_handle(CUmemGenericAllocationHandle *memory_p, void *handle,
                              CUmemAllocationHandleType type) {
    CU_ASSERT_EQUAL(type, CU_MEM_HANDLE_TYPE_FABRIC);
    memcpy(&imported, handle, sizeof imported);
    *memory_p = 43;
    return answer;
}

static void notice(const symmem_host *host, const char *text) {
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "fabric handles"));
    said++;
}

static symmem_status host_fail(const symmem_host *host, symmem_status status, int system_errno,
                               const char *operation, const char *format, ...) {
    said++;
    return status;
}

static const symmem_host host = {.size = sizeof host, .notice = notice, .fail = host_fail};
static const cuda_driver driver = {.DeviceGetAttribute = attribute,
                                   .MemExportToShareableHandle = export_handle,
                                   .MemImportFromShareableHandle = import_handle};
static cuda_instance instance;

static void begin(int is_supported, CUresult result) {
    memset(&instance, 0, sizeof instance);
    instance.driver = driver;
    instance.host = &host;
    unsetenv("SYMMEM_CUDA_FABRIC");
    supported = is_supported;
    answer = result;
    asked = exported = said = 0;
}

TEST("offer") {
    begin(1, CUDA_SUCCESS);
    CU_ASSERT(cuda_fabric_is_offered(&instance, 0) && cuda_fabric_is_offered(&instance, 0));
    CU_ASSERT_EQUAL(asked, 1);
    begin(0, CUDA_SUCCESS);
    CU_ASSERT_FALSE(cuda_fabric_is_offered(&instance, 0));
    begin(1, CUDA_ERROR_INVALID_VALUE); /* a driver that knows of no such thing */
    CU_ASSERT_FALSE(cuda_fabric_is_offered(&instance, 0));
    answer = CUDA_SUCCESS; /* that it cannot is settled */
    CU_ASSERT_FALSE(cuda_fabric_is_offered(&instance, 0));
    CU_ASSERT_EQUAL(asked, 1);
    begin(1, CUDA_ERROR_OPERATING_SYSTEM); /* this is not */
    CU_ASSERT_FALSE(cuda_fabric_is_offered(&instance, 0));
    answer = CUDA_SUCCESS;
    CU_ASSERT_TRUE(cuda_fabric_is_offered(&instance, 0));
    begin(1, CUDA_SUCCESS);
    setenv("SYMMEM_CUDA_FABRIC", "0", 1);
    CU_ASSERT_FALSE(cuda_fabric_is_offered(&instance, 0));
    CU_ASSERT_EQUAL(asked, 0);
    begin(1, CUDA_SUCCESS);
    setenv("SYMMEM_CUDA_FABRIC", "1", 1);
    CU_ASSERT_TRUE(cuda_fabric_is_offered(&instance, 0));
    unsetenv("SYMMEM_CUDA_FABRIC");
}

/* Not where there is no room, which is the same without them. */
TEST("setting") {
    static const char *const good[] = {"", "0", "1"}, *const bad[] = {"no", "2", "on", " 1"};
    begin(1, CUDA_SUCCESS);
    CU_ASSERT_EQUAL(cuda_fabric_read_setting(&instance), SYMMEM_OK);
    for (int i = 0; i < 3; i++) {
        setenv("SYMMEM_CUDA_FABRIC", good[i], 1);
        CU_ASSERT_EQUAL(cuda_fabric_read_setting(&instance), SYMMEM_OK);
    }
    CU_ASSERT_EQUAL(said, 0);
    for (int i = 0; i < 4; i++) {
        setenv("SYMMEM_CUDA_FABRIC", bad[i], 1);
        CU_ASSERT_EQUAL(cuda_fabric_read_setting(&instance), SYMMEM_INVALID_ARGUMENT);
    }
    CU_ASSERT_EQUAL(said, 4);
    unsetenv("SYMMEM_CUDA_FABRIC");
}

TEST("may be why") {
    CU_ASSERT_FALSE(cuda_fabric_may_be_why(CUDA_SUCCESS));
    CU_ASSERT_FALSE(cuda_fabric_may_be_why(CUDA_ERROR_OUT_OF_MEMORY));
    CU_ASSERT_TRUE(cuda_fabric_may_be_why(CUDA_ERROR_NOT_PERMITTED));
    CU_ASSERT_TRUE(cuda_fabric_may_be_why(CUDA_ERROR_OPERATING_SYSTEM));
}

/* For good, and of this device; but not what fails without them, too, which may pass. */
TEST("refusal") {
    static const CUresult refusals[] = {CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED,
                                        CUDA_ERROR_INVALID_VALUE};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        begin(1, CUDA_SUCCESS);
        CU_ASSERT(cuda_fabric_is_offered(&instance, 0) && cuda_fabric_is_offered(&instance, 1));
        cuda_fabric_was_why(&instance, 0, refusals[i], CUDA_ERROR_OPERATING_SYSTEM);
        cuda_fabric_was_why(&instance, 0, refusals[i], CUDA_ERROR_OUT_OF_MEMORY);
        CU_ASSERT_TRUE(cuda_fabric_is_offered(&instance, 0));
        cuda_fabric_was_why(&instance, 0, refusals[i], CUDA_SUCCESS);
        CU_ASSERT_FALSE(cuda_fabric_is_offered(&instance, 0));
        CU_ASSERT_TRUE(cuda_fabric_is_offered(&instance, 1));
        CU_ASSERT_EQUAL(asked, 2);
        CU_ASSERT_EQUAL(said, 0); /* most devices that could have them have none */
    }
}

static void fail_by_chance(int times) {
    for (int i = 0; i < times; i++) {
        CU_ASSERT_TRUE(cuda_fabric_is_offered(&instance, 0));
        cuda_fabric_was_why(&instance, 0, CUDA_ERROR_SYSTEM_NOT_READY, CUDA_SUCCESS);
    }
}

/* What is no refusal passes; what does not pass is given up after a while, which is said. */
TEST("passing") {
    begin(1, CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        fail_by_chance(7);
        cuda_fabric_was_granted(&instance, 0);
    }
    fail_by_chance(7);
    cuda_fabric_was_why(&instance, 0, CUDA_ERROR_SYSTEM_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY);
    CU_ASSERT_EQUAL(said, 0);
    fail_by_chance(1);
    CU_ASSERT_FALSE(cuda_fabric_is_offered(&instance, 0));
    CU_ASSERT_TRUE(cuda_fabric_is_offered(&instance, 1));
    CU_ASSERT_EQUAL(said, 1);
    cuda_fabric_was_granted(&instance, 0); /* by a thread that is late */
    CU_ASSERT_FALSE(cuda_fabric_is_offered(&instance, 0));
}

TEST("export") {
    symmem_share share = {.kind = SYMMEM_SHARE_FD, .fd = 5};
    begin(1, CUDA_ERROR_NOT_SUPPORTED);
    cuda_fabric_export(&instance.driver, 42, &share);
    CU_ASSERT(share.kind == SYMMEM_SHARE_FD && share.more_bytes[0] == 0); /* the descriptor alone */
    answer = CUDA_SUCCESS;
    cuda_fabric_export(&instance.driver, 42, &share);
    CU_ASSERT(share.kind == (SYMMEM_SHARE_FD | SYMMEM_SHARE_BYTES) && share.fd == 5);
    CU_ASSERT(share.more_bytes[0] == 17 && share.more_bytes[63] == 17);
    CU_ASSERT_EQUAL(exported, 2);
}

static CUresult import_as(CUresult result) {
    symmem_share share = {.more_bytes = {1, 2, 3}};
    CUmemGenericAllocationHandle memory = 0;
    answer = result;
    result = cuda_fabric_import(&instance.driver, &share, &memory);
    CU_ASSERT_EQUAL(memcmp(&imported, share.more_bytes, sizeof imported), 0);
    CU_ASSERT(memory == 43);
    return result;
}

/* A handle of another fabric says that the ranks cannot reach each other; the rest are errors. */
TEST("import") {
    static const CUresult of_another[] = {CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED,
                                          CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE,
                                          CUDA_ERROR_SYSTEM_NOT_READY};
    begin(1, CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof of_another / sizeof of_another[0]; i++)
        CU_ASSERT_EQUAL(import_as(of_another[i]), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    CU_ASSERT_EQUAL(import_as(CUDA_ERROR_OUT_OF_MEMORY), CUDA_ERROR_OUT_OF_MEMORY);
    CU_ASSERT_EQUAL(import_as(CUDA_ERROR_DEVICE_UNAVAILABLE), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CU_ASSERT_EQUAL(import_as(CUDA_SUCCESS), CUDA_SUCCESS);
}
