/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests that count a process's possessions share. */
#ifndef SYMMEM_CONFORMANCE_LIFE_HELP_H
#define SYMMEM_CONFORMANCE_LIFE_HELP_H

#include "kit.h"
#include "resources_open.h"

static inline void expect_as_many_open(struct tk *t, const struct resources_open *before) {
    char text[512];
    bool same = resources_are_as_many(before, text, sizeof(text));
    TK_CHECK_MSG(t, same, "%s", text);
}

#endif
