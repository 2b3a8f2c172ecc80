/* SPDX-License-Identifier: BSD-3-Clause */
/* symmem-bench: how long symmem's operations take. --help lists the options. */
#include "rank.h"
#include "tune.h"

#include <ftw.h>
#include <sys/stat.h>

static const bench_op *const tables[] = {bench_sync_ops, bench_move_ops, bench_collective_ops,
                                         bench_multimem_ops, bench_fused_ops};
#define TABLE_COUNT (sizeof tables / sizeof tables[0])

/* The store of the ranks' contexts. */
typedef struct meeting {
    char directory[256]; /* of ranks that are processes */
    symmem_store *store; /* of threads */
} meeting;

/* What all ranks are told. */
typedef struct job {
    const bench_options *options;
    symmem_dtype dtype;
    meeting meetings[2]; /* the second for --checking both */
    tune_data *tune;     /* shared by all; NULL: the options name ops */
} job;

const bench_op *bench_find_op(const char *name) {
    for (size_t i = 0; i < TABLE_COUNT; i++)
        for (const bench_op *op = tables[i]; op->name != NULL; op++)
            if (strcmp(op->name, name) == 0)
                return op;
    return NULL;
}

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

typedef struct seat {
    bench_rank rank;
    const meeting *meeting;
    symmem_store *store;
} seat;

/* Where memory is, and whose clock to look at. */
static bool find_device(bench_rank *rank) {
    int32_t type = kDLCPU, count = 1;
    if (symmem_device_type(rank->context, &type) != SYMMEM_OK ||
        symmem_device_count(rank->context, &count) != SYMMEM_OK)
        return bench_failed(rank, "device");
    rank->device = (DLDevice){(DLDeviceType)type, rank->rank % count};
    if (type == kDLCUDA)
        rank->clock = device_clock_open(rank->device.device_id);
    return true;
}

/* What all ops have at one size together, with the library's own. A request may be as large as
 * --bytes are. */
static size_t heap_bytes(const bench_options *options, int ranks) {
    size_t largest = 0;
    for (int i = 0; i < options->size_count; i++)
        largest = options->sizes[i] > largest ? options->sizes[i] : largest;
    return ((size_t)64 << 20) + (2 * (size_t)ranks + 4) * largest;
}

/* Starts an engine that all ranks start together. For other backends nothing. */
static bool join(bench_rank *rank) {
    const symmem_join_options room = {.size = sizeof room,
                                      .heap_bytes = heap_bytes(rank->options, rank->ranks)};
    return symmem_join(rank->context, &room, BENCH_JOIN_MS) == SYMMEM_OK ||
           bench_failed(rank, "join");
}

static int open_seat(seat *self, const bench_options *wanted) {
    bench_rank *rank = &self->rank;
    symmem_context_options options;
    symmem_context_options_init(&options);
    self->store = self->meeting->store;
    if (self->store == NULL &&
        symmem_store_open_file(self->meeting->directory, &self->store) != SYMMEM_OK) {
        (void)bench_failed(rank, "store");
        return BENCH_FAILED;
    }
    options.rank = options.local_rank = rank->rank;
    options.world_size = rank->ranks;
    options.store = self->store;
    options.backend = wanted->backend;
    options.allow_overlapping_devices = options.multicast = 1;
    if (rank->checking >= 0)
        options.check_collectives = rank->checking;
    if (symmem_init(&options, &rank->context) != SYMMEM_OK) {
        (void)bench_failed(rank, "init");
        return BENCH_NO_BACKEND;
    }
    if (!find_device(rank) || !join(rank))
        return BENCH_NO_BACKEND;
    if (symmem_group_create(rank->context, "bench", NULL, 0, NULL, &rank->group) != SYMMEM_OK) {
        (void)bench_failed(rank, "group_create");
        return BENCH_FAILED;
    }
    return BENCH_DONE;
}

