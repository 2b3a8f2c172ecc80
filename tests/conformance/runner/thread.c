/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks as threads of one child process, which share one store and one mapping of everything. */
#include "runner.h"

static void *rank_thread(void *arg) {
    kit_run_rank(arg);
    return NULL;
}

static void start_and_join(const struct kit_setup *setup, struct kit_setup *setups,
                           pthread_t *threads) {
    int started = 0;
    for (; started < setup->world_size; started++) {
        setups[started] = *setup;
        setups[started].rank = started;
        if (pthread_create(&threads[started], NULL, rank_thread, &setups[started]) != 0)
            break;
    }
    if (started < setup->world_size) {
        fprintf(stderr, "symmem-conformance: cannot start thread %d\n", started);
        _exit(126); /* the others would wait for it */
    }
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

void runner_run_threads(const struct kit_setup *setup) {
    struct kit_setup shared = *setup;
    size_t count = (size_t)setup->world_size;
    struct kit_setup *setups = calloc(count, sizeof(*setups));
    pthread_t *threads = calloc(count, sizeof(*threads));
    struct arena_rank *first = &setup->arena->ranks[0];
    if (setups == NULL || threads == NULL)
        _exit(126);
    kit_warm_up(setup);
    struct kit_ledger *ledger = kit_ledger_open(setup);
    /* NULL on failure: each rank's prologue then reports it. */
    if (symmem_store_open_memory(&shared.shared_store) != SYMMEM_OK)
        shared.shared_store = NULL;
    start_and_join(&shared, setups, threads);
    symmem_store_close(shared.shared_store);
    kit_ledger_close(ledger, setup->test->flags, first->leak, sizeof(first->leak));
    free(threads);
    free(setups);
}
