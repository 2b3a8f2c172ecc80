/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine.h"

#include <errno.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collective.h"
#include "late.h"
#include "wait.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define NS_PER_MS UINT64_C(1000000)
#define EXIT_MS 10000u     /* for the engine's end, which waits for all ranks */
#define LOST_EXIT_MS 5000u /* the same when a rank has ended */

symmem_status symmem_kit_engine_fail(const symmem_kit_member *self, const char *operation,
                                     const char *step, int error) {
    char text[256] = "";
    self->engine->explain(error, text, sizeof(text));
    return self->host->fail(self->host, SYMMEM_BACKEND, 0, operation, "%s: %s", step, text);
}

symmem_status symmem_kit_member_open(symmem_kit_engine *engine, const symmem_host *host,
                                     const symmem_backend_config *config, void **instance_p) {
    symmem_kit_member *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return host->fail(host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "open", "no memory");
    self->engine = engine;
    self->host = host;
    self->rank = config->rank;
    self->world_size = config->world_size;
    *instance_p = self;
    return SYMMEM_OK;
}

void symmem_kit_member_close(void *instance) {
    free(instance); /* what has not ended is the engine's until the process exits */
}

/* --- the engine's start and end -------------------------------------------------------------- */

static symmem_kit_engine *running; /* a plug-in has one engine */

static void end_task(void *engine_v) {
    const symmem_kit_engine *engine = engine_v;
    engine->end(engine);
}

/* Ranks that leave the engine together end at about the same time. */
static bool lost_a_rank(void *since_ns_v) {
    uint64_t *since_ns = since_ns_v;
    if (!running->broken && !symmem_kit_traffic_sees_end(running->watch))
        return false;
    if (*since_ns == 0)
        *since_ns = symmem_kit_now_ns();
    return symmem_kit_now_ns() >= *since_ns + LOST_EXIT_MS * NS_PER_MS;
}

/* A launcher takes a process that ends without its engine's end for one that has failed. But that
 * waits for all ranks. A child of the process has not the thread. */
static void end_at_exit(void) {
    bool began;
    uint64_t since_ns = 0;
    running->broken = running->broken || symmem_kit_traffic_sees_end(running->watch);
    if (running->process == getpid() &&
        !symmem_kit_helper_run(&running->helper, end_task, running,
                               symmem_kit_now_ns() + EXIT_MS * NS_PER_MS, lost_a_rank, &since_ns,
                               &began))
        running->broken = true;
}

static void start_task(void *engine_v) {
    symmem_kit_engine *engine = engine_v;
    engine->start_error = engine->start(engine);
    if (engine->start_error != NULL)
        return;
    if (engine->broken) { /* it was given up: no rank waits at its end for this one */
        engine->end(engine);
        return;
    }
    running = engine;
    atexit(end_at_exit);
}

static symmem_status fail_start(const symmem_kit_member *self) {
    return self->host->fail(self->host, SYMMEM_BACKEND, 0, "join", "%s did not start: %s",
                            self->engine->name, self->engine->start_error);
}

/* A task that all ranks take part in. Given up halfway, the engine can do no other on this rank,
 * and so on none. */
static symmem_status together(const symmem_kit_member *self, const symmem_exchange *exchange,
                              symmem_kit_task_fn task, void *arg, const char *step) {
    symmem_kit_engine *engine = self->engine;
    symmem_status status =
        symmem_kit_together(self->host, exchange, &engine->helper, task, arg, step);
    if (status != SYMMEM_OK)
        engine->broken = true;
    else if (task == start_task && engine->start_error != NULL)
        status = fail_start(self); /* others may wait in their start for this rank */
    return exchange->agree(exchange, status, step);
}

