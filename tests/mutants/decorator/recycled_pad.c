/* SPDX-License-Identifier: BSD-3-Clause */
/* A user's pad begins as the last one of its size ended. */
#include <stdlib.h>
#include <string.h>

#include "decorator.h"

/* One for each process; that is enough where ranks are processes. */
static void *old_state;
static size_t old_bytes;

static symmem_status peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                void **pads_dev_p) {
    if (old_state && old_bytes == peers->pad_bytes)
        memcpy(peers->pads[peers->rank], old_state, old_bytes);
    return real->peers_open(instance, peers, buffers_dev_p, pads_dev_p);
}

static void peers_close(void *instance, symmem_peers *peers) {
    free(old_state);
    old_bytes = peers->pad_bytes;
    old_state = malloc(old_bytes);
    if (old_state)
        memcpy(old_state, peers->pads[peers->rank], old_bytes);
    real->peers_close(instance, peers);
}

void mutate(symmem_backend *table) {
    table->peers_open = peers_open;
    table->peers_close = peers_close;
}
