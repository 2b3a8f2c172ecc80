/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a job that repeats its work while some ranks are killed. Usage: rounds RANK SIZE
 * STORE SOCKETS ROUNDS LIMIT_MS. It reports on standard output that it is there, when its first
 * failure came, and that it has finished; kills.c checks the report.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <symmem/ops.h>
#include <symmem/symmem.h>

enum { BYTES = 4096, VALUES = 64 };

static uint32_t limit_ms;
static int32_t rank, world_size;

static long long now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* How long this thread had a processor and how long it waited for one. */
typedef struct share {
    long long had_ns, waited_ns; /* 0 if the kernel does not count that */
} share;

static share share_of_processors(void) {
    share own = {0, 0};
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (file != NULL && fscanf(file, "%lld %lld", &own.had_ns, &own.waited_ns) != 2)
        own = (share){0, 0};
    if (file != NULL)
        (void)fclose(file);
    return own;
}

static symmem_status told(symmem_status status) {
    const long long at_ns = now_ns();
    symmem_error_record record;
    if (status == SYMMEM_OK)
        return status;
    const share own = share_of_processors();
    symmem_last_error(&record);
    printf("TOLD\t%lld %lld %lld\t%s\t%d\t", at_ns, own.waited_ns, own.had_ns,
           symmem_status_name(status), record.failed_rank);
    for (int32_t other = 0, any = 0; other < world_size; other++)
        if (symmem_error_is_missing(&record, other))
            printf("%s%d", any++ > 0 ? "," : "", other);
    printf("\t%s/%s: %s (waited %d ms)\n", record.operation, record.stage, record.message,
           (int)(record.elapsed_ns / 1000000));
    return status;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((status = told(call)) != SYMMEM_OK)                                                    \
            goto out;                                                                              \
    } while (0)

/* Allocates memory, makes its rendezvous and frees it. */
static symmem_status meet(symmem_context *context, symmem_group *group) {
    symmem_status status;
    symmem_handle *handle = NULL;
    void *ptr = NULL;
    TRY(symmem_alloc(context, BYTES, -1, NULL, &ptr));
    TRY(symmem_rendezvous(context, ptr, group, limit_ms, &handle));
    TRY(symmem_barrier(handle, 0, limit_ms, NULL));
out:
    symmem_handle_release(handle);
    if (ptr != NULL && symmem_free(context, ptr) != SYMMEM_OK)
        puts("WRONG\tfree fails");
    return status;
}

static symmem_status go_round(symmem_context *context, symmem_group *group, symmem_handle *handle,
                              float *values, int round) {
    symmem_status status;
    const int32_t right = (rank + 1) % world_size, left = (rank + world_size - 1) % world_size;
    int64_t count[1] = {VALUES};
    DLTensor all = {.data = values, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = count};
    TRY(symmem_barrier(handle, 0, limit_ms, NULL));
    TRY(symmem_put_signal(handle, right, 1, limit_ms, NULL));
    TRY(symmem_wait_signal(handle, left, 1, limit_ms, NULL));
    TRY(symmem_all_reduce(handle, &all, SYMMEM_MAX, &all, 2, limit_ms, NULL));
    if (round % 4 == 0)
        TRY(symmem_group_barrier(group, limit_ms));
    if (round % 4 == 2)
        status = meet(context, group);
out:
    return status;
}

static int run(const char *store_path, const char *sockets, int rounds) {
    symmem_status status;
    symmem_context_options options;
    symmem_store *store = NULL;
    symmem_context *context = NULL;
    symmem_group *group;
    symmem_handle *handle = NULL;
    void *ptr;
    symmem_context_options_init(&options);
    options.rank = options.local_rank = rank;
    options.world_size = world_size;
    options.default_timeout_ms = limit_ms;
    options.backend = "shm";
    options.allow_overlapping_devices = 1;
    options.socket_dir = sockets;
    TRY(symmem_store_open_file(store_path, &store));
    options.store = store;
    TRY(symmem_init(&options, &context));
    puts("THERE");
    TRY(symmem_group_create(context, "rounds", NULL, 0, NULL, &group));
    TRY(symmem_alloc(context, BYTES, -1, NULL, &ptr));
    TRY(symmem_rendezvous(context, ptr, group, limit_ms, &handle));
    for (int round = 0; round < rounds; round++)
        if ((status = go_round(context, group, handle, ptr, round)) != SYMMEM_OK)
            goto out;
    TRY(symmem_group_barrier(group, limit_ms));
    puts("DONE");
out:
    symmem_handle_release(handle);
    if (context != NULL && symmem_finalize(context) != SYMMEM_OK)
        puts("WRONG\tfinalize fails");
    symmem_context_free(context);
    symmem_store_close(store);
    return status == SYMMEM_OK ? 0 : 3;
}

int main(int argc, char **argv) {
    if (argc < 7)
        return 2;
    rank = atoi(argv[1]);
    world_size = atoi(argv[2]);
    limit_ms = (uint32_t)atoi(argv[6]);
    setvbuf(stdout, NULL, _IOLBF, 4096);
    return run(argv[3], argv[4], atoi(argv[5]));
}
