/* SPDX-License-Identifier: BSD-3-Clause */
/* A list whose trace is broken in every way; the runner must refuse to run it. */
#include "kit.h"

static void body(struct tk *t) {
    TK_CHECK(t, true);
}

static const struct tk_case cases[] = {
    TK_CASE("untraced.twice", body, "SM-SELF-01"),
    TK_CASE("untraced.twice", body, "SM-SELF-02"),
    TK_CASE("untraced.cites_nothing", body, ""),
    TK_CASE("untraced.unknown", body, "SM-SELF-99"),
    TK_CASE("untraced.withdrawn", body, "SM-SELF-03"),
    TK_CASE("untraced.ranks", body, "SM-SELF-01", .ranks = {3, 2}),
    TK_CASE("untraced two words", body, "SM-SELF-01"),
};
TK_SUITE(untraced, cases);
