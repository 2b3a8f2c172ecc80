/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core's objects and how long they live.
 *
 *   context     user reference + one for each object below; memory freed with the last
 *   instance    the opened backend; closed when the context is finalised and no object that the
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
#ifndef SYMMEM_CORE_OBJECTS_H
#define SYMMEM_CORE_OBJECTS_H

#include "index.h"
#include "internal.h"

/* --- a turn: a lock that may be held across waits and is taken with a deadline (turn.c) --- */

typedef struct sm_turn {
    atomic_bool taken;
    atomic_int waiting; /* threads that sleep until it is given */
    pthread_mutex_t mutex;
    pthread_cond_t condition;
} sm_turn;
symmem_status sm_turn_init(sm_turn *turn);
void sm_turn_finish(sm_turn *turn);
/* Never waits, costs no system call. */
bool sm_turn_try(sm_turn *turn);
/* False when the deadline (0: none) passed first. No record. */
bool sm_turn_take(sm_turn *turn, uint64_t deadline_ns);
void sm_turn_give(sm_turn *turn);

/* --- intrusive list ----------------------------------------------------------------- */

typedef struct sm_node {
    struct sm_node *previous, *next; /* of a ring; the list's head is a node as well */
} sm_node;
void sm_list_init(sm_node *head);
void sm_list_add(sm_node *head, sm_node *node); /* at the end */
void sm_list_remove(sm_node *node);             /* fine on a removed node */
bool sm_list_empty(const sm_node *head);
void sm_list_move(sm_node *head, sm_node *from); /* all of them, to the end */
#define SM_CONTAINER(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* A stream that the context made for the fused operations on another one (fused.c). */
typedef struct sm_second_stream {
    struct sm_second_stream *next;
    const symmem_stream *first; /* whose it is now; NULL: nobody's, that one was destroyed */
    symmem_stream *stream;      /* ended by finalise like any other; the shell is the context's */
} sm_second_stream;
/* Which algorithm symmem_all_reduce takes (ops_all_reduce.c); plain memory of the context's. */
typedef struct sm_all_reduce_table sm_all_reduce_table;
/* all_reduce_env.c. The table that the environment names, if it does; called by init. */
symmem_status sm_all_reduce_env(symmem_context *context);

/* --- context (context.c, registry.c, loader.c, host.c) ------------------------------ */

typedef struct sm_registered {
    sm_node node;
    const symmem_backend *table;
    void *library; /* from dlopen; never closed, its code may still be referenced */
} sm_registered;

/* places.c. Objects in the order of a key, under context->lock. All zeros is none. */
typedef struct sm_place {
    struct sm_place *lower, *higher;
    uint64_t key, order, weight;
} sm_place;
typedef struct sm_places {
    sm_place *root;
    uint64_t last_order;
} sm_places;
void sm_places_add(sm_places *places, sm_place *place, uint64_t key);
void sm_places_remove(sm_places *places, sm_place *place); /* if it is there */
/* The last one up to the key, and the first one from it on, or NULL. Of those with one key the one
 * that was added last comes first. */
sm_place *sm_places_find(const sm_places *places, uint64_t key);
sm_place *sm_places_from(const sm_places *places, uint64_t key);

struct symmem_context {
    atomic_int references;
    atomic_int instance_users;
    atomic_bool finalised;
    uint32_t made_in; /* sm_fork_generation */
    pthread_mutex_t lock;

    int32_t rank, world_size, local_rank;
    uint32_t default_timeout_ms;
    symmem_store *store; /* may be NULL in a world of one */
    bool owns_store;     /* opened from the environment: closed with the context's memory */
    char world_prefix[32];
    char *socket_dir;
    sm_identity identity;
    sm_liveness *liveness;
    sm_life_file *life_file; /* in socket_dir, if there is one */
    sm_member member;
    bool identity_published;
    atomic_int allow_overlapping_devices; /* -1, 0, 1 */
    int32_t multicast;                    /* -1, 0, 1 */
    bool check_collectives;               /* constant */
    /* NULL: the built-in one. Changed, and looked behind, under lock. */
    _Atomic(sm_all_reduce_table *) all_reduce_table;
    symmem_point_fn point;
    void *point_arg;
    symmem_log_fn log;
    void *log_arg;
    const symmem_clock *clock; /* NULL: the machine's */
    sm_node notices;           /* texts already told */

