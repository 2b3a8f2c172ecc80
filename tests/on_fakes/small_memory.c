/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small allocations on the fake driver: what was imported for one serves the next ones, while it is
 * the same memory, and nothing more is kept than that; nothing at all once the context has ended.
 * With many ranks, only so many of their memories are kept.
 */
#include <dirent.h>

#include "checks.h"

#define LIMIT_MS 60000u /* 18 ranks on few processors */
#define SMALL ((size_t)4096)
#define LARGE ((size_t)4 << 20)
#define FEW 10   /* cycles that one granule has room for, with 2 ranks */
#define MANY 60  /* and that take several */
#define MOST 16  /* peers whose memory is kept */
#define WORLD 18 /* more than that */

static int imports(void) {
    return fake_calls("cuMemImportFromShareableHandle");
}

static int descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        closedir(directory);
    return count;
}

/* A buffer from its allocation to its end. A signal goes round in it: what was kept is the peer's
 * memory still. */
static void cycle(symmem_context *context, symmem_group *group, size_t bytes) {
    symmem_handle_info info;
    void *memory = memory_of(context, bytes);
    symmem_handle *handle = NULL;
    need(symmem_rendezvous(context, memory, group, LIMIT_MS, &handle), "rendezvous");
    need(symmem_handle_get_info(handle, &info), "info");
    const int32_t right = (info.rank + 1) % info.world_size;
    const int32_t left = (info.rank + info.world_size - 1) % info.world_size;
    int32_t number = 41 + info.rank, found = 0;
    need(symmem_put(handle, right, 64, &number, sizeof number, NULL), "put");
    need(symmem_barrier(handle, 0, LIMIT_MS, NULL), "barrier");
    need(symmem_get(handle, info.rank, 64, &found, sizeof found, NULL), "get");
    expect_count(found, 41 + left, "the left neighbor's number");
    free_both(context, handle, memory);
}

/* Where there is no room for a granule there may be for less: what comes instead can be used. */
static void of_one(symmem_context *context, symmem_group *group) {
    const size_t all = (size_t)1 << 40, half = LARGE;
    fake_run_short(half, all);
    cycle(context, group, SMALL);
    expect_count(fake_handles_held(), 1, "handles: what came in place of a granule");
    symmem_context *other = NULL;
    need(symmem_init(NULL, &other), "init");
    symmem_group *alone = group_of_all(other, "again");
    fake_run_short(all, half); /* it is there, but not what zeroing it takes */
    cycle(other, alone, SMALL);
    expect_count(fake_handles_held(), 2, "handles: likewise");
    need(symmem_finalize(other), "finalize");
    symmem_context_free(other);
    fake_run_short(LARGE, all); /* the small memory that is kept is not in the way */
    need(symmem_free(context, memory_of(context, LARGE)), "free of all that there is");
}

static void of_two(symmem_context *context, symmem_group *group) {
    for (int i = 0; i < FEW; i++)
        cycle(context, group, SMALL);
    expect_count(imports(), 1, "imports of a few");
    expect_count(fake_calls("cuMemExportToShareableHandle"), 1, "exports of a few");
    expect_count(fake_handles_held(), 2, "handles: its own granule, and the peer's");
    for (int i = 0; i < MANY; i++)
        cycle(context, group, SMALL);
    expect_between(imports(), 3, MANY / 4,
                   "imports of many"); /* two for each granule: at its end both */
    expect_count(fake_handles_held(), 2, "handles: the last granule of each");
    const int before = imports();
    cycle(context, group, LARGE);
    cycle(context, group, LARGE);
    /* The memory and its signal state, whose lines and chunks go by what is shared. */
    expect_count(imports() - before, 4, "imports of what is large");
    expect_count(fake_handles_held(), 2, "handles: nothing large is kept");
}

static void of_many(symmem_context *context, symmem_group *group) {
    cycle(context, group, SMALL);
    expect_count(fake_handles_held(), 1 + MOST,
                 "handles: its own granule, and as many as are kept");
    cycle(context, group, SMALL);
    expect_count(fake_handles_held(), 1 + MOST, "handles, once more");
}

int main(void) {
    symmem_context *context = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    checks.rank = atoi(getenv("RANK"));
    const int world = atoi(getenv("WORLD_SIZE")), before = descriptors();
    need(symmem_init(NULL, &context), "init");
    symmem_group *group = group_of_all(context, "world");
    if (world == 1)
        of_one(context, group);
    else if (world == WORLD)
        of_many(context, group);
    else
        of_two(context, group);
    need(symmem_finalize(context), "finalize");
    symmem_context_free(context);
    expect_count(fake_handles_held(), 0, "handles in the end");
    expect_count(descriptors(), before, "descriptors in the end");
    return checks_end();
}
