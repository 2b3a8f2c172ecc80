/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread that lives as long as the instance blocks all signals, those of its own faults too. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "decorator.h"

static pthread_t thread; /* of the one context that there is at a time */
static void *served;     /* its instance */
static atomic_bool over;

static void *idle(void *nothing) {
    while (!atomic_load(&over))
        mutant_sleep_ms(1);
    return nothing;
}

static symmem_status open_one(const symmem_host *host, const symmem_backend_config *config,
                              void **instance_p) {
    symmem_status status = real->open(host, config, instance_p);
    sigset_t all, before;
    if (status != SYMMEM_OK || served != NULL)
        return status;
    atomic_store(&over, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, idle, NULL) == 0)
        served = *instance_p;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static void close_one(void *instance) {
    if (instance == served) {
        atomic_store(&over, true);
        pthread_join(thread, NULL);
        served = NULL;
    }
    real->close(instance);
}

void mutate(symmem_backend *table) {
    table->open = open_one;
    table->close = close_one;
}
