/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests/inputs.sh runs as a user's program: small programs that once failed. inputs WHAT; each
 * says what it wants to be otherwise and ends with 1. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <symmem/ops.h>
#include <symmem/ops_matmul.h>
#include <symmem/symmem.h>
#include <unistd.h>

#define LIMIT_MS 30000u
#define WANT(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            symmem_error_record record_;                                                           \
            symmem_last_error(&record_);                                                           \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__,            \
                    #condition, record_.message);                                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) WANT((call) == SYMMEM_OK)

static symmem_context *context;
static symmem_group *group;
static int32_t rank, world_size;

static char *memory(size_t bytes, symmem_handle **handle_p) {
    void *ptr = NULL;
    OK(symmem_alloc(context, bytes, -1, NULL, &ptr));
    OK(symmem_rendezvous(context, ptr, group, LIMIT_MS, handle_p));
    return ptr;
}

/* A library that is known by a relative name, a program that goes elsewhere. */
static void start(void) {
    WANT(chdir("/") == 0);
}

static void tick(int signal_number) {
    (void)signal_number;
}

/* A profiler's timer. */
static void interrupted(void) {
    const struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    const struct itimerval timer = {{0, 10000}, {0, 10000}}, none = {{0, 0}, {0, 0}};
    void *ptr = NULL;
    WANT(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
    OK(symmem_alloc(context, (size_t)256 << 20, -1, NULL, &ptr));
    WANT(setitimer(ITIMER_REAL, &none, NULL) == 0);
}

static DLTensor tensor(void *data, int64_t *shape, int32_t ndim) {
    return (DLTensor){.data = data,
                      .device = {kDLCPU, 0},
                      .ndim = ndim,
                      .dtype = {kDLFloat, 32, 1},
                      .shape = shape};
}

/* Inputs far larger than the memory that they are in. */
static void big(void) {
    symmem_handle *handle;
    DLManagedTensor *made = NULL;
    int64_t shape[1] = {(int64_t)1 << 44};
    DLTensor in = tensor(memory(65536, &handle), shape, 1);
    WANT(symmem_one_shot_all_reduce(handle, &in, SYMMEM_SUM, 0, 5, NULL, &made) ==
         SYMMEM_OUT_OF_RANGE);
    WANT(symmem_one_shot_all_reduce_copy(handle, &in, &in, SYMMEM_SUM, 0, 5, NULL, &made) ==
         SYMMEM_OUT_OF_RANGE);
    symmem_handle_release(handle);
}

/* Sums that wrap. */
static void wrap(void) {
    symmem_handle *handle;
    char *own = memory(65536, &handle);
    int64_t shape[2] = {6, 0}, strides[2] = {INT64_MAX, 1}, sixteen[1] = {16};
    DLTensor to = tensor(own, shape, 2), from = to, far = tensor(own + 4096, sixteen, 1);
    to.strides = strides;
    OK(symmem_restride(context, &from, &to, NULL));
    far.byte_offset = UINT64_MAX - 4095;
    WANT(symmem_all_reduce(handle, &far, SYMMEM_SUM, &far, 0, 100, NULL) == SYMMEM_OVERFLOW);
    far.byte_offset = 0;
    far.ndim = INT32_MAX;
    WANT(symmem_all_reduce(handle, &far, SYMMEM_SUM, &far, 0, 100, NULL) ==
         SYMMEM_INVALID_ARGUMENT);
    symmem_handle_release(handle);
}

static double processor_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

/* The next of many tensors costs what the first ones did. */
static void many(void) {
    enum { BATCH = 100, BATCHES = 40, SOME = 8 };
    static symmem_handle *handles[BATCH * BATCHES];
    static char *places[BATCH * BATCHES];
    double first = 1e9, last = 1e9;
    for (int b = 0; b < BATCHES; b++) {
        double begin = processor_s();
        for (int i = b * BATCH; i < (b + 1) * BATCH; i++)
            places[i] = memory(4096, &handles[i]);
        double cost = processor_s() - begin;
        if (b < SOME)
            first = cost < first ? cost : first;
        if (b >= BATCHES - SOME)
            last = cost < last ? cost : last;
    }
    if (last > 2 * first)
        fprintf(stderr, "%.3f ms each, then %.3f\n", first * 1e3 / BATCH, last * 1e3 / BATCH);
    WANT(last <= 2 * first);
    for (int i = 0; i < BATCH * BATCHES; i++) {
        symmem_handle_release(handles[i]);
        OK(symmem_free(context, places[i]));
    }
}

/* A rank that shortens what it shares; the others read it afterwards. */
static void shorten(void) {
    symmem_handle *handle;
    char bytes[64];
    (void)memory(1 << 20, &handle);
    OK(symmem_barrier(handle, 0, LIMIT_MS, NULL));
    for (int fd = 3; rank == 1 && fd < 256; fd++) {
        struct stat file;
        if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_nlink == 0)
            (void)!ftruncate(fd, 0);
    }
    OK(symmem_barrier(handle, 0, LIMIT_MS, NULL));
    OK(symmem_get(handle, 1, 0, bytes, sizeof bytes, NULL));
    OK(symmem_barrier(handle, 0, LIMIT_MS, NULL));
    symmem_handle_release(handle);
}

