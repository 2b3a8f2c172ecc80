/* SPDX-License-Identifier: BSD-3-Clause */
/* All groups on one block use the signal state of the first: the group is left out of the slot. */
#include <pthread.h>

#include "decorator.h"

#define LINKS 64

/* The first link of each block, by the address of the own buffer. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const symmem_peers *links[LINKS];

static const symmem_peers *first_of(const symmem_peers *peers) {
    const symmem_peers *first = peers;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LINKS && first == peers; i++)
        if (links[i] && links[i]->buffers[links[i]->rank] == peers->buffers[peers->rank])
            first = links[i];
    pthread_mutex_unlock(&lock);
    return first;
}

static int32_t rank_in(const symmem_peers *first, const symmem_peers *peers, int32_t rank) {
    for (int32_t r = 0; r < first->world_size; r++)
        if (first->global_ranks[r] == peers->global_ranks[rank])
            return r;
    return 0;
}

static symmem_status peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                void **pads_dev_p) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LINKS; i++)
        if (!links[i]) {
            links[i] = peers;
            break;
        }
    pthread_mutex_unlock(&lock);
    return real->peers_open(instance, peers, buffers_dev_p, pads_dev_p);
}

static void peers_close(void *instance, symmem_peers *peers) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LINKS; i++)
        if (links[i] == peers)
            links[i] = NULL;
    pthread_mutex_unlock(&lock);
    real->peers_close(instance, peers);
}

static symmem_status put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, const symmem_exec *exec) {
    const symmem_peers *first = first_of(peers);
    return real->put_signal(instance, first, rank_in(first, peers, dst_rank), channel, exec);
}

static symmem_status wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                                 int32_t channel, const symmem_exec *exec) {
    const symmem_peers *first = first_of(peers);
    return real->wait_signal(instance, first, rank_in(first, peers, src_rank), channel, exec);
}

void mutate(symmem_backend *table) {
    table->peers_open = peers_open;
    table->peers_close = peers_close;
    table->put_signal = put_signal;
    table->wait_signal = wait_signal;
}
