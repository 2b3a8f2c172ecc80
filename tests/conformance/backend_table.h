/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the backend under test, as it is and as it would be with less declared. */
#ifndef SYMMEM_CONFORMANCE_BACKEND_TABLE_H
#define SYMMEM_CONFORMANCE_BACKEND_TABLE_H

#include "../flat_backend.h"
#include "kit.h"

/* Returns the backend's table, which the case requires. The table stays. */
const symmem_backend *backend_table(struct tk *t);
/* Replaces t->context by a new context, in which the backend declares neither `capability` nor what
 * needs it. Everything else is as before. */
void backend_without(struct tk *t, uint64_t capability);
/* Writes the path of the suite's plugin of that name, in a folder beside the runner's. */
void suite_plugin_path(struct tk *t, char *path, size_t capacity, const char *name);
/* Sets t->context's backend, which must not be set yet: the one under test if its engine starts on
 * all ranks (SYMMEM_CAP_WORLD), otherwise the suite's own backend with such an engine. No rank has
 * joined after it. */
void use_engine(struct tk *t);
/* A copy of a table with some entries replaced. It does not change once it is made. */
struct table_twin {
    const char *name;
    void (*change)(flat_backend *table);
    const symmem_backend *real; /* NULL: not made yet */
    flat_backend table;
};
/* Makes the copy, registers it and sets it as t->context's backend. */
void use_twin(struct tk *t, struct table_twin *twin);
/* Does the same with a copy of the table that use_engine would choose. No rank has joined after
 * it. */
void use_engine_twin(struct tk *t, struct table_twin *twin);
/* Does the same for what the core makes of the group reach: the backend under test is taken only if
 * it leaves the signals to the core. */
void use_reach_twin(struct tk *t, struct table_twin *twin);

#endif