/* Rank 1 leaves, and the others wait for it, for so long: they are told at once that it has. */
static void leave(uint32_t limit_ms) {
    symmem_handle *handle;
    symmem_error_record record;
    struct timespec begin, end;
    (void)memory(4096, &handle);
    OK(symmem_barrier(handle, 0, LIMIT_MS, NULL));
    if (rank == 1) {
        usleep(300000);
        _exit(0);
    }
    clock_gettime(CLOCK_MONOTONIC, &begin);
    symmem_status status = symmem_barrier(handle, 0, limit_ms, NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    symmem_last_error(&record);
    printf("rank %d: %s after %d s: %s\n", (int)rank, symmem_status_name(status),
           (int)(end.tv_sec - begin.tv_sec), record.message);
    /* Of two who wait, one may hear it from the other. */
    WANT(status == SYMMEM_PEER_LOST || (status == SYMMEM_POISONED && world_size > 2));
    WANT(end.tv_sec - begin.tv_sec < 5);
    symmem_handle_release(handle);
}

/* A small job that comes to its end. */
static void meet(void) {
    symmem_handle *handle;
    int32_t value = 100 + rank, seen = 0;
    int32_t before = (rank + world_size - 1) % world_size;
    (void)memory(4096, &handle);
    OK(symmem_put(handle, (rank + 1) % world_size, 64, &value, sizeof value, NULL));
    OK(symmem_barrier(handle, 0, LIMIT_MS, NULL));
    OK(symmem_get(handle, rank, 64, &seen, sizeof seen, NULL));
    WANT(seen == 100 + before);
    OK(symmem_barrier(handle, 0, LIMIT_MS, NULL));
    symmem_handle_release(handle);
}

/* --- a member that writes what it likes where its peers look ---------------------------------- */

enum { AT = 0x5000, PART = 0x123, BYTES = PART * 4 };
static volatile uint64_t *split_table;

static void *scribble(void *at) {
    (void)at;
    for (;;) {
        split_table[0] = 0x414141414141u;
        split_table[world_size + 1] = 0x3fffffff;
    }
    return NULL;
}

/* This rank's split table is the one that names AT as the beginning of its parts. Tries each that
 * looks like it. */
static void find_split_table(int number) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    WANT(maps != NULL);
    while (split_table == NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long begin, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, rights) != 3 || strcmp(rights, "rw-s") != 0)
            continue;
        for (uint64_t *at = (uint64_t *)begin; at + 4 < (uint64_t *)end && split_table == NULL;
             at++)
            if (at[0] == AT && at[1] == AT + BYTES && number-- == 0)
                split_table = at;
    }
    fclose(maps);
    WANT(split_table != NULL);
}

