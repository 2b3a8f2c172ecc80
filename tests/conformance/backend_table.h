/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the backend under test, as it is and as it would be with less declared. */
#ifndef SYMMEM_CONFORMANCE_BACKEND_TABLE_H
#define SYMMEM_CONFORMANCE_BACKEND_TABLE_H

#include "../flat_backend.h"
#include "kit.h"

/* Required to be found. It stays. */
const symmem_backend *backend_table(struct tk *t);
/* A new context in place of t->context, in which the backend does not declare `capability`, nor
 * what needs that one. All else is as it was. */
void backend_without(struct tk *t, uint64_t capability);
/* The suite's own shared object of that name, which lies in a folder beside the runner's. */
void suite_plugin_path(struct tk *t, char *path, size_t capacity, const char *name);
/* Sets t->context's backend, which is not set yet: the one under test if its engine starts on all
 * ranks (SYMMEM_CAP_WORLD), else the suite's own such. Nobody has joined. */
void use_engine(struct tk *t);
/* Another table with some entries of its own. All constant once made. */
struct table_twin {
    const char *name;
    void (*change)(flat_backend *table);
    const symmem_backend *real; /* NULL: not made yet */
    flat_backend table;
};
/* Makes it, registers it and sets it as t->context's backend. */
void use_twin(struct tk *t, struct table_twin *twin);
/* The same of what use_engine would take. Nobody has joined. */
void use_engine_twin(struct tk *t, struct table_twin *twin);

#endif
