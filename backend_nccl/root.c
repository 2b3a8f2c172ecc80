/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For each id NCCL has a thread and a listening socket in the process that asked for it, which wait
 * without a deadline until as many ranks have come as the first of them announces. Where a
 * communicator did not come up they wait for ever, and NCCL has no call to end them. They give up
 * when a rank comes that announces another number, and they are done when the only one has come: a
 * communicator of one rank under the same id is both. It is aborted before it is of any use.
 */
#include <stdlib.h>

#include "nccl_internal.h"

#define POLL_NS (2 * CUDA_NS_PER_MS)

typedef struct nccl_root {
    struct nccl_root *next;
    ncclUniqueId id;
    int32_t device;
    ncclComm_t last; /* the communicator of one rank */
} nccl_root;

void nccl_root_note(cuda_instance *instance, int32_t device, const ncclUniqueId *id) {
    nccl_state *state = nccl_state_of(instance);
    nccl_root *root = calloc(1, sizeof *root);
    if (root == NULL)
        return; /* it waits on */
    root->id = *id;
    root->device = device;
    pthread_mutex_lock(&state->lock);
    root->next = state->roots;
    state->roots = root;
    pthread_mutex_unlock(&state->lock);
}

static void start(cuda_instance *instance, nccl_root *root) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (cuda_enter(instance, root->device, "release") != SYMMEM_OK)
        return;
    sigset_t before;
    nccl_signals_off(&before);
    ncclResult_t result =
        nccl_state_of(instance)->library.CommInitRankConfig(&root->last, 1, root->id, 0, &config);
    nccl_signals_on(&before);
    if (result != ncclSuccess && result != ncclInProgress)
        root->last = NULL;
    cuda_leave(instance);
}

static nccl_root *take_all(nccl_state *state) {
    pthread_mutex_lock(&state->lock);
    nccl_root *first = state->roots;
    state->roots = NULL;
    pthread_mutex_unlock(&state->lock);
    return first;
}

nccl_root *nccl_roots_dismiss(cuda_instance *instance) {
    nccl_root *first = take_all(nccl_state_of(instance));
    for (nccl_root *root = first; root != NULL; root = root->next)
        start(instance, root);
    return first;
}

/* Ready or failed: then it has been to the root. */
static bool is_done(const nccl_library *library, const nccl_root *root) {
    ncclResult_t state = ncclInProgress;
    return root->last == NULL || library->CommGetAsyncError(root->last, &state) != ncclSuccess ||
           state != ncclInProgress;
}

static void end(cuda_instance *instance, nccl_root *root) {
    bool entered = cuda_enter(instance, root->device, "release") == SYMMEM_OK;
    if (root->last != NULL)
        (void)nccl_state_of(instance)->library.CommAbort(root->last);
    if (entered)
        cuda_leave(instance);
    free(root);
}

void nccl_roots_finish(cuda_instance *instance, nccl_root *first, uint64_t limit_ns) {
    const nccl_library *library = &nccl_state_of(instance)->library;
    uint64_t deadline_ns = cuda_now_ns() + limit_ns;
    while (first != NULL) {
        nccl_root *root = first;
        while (!is_done(library, root) && cuda_now_ns() < deadline_ns)
            cuda_sleep_ns(POLL_NS);
        first = root->next;
        end(instance, root);
    }
}
