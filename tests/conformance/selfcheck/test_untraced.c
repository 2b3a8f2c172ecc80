/* SPDX-License-Identifier: BSD-3-Clause */
/* A list whose trace is broken in every way; the runner must refuse to run it. */
#include "kit.h"

static void body(struct tk *t) {
    TK_CHECK(t, true);
}

static const struct tk_case cases[] = {
    {.name = "untraced.twice", .requirements = "SM-SELF-01", .body = body},
    {.name = "untraced.twice", .requirements = "SM-SELF-02", .body = body},
    {.name = "untraced.cites_nothing", .requirements = "", .body = body},
    {.name = "untraced.unknown", .requirements = "SM-SELF-99", .body = body},
    {.name = "untraced.withdrawn", .requirements = "SM-SELF-03", .body = body},
    {.name = "untraced.ranks",
     .requirements = "SM-SELF-01",
     .min_ranks = 3,
     .max_ranks = 2,
     .body = body},
    {.name = "untraced two words", .requirements = "SM-SELF-01", .body = body},
};
TK_SUITE(untraced, cases);
