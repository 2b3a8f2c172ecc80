/* SPDX-License-Identifier: BSD-3-Clause */
/* Our barrier and NCCL's own, interleaved over the same pointers: neither may let ranks drift
 * further apart than the other. */

#include "check.h"

#define ROUNDS 200u

extern const unsigned char symmem_check_image[];
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".hidden symmem_check_image\n"
        ".global symmem_check_image\n"
        "symmem_check_image:\n"
        ".incbin \"" SYMMEM_CHECK_IMAGE "\"\n"
        ".byte 0\n"
        ".popsection\n");

typedef struct device {
    CUmodule module;
    CUfunction write, look, both;
    size_t comm_bytes;
    void *comm; /* an ncclDevComm */
    CUdeviceptr wrong;
} device;

static bool load(const check *c, device *d, void **requirements_p) {
    CUdeviceptr sizes, requirements;
    uint64_t bytes[2] = {0, 0};
    const entries *api = &c->api;
    if (api->ModuleLoadData(&d->module, symmem_check_image) != CUDA_SUCCESS ||
        api->ModuleGetFunction(&d->write, d->module, "check_write") != CUDA_SUCCESS ||
        api->ModuleGetFunction(&d->look, d->module, "check_look") != CUDA_SUCCESS ||
        api->ModuleGetFunction(&d->both, d->module, "check_both") != CUDA_SUCCESS ||
        api->ModuleGetGlobal(&sizes, NULL, d->module, "check_sizes") != CUDA_SUCCESS ||
        api->ModuleGetGlobal(&requirements, NULL, d->module, "check_requirements") !=
            CUDA_SUCCESS ||
        api->MemcpyDtoH(bytes, sizes, sizeof bytes) != CUDA_SUCCESS)
        return false;
    *requirements_p = malloc(bytes[0]);
    d->comm = aligned_alloc(64, (bytes[1] + 63) / 64 * 64);
    return *requirements_p != NULL && d->comm != NULL &&
           api->MemcpyDtoH(*requirements_p, requirements, bytes[0]) == CUDA_SUCCESS;
}

static bool launch(const check *c, CUfunction function, void **arguments) {
    return c->api.LaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL) ==
               CUDA_SUCCESS &&
           c->api.CtxSynchronize() == CUDA_SUCCESS;
}

/* One round of each; late: this rank makes the others wait. */
static bool round_of_both(const check *c, device *d, uint32_t *round, void *table, bool late) {
    int rank = c->rank, world = c->world;
    void *arguments[] = {&table, &rank, &world, round, &d->wrong};
    void *with_comm[] = {d->comm, &table, &rank, &world, round, &d->wrong};
    if (late)
        usleep(20000);
    ++*round;
    if (!launch(c, d->both, with_comm))
        return false;
    if (late)
        usleep(20000);
    ++*round;
    return launch(c, d->write, arguments) &&
           symmem_barrier(c->handle, 0, LIMIT_MS, NULL) == SYMMEM_OK &&
           launch(c, d->look, arguments);
}

static void run(check *c, device *d) {
    void *const *buffers = NULL;
    void *table = NULL;
    uint32_t round = 0, wrong = 1;
    symmem_status status = symmem_handle_buffer_ptrs(c->handle, &buffers);
    if (status == SYMMEM_OK)
        status = symmem_handle_buffer_ptrs_dev(c->handle, &table);
    EXPECT(c, "tables", status == SYMMEM_OK, "%s", symmem_status_name(status));
    if (status != SYMMEM_OK)
        return;
    d->wrong = (CUdeviceptr)(uintptr_t)buffers[c->rank] + 4 * (size_t)c->world;
    bool good = true;
    for (uint32_t i = 0; good && i < ROUNDS; i++)
        good = round_of_both(c, d, &round, table, i % 50 == (uint32_t)c->rank);
    good = good && c->api.MemcpyDtoH(&wrong, d->wrong, sizeof wrong) == CUDA_SUCCESS;
    EXPECT(c, "barriers by turns", good && wrong == 0, "%u rounds of each, %u words wrong", ROUNDS,
           wrong);
}

void check_device_barrier(check *c) {
    device d = {.module = NULL};
    void *requirements = NULL;
    /* On 2.28 and before, the structure on the device grew from patch to patch. */
    if (c->version != NCCL_VERSION_CODE) {
        skip(c, "NCCL's device barrier", "built with %d, libnccl is %d", NCCL_VERSION_CODE,
             c->version);
        return;
    }
    bool loaded = load(c, &d, &requirements);
    EXPECT(c, "kernels", loaded, "loaded");
    if (loaded) {
        memset(d.comm, 0, 64);
        ncclResult_t result = c->api.DevCommCreate(c->comm, requirements, d.comm);
        bool ready =
            (result == ncclSuccess || result == ncclInProgress) && wait_ready(c, c->comm, LIMIT_MS);
        EXPECT(c, "ncclDevCommCreate", ready, "answered %d", (int)result);
        if (ready) {
            run(c, &d);
            (void)c->api.DevCommDestroy(c->comm, d.comm);
        }
    }
    free(requirements);
    free(d.comm);
}