static void split_tables(int number) {
    static float out[4 * PART];
    symmem_handle *handle;
    int64_t shape[1] = {(int64_t)world_size * PART};
    DLTensor in = tensor(memory(1 << 16, &handle) + AT, shape, 1), result = tensor(out, shape, 1);
    size_t splits[4] = {PART, PART, PART, PART};
    OK(symmem_all_to_all_out(handle, &in, splits, &result, splits, 0, LIMIT_MS, NULL));
    OK(symmem_barrier(handle, 1, LIMIT_MS, NULL));
    if (rank == 1) {
        pthread_t thread;
        find_split_table(number);
        WANT(pthread_create(&thread, NULL, scribble, NULL) == 0);
    }
    symmem_status status = SYMMEM_OK;
    for (int i = 0; i < 200000 && status == SYMMEM_OK; i++)
        status = symmem_all_to_all_out(handle, &in, splits, &result, splits, 0, 2000, NULL);
    printf("rank %d: %s\n", (int)rank, symmem_status_name(status));
    WANT(status != SYMMEM_OK);
    fflush(stdout);
    _Exit(0); /* the thread goes on writing */
}

/* --- limits from outside -----------------------------------------------------------------------
 */

/* True for a call that did what it should. One that a limit stops says which. */
static bool succeeds(symmem_status status, const char *limit) {
    symmem_error_record record;
    if (status == SYMMEM_OK)
        return true;
    symmem_last_error(&record);
    printf("%s: %s: %s\n", record.operation, symmem_status_name(status), record.message);
    WANT(status == SYMMEM_NO_SPACE || status == SYMMEM_LIMIT || status == SYMMEM_OUT_OF_MEMORY);
    WANT(strstr(record.message, limit) != NULL);
    return false;
}

/* What a rank usually does, as far as that limit lets it: limited LIMIT BYTES. */
static void limited(const char *limit, size_t bytes) {
    symmem_context_options options;
    symmem_handle *handle = NULL;
    symmem_stream *stream = NULL;
    void *ptr = NULL;
    symmem_context_options_init(&options);
    options.allow_overlapping_devices = 1;
    options.backend = "shm";
    if (!succeeds(symmem_init(&options, &context), limit))
        exit(0);
    if (!succeeds(symmem_group_create(context, "inputs", NULL, 0, NULL, &group), limit) ||
        !succeeds(symmem_alloc(context, bytes, -1, NULL, &ptr), limit) ||
        !succeeds(symmem_rendezvous(context, ptr, group, LIMIT_MS, &handle), limit) ||
        !succeeds(symmem_stream_create(context, -1, &stream), limit))
        printf("stopped\n");
    if (stream != NULL && handle != NULL) {
        OK(symmem_barrier(handle, 0, LIMIT_MS, stream));
        OK(symmem_stream_synchronize(stream, LIMIT_MS));
    }
    symmem_handle_release(handle);
    OK(symmem_finalize(context));
    symmem_context_free(context);
    exit(0);
}

/* All ranks at once take all that there is, in such pieces, again and again: fill BYTES. */
static void fill(size_t bytes) {
    static void *pieces[100000];
    for (int round = 0; round < 3; round++) {
        size_t count = 0;
        symmem_status status = SYMMEM_OK;
        OK(symmem_group_barrier(group, LIMIT_MS));
        while (count < sizeof pieces / sizeof *pieces && status == SYMMEM_OK) {
            status = symmem_alloc(context, bytes, -1, NULL, &pieces[count]);
            count += status == SYMMEM_OK;
        }
        WANT(status == SYMMEM_NO_SPACE);
        printf("rank %d: %zu of %zu bytes\n", (int)rank, count, bytes);
        OK(symmem_group_barrier(group, LIMIT_MS));
        while (count > 0)
            OK(symmem_free(context, pieces[--count]));
    }
    symmem_handle *handle;
    OK(symmem_group_barrier(group, LIMIT_MS));
    memset(memory((size_t)1 << 20, &handle), 1, (size_t)1 << 20);
    symmem_handle_release(handle);
}

