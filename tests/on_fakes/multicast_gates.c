/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conditions of the CUDA backend's multicast, on the fake driver, which counts:
 *   multicast_gates PLUGIN on    built with it: each of the environment's conditions by itself
 * keeps the driver from being asked for anything, a step that fails leaves nothing behind and has
 * the status that backend.h names multicast_gates PLUGIN off   built without: neither the
 * capability nor an entry
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <symmem/backend.h>

#include "bare_core.h"
#include "cuda_control.h"

static int failures;
static char last_text[512];

static void check(bool holds, const char *what) {
    if (!holds) {
        printf("FAILED: %s (last record: %s)\n", what, last_text);
        failures++;
    }
}

/* --- what the core would be ---------------------------------------------------------- */

static symmem_status host_fail(const symmem_host *host, symmem_status status, int system_errno,
                               const char *operation, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_text, sizeof last_text, format, arguments);
    va_end(arguments);
    return status;
}

static symmem_status host_fail_sizes(const symmem_host *host, symmem_status status,
                                     int system_errno, const char *operation, uint64_t expected,
                                     uint64_t actual) {
    return host_fail(host, status, system_errno, operation, "%llu, not %llu",
                     (unsigned long long)actual, (unsigned long long)expected);
}

static const symmem_host host = {.size = sizeof host,
                                 .fail = host_fail,
                                 .fail_sizes = host_fail_sizes,
                                 .notice = quiet_notice,
                                 .point = quiet_point,
                                 .signal_failed = quiet_signal_failed,
                                 .peer_state = quiet_peer_state,
                                 .is_poisoned = quiet_is_poisoned};

/* --- the plug-in and the driver ------------------------------------------------------ */

static const symmem_backend *table;
static void *instance;

static int creates(void) {
    return fake_calls("cuMulticastCreate");
}

static int calls(void) {
    return creates() + fake_calls("cuMulticastGetGranularity") +
           fake_calls("cuMulticastAddDevice") + fake_calls("cuMulticastBindMem") +
           fake_calls("cuMulticastUnbind");
}

static void set(const char *name, const char *value) {
    if ((value != NULL ? setenv(name, value, 1) : unsetenv(name)) != 0)
        abort();
}

static void environment(const char *symmem, const char *torch, const char *nvls) {
    set("SYMMEM_MULTICAST", symmem);
    set("TORCH_SYMM_MEM_DISABLE_MULTICAST", torch);
    set("NCCL_NVLS_ENABLE", nvls);
}

/* --- built without ------------------------------------------------------------------- */

static void check_absent(void) {
    check(table->multicast == NULL, "the group is there");
    check(strstr(table->description, "built without multicast") != NULL, "the description says it");
}

/* --- built with it ------------------------------------------------------------------- */

static symmem_status create(void **object_p, symmem_share *share) {
    *share = (symmem_share){.fd = -1};
    return table->multicast->create(instance, 0, 2, 4096, object_p, share);
}

static bool device_has_it(void) {
    symmem_device_info info = {0};
    check(table->instance->device_info(instance, 0, &info) == SYMMEM_OK, "device_info");
    return info.multicast != 0;
}

/* Nothing of the driver's multicast is called. */
static void check_forbidden(const char *symmem, const char *torch, const char *nvls) {
    const int before = calls();
    symmem_share share = {.kind = SYMMEM_SHARE_FD, .fd = -1, .mapped_bytes = 4096};
    void *object = NULL;
    environment(symmem, torch, nvls);
    check(!device_has_it(), "the device says that it can");
    check(table->multicast->attach(instance, 0, &share, 4096, &object) == SYMMEM_UNSUPPORTED,
          "attach is refused");
    check(create(&object, &share) == SYMMEM_UNSUPPORTED, "create is refused");
    check(strstr(last_text, "multicast is off") != NULL, "the record says why");
    check(object == NULL && share.fd == -1 && share.kind == SYMMEM_SHARE_NONE, "nothing is given");
    if (calls() != before)
        printf("SYMMEM_MULTICAST=%s TORCH_SYMM_MEM_DISABLE_MULTICAST=%s NCCL_NVLS_ENABLE=%s\n",
               symmem != NULL ? symmem : "(unset)", torch != NULL ? torch : "(unset)",
               nvls != NULL ? nvls : "(unset)");
    check(calls() == before && creates() == 0, "the driver was asked");
}

static void check_allowed(const char *torch, const char *nvls) {
    const int before = creates();
    void *object = NULL;
    symmem_share share;
    environment("1", torch, nvls);
    check(device_has_it(), "the device says that it cannot");
    check(create(&object, &share) == SYMMEM_OK, "create");
    check(creates() == before + 1, "the driver was asked once");
    table->memory->unshare(instance, &share);
    table->multicast->release(instance, object);
}

