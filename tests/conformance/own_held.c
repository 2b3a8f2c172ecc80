/* SPDX-License-Identifier: BSD-3-Clause */
#include "own_held.h"

/* Of a communicator of NCCL's that did not come up; one that is forgotten has more. */
#define SOCKETS_MORE 2
#define MAPPINGS_MORE 1

void own_held_take(struct own_held *held) {
    resources_take_open(&held->descriptors);
    const int all = held->descriptors.count;
    resources_leave_out(&held->descriptors, tk_is_foreign_socket);
    held->sockets = all - held->descriptors.count;
    held->known = all > 0 && tk_shared_mappings(&held->mappings);
}

bool own_held_is(const struct own_held *now, const struct own_held *before, char *text,
                 size_t capacity) {
    const struct tk_mappings *mapped = &now->mappings;
    if (!resources_are_like(&before->descriptors, &now->descriptors, text, capacity))
        return false;
    snprintf(text, capacity,
             "%s%d shared mappings, before %d; of a library's beneath %d and %d sockets, before %d "
             "and %d",
             now->known && before->known ? "" : "not all is known: ", mapped->own,
             before->mappings.own, mapped->librarys, now->sockets, before->mappings.librarys,
             before->sockets);
    return now->known && before->known && mapped->own == before->mappings.own &&
           mapped->librarys <= before->mappings.librarys + MAPPINGS_MORE &&
           now->sockets <= before->sockets + SOCKETS_MORE;
}
