/* SPDX-License-Identifier: BSD-3-Clause */
/* no_device: one PE, without a GPU or a current context. The start of NVSHMEM 3.4.5 answers success
 * then, is put off, and the first call that needs a device ends the process. */
#include <stdio.h>

#include "../calls.h"

int main(void) {
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    if (nvshmemx_get_uniqueid(&id) != 0 || nvshmemx_set_attr_uniqueid_args(0, 1, &id, &attr) != 0)
        return 1;
    const int error = nvshmemx_hostlib_init_attr(CALLS_WITH_UNIQUEID, &attr);
    printf("start: %d, status %d\n", error, nvshmemx_init_status());
    fflush(stdout);
    printf("%p: the process lives\n", nvshmem_malloc(64));
    return 0;
}
