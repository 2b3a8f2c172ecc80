/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a whole job, from init to finalize with everything in between, of which one call may
 * fail. Usage: job RANK SIZE STORE SOCKETS CLASS NTH HOW LIMIT_MS BACKEND. SOCKETS is a folder or
 * "-". With NTH -1 no call fails; with 0 none fails either, but they are counted. With a backend
 * other than shm, which is an engine that all ranks start together, the ranks join. HOW says what
 * it does after a failed call of symmem: "finalize", "exit", or "again", which repeats that call
 * and then finalizes. It reports on standard output, and walk.c checks the report.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <symmem/ops.h>
#include <symmem/symmem.h>

#include "calls.h"

struct life {
    int32_t rank, world_size;
};

enum { LIFE_LONGEST_S = 30, BYTES = 16384, PLACE = 8192, VALUES = 64 };

static const char *life_call = "";
static bool life_finalizing;
static uint32_t life_limit_ms;
static const char *backend;

static bool is_engine(void) {
    return strcmp(backend, "shm") != 0;
}
static bool goes_again, exits, failed;

static void tell_failure(symmem_status status, const symmem_error_record *record) {
    char missing[64] = "";
    size_t used = 0;
    for (int32_t rank = 0; rank < 16; rank++)
        if (symmem_error_is_missing(record, rank))
            used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%d",
                                     used == 0 ? "" : ",", rank);
    printf("%s\t%.*s\t%s\t%d\t%s\t%d\t%s/%s: %s\n", failed ? "LATER" : "FAILED",
           (int)strcspn(life_call, "("), life_call, symmem_status_name(status), record->failed_rank,
           missing, (int)(record->elapsed_ns / 1000000), record->operation, record->stage,
           record->message);
}

/* A failing call must leave a record of that status. */
static symmem_status life_note_at(symmem_status status, int line) {
    symmem_error_record record;
    if (status == SYMMEM_OK)
        return status;
    symmem_last_error(&record);
    if (record.status != status)
        printf("WRONG\tline %d: %s, but the record says %s\n", line, symmem_status_name(status),
               symmem_status_name(record.status));
    tell_failure(status, &record);
    failed = true;
    if (exits)
        _exit(3);
    return status;
}

/* Once an operation on a handle has failed it is the ranks' common business. */
static bool may_go_again(void) {
    static const char *const calls[] = {
        "store_",        "init",         "group_",  "alloc", "rendezvous", "pool_",        "free",
        "stream_create", "event_create", "device_", "get_",  "has_mu",     "handle_reset", "join"};
    for (size_t i = 0; goes_again && i < sizeof(calls) / sizeof(calls[0]); i++)
        if (strncmp(life_call + strlen("symmem_"), calls[i], strlen(calls[i])) == 0)
            return true;
    return false;
}

static bool again(symmem_status status, int line) {
    return life_note_at(status, line) != SYMMEM_OK && may_go_again();
}

/* A call that failed is tried once more, if the job is one that does. */
#define life_note(call)                                                                            \
    ({                                                                                             \
        life_call = #call;                                                                         \
        symmem_status noted_ = (call);                                                             \
        if (again(noted_, __LINE__))                                                               \
            noted_ = life_note_at((call), __LINE__);                                               \
        noted_;                                                                                    \
    })
#define LIFE_EXPECT(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            printf("WRONG\tline %d: not so: %s\n", __LINE__, #condition);                          \
    } while (0)

#include "walks/life_steps.h"

/* --- what the unit tests' lives do without ---------------------------------------------------- */

static DLTensor line_of(void *data, int64_t *count) {
    return (DLTensor){.data = data, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = count};
}

static void fill(float *values, float value) {
    for (int i = 0; i < VALUES; i++)
        values[i] = value;
}

static bool all_are(const float *values, float value) {
    for (int i = 0; i < VALUES; i++)
        if (values[i] != value)
            return false;
    return true;
}

static void end_tensor(DLManagedTensor **tensor) {
    if (*tensor != NULL)
        (*tensor)->deleter(*tensor);
    *tensor = NULL;
}

