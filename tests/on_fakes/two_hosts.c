/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank of a group whose ranks may be on different hosts: a rendezvous, and a number to its
 * neighbor. Says what it holds in the end, or why not; two_hosts.sh looks at that. An argument,
 * what it had before: "lack", once no descriptors left, "small" or "large", memory. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <symmem/symmem.h>

#define LIMIT_MS 20000
#define LARGE ((size_t)16 << 20) /* more than small memory is made in */

static symmem_status put_and_get(symmem_context *context, symmem_handle *handle, const void *mine,
                                 int *found_p) {
    symmem_handle_info info;
    symmem_status status = symmem_handle_get_info(handle, &info);
    if (status != SYMMEM_OK)
        return status;
    int number = 41 + info.rank;
    status = symmem_put(handle, (info.rank + 1) % info.world_size, 0, &number, sizeof number, NULL);
    if (status == SYMMEM_OK)
        status = symmem_barrier(handle, 0, LIMIT_MS, NULL);
    if (status == SYMMEM_OK)
        status = symmem_copy(context, found_p, mine, sizeof *found_p, NULL);
    /* No rank leaves before all have what they came for. */
    return status == SYMMEM_OK ? symmem_barrier(handle, 0, LIMIT_MS, NULL) : status;
}

/* What fails then passes with it. */
static symmem_status lack_descriptors(symmem_context *context) {
    struct rlimit before, none;
    void *memory;
    symmem_status status = symmem_alloc(context, LARGE, -1, NULL, &memory);
    if (status == SYMMEM_OK)
        status = symmem_free(context, memory);
    if (status != SYMMEM_OK || getrlimit(RLIMIT_NOFILE, &before) != 0)
        return status;
    none = before;
    none.rlim_cur = 3;
    (void)setrlimit(RLIMIT_NOFILE, &none);
    status = symmem_alloc(context, LARGE, -1, NULL, &memory);
    (void)setrlimit(RLIMIT_NOFILE, &before);
    if (status != SYMMEM_LIMIT)
        printf("without descriptors: %s; ", symmem_status_name(status));
    return SYMMEM_OK;
}

/* It had no handle, for what the driver said then has passed. If it was small its granule is not to
 * be used for what comes next. */
static symmem_status have_memory(symmem_context *context, size_t bytes) {
    void *memory;
    symmem_status status = symmem_alloc(context, bytes, -1, NULL, &memory);
    return status == SYMMEM_OK ? symmem_free(context, memory) : status;
}

static symmem_status have_before(symmem_context *context, const char *what) {
    if (strcmp(what, "lack") == 0)
        return lack_descriptors(context);
    return have_memory(context, strcmp(what, "small") == 0 ? 64 : LARGE + 64);
}

static symmem_status run(symmem_context *context, int *found_p) {
    symmem_group *world;
    symmem_handle *handle;
    void *mine;
    symmem_status status = symmem_group_create(context, "world", NULL, 0, NULL, &world);
    if (status == SYMMEM_OK)
        status = symmem_alloc(context, 4096, -1, NULL, &mine);
    if (status == SYMMEM_OK)
        status = symmem_rendezvous(context, mine, world, LIMIT_MS, &handle);
    return status == SYMMEM_OK ? put_and_get(context, handle, mine, found_p) : status;
}

int main(int argc, char **argv) {
    symmem_context *context = NULL;
    symmem_error_record record;
    int found = 0;
    symmem_status status = symmem_init(NULL, &context);
    if (status == SYMMEM_OK && argc > 1)
        status = have_before(context, argv[1]);
    if (status == SYMMEM_OK)
        status = run(context, &found);
    symmem_last_error(&record);
    if (status == SYMMEM_OK)
        printf("holds %d\n", found);
    else
        printf("%s: %s\n", symmem_status_name(status), record.message);
    fflush(stdout);
    if (context != NULL)
        symmem_context_free(context);
    return 0;
}
