/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that was released is handed out again as it is. */
#include <pthread.h>

#include "decorator.h"

#define KEPT 16

/* In this process. What is kept at its end goes with it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static symmem_memory kept[KEPT];

static symmem_status memory_alloc(void *instance, int32_t device, size_t bytes,
                                  symmem_memory *memory) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KEPT && !found; i++)
        if (kept[i].ptr && kept[i].bytes == bytes && kept[i].device == device) {
            *memory = kept[i];
            kept[i].ptr = NULL;
            found = true;
        }
    pthread_mutex_unlock(&lock);
    return found ? SYMMEM_OK : real->memory_alloc(instance, device, bytes, memory);
}

static void memory_release(void *instance, symmem_memory *memory) {
    bool keep = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KEPT && !keep && !memory->imported; i++)
        if (!kept[i].ptr) {
            kept[i] = *memory;
            keep = true;
        }
    pthread_mutex_unlock(&lock);
    if (!keep)
        real->memory_release(instance, memory);
}

void mutate(symmem_backend *table) {
    table->memory_alloc = memory_alloc;
    table->memory_release = memory_release;
}