/* The sums of all ranks, by each way there is; the result is checked. */
static symmem_status sums(const struct life *life, struct life_objects *own) {
    symmem_status status;
    int64_t count[1] = {VALUES};
    float *here = (float *)((char *)own->ptr + PLACE), out[VALUES], given[VALUES];
    const float sum = (float)(life->world_size * (life->world_size + 1) / 2);
    DLTensor in = line_of(here, count), to = line_of(out, count), from = line_of(given, count);
    DLManagedTensor *made = NULL;
    fill(here, (float)(life->rank + 1));
    fill(given, (float)(life->rank + 1));
#define SUM(name, ...)                                                                             \
    do {                                                                                           \
        fill(out, -1);                                                                             \
        LIFE_TRY(symmem_##name(own->handle, __VA_ARGS__));                                         \
        LIFE_EXPECT(all_are(made != NULL ? made->dl_tensor.data : out, sum));                      \
        end_tensor(&made);                                                                         \
    } while (0)
    SUM(one_shot_all_reduce_out, &in, SYMMEM_SUM, &to, 5, life_limit_ms, NULL);
    SUM(two_shot_all_reduce_out, &in, SYMMEM_SUM, &to, 5, life_limit_ms, NULL);
    SUM(all_reduce, &in, SYMMEM_SUM, &to, 5, life_limit_ms, NULL);
    SUM(all_reduce, &from, SYMMEM_SUM, &to, 5, life_limit_ms, NULL);
    SUM(one_shot_all_reduce, &in, SYMMEM_SUM, 5, life_limit_ms, NULL, &made);
    symmem_handle_info info;
    LIFE_TRY(symmem_handle_get_info(own->handle, &info));
    if (info.multicast_ptr != NULL) {
        SUM(multimem_one_shot_all_reduce_out, &in, SYMMEM_SUM, &to, 5, life_limit_ms, NULL);
        SUM(multimem_one_shot_all_reduce, &in, SYMMEM_SUM, 5, life_limit_ms, NULL, &made);
        LIFE_TRY(symmem_low_contention_all_gather_ce_multicast(own->handle, &from, 5, life_limit_ms,
                                                               NULL, &made));
        LIFE_EXPECT(all_are(made->dl_tensor.data, 1));
        end_tensor(&made);
    }
    SUM(one_shot_all_reduce_copy, &in, &from, SYMMEM_SUM, 5, life_limit_ms, NULL, &made);
    LIFE_TRY(symmem_barrier(own->handle, 5, life_limit_ms, NULL));
out:
    end_tensor(&made);
    return status;
}

/* Products without scales, and one whose input comes in chunks. */
static symmem_status products(const struct life *life, struct life_objects *own) {
    symmem_status status;
    int64_t part[2] = {2, 4}, whole[2] = {2 * life->world_size, 4}, square[2] = {4, 4};
    int64_t chunk[1] = {1};
    DLTensor one = life_matrix(own->values[3], part), b = life_matrix(own->values[1], square);
    DLTensor all = life_matrix(own->values[0], whole), out = life_matrix(own->values[2], whole);
    DLTensor signals = {.data = own->words, .ndim = 1, .dtype = {kDLUInt, 32, 1}, .shape = chunk};
    const DLTensor *const bs[1] = {&b}, *const outs[1] = {&out};
    LIFE_TRY(symmem_fused_all_gather_matmul(own->handle, &one, 0, 1, bs, &all, outs, 4,
                                            life_limit_ms, own->stream, own->side));
    LIFE_TRY(symmem_fused_matmul_reduce_scatter(own->handle, &all, &b, SYMMEM_SUM, 0, &one, 4,
                                                life_limit_ms, own->stream, own->side));
    LIFE_TRY(symmem_stream_synchronize(own->stream, life_limit_ms * 2));
    LIFE_TRY(symmem_stream_synchronize(own->side, life_limit_ms * 2));
    own->words[0] = 1;
    LIFE_TRY(symmem_async_input_mm(own->context, &all, &b, &signals, 0, &out, life_limit_ms,
                                   own->stream));
    LIFE_TRY(symmem_stream_synchronize(own->stream, life_limit_ms * 2));
out:
    return status;
}

/* Each way, each signal. */
static symmem_status signals(const struct life *life, struct life_objects *own) {
    symmem_status status;
    const int32_t right = (life->rank + 1) % life->world_size;
    const int32_t left = (life->rank + life->world_size - 1) % life->world_size;
    int32_t value = 100 + life->rank, seen = 0;
    LIFE_TRY(symmem_put(own->handle, right, PLACE, &value, sizeof(value), NULL));
    LIFE_TRY(symmem_put_signal(own->handle, right, 6, life_limit_ms, NULL));
    LIFE_TRY(symmem_wait_signal(own->handle, left, 6, life_limit_ms, NULL));
    LIFE_TRY(symmem_get(own->handle, life->rank, PLACE, &seen, sizeof(seen), NULL));
    LIFE_EXPECT(seen == 100 + left);
    LIFE_TRY(symmem_barrier(own->handle, 6, life_limit_ms, NULL));
out:
    return status;
}

/* More than one value of the store holds. */
static symmem_status large_gather(const struct life *life, struct life_objects *own) {
    enum { EACH = 40000 };
    symmem_status status;
    char *mine = calloc(1, EACH), *all = calloc((size_t)life->world_size, EACH);
    if (mine == NULL || all == NULL)
        abort();
    memset(mine, 'a' + life->rank, EACH);
    LIFE_TRY(symmem_group_all_gather(own->group, mine, EACH, all, life_limit_ms));
    for (int32_t rank = 0; rank < life->world_size; rank++)
        LIFE_EXPECT(all[(size_t)rank * EACH + EACH - 1] == 'a' + rank);
out:
    free(mine);
    free(all);
    return status;
}

/* --- with an engine that all ranks start together ----------------------------------------------
 */

/* Peers by rank and offset, as there are no pointers to their memory. */
static symmem_status exchange_by_offset(const struct life *life, struct life_objects *own) {
    symmem_status status;
    const int32_t right = (life->rank + 1) % life->world_size;
    const int32_t left = (life->rank + life->world_size - 1) % life->world_size;
    int64_t count[1] = {VALUES};
    float out[VALUES], *here = (float *)((char *)own->ptr + PLACE);
    int32_t value = 100 + life->rank, seen = 0;
    DLTensor in = line_of(here, count), to = line_of(out, count);
    LIFE_TRY(symmem_put(own->handle, right, 64, &value, sizeof(value), NULL));
    LIFE_TRY(symmem_put_signal(own->handle, right, 6, life_limit_ms, NULL));
    LIFE_TRY(symmem_wait_signal(own->handle, left, 6, life_limit_ms, NULL));
    LIFE_TRY(symmem_get(own->handle, right, 64, &seen, sizeof(seen), NULL));
    LIFE_EXPECT(seen == value);
    LIFE_TRY(symmem_barrier(own->handle, 6, life_limit_ms, NULL));
    fill(here, (float)(life->rank + 1));
    fill(out, -1);
    LIFE_TRY(symmem_all_reduce(own->handle, &in, SYMMEM_SUM, &to, 5, life_limit_ms, NULL));
    LIFE_EXPECT(all_are(out, (float)(life->world_size * (life->world_size + 1) / 2)));
    LIFE_TRY(symmem_progress(own->context));
out:
    return status;
}

static symmem_status join(struct life_objects *own) {
    symmem_status status;
    const symmem_join_options options = {.size = sizeof(options), .heap_bytes = 1 << 20};
    LIFE_TRY(symmem_join(own->context, &options, life_limit_ms));
out:
    return status;
}

static bool live_joined(const struct life *life, struct life_objects *own) {
    return life_exchange(life, own) == SYMMEM_OK && large_gather(life, own) == SYMMEM_OK &&
           exchange_by_offset(life, own) == SYMMEM_OK && life_reuse(own) == SYMMEM_OK;
}

/* --- the life ------------------------------------------------------------------------------- */

static symmem_status begin(const struct life *life, struct life_objects *own, const char *store,
                           const char *sockets) {
    symmem_status status;
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = options.local_rank = life->rank;
    options.world_size = life->world_size;
    options.default_timeout_ms = life_limit_ms;
    options.backend = backend;
    options.allow_overlapping_devices = 1;
    options.multicast = is_engine() ? 0 : 1;
    options.socket_dir = sockets;
    LIFE_TRY(symmem_store_open_file(store, &own->own_store));
    options.store = own->own_store;
    LIFE_TRY(symmem_init(&options, &own->context));
    if (is_engine() && (status = join(own)) != SYMMEM_OK)
        goto out;
    LIFE_TRY(life_queries(own));
    LIFE_TRY(symmem_group_create(own->context, "faults", NULL, 0, NULL, &own->group));
    LIFE_TRY(symmem_alloc(own->context, BYTES, -1, NULL, &own->ptr));
    LIFE_TRY(symmem_rendezvous(own->context, own->ptr, own->group, life_limit_ms, &own->handle));
    LIFE_TRY(symmem_barrier(own->handle, 0, life_limit_ms, NULL));
out:
    return status;
}

static bool live_with_pointers(const struct life *life, struct life_objects *own) {
    return life_exchange(life, own) == SYMMEM_OK && large_gather(life, own) == SYMMEM_OK &&
           life_views(life, own) == SYMMEM_OK && signals(life, own) == SYMMEM_OK &&
           life_one_sided(life, own, NULL) == SYMMEM_OK &&
           life_collectives(life, own, NULL) == SYMMEM_OK && sums(life, own) == SYMMEM_OK &&
           life_products(life, own, NULL) == SYMMEM_OK && life_streams(life, own) == SYMMEM_OK &&
           products(life, own) == SYMMEM_OK && life_reuse(own) == SYMMEM_OK;
}

static void live(const struct life *life, const char *store, const char *sockets,
                 bool finalize_first) {
    struct life_objects own = {.text = "0123456789"};
    symmem_status status;
    if (begin(life, &own, store, sockets) != SYMMEM_OK ||
        !(is_engine() ? live_joined(life, &own) : live_with_pointers(life, &own)))
        goto out;
    LIFE_TRY(symmem_handle_reset(own.handle, life_limit_ms));
    LIFE_TRY(symmem_barrier(own.handle, 0, life_limit_ms, NULL));
    LIFE_TRY(symmem_group_barrier(own.group, life_limit_ms));
    puts("DONE");
out:
    life_call = "symmem_finalize";
    life_give_back(&own, finalize_first);
}

/* --- what is left --------------------------------------------------------------------------- */

static int entries_of(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count;
}

static void tell_descriptors(void) {
    char path[64], target[256];
    for (int fd = 0; fd < 256; fd++) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        const ssize_t bytes = readlink(path, target, sizeof(target) - 1);
        if (bytes > 0)
            printf("LEAK\tdescriptor %d: %.*s\n", fd, (int)bytes, target);
    }
}

