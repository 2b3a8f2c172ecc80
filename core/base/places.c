/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects in the order of their keys: a context's allocations by address, those with an id by that,
 * an allocation's blocks by offset. Every operation asks for its tensors, most of which lie in
 * none, so it must not take longer for every object that there is. context->lock is held
 * throughout.
 */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

/* How many have this key or a lower one. */
static size_t count_up_to(const sm_places *places, uint64_t key) {
    size_t low = 0, high = places->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (places->sorted[middle].key <= key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(sm_places *places) {
    if (places->count < places->room)
        return true;
    size_t room = places->room == 0 ? 1 : 2 * places->room; /* most allocations have one block */
    sm_place *sorted = realloc(places->sorted, room * sizeof(sm_place));
    if (sorted == NULL)
        return false;
    places->sorted = sorted;
    places->room = room;
    return true;
}

bool sm_places_add(sm_places *places, uint64_t key, void *object) {
    if (!make_room(places))
        return false;
    size_t at = count_up_to(places, key);
    memmove(places->sorted + at + 1, places->sorted + at, (places->count - at) * sizeof(sm_place));
    places->sorted[at] = (sm_place){key, object};
    places->count++;
    return true;
}

void sm_places_remove(sm_places *places, uint64_t key, const void *object) {
    size_t at = count_up_to(places, key);
    while (at > 0 && places->sorted[at - 1].key == key && places->sorted[at - 1].object != object)
        at--; /* a broken backend may have given one address twice */
    if (at == 0 || places->sorted[at - 1].object != object)
        return;
    places->count--;
    memmove(places->sorted + at - 1, places->sorted + at,
            (places->count + 1 - at) * sizeof(sm_place));
    if (places->count > 0)
        return;
    free(places->sorted);
    *places = (sm_places){.sorted = NULL};
}

void *sm_places_find(const sm_places *places, uint64_t key) {
    size_t at = count_up_to(places, key);
    return at > 0 ? places->sorted[at - 1].object : NULL;
}
