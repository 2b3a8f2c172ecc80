/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared mappings of this process, without what a library beneath a backend keeps (kit_asker.c). */
#include "kit_internal.h"

#include <stdio.h>

static bool is_librarys(uintptr_t low, uintptr_t high) {
    struct kit_stack asked;

    return kit_map_asked(low, high, &asked) && kit_stack_is_librarys(&asked);
}

int tk_own_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;

    while (maps != NULL && fgets(line, (int)sizeof(line), maps) != NULL) {
        unsigned long low, high;
        char rights[5];

        if (sscanf(line, "%lx-%lx %4s", &low, &high, rights) == 3 && rights[3] == 's')
            count += !is_librarys(low, high);
    }
    if (maps == NULL)
        return -1;
    fclose(maps);
    return count;
}
