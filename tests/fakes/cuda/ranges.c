/* SPDX-License-Identifier: BSD-3-Clause */
/* What the driver knows: device and pinned memory. */

#include "fake.h"

typedef struct range {
    struct range *next;
    CUdeviceptr at;
    size_t bytes;
    bool in_call; /* a call that changes who has access to it is under way */
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
    fake_count(1);
}

void fake_forget(CUdeviceptr at, size_t bytes) {
    pthread_mutex_lock(&lock);
    range **link = &ranges;
    while (*link != NULL && (*link)->at != at)
        link = &(*link)->next;
    range *known = *link;
    if (known != NULL)
        *link = known->next;
    pthread_mutex_unlock(&lock);
    fake_count(known != NULL ? -1 : 0);
    free(known);
}

/* lock held */
static range *find(CUdeviceptr at) {
    range *known = ranges;
    while (known != NULL && (at < known->at || at >= known->at + known->bytes))
        known = known->next;
    return known;
}

bool fake_is_known(CUdeviceptr at) {
    pthread_mutex_lock(&lock);
    bool known = find(at) != NULL;
    pthread_mutex_unlock(&lock);
    return known;
}

CUresult fake_access_begin(CUdeviceptr at) {
    pthread_mutex_lock(&lock);
    range *known = find(at);
    CUresult result = known == NULL    ? CUDA_ERROR_INVALID_VALUE
                      : known->in_call ? CUDA_ERROR_ALREADY_MAPPED
                                       : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        known->in_call = true;
    pthread_mutex_unlock(&lock);
    return result;
}

void fake_access_end(CUdeviceptr at) {
    pthread_mutex_lock(&lock);
    range *known = find(at);
    if (known != NULL)
        known->in_call = false;
    pthread_mutex_unlock(&lock);
}