/* One call of all ranks, and what its record says. Programs end at their first failure. */
static void meet_once(const char *limit_ms, const char *how) {
    const int32_t ranks[] = {0, 1, 2}, others[] = {1, 0, 2};
    symmem_error_record record;
    symmem_group *met = NULL;
    symmem_status status = symmem_init(NULL, &context);
    if (status == SYMMEM_OK)
        status = symmem_context_rank(context, &rank);
    const bool lists = status == SYMMEM_OK && how != NULL && strcmp(how, "lists") == 0;
    /* However late they start: none but rank 1 is absent for the limit that follows. */
    const int32_t there[] = {0, 2, 3};
    symmem_group *those = NULL;
    if (status == SYMMEM_OK && how != NULL && strcmp(how, "without-1") == 0) {
        OK(symmem_group_create(context, "there", there, 3, NULL, &those));
        OK(symmem_group_barrier(those, LIMIT_MS));
    }
    if (status == SYMMEM_OK)
        status = symmem_group_create(context, "met", lists ? (rank == 1 ? others : ranks) : NULL,
                                     lists ? 3 : 0, NULL, &met);
    if (status == SYMMEM_OK)
        status = symmem_group_barrier(met, (uint32_t)strtoul(limit_ms, NULL, 10));
    symmem_last_error(&record);
    if (status != SYMMEM_OK) {
        printf("%s: failed rank %d, %u missing: %s\n", symmem_status_name(status),
               (int)record.failed_rank, (unsigned)record.missing_count, record.message);
        fflush(stdout);
        _Exit(3);
    }
    if (how != NULL && strcmp(how, "killed") == 0)
        raise(SIGKILL);
    OK(symmem_finalize(context));
    symmem_context_free(context);
    puts("OK");
    exit(0);
}

/* Rendezvous until one fails. */
static void rendezvous_long(void) {
    symmem_error_record record;
    symmem_status status = SYMMEM_OK;
    for (int i = 0; i < 20000 && status == SYMMEM_OK; i++) {
        symmem_handle *handle = NULL;
        void *ptr;
        OK(symmem_alloc(context, 4096, -1, NULL, &ptr));
        status = symmem_rendezvous(context, ptr, group, 5000, &handle);
        symmem_last_error(&record);
        symmem_handle_release(handle);
        OK(symmem_free(context, ptr));
    }
    printf("%s: %s\n", symmem_status_name(status), record.message);
    WANT(status != SYMMEM_OK);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.allow_overlapping_devices = 1;
    options.backend = "shm";
    options.check_collectives = argc > 2 && strcmp(what, "split_tables") == 0 ? atoi(argv[2]) : -1;
    if (getenv("WORLD_SIZE") == NULL) {
        options.rank = 0;
        options.world_size = 1;
    }
    if (strcmp(what, "start") == 0)
        start();
    if (strcmp(what, "limited") == 0 && argc > 3)
        limited(argv[2], strtoull(argv[3], NULL, 10));
    if (strcmp(what, "once") == 0 && argc > 2)
        meet_once(argv[2], argc > 3 ? argv[3] : NULL);
    OK(symmem_init(&options, &context));
    OK(symmem_group_create(context, "inputs", NULL, 0, NULL, &group));
    OK(symmem_context_rank(context, &rank));
    OK(symmem_context_world_size(context, &world_size));
    static const struct {
        const char *name;
        void (*run)(void);
    } whats[] = {{"interrupted", interrupted},
                 {"big", big},
                 {"wrap", wrap},
                 {"many", many},
                 {"shorten", shorten},
                 {"meet", meet},
                 {"rendezvous", rendezvous_long}};
    for (size_t i = 0; i < sizeof whats / sizeof *whats; i++)
        if (strcmp(what, whats[i].name) == 0)
            whats[i].run();
    if (strcmp(what, "leave") == 0)
        leave(argc > 2 ? (uint32_t)atoi(argv[2]) : 0);
    if (strcmp(what, "split_tables") == 0)
        split_tables(argc > 3 ? atoi(argv[3]) : 0);
    if (strcmp(what, "fill") == 0 && argc > 2)
        fill(strtoull(argv[2], NULL, 10));
    OK(symmem_finalize(context));
    symmem_context_free(context);
    return 0;
}
