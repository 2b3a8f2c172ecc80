/* SPDX-License-Identifier: BSD-3-Clause */
#include "late.h"

#define CLOSE_MS 1000u /* for words that are under way */

static symmem_status say_nothing(const symmem_host *host, symmem_status status, int system_errno,
                                 const char *operation, const char *format, ...) {
    (void)host, (void)system_errno, (void)operation, (void)format;
    return status;
}

/* Whether nothing of what this rank did with the heap is under way. */
static bool is_complete(symmem_kit_member *self) {
    static const symmem_host silent = {.size = sizeof(symmem_host), .fail = say_nothing};
    const symmem_exec exec = {.timeout_ms = CLOSE_MS};
    const symmem_kit_quiet quiet = {&self->engine->helper, self->engine->flush, self->heap,
                                    self->engine->progress, self};
    int error;
    return self->traffic == NULL ||
           symmem_kit_quiet_run(&quiet, self->traffic, &silent, NULL, &exec, &error) == SYMMEM_OK;
}

void symmem_kit_leave_heap(symmem_kit_member *self) {
    symmem_kit_engine *engine = self->engine;
    symmem_kit_heap *heap = self->heap;
    if (symmem_kit_traffic_sees_end(self->traffic))
        engine->broken = true;
    else
        heap->used = !is_complete(self);
    if (symmem_kit_traffic_has_lost(self->traffic))
        engine->broken = true;
    heap->late = heap->used && !engine->broken && engine->meet != NULL;
    symmem_kit_traffic_unwatch(self->traffic);
    if (!heap->late && engine->forget != NULL && self->traffic != NULL)
        engine->forget(self->traffic);
    self->heap = NULL;
    self->traffic = NULL;
}

bool symmem_kit_has_late(const symmem_kit_engine *engine) {
    for (const symmem_kit_heap *heap = engine->heaps; heap != NULL; heap = heap->next)
        if (heap->late)
            return true;
    return false;
}

void symmem_kit_settle(symmem_kit_member *self) {
    for (symmem_kit_heap *heap = self->engine->heaps; heap != NULL; heap = heap->next) {
        if (!heap->late)
            continue;
        self->heap = heap;
        self->traffic = heap->traffic;
        symmem_kit_leave_heap(self);
    }
}