static symmem_status check_engine(const symmem_kit_member *self, size_t heap_bytes) {
    const symmem_host *host = self->host;
    const uint64_t pages =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4096;
    symmem_kit_engine *engine = self->engine;
    const int error = symmem_kit_helper_start(&engine->helper);
    if (error != 0)
        return host->fail(host, SYMMEM_SYSTEM, error, "join", "a thread for %s", engine->name);
    /* What engines do about it is to end the process. */
    if (!engine->off_host && heap_bytes / 4096 > pages / 2)
        return host->fail_sizes(host, SYMMEM_NO_SPACE, ENOSPC, "join", heap_bytes,
                                pages / 2 * 4096);
    if (engine->broken)
        return host->fail(host, SYMMEM_BACKEND, 0, "join",
                          "%s has lost a rank, or its start was given up", engine->name);
    if (engine->started && engine->process != getpid())
        return host->fail(host, SYMMEM_BACKEND, 0, "join",
                          "%s was started by process %d, of which this is a child", engine->name,
                          (int)engine->process);
    return SYMMEM_OK;
}

static size_t record_bytes(const symmem_kit_engine *engine) {
    const size_t bytes = engine->record_bytes + (size_t)engine->size * sizeof(symmem_kit_place) +
                         symmem_kit_traffic_bytes(engine->size) + alignof(max_align_t);
    return bytes / alignof(max_align_t) * alignof(max_align_t);
}

/* The least room that a rank's engine has for heaps: no rank asks for more. */
static symmem_status prepare(const symmem_kit_member *self, const symmem_exchange *exchange) {
    symmem_kit_engine *engine = self->engine;
    const char *error = engine->prepare == NULL ? NULL : engine->prepare(engine);
    symmem_status status = SYMMEM_OK;
    void *all = NULL;
    if (error != NULL)
        status = self->host->fail(self->host, SYMMEM_BACKEND, 0, "join", "%s cannot start: %s",
                                  engine->name, error);
    status = exchange->agree(exchange, status, "engine.prepare");
    if (status == SYMMEM_OK)
        status = symmem_kit_gather(self->host, exchange, &engine->room, sizeof(engine->room),
                                   "engine.room", &all);
    for (int32_t r = 0; status == SYMMEM_OK && r < self->world_size; r++)
        if (((const size_t *)all)[r] < engine->room)
            engine->room = ((const size_t *)all)[r];
    free(all);
    return status;
}

/* What a rank tells of its engine when it joins. */
typedef struct standing {
    uint64_t start;   /* which one it was; 0: none yet */
    uint64_t offered; /* for the next: rank 0's counts */
    int64_t has_watch, has_late;
} standing;

/* The same of all ranks together. */
typedef struct joint {
    uint64_t number; /* of the next start */
    bool watched;    /* on all ranks */
    bool late;       /* on some rank */
} joint;

/* Calls that wait for all ranks would never return. All ranks find the same. */
static symmem_status compare(const symmem_kit_member *self, const standing *all) {
    for (int32_t r = 0; r < self->world_size; r++)
        if (all[r].start != self->engine->start_number)
            return self->host->fail(self->host, SYMMEM_BACKEND, 0, "join",
                                    "%s of rank %d was not started with this one's",
                                    self->engine->name, (int)r);
    return SYMMEM_OK;
}

static symmem_status ask_standing(const symmem_kit_member *self, const symmem_exchange *exchange,
                                  joint *joint_p) {
    const symmem_kit_engine *engine = self->engine;
    const standing own = {.start = engine->start_number,
                          .offered = (symmem_kit_now_ns() ^ (uint64_t)getpid() << 40) | 1,
                          .has_watch = engine->watch != NULL,
                          .has_late = symmem_kit_has_late(engine)};
    void *all_v = NULL;
    symmem_status status =
        symmem_kit_gather(self->host, exchange, &own, sizeof(own), "engine.starts", &all_v);
    if (status != SYMMEM_OK)
        return status;
    const standing *all = all_v;
    status = compare(self, all);
    *joint_p = (joint){.number = all[0].offered, .watched = true};
    for (int32_t r = 0; r < self->world_size; r++) {
        joint_p->watched = joint_p->watched && all[r].has_watch != 0;
        joint_p->late = joint_p->late || all[r].has_late != 0;
    }
    free(all_v);
    return status;
}