/* One step of two ranks on two devices, in one thread: the driver does not wait for the other
 * rank. */
static symmem_status run_until_failure(const char *failing, CUresult result) {
    void *object = NULL, *views[2] = {NULL, NULL}, *address = NULL;
    symmem_share share;
    symmem_memory memory[2];
    const symmem_peers peers = {.size = sizeof peers, .world_size = 2};
    memset(memory, 0, sizeof memory);
    for (int32_t i = 0; i < 2; i++)
        check(table->memory->alloc(instance, i, 4096, &memory[i]) == SYMMEM_OK, "memory");
    fake_fail_calls(failing, 0, 100, result);
    symmem_status status = create(&object, &share);
    for (int32_t i = 0; i < 2 && status == SYMMEM_OK; i++)
        status = table->multicast->attach(instance, i, &share, 4096, &views[i]);
    for (int32_t i = 0; i < 2 && status == SYMMEM_OK; i++)
        status = table->multicast->bind(instance, views[i], &memory[i], &peers, &address);
    check((status == SYMMEM_OK) == (address != NULL), "an address comes with success only");
    table->memory->unshare(instance, &share);
    for (int i = 0; i < 2; i++)
        if (views[i] != NULL)
            table->multicast->release(instance, views[i]);
    if (object != NULL)
        table->multicast->release(instance, object);
    for (int i = 0; i < 2; i++)
        table->memory->release(instance, &memory[i]);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
    return status;
}

static int open_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

/* Every step, with every error that the driver's documentation names. */
static void check_failures(void) {
    static const char *const steps[] = {"cuMulticastGetGranularity", "cuMulticastCreate",
                                        "cuMulticastAddDevice", "cuMulticastBindMem", "cuMemMap"};
    static const struct {
        CUresult error;
        symmem_status status;
    } errors[] = {{CUDA_ERROR_OUT_OF_MEMORY, SYMMEM_LIMIT},
                  {CUDA_ERROR_NOT_SUPPORTED, SYMMEM_UNSUPPORTED},
                  {CUDA_ERROR_NOT_PERMITTED, SYMMEM_UNSUPPORTED},
                  {CUDA_ERROR_SYSTEM_NOT_READY, SYMMEM_UNSUPPORTED},
                  {CUDA_ERROR_ILLEGAL_STATE, SYMMEM_UNSUPPORTED},
                  {CUDA_ERROR_INVALID_VALUE, SYMMEM_BACKEND}};
    char text[64];
    environment("1", NULL, NULL);
    check(run_until_failure(NULL, CUDA_SUCCESS) == SYMMEM_OK, "all steps");
    const int before = open_descriptors();
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        for (size_t k = 0; k < sizeof errors / sizeof errors[0]; k++) {
            snprintf(text, sizeof text, "%s: %d", steps[i], errors[k].error);
            check(run_until_failure(steps[i], errors[k].error) == errors[k].status, text);
            check(open_descriptors() == before, "descriptors stay open");
        }
    for (int i = 0; i < 100; i++) /* more than there are slots */
        check(run_until_failure(NULL, CUDA_SUCCESS) == SYMMEM_OK, "all steps once more");
    check(open_descriptors() == before, "descriptors stay open");
}

static void check_gates(void) {
    const symmem_backend_config config = {.size = sizeof config, .world_size = 2};
    check(table->multicast != NULL, "the group is not there");
    check(strstr(table->description, "never run on hardware") != NULL, "the description says it");
    environment(NULL, NULL, NULL);
    if (table->instance->open(&host, &config, &instance) != SYMMEM_OK) {
        check(false, "open");
        return;
    }
    check_forbidden(NULL, NULL, NULL);
    check_forbidden("0", NULL, NULL);
    check_forbidden("", NULL, NULL);
    check_forbidden("yes", NULL, NULL);
    check_forbidden("1 ", "0", "1");
    check_forbidden("1", "1", NULL);
    check_forbidden("1", "true", "1");
    check_forbidden("1", NULL, "0");
    check_forbidden("1", "0", "00");
    check_forbidden("1", "0", "");
    check_forbidden("1", "0", "no");
    check_forbidden("1", "1", "0");
    check_allowed(NULL, NULL);
    check_allowed("0", "1");
    check_allowed("", "2");
    check_failures();
    table->instance->close(instance);
}

int main(int argc, char **argv) {
    table = argc == 3 ? bare_load(argv[1]) : NULL;
    if (table == NULL)
        return 2;
    if (strcmp(argv[2], "on") == 0)
        check_gates();
    else
        check_absent();
    printf("%d failures\n", failures);
    return failures != 0;
}
