/* SPDX-License-Identifier: BSD-3-Clause */
/* What the driver knows: device and pinned memory. */
#include <stdlib.h>

#include "fake.h"

typedef struct range {
    struct range *next;
    CUdeviceptr at;
    size_t bytes;
} range;

static range *ranges;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void fake_know(CUdeviceptr at, size_t bytes) {
    range *known = malloc(sizeof *known);
    if (known == NULL)
        abort();
    pthread_mutex_lock(&lock);
    *known = (range){.next = ranges, .at = at, .bytes = bytes};
    ranges = known;
    pthread_mutex_unlock(&lock);
}

void fake_forget(CUdeviceptr at, size_t bytes) {
    (void)bytes;
    pthread_mutex_lock(&lock);
    range **link = &ranges;
    while (*link != NULL && (*link)->at != at)
        link = &(*link)->next;
    range *known = *link;
    if (known != NULL)
        *link = known->next;
    pthread_mutex_unlock(&lock);
    free(known);
}

bool fake_is_known(CUdeviceptr at) {
    pthread_mutex_lock(&lock);
    const range *known = ranges;
    while (known != NULL && (at < known->at || at >= known->at + known->bytes))
        known = known->next;
    pthread_mutex_unlock(&lock);
    return known != NULL;
}
