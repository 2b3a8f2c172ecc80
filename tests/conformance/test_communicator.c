/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators of the user's: what becomes of them, on any backend and on a fake with them. */
#include "fake_table.h"
#include "sync_help.h"

/* The kit's groups have had their rendezvous, or will have. */
static symmem_group *fresh(struct tk *t, const char *name) {
    return tk_group(t, name, NULL, 0);
}

TK_TEST(communicator, taken_or_refused, "SM-GROUP-12", .max_ranks = 4) {
    int any = 0;
    symmem_group *group = fresh(t, "communicator");
    TK_FAILS(t, INVALID_ARGUMENT, symmem_group_set_communicator(NULL, NULL));
    symmem_status status = symmem_group_set_communicator(group, NULL);
    TK_CHECK_MSG(t, status == SYMMEM_OK || status == SYMMEM_UNSUPPORTED, "the status is %s",
                 symmem_status_name(status));
    if (status == SYMMEM_UNSUPPORTED)
        TK_FAILS(t, UNSUPPORTED, symmem_group_set_communicator(group, &any));
    symmem_handle *handle = tk_handle(t, 512, group);
    TK_OK(t, symmem_barrier(handle, 0, SYMMEM_TIMEOUT_DEFAULT, NULL));
    TK_STATUS(t, status == SYMMEM_OK ? SYMMEM_BUSY : SYMMEM_UNSUPPORTED,
              symmem_group_set_communicator(group, NULL));
    tk_release(t, handle);
    tk_group_destroy(t, group);
    TK_FAILS(t, STALE, symmem_group_set_communicator(group, NULL));
}

static struct {
    int answered, opened;
    void *asked, *found;
    int32_t rank, world_size;
    symmem_status answer;
} seen;

static symmem_status fake_check(void *instance, void *communicator, int32_t rank,
                                int32_t world_size) {
    seen.answered++;
    seen.asked = communicator;
    seen.rank = rank;
    seen.world_size = world_size;
    return seen.answer;
}

static symmem_status fake_open(void *instance, const symmem_exchange *exchange, int32_t device,
                               void **group_p) {
    seen.opened++;
    seen.found = exchange->communicator;
    *group_p = &seen;
    return SYMMEM_OK;
}

static void open_once(struct tk *t, const char *name, void *wanted) {
    symmem_handle *handle = NULL;
    int opened = seen.opened;
    symmem_group *group = tk_group(t, name, NULL, 0);
    seen.answer = SYMMEM_OK;
    TK_OK(t, symmem_group_set_communicator(group, &opened));
    TK_OK(t, symmem_group_set_communicator(group, wanted));
    TK_EQ_PTR(t, wanted != NULL ? wanted : &opened, seen.asked);
    TK_EQ_INT(t, 0, seen.rank);
    TK_EQ_INT(t, 1, seen.world_size);
    seen.answer = SYMMEM_INVALID_ARGUMENT;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_group_set_communicator(group, &handle));
    void *memory = tk_alloc(t, 512);
    TK_EQ_INT(t, opened, seen.opened);
    TK_REQ(t, "SM-GROUP-13");
    TK_OK(t, symmem_rendezvous(t->context, memory, group, SYMMEM_TIMEOUT_DEFAULT, &handle));
    TK_EQ_INT(t, opened + 1, seen.opened);
    TK_EQ_PTR(t, wanted, seen.found);
    TK_REQ(t, "SM-GROUP-12");
    int answered = seen.answered;
    TK_FAILS(t, BUSY, symmem_group_set_communicator(group, wanted));
    TK_EQ_INT(t, answered, seen.answered);
    symmem_handle_release(handle);
    tk_free(t, memory);
    tk_group_destroy(t, group);
}

TK_TEST(communicator, handed_over, "SM-GROUP-12,SM-GROUP-13", TK_ON_FAKES) {
    flat_backend table = flat_of(&fake_table_a);
    int communicator = 0;
    TK_REQ(t, "SM-GROUP-12");
    table.communicator_check = fake_check;
    fake_table_exchanges(&table);
    table.group_open = fake_open;
    use_table(t, flat_table(&table));
    open_once(t, "with", &communicator);
    open_once(t, "without", NULL);
    tk_end_context(t); /* before the table on this stack goes */
}
