/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fake of the CUDA driver, for machines without one: memory of the host, streams that are
 * threads, the kernels from their own source (kernels.cpp). It lets the host code of backend_cuda
 * run, under ThreadSanitizer too. It shows nothing about a GPU's memory model or speed, and little
 * about which driver calls wait. Two waits are modeled, as documented or as the driver may do it. A
 * copy from the device to pageable memory blocks the caller until it is over. Loading code,
 * unloading it and freeing pinned memory wait for all work in the context, some of them with the
 * context's lock held, so that other threads cannot enqueue.
 *
 * FAKE_CUDA_DEVICES: how many devices there are, at most and unless it is set 8.
 * FAKE_CUDA_FABRIC is the name of the devices' NVLink fabric. Without it the devices report that
 * they could have one, and memory for it is refused, as seen on GPUs. FAKE_CUDA_REFUSAL changes how
 * it is refused; together with FAKE_CUDA_FABRIC only the first request is.
 */

#include "fake.h"

/* By the linker: the section's ends. */
extern const fake_entry __start_fake_entries[], __stop_fake_entries[];

__attribute__((visibility("default"))) CUresult
cuGetProcAddress_v2(const char *name, void **entry, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult *found);

CUresult cuGetProcAddress_v2(const char *name, void **entry, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *found) {
    *found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (strcmp(name, "cuCtxGetId") == 0 && getenv("FAKE_CUDA_NO_ID") != NULL)
        return CUDA_ERROR_NOT_FOUND;
    for (const fake_entry *one = __start_fake_entries; one < __stop_fake_entries; one++)
        if (strcmp(one->name, name) == 0) {
            memcpy(entry, &one->function, sizeof *entry);
            *found = CU_GET_PROC_ADDRESS_SUCCESS;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}
