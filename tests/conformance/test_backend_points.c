/* SPDX-License-Identifier: BSD-3-Clause */
/* A failure at a backend's own test points on one rank, another one each time. Points that a
 * backend does not have are never passed; the cases then show that nothing fails. */
#include "sync_help.h"

#define INJECTED SYMMEM_LIMIT
#define SLOT_HIT 3
#define SLOT_STATUS 4

/* Rank `odd` will fail at its next pass of "<backend>.<step>". */
static void arm(struct tk *t, const char *step, int32_t odd, char name[64]) {
    const char *backend = NULL;
    TK_REQUIRE_OK(t, symmem_get_backend(t->context, &backend));
    TK_REQUIRE(t, backend != NULL);
    snprintf(name, 64, "%s.%s", backend, step);
    tk_checkpoint(t, "rank %d fails at %s", (int)odd, name);
    if (t->rank == odd)
        tk_on_point(t, name, 1, (struct tk_action){.status = INJECTED});
    tk_out_of_band_barrier(t);
}

/* Whether rank `odd` came there. */
static bool was_hit(struct tk *t, const char *name, int32_t odd) {
    tk_share_u64(t, SLOT_HIT, tk_point_count(t, name) > 0);
    tk_out_of_band_barrier(t);
    return tk_read_u64(t, odd, SLOT_HIT) != 0;
}

static void fail_in_rendezvous(struct tk *t, const char *step, int32_t odd) {
    char name[64];
    void *ptr = tk_alloc(t, 512);
    symmem_group *group = tk_world_group(t);
    symmem_handle *handle = NULL;
    tk_group_barrier(t, group);
    arm(t, step, odd, name);
    symmem_status status = symmem_rendezvous(t->context, ptr, group, tk_limit_ms(t, 3000), &handle);
    symmem_error_record record = last_record();
    bool hit = was_hit(t, name, odd);
    TK_STATUS(t, hit ? INJECTED : SYMMEM_OK, status);
    TK_CHECK_MSG(t, !hit || record.failed_rank == odd, "rank %d is blamed",
                 (int)record.failed_rank);
    TK_CHECK(t, (handle == NULL) == (status != SYMMEM_OK));
    symmem_handle_release(handle);
    handle = tk_rendezvous(t, ptr, group);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_release(t, handle);
    tk_free(t, ptr);
}

TK_TEST(rendezvous, failure_in_backend, "SM-RDV-10,SM-CONTEXT-09", .ranks = {2, 4}) {
    static const char *const steps[] = {"alloc.create", "alloc.backing", "alloc.map", "export",
                                        "import.map"};
    for (int i = 0; i < (int)TK_COUNT(steps); i++)
        fail_in_rendezvous(t, steps[i], i % t->world_size);
}

static bool has_multicast(struct tk *t, symmem_handle *handle) {
    return info_of(t, handle).multicast_ptr != NULL;
}

static void fail_in_multicast(struct tk *t, const char *step, int32_t odd) {
    char name[64];
    uint32_t word = 1;
    tk_group_barrier(t, tk_world_group(t));
    arm(t, step, odd, name);
    symmem_handle *handle = tk_handle(t, 512, tk_world_group(t));
    bool hit = was_hit(t, name, odd);
    TK_CHECK_MSG(t, has_multicast(t, handle) != hit, "%s multicast although rank %d %s",
                 hit ? "with" : "without", (int)odd, hit ? "failed" : "did not fail");
    if (hit)
        TK_FAILS(t, UNSUPPORTED, symmem_multimem_store(handle, 0, &word, 4, NULL));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, 512, 0);
    symmem_handle *again = tk_handle(t, 512, tk_world_group(t));
    TK_CHECK_MSG(t, has_multicast(t, again), "no multicast after the failure at %s", name);
    TK_OK(t, symmem_barrier(again, 0, LONG_MS, NULL));
}

/* That it goes without multicast is what is to happen. */
static void say_nothing(void *arg, const char *text) {}

TK_TEST(multicast, failure_on_one_rank, "SM-MCAST-05,SM-MCAST-02", .needs = SYMMEM_CAP_MULTICAST,
        .ranks = {2, 4}) {
    static const char *const steps[] = {"multicast.create", "multicast.attach", "multicast.bind"};
    bool supported = false;
    TK_REINIT(t, options.multicast = 1; options.log = say_nothing);
    TK_OK(t, symmem_has_multicast_support(t->context, t->device_type, own_device(t), &supported));
    if (!supported) {
        tk_unresolved(t, "the device has no multicast");
        return;
    }
    for (size_t i = 0; i < TK_COUNT(steps); i++) {
        fail_in_multicast(t, steps[i], 0);
        fail_in_multicast(t, steps[i], t->last);
    }
}
