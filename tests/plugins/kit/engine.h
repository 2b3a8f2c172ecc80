/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The groups instance and world, and reach->quiet, of a backend over an engine that a process
 * starts once, together with all other ranks. The engine's calls may wait for those and know no
 * limit: so they are made in a thread of their own, and a call of the backend waits for that with
 * its limit. The backend says what the engine's calls are, and has put, get and write_value32.
 *
 *     static symmem_kit_engine mpi = {.name = "MPI", .start = start, ...,
 *                                     .helper = SYMMEM_KIT_HELPER_INIT};
 *
 * An instance is a symmem_kit_member, and entries below take it as theirs.
 */
#ifndef SYMMEM_KIT_ENGINE_H
#define SYMMEM_KIT_ENGINE_H

#include <stdatomic.h>
#include <sys/types.h>
#include <symmem/backend.h>

#include "helper.h"
#include "quiet.h"

/* Of a rank of the context. */
typedef struct symmem_kit_place {
    int32_t rank; /* in the engine */
    int32_t error;
    size_t shift; /* from the base that the engine gave it to its heap, which is aligned */
} symmem_kit_place;

/* What the engine gives to all ranks by one call. To free it takes them all again: so it stays, and
 * serves the next context that wants no more. */
typedef struct symmem_kit_heap {
    struct symmem_kit_heap *next;
    struct symmem_kit_engine *engine;
    char *base;     /* of this rank's */
    size_t bytes;   /* with room for an alignment */
    int32_t number; /* from 0 in the order in which they were made, which all ranks share */
    int error;      /* of the engine's last call for it that all ranks took part in */
    bool used;      /* by a context */
    symmem_kit_traffic *traffic; /* of its context */
    bool late;                   /* that context has ended, with something under way */
    symmem_kit_place *places; /* by ranks of the context; a flush that was given up may need them */
} symmem_kit_heap;

#define SYMMEM_KIT_HEAPS 64  /* of an engine at the most */
#define SYMMEM_KIT_FULL (-1) /* make_heap's: there is no room */

struct symmem_kit_member;

/* The process's. */
typedef struct symmem_kit_engine {
    const char *name, *launcher; /* for messages: "MPI", "mpirun" */
    size_t record_bytes; /* of the backend's own record of a heap, which begins with the kit's */
    bool off_host;       /* heaps are memory of devices: the host's says nothing of what fits, and
                            make_heap itself finds out whether one is backed */

    /* Optional, once, before prepare: what the ranks' starts need of each other. On all ranks or on
     * none, by exchange->agree. */
    symmem_status (*introduce)(const struct symmem_kit_member *self,
                               const symmem_exchange *exchange);
    /* Optional, once, before the start: may fill room. NULL, or why there can be no start. */
    const char *(*prepare)(struct symmem_kit_engine *engine);
    /* In the helper's thread, on all ranks together. */
    /* Once. Fills rank and size. NULL, or why it failed: a string that stays. */
    const char *(*start)(struct symmem_kit_engine *engine);
    /* Fills heap->base. 0, SYMMEM_KIT_FULL, or an error of the engine's. */
    int (*make_heap)(symmem_kit_heap *heap);
    /* Optional, for an engine that moves bytes in calls only: waits for all ranks, moving them. */
    void (*meet)(void);
    /* At the process's exit. If it is broken not all ranks come. */
    void (*end)(const struct symmem_kit_engine *engine);

    symmem_kit_flush_fn flush; /* of a symmem_kit_heap */
    void (*explain)(int error, char *text, size_t capacity);
    void (*progress)(void *member); /* in any thread, without waiting; NULL: there is no need */
    void (*forget)(
        symmem_kit_traffic *traffic); /* it is freed next; NULL: the backend keeps none */

    symmem_kit_helper helper;
    symmem_kit_heap *heaps; /* that all ranks have, the newest first; the helper's */
    char *records;      /* room for as many as there can be, so that later ones take no memory */
    size_t first_bytes; /* of the heap that it is started for */
    size_t room;        /* for all heaps, on the rank that has the least; 0: not known */
    symmem_kit_traffic *watch; /* of the processes of all ranks, for this one's exit */
    const char *start_error;
    uint64_t start_number; /* the same on all ranks that started together; 0: none has */
    int32_t rank, size;    /* in the engine */
    pid_t process;         /* that started it */
    atomic_bool joining;
    bool started;
    atomic_bool broken; /* a start or a heap was given up halfway, or a rank has ended */
} symmem_kit_engine;

typedef struct symmem_kit_member {
    symmem_kit_engine *engine;
    const symmem_host *host;
    int32_t rank, world_size;
    symmem_kit_heap *heap; /* NULL: a world of one has no need of the engine */
    symmem_kit_traffic *traffic;
    void *extension; /* the backend's */
} symmem_kit_member;

/* instance->open calls this; instance->close is the next. */
symmem_status symmem_kit_member_open(symmem_kit_engine *engine, const symmem_host *host,
                                     const symmem_backend_config *config, void **instance_p);
void symmem_kit_member_close(void *instance);
/* The group world. */
symmem_status symmem_kit_world_open(void *instance, const symmem_exchange *exchange,
                                    const symmem_world_config *config, symmem_memory *heap);
void symmem_kit_world_close(void *instance, symmem_memory *heap);
/* reach->quiet, and reach->progress for an engine that has it. */
symmem_status symmem_kit_engine_quiet(void *instance, const symmem_peers *peers,
                                      const symmem_exec *exec);
void symmem_kit_engine_progress(void *instance);
/* BACKEND, with the engine's words for the error. */
symmem_status symmem_kit_engine_fail(const symmem_kit_member *self, const char *operation,
                                     const char *step, int error);

#endif
