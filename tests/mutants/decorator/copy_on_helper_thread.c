/* SPDX-License-Identifier: BSD-3-Clause */
/* Data and signals take different paths: nothing orders a signal after the copy before it. */
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
    pthread_t thread;
    struct job *job = exec->stream || !mutant_is_a_peers(dst) ? NULL : malloc(sizeof *job + bytes);
    if (!job)
        return real->copy(instance, device, dst, src, bytes, exec);
    job->dst = dst;
    job->count = bytes;
    memcpy(job->bytes, src, bytes);
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
