/* SPDX-License-Identifier: BSD-3-Clause */
/* What the cases of peers without pointers begin with. */
#ifndef SYMMEM_CONFORMANCE_REACH_HELP_H
#define SYMMEM_CONFORMANCE_REACH_HELP_H

#include "backend_table.h"

#define JOINED_LATER TK_NO_BACKEND | TK_NOT_JOINED

/* Without a backend the suite's own engine, joined; else what the prologue has set and joined. */
static inline void reach_begin(struct tk *t) {
    const char *name = NULL;
    TK_OK(t, symmem_get_backend(t->context, &name));
    if (name != NULL)
        return;
    use_engine(t);
    tk_join(t, t->context);
}

#endif
