/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every scenario of walk_scenarios.c, with a rank killed at each test point. Not "start": who dies
 * before it was known to anybody cannot be told from one that is late; see test_life_kill.c.
 */
#include "walk.h"

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
    X(finalise, 0, 8)

#define WALK(scenario, needs_, max_)                                                               \
    TK_TEST(walk_kill, scenario, "SM-POINT-07,SM-POINT-08,SM-LIFE-02", .needs = needs_,            \
            .ranks = {2, max_},                                                                    \
            .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK | TK_GROWS_FAST,     \
            .timeout_s = 1800) {                                                                   \
        walk_kills(t, #scenario);                                                                  \
    }
SCENARIOS(WALK)
