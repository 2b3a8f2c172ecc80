/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rank writes a number into its neighbor's memory; no rank calls "receive". */
#include <stdio.h>
#include <stdlib.h>
#include <symmem/symmem.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        symmem_error_record error;                                                                 \
        if ((call) != SYMMEM_OK) {                                                                 \
            symmem_last_error(&error);                                                             \
            fprintf(stderr, "%s: %s\n", error.operation, error.message);                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int main(void) {
    symmem_context *context;
    symmem_group *world;
    symmem_handle *handle;
    symmem_handle_info info;
    void *mine;

    CHECK(symmem_init(NULL, &context)); /* rank, world size and store from the environment */
    CHECK(symmem_group_create(context, "world", NULL, 0, NULL, &world));
    CHECK(symmem_alloc(context, 4096, -1, NULL, &mine));           /* -1: this rank's device */
    CHECK(symmem_rendezvous(context, mine, world, 5000, &handle)); /* all ranks take part */
    CHECK(symmem_handle_get_info(handle, &info));

    int32_t right = (info.rank + 1) % info.world_size, number = 41 + info.rank;
    CHECK(symmem_put(handle, right, 0, &number, sizeof number, NULL));
    CHECK(symmem_barrier(handle, 0, 5000, NULL)); /* after it, every write is visible */
    int32_t left = (info.rank + info.world_size - 1) % info.world_size;
    printf("rank %d holds %d, written by rank %d\n", info.rank, *(int32_t *)mine, left);

    symmem_handle_release(handle);
    CHECK(symmem_free(context, mine));
    CHECK(symmem_finalize(context));
    symmem_context_free(context);
}