    sm_node backends;              /* sm_registered */
    const symmem_backend *backend; /* the active one or NULL */
    void *instance;                /* opened at first use */
    atomic_bool instance_open;
    pthread_mutex_t open_lock; /* around open and set_backend; taken before lock */
    symmem_host host;

    sm_node groups;      /* symmem_group, live */
    sm_node old_groups;  /* shells of destroyed ones */
    sm_index names;      /* of the live groups, by a hash */
    sm_index cached;     /* all that is cached, by cache and group */
    sm_node all_cached;  /* until finalise has seen it */
    sm_node allocations; /* sm_allocation in the table, any order */
    sm_places places;    /* the same, by address */
    sm_places ids;       /* those with an id, by that */
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

/* NOT_INITIALISED with a record for NULL and finalised contexts. */
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
void sm_instance_await_at_exit(const symmem_backend *backend);
/* For enqueued work that has no other reference. */
symmem_ref sm_instance_ref(symmem_context *context);
/* Opens the active backend on first use and marks it in use. NOT_FOUND without one. context->lock
 * NOT held. */
symmem_status sm_context_use_backend(symmem_context *context, const char *operation);
/* The same and sm_instance_retain in one step, so that a finalise between them cannot close it. */
symmem_status sm_instance_enter(symmem_context *context, const char *operation);
/* After a backend entry failed: makes the record the public operation's, with the entry as stage.
 * Writes one if the backend left none. Returns `status`. */
symmem_status sm_backend_failed(const symmem_context *context, symmem_status status,
                                const char *operation, const char *entry);
/* SYMMEM_TIMEOUT_DEFAULT -> the context's. */
uint32_t sm_context_timeout(const symmem_context *context, uint32_t timeout_ms);
/* The caller's test point as a step of `operation`: a failure is recorded with stage = name. */
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
        (void)context->point(context->point_arg, name);
}
void sm_context_notice(symmem_context *context, const char *text); /* once per text */
bool sm_context_overlap_allowed(const symmem_context *context);
bool sm_context_multicast_allowed(const symmem_context *context);
/* The entry is there (size and not NULL) and its capability declared. */
bool sm_backend_has(const symmem_context *context, uint64_t capability);
/* Refuses a table: ABI version, size, name, capability bits, missing or superfluous entries. */
symmem_status sm_backend_check(const symmem_backend *backend, const char *operation);
/* Whether the entry at that offset of the table is there: older tables are shorter. */
bool sm_backend_present(const symmem_backend *backend, size_t offset);
/* 1 to 31 of a-z 0-9 _ (registry.c). */
bool sm_backend_name_valid(const char *name);
/* The table of the shared object at `path`, not yet checked (loader.c). LOAD, ABI. */
symmem_status sm_load_table(const char *path, const char *operation, void **library_p,
                            const symmem_backend **table_p);
/* The first libsymmem_backend_<name>.so on the search path. NOT_FOUND. */
symmem_status sm_search_backend(const char *name, const char *operation, char *path,
                                size_t capacity);
/* Fills context->host (host.c). */
void sm_host_init(symmem_context *context);
/* Until when the public call of this thread may wait, which backends ask for. Returns what it was,
 * for the call's end to put back. */
uint64_t sm_call_deadline(uint64_t deadline_ns);
/* Likewise of a call that no other rank waits for, and for how long from when they ask; 0: none. */
uint32_t sm_call_limit(uint32_t limit_ms);
/* Implemented in link.c, put into the host table by host.c. */
void sm_link_signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                           symmem_error_record *record_p);
symmem_peer_state sm_link_peer_state(const symmem_peers *peers, int32_t rank);
bool sm_link_peer_is_ending(const symmem_peers *peers, int32_t rank);
bool sm_link_is_poisoned(const symmem_peers *peers);

/* --- groups (group.c) --------------------------------------------------------------- */

