/* SPDX-License-Identifier: BSD-3-Clause */
/* symmem-bench: how long symmem's operations take. --help lists the options. */
#include "rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const bench_op *const tables[] = {bench_sync_ops, bench_move_ops, bench_collective_ops,
                                         bench_multimem_ops};
#define TABLE_COUNT (sizeof tables / sizeof tables[0])

/* What all ranks are told. */
typedef struct job {
    const bench_options *options;
    symmem_dtype dtype;
    char directory[64];  /* the store of ranks that are processes */
    symmem_store *store; /* of threads */
} job;

/* The next op after `op` (NULL: the first) that the options name; NULL at the end. */
static const bench_op *next_op(const bench_options *options, const bench_op *op) {
    bool found = op == NULL;
    for (size_t i = 0; i < TABLE_COUNT; i++)
        for (const bench_op *other = tables[i]; other->name != NULL; other++) {
            if (found && (options->list || bench_list_has(options->ops, other->name)))
                return other;
            found = found || other == op;
        }
    return NULL;
}

/* --- a rank ------------------------------------------------------------------------- */

static int open_rank(bench_rank *self, const job *work, symmem_store **store_p) {
    symmem_context_options options;
    symmem_context_options_init(&options);
    *store_p = work->store;
    if (work->store == NULL && symmem_store_open_file(work->directory, store_p) != SYMMEM_OK) {
        (void)bench_failed(self, "store");
        return BENCH_FAILED;
    }
    options.rank = options.local_rank = self->rank;
    options.world_size = self->ranks;
    options.store = *store_p;
    options.backend = work->options->backend;
    options.allow_overlapping_devices = options.multicast = 1;
    if (work->options->checking >= 0)
        options.check_collectives = work->options->checking;
    if (symmem_init(&options, &self->context) != SYMMEM_OK) {
        (void)bench_failed(self, "init");
        return BENCH_NO_BACKEND;
    }
    if (symmem_group_create(self->context, "bench", NULL, 0, NULL, &self->group) != SYMMEM_OK) {
        (void)bench_failed(self, "group_create");
        return BENCH_FAILED;
    }
    return BENCH_DONE;
}

static void close_rank(bench_rank *self, const job *work, symmem_store *store) {
    symmem_context_free(self->context);
    if (store != work->store)
        symmem_store_close(store);
}

static bool run_op(bench_rank *self, const bench_op *op) {
    const bench_options *options = self->options;
    if (self->ranks < op->min_ranks) {
        if (self->rank == 0)
            fprintf(stderr, "%s: needs %d ranks\n", op->name, op->min_ranks);
        return true;
    }
    for (int i = 0; i < (op->unsized ? 1 : options->size_count); i++)
        if (!bench_run_one(self, op, options->sizes[i]))
            return false;
    return true;
}

static int rank_main(bench_world *world, int rank, void *arg) {
    const job *work = arg;
    bench_rank self = {.options = work->options,
                       .world = world,
                       .rank = rank,
                       .ranks = world->ranks,
                       .right = (rank + 1) % world->ranks,
                       .left = (rank + world->ranks - 1) % world->ranks,
                       .dtype = work->dtype};
    symmem_store *store = NULL;
    int status = open_rank(&self, work, &store);
    for (const bench_op *op = next_op(work->options, NULL); status == BENCH_DONE && op != NULL;
         op = next_op(work->options, op))
        if (!run_op(&self, op))
            status = BENCH_FAILED;
    close_rank(&self, work, store);
    return status;
}

/* --- the run ------------------------------------------------------------------------ */

static int list_ops(const bench_options *options) {
    const char *last = "";
    for (const bench_op *op = next_op(options, NULL); op != NULL; op = next_op(options, op)) {
        if (strcmp(op->name, last) != 0)
            puts(op->name);
        last = op->name;
    }
    return BENCH_DONE;
}

static bool check_names(const bench_options *options, symmem_dtype *dtype_p) {
    int dtype = 0;
    while (dtype < SYMMEM_DTYPE_COUNT &&
           strcmp(symmem_dtype_name((symmem_dtype)dtype), options->dtype) != 0)
        dtype++;
    *dtype_p = (symmem_dtype)dtype;
    if (dtype == SYMMEM_DTYPE_COUNT) {
        fprintf(stderr, "there is no dtype '%s'\n", options->dtype);
        return false;
    }
    if (next_op(options, NULL) == NULL) {
        fprintf(stderr, "there is no op '%s'; --list names them\n", options->ops);
        return false;
    }
    return true;
}

/* The file store's folder goes with all that is in it; the store keeps no folders of its own. */
static void remove_store(const char *directory) {
    static const char *const own[] = {"lock", "notify"};
    char path[128];
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, own[i]);
        unlink(path);
    }
    rmdir(directory);
}

static int run_job(job *work) {
    if (work->options->threads) {
        if (symmem_store_open_memory(&work->store) != SYMMEM_OK)
            return BENCH_FAILED;
    } else {
        snprintf(work->directory, sizeof work->directory, "/tmp/symmem-bench-XXXXXX");
        if (mkdtemp(work->directory) == NULL) {
            perror(work->directory);
            return BENCH_FAILED;
        }
    }
    int status = world_run(work->options, rank_main, work);
    if (work->store != NULL)
        symmem_store_close(work->store);
    else
        remove_store(work->directory);
    return status;
}

int main(int argc, char **argv) {
    bench_options options;
    job work = {.options = &options};
    int status;
    if (!bench_options_parse(argc, argv, &options, &status))
        return status;
    if (options.list)
        return list_ops(&options);
    return check_names(&options, &work.dtype) ? run_job(&work) : BENCH_USAGE;
}
