/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which allocation an address lies in: the context's allocations in the order of their addresses.
 * Every operation asks this for its tensors, most of which lie in none, so it must not take longer
 * for every allocation that there is. context->lock is held throughout.
 */
#include "objects.h"

#include <stdlib.h>
#include <string.h>

static uintptr_t begin_of(const sm_allocation *allocation) {
    return (uintptr_t)allocation->memory.ptr;
}

/* How many begin at `place` or before it. */
static size_t count_up_to(const sm_places *places, uintptr_t place) {
    size_t low = 0, high = places->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (begin_of(places->sorted[middle]) <= place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(sm_places *places) {
    if (places->count < places->room)
        return true;
    size_t room = places->room == 0 ? 16 : 2 * places->room;
    sm_allocation **sorted = realloc(places->sorted, room * sizeof(sm_allocation *));
    if (sorted == NULL)
        return false;
    places->sorted = sorted;
    places->room = room;
    return true;
}

bool sm_places_add(sm_places *places, sm_allocation *allocation) {
    if (!make_room(places))
        return false;
    size_t at = count_up_to(places, begin_of(allocation));
    memmove(places->sorted + at + 1, places->sorted + at,
            (places->count - at) * sizeof(sm_allocation *));
    places->sorted[at] = allocation;
    places->count++;
    return true;
}

void sm_places_remove(sm_places *places, const sm_allocation *allocation) {
    size_t at = count_up_to(places, begin_of(allocation));
    while (at > 0 && places->sorted[at - 1] != allocation)
        at--; /* a broken backend may have given one address twice */
    if (at == 0)
        return;
    places->count--;
    memmove(places->sorted + at - 1, places->sorted + at,
            (places->count + 1 - at) * sizeof(sm_allocation *));
    if (places->count > 0)
        return;
    free(places->sorted);
    *places = (sm_places){.sorted = NULL};
}

sm_allocation *sm_places_find(const sm_places *places, const void *ptr) {
    size_t at = count_up_to(places, (uintptr_t)ptr);
    if (at == 0)
        return NULL;
    sm_allocation *allocation = places->sorted[at - 1];
    return (uintptr_t)ptr - begin_of(allocation) < allocation->bytes ? allocation : NULL;
}