struct symmem_group {
    sm_node node;
    symmem_context *context; /* not counted: the shell dies with the context */
    atomic_bool destroyed;
    atomic_int references; /* live group + links; the members and session die with the last */
    uint64_t uid;          /* unique in this context, never reused */
    sm_index_node by_name;
    sm_node cached; /* what it has in caches */
    char name[SYMMEM_NAME_MAX];
    char name_prefix[SYMMEM_STORE_KEY_MAX / 4]; /* of all groups of that name */
    char prefix[SYMMEM_STORE_KEY_MAX / 2];
    int32_t rank, world_size;
    int32_t *global_ranks;
    symmem_store *store;
    sm_session *session;
    sm_turn turn;        /* held by the one collective call under way */
    void *communicator;  /* the user's; under the turn */
    void *backend_group; /* from group_open */
    bool backend_group_open;
    uint64_t backend_group_stamp; /* of the rendezvous that opened it */
};

/* STALE for destroyed groups, NOT_INITIALISED after finalise, INVALID_ARGUMENT for NULL. */
symmem_status sm_group_check(const symmem_group *group, const char *operation);
/* OUT_OF_RANGE for a rank outside the group. */
symmem_status sm_group_rank_check(const symmem_group *group, int32_t rank, const char *operation);
/* Takes the group's turn only (pairwise calls). On OK the caller must sm_group_leave. */
symmem_status sm_group_take(symmem_group *group, const char *operation, uint64_t deadline_ns);
/* Takes the group's turn and brings its session up. On OK the caller must sm_group_leave. */
symmem_status sm_group_enter(symmem_group *group, const char *operation, uint64_t deadline_ns);
void sm_group_leave(symmem_group *group);
/* What the environment says of what the options leave open. local: -1 if nothing does. */
typedef struct sm_launch {
    bool wants_rank, wants_size, wants_local;
    int32_t rank, size, local;
} sm_launch;
symmem_status sm_launch_read(sm_launch *launch);
/* The context's key in the store, see member.c. Once liveness is there. */
symmem_status sm_member_publish(symmem_context *context);
void sm_member_withdraw(symmem_context *context);
/* To the thread's record, if that is of a group: what the ranks that it names said they failed
 * with. */
void sm_group_explain(symmem_context *context);
/* sm_group_check and sm_group_retain in one step, so that a destroy between them cannot end it. */
symmem_status sm_group_acquire(symmem_group *group, const char *operation);
void sm_group_retain(symmem_group *group);
void sm_group_release(symmem_group *group);
/* Fills *exchange for a backend's collective entry; valid while the group is entered. */
void sm_group_exchange(symmem_group *group, uint64_t deadline_ns, symmem_exchange *exchange);
/* Called by finalise: destroys every live group. */
void sm_group_destroy_all(symmem_context *context);
void sm_group_free_shells(symmem_context *context); /* with the context's memory */

/* --- allocations and blocks (alloc.c, pool.c) --------------------------------------- */

typedef struct sm_allocation {
    sm_node node; /* context->allocations while in the table */
    sm_place by_address, by_id;
    atomic_int references;
    symmem_context *context; /* an instance user */
    symmem_memory memory;
    size_t bytes;
    int32_t device;
    uint64_t alloc_id, ordinal;
    bool active;         /* persistent: handed out; others: always true in the table */
    bool is_segment;     /* of a pool: users see its blocks only */
    sm_node blocks;      /* sm_block; an ordinary allocation has exactly one */
    sm_places by_offset; /* the same */
    sm_node retired;     /* dropped blocks that a sm_block_find still pins */
    sm_node mappings;    /* sm_mapping cache; nothing is added once sm_allocation_live is false */
} sm_allocation;

/* Kept for the next rendezvous of a group: peers' views in their allocation, a link in its block.
 * The first member of either. */
typedef struct sm_cached {
    sm_node node;           /* of the cache while it is in there */
    sm_node of_group;       /* of all that the group has cached */
    sm_node of_context;     /* context->all_cached */
    sm_index_node by_group; /* context->cached */
    const sm_node *cache;
    uint64_t group_uid;
    bool is_link;
    void (*release)(struct sm_cached *cached); /* the cache's reference */
} sm_cached;

typedef struct sm_block {
    sm_node node;              /* allocation->blocks while live */
    sm_place by_offset;        /* likewise */
    sm_allocation *allocation; /* the block lives inside it: no count */
    size_t offset, bytes;
    size_t signal_pad_size;
    uint64_t ordinal;
    symmem_group *default_group; /* counted, or NULL */
    bool is_pool_block;
    void *range;   /* of the pool that it is from */
    bool retired;  /* dropped, but still pinned */
    int pins;      /* under context->lock: sm_block_find minus sm_block_release */
    sm_node links; /* sm_link cache; nothing is added once sm_block_live is false */
} sm_block;