static symmem_status start_once(const symmem_kit_member *self, const symmem_exchange *exchange,
                                uint64_t number) {
    symmem_kit_engine *engine = self->engine;
    if (engine->started)
        return SYMMEM_OK;
    symmem_status status =
        engine->introduce == NULL ? SYMMEM_OK : engine->introduce(self, exchange);
    if (status == SYMMEM_OK)
        status = prepare(self, exchange);
    if (status != SYMMEM_OK)
        return status;
    engine->started = true;
    engine->start_number = number;
    engine->process = getpid();
    return together(self, exchange, start_task, engine, "engine.start");
}

/* What is kept with an engine that runs; again, if the exchange failed. All ranks have a watch, or
 * all ask for it. */
static symmem_status set_up(const symmem_kit_member *self, const symmem_exchange *exchange,
                            bool watched) {
    symmem_kit_engine *engine = self->engine;
    symmem_status status = SYMMEM_OK;
    if (engine->records == NULL)
        engine->records = calloc(SYMMEM_KIT_HEAPS, record_bytes(engine));
    if (engine->records == NULL)
        status = self->host->fail(self->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "join", "no memory");
    status = exchange->agree(exchange, status, "engine.records");
    if (status != SYMMEM_OK || watched)
        return status;
    symmem_kit_traffic_free(engine->watch);
    engine->watch = NULL;
    return symmem_kit_traffic_open(self->host, exchange, &engine->watch);
}

static void meet_task(void *engine_v) {
    const symmem_kit_engine *engine = engine_v;
    engine->meet();
}

/* What was late for a peer that made no call any more is there when all ranks have met. */
static symmem_status settle(symmem_kit_member *self, const symmem_exchange *exchange) {
    symmem_status status = together(self, exchange, meet_task, self->engine, "engine.meet");
    if (status == SYMMEM_OK)
        symmem_kit_settle(self);
    return status;
}

static symmem_status start_engine(symmem_kit_member *self, const symmem_exchange *exchange,
                                  size_t heap_bytes) {
    const symmem_host *host = self->host;
    symmem_kit_engine *engine = self->engine;
    joint all = {0};
    if (!engine->started)
        engine->first_bytes = heap_bytes;
    symmem_status status =
        exchange->agree(exchange, check_engine(self, heap_bytes), "engine.thread");
    if (status == SYMMEM_OK)
        status = ask_standing(self, exchange, &all);
    if (status == SYMMEM_OK)
        status = start_once(self, exchange, all.number);
    if (status != SYMMEM_OK)
        return status;
    if (engine->start_error != NULL)
        status = fail_start(self);
    else if (engine->size != self->world_size)
        status =
            host->fail(host, SYMMEM_BACKEND, 0, "join",
                       "%s has %d ranks, the context %d: start the program by %s, one "
                       "process for each rank",
                       engine->name, (int)engine->size, (int)self->world_size, engine->launcher);
    status = exchange->agree(exchange, status, "engine.world");
    if (status == SYMMEM_OK)
        status = set_up(self, exchange, all.watched);
    return status == SYMMEM_OK && all.late ? settle(self, exchange) : status;
}

/* --- heaps ------------------------------------------------------------------------------------ */