/* Work that outlasted the wait for its stream keeps what it needs until it has ended. */
static void look_for_leaks(int descriptors, int threads) {
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; i < 300; i++) {
        if (faults_live(0) == 0 && entries_of("/proc/self/fd") == descriptors &&
            entries_of("/proc/self/task") == threads)
            return;
        nanosleep(&pause, NULL);
    }
    if (entries_of("/proc/self/task") != threads)
        printf("LEAK\tthreads: %d, not %d\n", entries_of("/proc/self/task"), threads);
    if (entries_of("/proc/self/fd") != descriptors)
        tell_descriptors();
    (void)faults_live(1);
}

int main(int argc, char **argv) {
    if (argc < 10)
        return 2;
    const struct life life = {.rank = atoi(argv[1]), .world_size = atoi(argv[2])};
    const char *sockets = strcmp(argv[4], "-") == 0 ? NULL : argv[4];
    const faults_class class = (faults_class)atoi(argv[5]);
    const int nth = atoi(argv[6]);
    exits = strcmp(argv[7], "exit") == 0;
    goes_again = strcmp(argv[7], "again") == 0;
    life_limit_ms = (uint32_t)atoi(argv[8]);
    backend = argv[9];
    setvbuf(stdout, NULL, _IOLBF, 4096);
    const int descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
    faults_arm(class, nth);
    live(&life, argv[3], sockets, nth % 2 != 0);
    const int calls = faults_disarm();
    if (faults_hit()[0] != '\0')
        printf("HIT\t%s\n", faults_hit());
    look_for_leaks(descriptors, threads);
    printf("END\t%d\n", calls);
    return failed ? 3 : 0;
}
