/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared mappings of this process, and which of them a library beneath a backend keeps. */
#include "kit_internal.h"

static bool is_librarys(uintptr_t low, uintptr_t high) {
    struct kit_stack asked;
    return kit_map_asked(low, high, &asked) && kit_stack_is_librarys(&asked);
}

bool tk_shared_mappings(struct tk_mappings *found) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    *found = (struct tk_mappings){0};
    while (maps != NULL && fgets(line, (int)sizeof(line), maps) != NULL) {
        unsigned long low, high;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &low, &high, rights) != 3 || rights[3] != 's')
            continue;
        found->bytes += high - low;
        if (is_librarys(low, high))
            found->librarys++;
        else
            found->own++;
    }
    if (maps != NULL)
        fclose(maps);
    return maps != NULL;
}