/* A shortage is an error here, and not a signal later. Where the kernel cannot tell, it is not. */
static bool is_backed(char *base, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), over = (uintptr_t)base % page;
    return madvise(base - over, bytes + over, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

static void make_task(void *heap_v) {
    symmem_kit_heap *made = heap_v;
    symmem_kit_engine *engine = made->engine;
    made->error = engine->make_heap(made);
    if (made->error != 0)
        return;
    if (!engine->off_host && !is_backed(made->base, made->bytes))
        made->error = SYMMEM_KIT_FULL;
    made->next = engine->heaps;
    engine->heaps = made;
}

/* Those that serve, by bits. */
static uint64_t free_heaps(const symmem_kit_engine *engine, size_t bytes) {
    uint64_t bits = 0;
    for (const symmem_kit_heap *heap = engine->heaps; heap != NULL; heap = heap->next)
        if (heap->bytes >= bytes && !heap->used && heap->error == 0)
            bits |= UINT64_C(1) << heap->number;
    return bits;
}

/* The oldest heap that serves on all ranks, for one may still have a context that others have not;
 * NULL: there is none. */
static symmem_status find_heap(const symmem_kit_member *self, const symmem_exchange *exchange,
                               size_t bytes, symmem_kit_heap **found_p) {
    const uint64_t own = free_heaps(self->engine, bytes);
    uint64_t common = own;
    void *all = NULL;
    *found_p = NULL;
    symmem_status status =
        symmem_kit_gather(self->host, exchange, &own, sizeof(own), "engine.numbers", &all);
    for (int32_t r = 0; r < self->world_size && status == SYMMEM_OK; r++)
        common &= ((const uint64_t *)all)[r];
    free(all);
    for (symmem_kit_heap *heap = self->engine->heaps; heap != NULL; heap = heap->next)
        if ((common >> heap->number & 1) != 0)
            *found_p = heap;
    return status;
}

/* The next heap's, which stays free if there is none in the end. NULL: there are too many. */
static symmem_kit_heap *new_heap(symmem_kit_engine *engine, size_t bytes) {
    const int32_t number = engine->heaps == NULL ? 0 : engine->heaps->number + 1;
    if (number == SYMMEM_KIT_HEAPS)
        return NULL;
    char *record = engine->records + (size_t)number * record_bytes(engine);
    symmem_kit_heap *made = (symmem_kit_heap *)(void *)record;
    made->places = (symmem_kit_place *)(void *)(record + engine->record_bytes);
    made->traffic = (symmem_kit_traffic *)(void *)(made->places + engine->size);
    made->number = number;
    made->engine = engine;
    made->bytes = bytes;
    return made;
}

static size_t room_left(const symmem_kit_engine *engine) {
    size_t left = engine->room == 0 ? SIZE_MAX : engine->room;
    for (const symmem_kit_heap *heap = engine->heaps; heap != NULL; heap = heap->next)
        left -= heap->bytes < left ? heap->bytes : left;
    return left;
}

/* On all ranks or on none; learn_places then says whether *heap_p serves. */
static symmem_status make_heap(const symmem_kit_member *self, const symmem_exchange *exchange,
                               size_t bytes, symmem_kit_heap **heap_p) {
    const symmem_host *host = self->host;
    const size_t left = room_left(self->engine);
    symmem_kit_heap *made = new_heap(self->engine, bytes);
    symmem_status status = SYMMEM_OK;
    if (bytes > left)
        status = host->fail_sizes(host, SYMMEM_NO_SPACE, 0, "join", bytes, left);
    else if (made == NULL)
        status = host->fail(host, SYMMEM_LIMIT, 0, "join", "%s has %d heaps already",
                            self->engine->name, SYMMEM_KIT_HEAPS);
    status = exchange->agree(exchange, status, "engine.record");
    if (status != SYMMEM_OK)
        return status;
    *heap_p = made;
    return together(self, exchange, make_task, made, "engine.heap");
}

/* Where each rank's heap lies. What only some ranks have is of no use, and the engine neither. */
static symmem_status learn_places(const symmem_kit_member *self, const symmem_exchange *exchange,
                                  symmem_kit_heap *heap) {
    const size_t over = (uintptr_t)heap->base % SYMMEM_ALIGNMENT;
    const symmem_kit_place own = {.rank = self->engine->rank,
                                  .error = heap->error,
                                  .shift = over == 0 ? 0 : SYMMEM_ALIGNMENT - over};
    int32_t failed = 0;
    void *all = NULL;
    symmem_status status =
        symmem_kit_gather(self->host, exchange, &own, sizeof(own), "engine.places", &all);
    if (status != SYMMEM_OK)
        return status;
    memcpy(heap->places, all, (size_t)self->world_size * sizeof(own));
    free(all);
    for (int32_t r = 0; r < self->world_size; r++)
        failed += heap->places[r].error != 0;
    if (failed > 0 && failed < self->world_size)
        self->engine->broken = true;
    if (own.error == SYMMEM_KIT_FULL)
        status = self->host->fail(self->host, SYMMEM_NO_SPACE, 0, "join",
                                  "%s has no room for a heap of %zu bytes", self->engine->name,
                                  heap->bytes);
    else if (own.error != 0)
        status = symmem_kit_engine_fail(self, "join", "making the heap", own.error);
    return exchange->agree(exchange, status, "engine.heaps");
}

static symmem_status get_heap(symmem_kit_member *self, const symmem_exchange *exchange,
                              size_t bytes) {
    symmem_kit_heap *heap;
    symmem_status status = find_heap(self, exchange, bytes, &heap);
    if (status == SYMMEM_OK && heap == NULL)
        status = make_heap(self, exchange, bytes, &heap);
    if (status == SYMMEM_OK)
        status = learn_places(self, exchange, heap);
    if (status != SYMMEM_OK)
        return status;
    heap->used = true;
    self->heap = heap;
    return SYMMEM_OK;
}

/* --- world ------------------------------------------------------------------------------------ */

void symmem_kit_world_close(void *instance, symmem_memory *heap) {
    symmem_kit_member *self = instance;
    if (self->heap == NULL)
        free(heap->ptr);
    else
        symmem_kit_leave_heap(self);
}

static symmem_status open_alone(const symmem_kit_member *self, size_t bytes, symmem_memory *heap) {
    void *at = aligned_alloc(SYMMEM_ALIGNMENT, bytes);
    if (at == NULL)
        return self->host->fail(self->host, SYMMEM_NO_SPACE, ENOMEM, "join", "no memory");
    *heap = (symmem_memory){.ptr = at, .bytes = bytes, .device = -1};
    return SYMMEM_OK;
}

static symmem_status open_with_all(symmem_kit_member *self, const symmem_exchange *exchange,
                                   size_t heap_bytes, symmem_memory *heap) {
    symmem_status status = start_engine(self, exchange, heap_bytes);
    if (status == SYMMEM_OK)
        status = get_heap(self, exchange, heap_bytes + SYMMEM_ALIGNMENT);
    if (status != SYMMEM_OK)
        return status;
    symmem_kit_traffic *traffic = self->heap->traffic;
    status = symmem_kit_traffic_open(self->host, exchange, &traffic);
    if (status != SYMMEM_OK) {
        symmem_kit_world_close(self, heap);
        return status;
    }
    self->traffic = traffic;
    *heap = (symmem_memory){.ptr = self->heap->base + self->heap->places[self->rank].shift,
                            .bytes = heap_bytes,
                            .device = -1};
    return SYMMEM_OK;
}

symmem_status symmem_kit_world_open(void *instance, const symmem_exchange *exchange,
                                    const symmem_world_config *config, symmem_memory *heap) {
    symmem_kit_member *self = instance;
    const symmem_host *host = self->host;
    symmem_status status = SYMMEM_OK;
    if (config->world_size == 1)
        return open_alone(self, config->heap_bytes, heap);
    /* Two that join at once would reach the engine in different orders on different ranks. */
    const bool alone = !atomic_exchange(&self->engine->joining, true);
    if (!alone)
        status = host->fail(host, SYMMEM_BUSY, 0, "join", "another context of this process joins");
    status = exchange->agree(exchange, status, "engine.turn");
    if (status == SYMMEM_OK)
        status = open_with_all(self, exchange, config->heap_bytes, heap);
    if (alone)
        atomic_store(&self->engine->joining, false);
    return status;
}

/* --- reach ------------------------------------------------------------------------------------ */

void symmem_kit_engine_progress(void *instance) {
    symmem_kit_member *self = instance;
    if (self->heap != NULL)
        self->engine->progress(self);
}

symmem_status symmem_kit_engine_quiet(void *instance, const symmem_peers *peers,
                                      const symmem_exec *exec) {
    symmem_kit_member *self = instance;
    symmem_kit_engine *engine = self->engine;
    const symmem_kit_quiet quiet = {&engine->helper, engine->flush, self->heap, engine->progress,
                                    self};
    int error;
    if (self->heap == NULL)
        return SYMMEM_OK;
    symmem_status status =
        symmem_kit_quiet_run(&quiet, self->traffic, self->host, peers, exec, &error);
    return error == 0 ? status : symmem_kit_engine_fail(self, "quiet", "flush", error);
}