void sm_allocation_retain(sm_allocation *allocation);
void sm_allocation_release(sm_allocation *allocation);
/* Makes an allocation with no block and puts it into the table (pool segments, alloc). The caller
 * gets a reference beside the table's. CAPTURE while capturing. */
symmem_status sm_allocation_create(symmem_context *context, size_t bytes, int32_t device,
                                   const char *operation, sm_allocation **allocation_p);
/* Takes it out of the table with all blocks and caches, drops the table's reference. False (and
 * nothing done) if another thread was first. context->lock NOT held. */
bool sm_allocation_drop(sm_allocation *allocation);
/* context->lock held: still in the table, still handed out. */
bool sm_allocation_live(const sm_allocation *allocation);
bool sm_block_live(const sm_block *block);
/* context->lock held: the allocation in the table that covers ptr, or NULL; its live block. */
sm_allocation *sm_allocation_covering(symmem_context *context, const void *ptr);
sm_block *sm_block_covering(const sm_allocation *allocation, const void *ptr);
/* CAPTURE if a stream of the context captures. */
symmem_status sm_capture_check(symmem_context *context, const char *operation);
/* context->lock held. What a group has in the cache, or NULL. */
sm_cached *sm_cache_find(const symmem_context *context, const sm_node *cache, uint64_t group_uid);
/* context->lock held. The group is live, and has nothing there. */
void sm_cache_add(symmem_group *group, sm_node *cache, sm_cached *cached);
/* context->lock held. Out of its cache, for the caller to release. */
void sm_cache_take(symmem_context *context, sm_cached *cached);
/* Releases all that is in the cache. context->lock NOT held. */
void sm_cache_drop(symmem_context *context, sm_node *cache);
/* Releases the cached links and mappings that belong to a group (group destroy). */
void sm_cache_drop_group(symmem_group *group);
/* context->lock held: the persistent allocation of that id, active or not, or NULL. */
sm_allocation *sm_persistent_find(symmem_context *context, uint64_t alloc_id);
/* context->lock held. A block of the allocation; sm_block_drop also drops its cached links. */
symmem_status sm_block_create(sm_allocation *allocation, size_t offset, size_t bytes,
                              symmem_group *default_group, sm_block **block_p);
/* context->lock held: it is found no more, and sm_block_drop is to follow. */
void sm_block_hide(sm_block *block);
void sm_block_drop(sm_block *block); /* context->lock NOT held */
/* The live block that covers ptr, pinned, its allocation retained; NOT_SYMMETRIC with a record
 * otherwise. The block stays valid memory until sm_block_release, live or not: check sm_block_live
 * under context->lock before caching in it. */
symmem_status sm_block_find(symmem_context *context, const void *ptr, const char *operation,
                            sm_block **block_p);
/* Undoes sm_block_find: the pin and the allocation's reference. (Only releasing the allocation is
 * safe too; the block's few bytes then stay until the allocation ends.) context->lock NOT held. */
void sm_block_release(sm_block *block);
/* The live allocation that covers ptr, retained, or NULL. No record. */
sm_allocation *sm_allocation_find(symmem_context *context, const void *ptr);
/* -1 -> default device; OUT_OF_RANGE otherwise. Opens the backend. */
/* The instance is entered. At least 1. */
symmem_status sm_device_count(symmem_context *context, const char *operation, int32_t *count_p);
symmem_status sm_device_resolve(symmem_context *context, int32_t device, const char *operation,
                                int32_t *device_p);
void sm_pool_destroy_all(symmem_context *context);    /* by finalise */
void sm_pool_free_shells(symmem_context *context);    /* with the context's memory */
void sm_allocation_drop_all(symmem_context *context); /* by finalise */

/* --- mappings and links (mapping.c, link.c, rendezvous.c) --------------------------- */

typedef struct sm_mapping {
    sm_cached cached; /* in allocation->mappings */
    atomic_int references;
    sm_allocation *allocation; /* counted */
    uint64_t stamp; /* of the rendezvous that made it: the peers' memory is that of then */
    int32_t rank, world_size;
    symmem_memory *peers; /* [rank] unused: the own memory */
    void **buffers;
} sm_mapping;
void sm_mapping_release(sm_mapping *mapping);

