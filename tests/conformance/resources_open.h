/* SPDX-License-Identifier: BSD-3-Clause */
/* Which descriptors a process has: for the cases that count them to say what has changed. */
#ifndef SYMMEM_CONFORMANCE_RESOURCES_OPEN_H
#define SYMMEM_CONFORMANCE_RESOURCES_OPEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESOURCES_OPEN_MAX 512

/* One by one, as far as there is room; count is of all. */
struct resources_open {
    int count;
    int known;
    struct resources_descriptor {
        int fd;
        uint64_t device, number; /* of what it is open for */
        char what[48];
    } at[RESOURCES_OPEN_MAX];
};

void resources_take_open(struct resources_open *open);
/* As if those were not open. */
void resources_leave_out(struct resources_open *open, bool (*is_left_out)(int fd));
/* Whether there are as many in `now`. If not, `text` says which are gone and which are new: 512
 * bytes are enough for some. */
bool resources_are_like(const struct resources_open *before, const struct resources_open *now,
                        char *text, size_t capacity);
/* The same of those that are open by now. */
bool resources_are_as_many(const struct resources_open *before, char *text, size_t capacity);

#endif
