/* SPDX-License-Identifier: BSD-3-Clause */
/* Three worlds, one after the other, in a job that a launcher started: each comes up, and leaves no
 * descriptor and no thread. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <symmem/symmem.h>
#include <unistd.h>

#define LIMIT_MS 20000
#define CHECK(call)                                                                                \
    do {                                                                                           \
        symmem_error_record error;                                                                 \
        if ((call) != SYMMEM_OK) {                                                                 \
            symmem_last_error(&error);                                                             \
            fprintf(stderr, "rank %d: %s: %s\n", error.rank, error.operation, error.message);      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int entries(const char *path) {
    int count = 0;
    DIR *listing = opendir(path);
    while (listing != NULL && readdir(listing) != NULL)
        count++;
    if (listing != NULL)
        (void)closedir(listing);
    return count;
}

/* The rank. One is late in each world, and finds the others in the next one's beginning. */
static int32_t meet(int round) {
    symmem_context *context;
    symmem_group *world;
    int32_t ranks[SYMMEM_MAX_WORLD_SIZE], rank, world_size;
    CHECK(symmem_init(NULL, &context));
    CHECK(symmem_context_rank(context, &rank));
    CHECK(symmem_context_world_size(context, &world_size));
    CHECK(symmem_group_create(context, "world", NULL, 0, NULL, &world));
    for (int i = 0; i < 20; i++)
        CHECK(symmem_group_all_gather(world, &rank, sizeof(rank), ranks, LIMIT_MS));
    for (int32_t other = 0; other < world_size; other++)
        if (ranks[other] != other)
            exit(1);
    if (rank == round) /* it is late */
        (void)usleep(100000);
    symmem_context_free(context);
    return rank;
}

static void *nothing(void *unused) {
    return unused;
}

int main(void) {
    /* With a program's first thread a sanitizer may start one of its own, which stays. */
    pthread_t first;
    if (pthread_create(&first, NULL, nothing, NULL) != 0 || pthread_join(first, NULL) != 0)
        return 1;
    const int fds = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    int32_t rank = -1;
    for (int round = 0; round < 3; round++) {
        rank = meet(round);
        if (entries("/proc/self/fd") != fds || entries("/proc/self/task") != threads) {
            fprintf(stderr, "rank %d: %d descriptors and %d threads, %d and %d before\n", rank,
                    entries("/proc/self/fd"), entries("/proc/self/task"), fds, threads);
            return 1;
        }
    }
    printf("rank %d left nothing\n", rank);
    return 0;
}
