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
/* all_reduce_env.c. The table that the environment names, if it does; called by init. */
symmem_status sm_all_reduce_env(symmem_context *context);

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

/* It refers to the context. */
sm_world sm_context_world(const symmem_context *context);
/* For sm_call_is_in: keeps what this rank lacks. */
extern const sm_failure_ops sm_context_failure_ops;
/* Forgets what this rank lacked: it has gone on with other ranks, or `ends`. */
void sm_context_forget_lack(symmem_context *context, bool ends);
/* The failure that is told to the peers when this rank ends its part in a group or in the world:
 * the thread's last one in this context, or the rank's lack if that one is no cause. False: none.
 */
bool sm_context_last_failure(symmem_context *context, symmem_error_record *record);
/* NOT_INITIALIZED with a record for NULL and finalized contexts. */
symmem_status sm_context_check(const symmem_context *context, const char *operation);
/* sm_fail with the context's rank and world size added. context may be NULL. */
symmem_status sm_context_fail(const symmem_context *context, symmem_status status,
                              const char *operation, const char *stage, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void sm_context_retain(symmem_context *context);
void sm_context_release(symmem_context *context);
/* For objects the backend must release: context reference and instance user at once. */
void sm_instance_retain(symmem_context *context);
void sm_instance_release(symmem_context *context);
/* The instance's use alone, closing it if that was the last. */
void sm_instance_leave(symmem_context *context);
/* sm_instance_release in a thread of the backend's, which close may have to wait for: if it was the
 * last use, a thread of its own closes. */
void sm_instance_release_work(symmem_context *context);
/* After the backend has opened an instance: what it has loaded for that is still there when the
 * process's end waits for instances that are being closed. */
void sm_instance_await_at_exit(const symmem_backend *table);
/* For enqueued work that has no other reference. */
symmem_ref sm_instance_ref(symmem_context *context);
/* Opens the active backend on first use and marks it in use. NOT_FOUND without one. context->lock
 * NOT held. */
symmem_status sm_context_use_backend(symmem_context *context, const char *operation);
/* The same and sm_instance_retain in one step, so that a finalize between them cannot close it. */
symmem_status sm_instance_enter(symmem_context *context, const char *operation);
/* After a backend entry failed: makes the record the public operation's, with the entry as stage.
 * Writes one if the backend left none. Returns `status`. */
symmem_status sm_backend_failed(const symmem_context *context, symmem_status status,
                                const char *operation, const char *entry);
/* SYMMEM_TIMEOUT_DEFAULT -> the context's. */
uint32_t sm_context_timeout(const symmem_context *context, uint32_t timeout_ms);
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
void sm_context_notice(symmem_context *context, const char *text); /* once per text */
bool sm_context_overlap_allowed(const symmem_context *context);
bool sm_context_multicast_allowed(const symmem_context *context);
/* Whether the active backend has these SYMMEM_CAP_ bits. */
bool sm_backend_has(const symmem_context *context, uint64_t capability);
/* UNSUPPORTED: "the backend has no <what>". */
symmem_status sm_need_capability(symmem_context *context, uint64_t capability,
                                 const char *operation, const char *what);
/* The table of the shared object at `path`, not yet checked (loader.c). LOAD, ABI. */
symmem_status sm_load_table(const char *path, const char *operation, void **library_p,
                            const symmem_backend **table_p);
/* The first libsymmem_backend_<name>.so on the search path. NOT_FOUND. */
symmem_status sm_search_backend(const char *name, const char *operation, char *path,
                                size_t capacity);
/* Fills context->host (host.c), but for what handles have to say: sm_link_host_init. */
void sm_host_init(symmem_context *context);
/* Sets the deadline of this thread's public call, which backends ask for. Returns the earlier
 * value, which the call puts back at its end. */
uint64_t sm_call_deadline(uint64_t deadline_ns);
/* Sets the limit of a call that no other rank waits for, counted from when the backend asks; 0
 * means none. Returns the earlier value. */
uint32_t sm_call_limit(uint32_t limit_ms);

/* -1 -> default device; OUT_OF_RANGE otherwise. Opens the backend. */
/* The instance is entered. At least 1. */
symmem_status sm_device_count(symmem_context *context, const char *operation, int32_t *count_p);
symmem_status sm_device_resolve(symmem_context *context, int32_t device, const char *operation,
                                int32_t *device_p);

#endif