/* One channel's order across streams. */
typedef struct sm_channel {
    sm_turn turn;
    void *eager_event; /* after the last operation on a stream */
    void *eager_stream;
    void *capture_event; /* the same inside one capture */
    void *capture_stream;
    uint64_t capture;
    symmem_whole whole; /* its operations made of parts, one after the other */
} sm_channel;

typedef struct sm_link {
    sm_cached cached; /* in block->links */
    atomic_int references;
    symmem_context *context; /* an instance user */
    sm_mapping *mapping;     /* counted */
    symmem_group *group;     /* counted; for reset, names and ranks */
    size_t block_offset, block_bytes, signal_pad_size, buffer_bytes;
    int32_t device, channel_count;
    symmem_memory own_signals; /* [user pad | signal state] */
    symmem_memory *peer_signals;
    sm_identity *identities; /* the ranks' at rendezvous: a successor is none of them */
    void **pads, **signals;
    symmem_peers peers;
    bool peers_open;
    void *buffers_dev, *pads_dev;
    void *multicast, *multicast_object, *multicast_address; /* address of the allocation's base */
    bool within_direct_access;
    pthread_mutex_t lock; /* poison record, channel table */
    atomic_bool poisoned;
    symmem_error_record poison_record;
    _Atomic(sm_channel *) *channels; /* made at first use */
    bool used_channels;
} sm_link;
void sm_link_retain(sm_link *link);
void sm_link_release(sm_link *link);
/* Of a reset that failed: as give_up, but peers are told in any case. */
void sm_link_spoil(sm_link *link, const symmem_error_record *record);
/* Poisons every link of the context (finalise: pending work gives up). */
void sm_link_poison(sm_link *link, const symmem_error_record *record);
/* Poisons this one, unless it is poisoned, and tells the peers: an operation of this rank ended in
 * the middle. */
void sm_link_give_up(sm_link *link, const symmem_error_record *record);

struct symmem_handle {
    atomic_int references;
    sm_link *link; /* counted */
    size_t offset; /* of the rendezvous pointer from the allocation's base */
};
/* NULL: INVALID_ARGUMENT; after finalise: NOT_INITIALISED. */
symmem_status sm_handle_check(const symmem_handle *handle, const char *operation);

/* --- streams (stream.c, graph.c) ---------------------------------------------------- */

struct symmem_stream {
    sm_node node;
    symmem_context *context; /* an instance user until native is destroyed; counted */
    void *native;            /* NULL after finalise */
    int32_t device;
    bool capturing; /* began a capture that has not ended */
};
struct symmem_event {
    sm_node node;
    symmem_context *context;
    void *native;
    int32_t device;
};
struct symmem_graph {
    sm_node node;
    symmem_context *context;
    void *native;
    int32_t device;
    sm_turn turn;
    void *done_event; /* native, recorded after each launch; NULL before the first */
    sm_node links;    /* what its operations use */
    uint64_t number;  /* under which they are noted */
    sm_node launched; /* of context->launched */
};
/* Checks that stream is NULL or usable, of this context, and of this device unless that is -1. */
symmem_status sm_stream_check(const symmem_context *context, const symmem_stream *stream,
                              int32_t device, const char *operation);
/* Before an operation on the link is captured. */
symmem_status sm_capture_note(const sm_link *link, uint64_t capture, const char *operation);
/* Whether launches of graphs with operations on the link are pending. */
symmem_status sm_graph_pending(const sm_link *link, const char *operation, bool *pending_p);
/* The stream is destroyed: another one may have its second stream, unless work of it may be under
 * way there: what that waits for is nothing to other streams. */
void sm_second_stream_leave(symmem_context *context, const symmem_stream *first, bool at_rest);
/* One that the context made for itself, with work that may be under way: not waited for. */
void sm_stream_give_up(symmem_stream *stream);
/* Frees the shells of the streams that the context made for itself. */
void sm_second_streams_free(symmem_context *context);
/* By finalise: ends streams, graphs and events natively; the shells stay. */
void sm_stream_destroy_all(symmem_context *context);

#endif