static void close_seat(seat *self) {
    device_clock_close(self->rank.clock);
    symmem_context_free(self->rank.context);
    if (self->store != self->meeting->store)
        symmem_store_close(self->store);
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

static int run_ops(bench_rank *self) {
    const bench_options *options = self->options;
    for (const bench_op *op = next_op(options, NULL); op != NULL; op = next_op(options, op))
        if (!run_op(self, op))
            return BENCH_FAILED;
    return BENCH_DONE;
}

static int rank_main(bench_world *world, int rank, void *arg) {
    const job *work = arg;
    bool both = work->options->checking == BENCH_CHECKING_BOTH;
    int opened = 0, count = both ? 2 : 1, status = BENCH_DONE;
    seat seats[2];
    for (; opened < count && status == BENCH_DONE; opened++) {
        seats[opened] = (seat){.rank = {.options = work->options,
                                        .world = world,
                                        .rank = rank,
                                        .ranks = world->ranks,
                                        .right = (rank + 1) % world->ranks,
                                        .left = (rank + world->ranks - 1) % world->ranks,
                                        .dtype = work->dtype,
                                        .checking = both ? opened : work->options->checking},
                               .meeting = &work->meetings[opened]};
        status = open_seat(&seats[opened], work->options);
    }
    bench_rank *self = &seats[0].rank;
    self->twin = both ? &seats[1].rank : NULL;
    if (status == BENCH_DONE && work->tune != NULL)
        status = tune_rank(self, work->tune) ? BENCH_DONE : BENCH_FAILED;
    else if (status == BENCH_DONE)
        status = work->options->serve ? bench_serve(self) : run_ops(self);
    if (status != BENCH_DONE)
        bench_tell_end(self);
    while (opened > 0)
        close_seat(&seats[--opened]);
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

/* Each name of the list, or what was asked for would be measured in part. */
static bool check_ops(const char *list) {
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (bench_find_op(name) == NULL) {
            fprintf(stderr, "there is no op '%s'; --list names them\n", name);
            return false;
        }
        at += length;
        if (*at == '\0')
            return true;
    }
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
    return options->tune || options->serve || strcmp(options->ops, "all") == 0 ||
           check_ops(options->ops);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status, (void)kind, (void)place;
    (void)remove(path);
    return 0;
}

/* The file store's folder goes with all that is in it: ranks that died have left their own. */
static void remove_store(const char *directory) {
    (void)nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* A store's files are quickest in memory. */
static const char *place_for_store(void) {
    const char *wanted = getenv("TMPDIR");
    if (wanted != NULL && wanted[0] != '\0')
        return wanted;
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

static bool open_meeting(meeting *self, bool threads) {
    if (threads)
        return symmem_store_open_memory(&self->store) == SYMMEM_OK;
    snprintf(self->directory, sizeof self->directory, "%s/symmem-bench-XXXXXX", place_for_store());
    if (mkdtemp(self->directory) != NULL)
        return true;
    perror(self->directory);
    return false;
}

static void close_meeting(meeting *self) {
    if (self->store != NULL)
        symmem_store_close(self->store);
    else
        remove_store(self->directory);
}

static int run_job(job *work) {
    int count = work->options->checking == BENCH_CHECKING_BOTH ? 2 : 1, opened = 0;
    bool good = true;
    memset(work->meetings, 0, sizeof work->meetings);
    while (good && opened < count) {
        good = open_meeting(&work->meetings[opened], work->options->threads);
        opened += good;
    }
    int status = good ? world_run(work->options, rank_main, work) : BENCH_FAILED;
    while (opened > 0)
        close_meeting(&work->meetings[--opened]);
    return status;
}

/* Runs a world of each size in order, then computes the table. */
static int run_tune(job *work, bench_options *options) {
    int last = options->ranks, status = BENCH_DONE;
    if (last < TUNE_FIRST_WORLD || last > TUNE_LAST_WORLD ||
        options->checking == BENCH_CHECKING_BOTH) {
        fprintf(stderr, "--tune wants --ranks from %d to %d, and no --checking both\n",
                TUNE_FIRST_WORLD, TUNE_LAST_WORLD);
        return BENCH_USAGE;
    }
    work->tune = tune_open(options, symmem_dtype_size(work->dtype));
    if (work->tune == NULL)
        return BENCH_FAILED;
    for (int ranks = TUNE_FIRST_WORLD; ranks <= last && status == BENCH_DONE; ranks++) {
        options->ranks = ranks;
        status = run_job(work);
    }
    if (status == BENCH_DONE)
        tune_print(work->tune, options);
    tune_close(work->tune);
    return bench_printed(status);
}

int main(int argc, char **argv) {
    bench_options options;
    job work = {.options = &options};
    int status;
    if (!bench_options_parse(argc, argv, &options, &status))
        return status;
    if (options.list)
        return bench_printed(list_ops(&options));
    if (!check_names(&options, &work.dtype))
        return BENCH_USAGE;
    return options.tune ? run_tune(&work, &options) : run_job(&work);
}
