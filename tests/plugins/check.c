/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check BACKEND [STATUS]: a program whose ranks a launcher starts. What it puts, gets, signals and
 * synchronizes over the backend is compared; status 0 on every rank if all is right. With STATUS
 * its beginning or joining has to fail with that one, within the limit.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/symmem.h>

#define ROUNDS 50
#define LIMIT_MS 20000u
#define LARGE ((size_t)3 << 20)

static int32_t rank, ranks;

static void require(symmem_status status, const char *what) {
    symmem_error_record record;
    if (status == SYMMEM_OK)
        return;
    symmem_last_error(&record);
    fprintf(stderr, "rank %d: %s: %s: %s\n", (int)rank, what, symmem_status_name(status),
            record.message);
    exit(1);
}

static void require_bytes(const unsigned char *bytes, size_t count, int value, const char *what) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != (unsigned char)value) {
            fprintf(stderr, "rank %d: %s: byte %zu is %d, not %d\n", (int)rank, what, i, bytes[i],
                    value);
            exit(1);
        }
}

/* Each rank puts to the next, signals, and looks at what came from the one before. */
static void ring(symmem_handle *handle, unsigned char *own, unsigned char *buffer, size_t bytes) {
    const int32_t next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (int i = 0; i < ROUNDS; i++) {
        memset(buffer, rank + i, bytes);
        require(symmem_put(handle, next, 0, buffer, bytes, NULL), "put");
        require(symmem_put_signal(handle, next, 0, LIMIT_MS, NULL), "put_signal");
        require(symmem_wait_signal(handle, previous, 0, LIMIT_MS, NULL), "wait_signal");
        require_bytes(own, bytes, previous + i, "put");
        require(symmem_barrier(handle, 0, LIMIT_MS, NULL), "barrier");
        for (int32_t r = 0; r < ranks; r++) {
            require(symmem_get(handle, r, 0, buffer, bytes, NULL), "get");
            require_bytes(buffer, bytes, (r + ranks - 1) % ranks + i, "get");
        }
        require(symmem_barrier(handle, 0, LIMIT_MS, NULL), "barrier");
    }
}

/* Whether it fails as it has to. */
static bool fails(symmem_status status, const char *expected) {
    symmem_error_record record;
    symmem_last_error(&record);
    printf("rank %d: %s: %s\n", (int)rank, symmem_status_name(status),
           status == SYMMEM_OK ? "" : record.message);
    return strcmp(symmem_status_name(status), expected) == 0;
}

int main(int argc, char **argv) {
    symmem_context_options options;
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    void *memory = NULL;
    unsigned char *buffer = malloc(LARGE);
    if (argc < 2 || argc > 3 || buffer == NULL)
        return 2;
    symmem_context_options_init(&options);
    options.backend = argv[1];
    symmem_status status = symmem_init(&options, &context);
    if (argc == 3 && status != SYMMEM_OK)
        return !fails(status, argv[2]);
    require(status, "init");
    require(symmem_context_rank(context, &rank), "rank");
    require(symmem_context_world_size(context, &ranks), "world_size");
    if (argc == 3)
        return !fails(symmem_join(context, NULL, LIMIT_MS), argv[2]);
    require(symmem_join(context, NULL, LIMIT_MS), "join");
    require(symmem_group_create(context, "all", NULL, 0, NULL, &group), "group_create");
    require(symmem_alloc(context, LARGE, -1, NULL, &memory), "alloc");
    require(symmem_rendezvous(context, memory, group, LIMIT_MS, &handle), "rendezvous");
    ring(handle, memory, buffer, 64);
    ring(handle, memory, buffer, LARGE);
    symmem_handle_release(handle);
    require(symmem_free(context, memory), "free");
    require(symmem_group_destroy(group), "group_destroy");
    require(symmem_finalize(context), "finalize");
    symmem_context_free(context);
    free(buffer);
    printf("rank %d of %d: all is right\n", (int)rank, (int)ranks);
    return 0;
}
