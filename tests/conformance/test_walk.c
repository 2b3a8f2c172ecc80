/* SPDX-License-Identifier: BSD-3-Clause */
/* Every scenario of walk_scenarios.c, with a rank that fails, comes late or is killed at each
 * failpoint. */
#include "sync_help.h"
#include "walk.h"

/* With the most ranks of a walk on which they are killed (0: no limit). */
#define SCENARIOS(X)                                                                               \
    X(first_rendezvous, 0, 0)                                                                      \
    X(second_rendezvous, 0, 8)                                                                     \
    X(multicast, SYMMEM_CAP_MULTICAST, 8)                                                          \
    X(persistent, 0, 8)                                                                            \
    X(pool, SYMMEM_CAP_POOL, 8)                                                                    \
    X(pool_rendezvous, SYMMEM_CAP_POOL, 8)                                                         \
    X(subgroup, 0, 8)                                                                              \
    X(regroup, 0, 8)                                                                               \
    X(exchange, 0, 8)                                                                              \
    X(descriptors, 0, 8)                                                                           \
    X(reset, 0, 8)                                                                                 \
    X(signals, 0, 0)                                                                               \
    X(collective, SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_DIRECT_ACCESS, 8)                            \
    X(data, 0, 8)                                                                                  \
    X(multimem, SYMMEM_CAP_MULTICAST, 8)                                                           \
    X(stream, SYMMEM_CAP_STREAMS, 8)                                                               \
    X(graph, SYMMEM_CAP_CAPTURE, 8)                                                                \
    X(free, 0, 8)                                                                                  \
    X(finalize, 0, 8)

#define WALK(scenario, needs_, unused_)                                                            \
    TK_TEST(walk, scenario,                                                                        \
            "SM-POINT-02,SM-POINT-03,SM-POINT-04,SM-POINT-05,SM-POINT-06,SM-RDV-10",               \
            .needs = needs_, .ranks = {2, 8}, .flags = TK_NO_CONTEXT | TK_GROWS_FAST,              \
            .timeout_s = 1800) {                                                                   \
        walk_faults(t, #scenario);                                                                 \
    }
SCENARIOS(WALK)
/* Who dies in "start", before it was known to anybody, cannot be told from one that is late; see
 * test_life_kill.c. */
WALK(start, 0, 0)
WALK(composed, SYMMEM_CAP_DIRECT_ACCESS, 0)
WALK(fused, SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_MATMUL, 0)

#define WALK_KILL(scenario, needs_, max_)                                                          \
    TK_NAMED("walk_kill." #scenario, kill_##scenario, "SM-POINT-07,SM-POINT-08,SM-LIFE-02",        \
             .needs = needs_, .ranks = {2, max_},                                                  \
             .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK | TK_GROWS_FAST,    \
             .timeout_s = 1800) {                                                                  \
        walk_kills(t, #scenario);                                                                  \
    }
SCENARIOS(WALK_KILL)

/* --- the points themselves ------------------------------------------------------------ */

static bool is_backends(const char *backend, const char *name) {
    size_t length = strlen(backend);
    return strncmp(name, backend, length) == 0 && name[length] == '.' && name[length + 1] != 0;
}

/* Notes for each of the core's points whether this rank passed it; checks the names. */
static void look_at_names(struct tk *t, const char *backend, bool *passed) {
    for (int i = 0; i < tk_recorded_points(t); i++) {
        int count;
        const char *name = tk_recorded_point(t, i, &count);
        const struct walk_point *core = walk_core_point(name);
        if (core != NULL)
            passed[core - walk_core_points] = true;
        TK_CHECK_MSG(t, core != NULL || is_backends(backend, name),
                     "%s is neither one of the core's points nor called %s.<step>", name, backend);
        TK_CHECK_MSG(t, strlen(name) < sizeof(((symmem_error_record *)0)->stage),
                     "%s is too long a name", name);
    }
}

static bool lacks(const struct tk *t, uint64_t needs) {
    return (t->capabilities & needs) != needs;
}

/* Each scenario once, to its very end. */
static void run_all(struct tk *t, const char *backend, bool *passed) {
    for (int i = 0; i < walk_scenario_count; i++) {
        const struct walk_scenario *scenario = &walk_scenarios[i];
        struct walk_run run = {.t = t, .number = i};
        if (lacks(t, scenario->needs))
            continue;
        tk_record_points(t, true);
        walk_begin(&run, scenario);
        tk_out_of_band_barrier(t);
        TK_REQUIRE_OK(t, scenario->act(&run));
        tk_out_of_band_barrier(t);
        walk_give_back(&run);
        tk_record_points(t, false);
        tk_out_of_band_barrier(t);
        look_at_names(t, backend, passed);
    }
}

/* Backends go one way or the other. */
static bool went_the_other_way(const struct walk_point *point, const bool *passed) {
    return point->unless != NULL && passed[walk_core_point(point->unless) - walk_core_points];
}

/* The table in SPEC.md is what the library does: no other points, and each is passed somewhere. */
TK_TEST(walk, points_are_in_the_table, "SM-POINT-01,SM-LIFE-16", .ranks = {2, 8},
        .timeout_s = 40 /* as many groups as scenarios */) {
    bool passed[128] = {false};
    const char *backend = backend_name(t);
    TK_REQUIRE(t, walk_core_point_count <= 128);
    TK_REQ(t, "SM-POINT-01");
    run_all(t, backend, passed);
    walk_expect_errno(t);
    TK_REQ(t, "SM-POINT-01");
    for (int i = 0; i < walk_core_point_count; i++) {
        bool anybody = false;
        tk_share_u64(t, 0, passed[i]);
        tk_out_of_band_barrier(t);
        for (int32_t r = 0; r < t->world_size; r++)
            anybody = anybody || tk_read_u64(t, r, 0) != 0;
        tk_out_of_band_barrier(t);
        TK_CHECK_MSG(t,
                     anybody || walk_core_points[i].rare || lacks(t, walk_core_points[i].needs) ||
                         went_the_other_way(&walk_core_points[i], passed),
                     "%s is never passed", walk_core_points[i].name);
    }
}

/* What a device's driver does without host memory is up to the driver. */
TK_TEST(walk, no_memory, "SM-ERROR-09,SM-LIFE-16", .needs = SYMMEM_CAP_HOST_ACCESS, .max_ranks = 1,
        .flags = TK_NO_CONTEXT, .timeout_s = 60) {
    walk_shortages(t);
    walk_expect_errno(t);
}

TK_TEST(walk, points_of_one, "SM-POINT-02,SM-POINT-05,SM-LIFE-16", .max_ranks = 1,
        .flags = TK_NO_CONTEXT, .timeout_s = 60) {
    walk_points_of_one(t);
    walk_expect_errno(t);
}

TK_TEST(walk, no_memory_multicast, "SM-ERROR-09",
        .needs = SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_MULTICAST, .ranks = {2, 2},
        .flags = TK_NO_CONTEXT | TK_PROCESS_ONLY, .timeout_s = 60) {
    walk_shortages(t);
}
