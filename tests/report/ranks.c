/* SPDX-License-Identifier: BSD-3-Clause */
#include "ranks.h"

#include <stdio.h>

void report_rank_list(const int *ranks, int count, char *text, size_t capacity) {
    const char *separator = count == 1 ? "rank " : "ranks ";
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < count && used < capacity; i++) {
        int first = i;
        while (i + 1 < count && ranks[i + 1] == ranks[i] + 1)
            i++;
        used += (size_t)snprintf(text + used, capacity - used, "%s%d", separator, ranks[first]);
        if (i > first && used < capacity)
            used += (size_t)snprintf(text + used, capacity - used, "%s%d",
                                     i == first + 1 ? "," : "-", ranks[i]);
        separator = ",";
    }
}
