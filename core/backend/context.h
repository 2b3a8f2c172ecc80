/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context, and how long it and the other objects of the core live.
 *
 *   context     user reference + one for each object below; memory freed with the last
 *   instance    the opened backend; closed when the context is finalized and no object that the
 *               backend must release (allocation, mapping, link, stream, event, graph) is left
 *   group       shell owned by the context until symmem_context_free; session until destroy
 *   allocation  table (until free) + each block, mapping, link and pending operation
 *   block       the unit of rendezvous: a whole allocation or one pool block
 *   mapping     peers' views of one allocation for one group; cached in the allocation
 *   link        all shared state of (block, group); cached in the block; behind every handle
 *   handle      what users hold: a link and an offset
 *
 * Caches are strong until the block is freed or the group destroyed. Reference counts are atomic;
 * lists are under context->lock unless said otherwise.
 */
#ifndef SYMMEM_CORE_CONTEXT_H
#define SYMMEM_CORE_CONTEXT_H

#include "backend/entries.h"
#include "bootstrap/bootstrap.h"

/* A stream that the context made for the fused operations on another one (fused.c). */
typedef struct sm_second_stream {
    struct sm_second_stream *next;
    const symmem_stream *first; /* its user; NULL: that stream was destroyed */
    symmem_stream *stream;      /* ended by finalize like any other; the shell is the context's */
} sm_second_stream;
/* Which algorithm symmem_all_reduce takes (all_reduce.c); plain memory of the context's. */
typedef struct sm_all_reduce_table sm_all_reduce_table;

typedef struct sm_registered {
    sm_node node;
    sm_backend backend;
    void *library; /* from dlopen; never closed, its code may still be referenced */
} sm_registered;

#define SM_WORLD_PREFIX "symmem" /* of the world's keys */

/* An engine's heap, once joined (heap.h). */
typedef struct sm_heap sm_heap;

/* So many devices are asked for their type once. */
#define SM_KNOWN_DEVICES 64

struct symmem_context {
    uint64_t number; /* no other context of this process has or had it */
    atomic_int references;
    void (*free_memory)(symmem_context *context); /* when the last of them is gone */
    atomic_int instance_users;
    atomic_bool finalized;
    uint32_t made_in; /* sm_fork_generation */
    pthread_mutex_t lock;

    int32_t rank, world_size, local_rank;
    uint32_t default_timeout_ms;
    symmem_store *store; /* may be NULL in a world of one */
    bool owns_store;     /* opened from the environment: closed with the context's memory */
    char world_prefix[32];
    atomic_bool has_met; /* some rank, in a group */
    char *socket_dir;
    char *relative_socket_dir; /* as it was given; NULL: it is `socket_dir` */
    sm_identity identity;
    sm_liveness *liveness;
    sm_life_file *life_file; /* in socket_dir, if there is one */
    sm_member member;
    bool identity_published;
    pthread_mutex_t failures_lock; /* around the three below; no other one is taken behind it */
    symmem_error_record lack;      /* see failure.c; its status is OK: there is none */
    uint64_t lack_written_ns;      /* to the store */
    atomic_bool has_lack;
    uint64_t met[SYMMEM_MAX_WORLD_SIZE / 64];  /* to whom notes can tell it: atomic */
    uint64_t told[SYMMEM_MAX_WORLD_SIZE / 64]; /* that a group or the context ends: atomic */
    atomic_int allow_overlapping_devices;      /* -1, 0, 1 */
    atomic_int device_types[SM_KNOWN_DEVICES]; /* as far as tensors have named them; 0: not known */
    int32_t multicast;                         /* -1, 0, 1 */
    bool check_collectives;                    /* constant */
    /* NULL: the built-in one. Changed, and looked behind, under lock. */
    _Atomic(sm_all_reduce_table *) all_reduce_table;
    const sm_failure_ops *failure_ops; /* of failure.c, which query.c does not call */
    symmem_point_fn point;
    void *point_arg;
    symmem_log_fn log;
    void *log_arg;
    const symmem_clock *clock; /* NULL: the machine's */
    sm_node notices;           /* texts already told */

    sm_node backends;          /* sm_registered */
    const sm_backend *backend; /* the active one or NULL */
    void *instance;            /* opened at first use */
    atomic_bool instance_open;
    pthread_mutex_t open_lock; /* around open and set_backend; taken before lock */
    sm_timed_mutex join_lock;  /* held by the one call that joins; taken before all others */
    symmem_host host;
    _Atomic(sm_heap *) heap; /* NULL: not joined; from then on until the instance is closed */

    sm_node groups;      /* symmem_group, live */
    sm_node old_groups;  /* shells of destroyed ones */
    sm_index names;      /* of the live groups, by a hash */
    sm_index cached;     /* all that is cached, by cache and group */
    sm_node all_cached;  /* until finalize has seen it */
    sm_node allocations; /* sm_allocation in the table, any order */
    sm_treap by_address; /* the same, by address */
    sm_treap ids;        /* those with an id, by that */
    sm_node streams, events, graphs, pools;
    uint64_t next_group_uid, next_ordinal;
    size_t signal_pad_size;
    atomic_int captures; /* streams capturing now */
    sm_node captured;    /* which links their operations use (capture.c) */
    sm_index noted;      /* the same, and those of graphs, by link */
    uint64_t last_graph;
    sm_node launched; /* graphs of which a launch may be pending; under graphs_lock */
    /* Around changes of `graphs`, and while one of them is looked at; taken before lock. */
    pthread_mutex_t graphs_lock;
    sm_second_stream *second_streams;
    symmem_matmul_fn matmul_fn; /* the user's product, or NULL */
    void *matmul_arg;
};

/* Passes the caller's failpoint as a step of `operation`. A failure is recorded with stage =
 * name. */
symmem_status sm_context_call_point(const symmem_context *context, const char *operation,
                                    const char *name);
static inline symmem_status sm_context_point(const symmem_context *context, const char *operation,
                                             const char *name) {
    if (__builtin_expect(context->point == NULL, 1))
        return SYMMEM_OK;
    return sm_context_call_point(context, operation, name);
}
/* A point where nothing can fail any more, or nothing may: its status is ignored. */
static inline void sm_context_observe(const symmem_context *context, const char *name) {
    if (__builtin_expect(context->point != NULL, 0))
        (void)sm_point_call(context->point, context->point_arg, name);
}

/* -1 -> default device; OUT_OF_RANGE otherwise. Opens the backend. */

#endif
