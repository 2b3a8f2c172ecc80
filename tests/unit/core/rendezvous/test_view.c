/* SPDX-License-Identifier: BSD-3-Clause */
/* A view that outlives its context. */
#include "link_ranks.h"

RANKS_TEST("after finalize", .world = 1) {
    void *ptr = NULL;
    DLManagedTensor *t = NULL, *other = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_get_buffer(handle, 0, 0, NULL, SYMMEM_UINT8, 0, &t));
    CHECK_OK(env, symmem_finalize(env->context));
    CHECK_STATUS(env, symmem_get_buffer(handle, 0, 0, NULL, SYMMEM_UINT8, 0, &other),
                 SYMMEM_NOT_INITIALIZED);
    symmem_handle_release(handle);
    *(char *)t->dl_tensor.data = 1;
    t->deleter(NULL);
    t->deleter(t);
}
