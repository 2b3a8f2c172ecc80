/* SPDX-License-Identifier: BSD-3-Clause */
/* A copy is shared among workers; the caller goes on before the last one has written. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "decorator.h"

struct job {
    void *dst;
    size_t count;
    unsigned char bytes[];
};

static void *late_copy(void *arg) {
    struct job *job = arg;
    mutant_sleep_ms(1);
    memcpy(job->dst, job->bytes, job->count);
    free(job);
    return NULL;
}

static symmem_status copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                          const symmem_exec *exec) {
    size_t first = bytes - bytes / 4;
    symmem_status status = real->copy(instance, device, dst, src, first, exec);
    pthread_t thread;
    struct job *job =
        exec->stream || !mutant_is_a_peers(dst) ? NULL : malloc(sizeof *job + bytes - first);
    if (status != SYMMEM_OK || !job)
        return real->copy(instance, device, dst, src, bytes, exec);
    job->dst = (char *)dst + first;
    job->count = bytes - first;
    memcpy(job->bytes, (const char *)src + first, job->count);
    if (pthread_create(&thread, NULL, late_copy, job) == 0)
        pthread_detach(thread);
    else
        free(job);
    return SYMMEM_OK;
}

static void peers_close(void *instance, symmem_peers *peers) {
    mutant_sleep_ms(20); /* nothing is written after the memory is gone: that is not the point */
    real->peers_close(instance, peers);
}

void mutate(symmem_backend *table) {
    table->copy = copy;
    table->peers_close = peers_close;
    mutant_watch_imports(table);
}
