/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank of a group whose ranks may be on different hosts: a rendezvous, and a number to its
 * neighbour. Says what it holds in the end, or why not; two_hosts.sh looks at that. */
#include <stdio.h>
#include <symmem/symmem.h>

#define LIMIT_MS 20000

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
    /* Nobody is gone before all have what they came for. */
    return status == SYMMEM_OK ? symmem_barrier(handle, 0, LIMIT_MS, NULL) : status;
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

int main(void) {
    symmem_context *context = NULL;
    symmem_error_record record;
    int found = 0;
    symmem_status status = symmem_init(NULL, &context);
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
