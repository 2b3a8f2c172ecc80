/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the CPU emulation share. Nothing here is installed.
 *
 * Locking order: instance->lock, then one stream's or one mark's lock. No lock is held while an
 * operation runs or while a reference of the core is released.
 */
#ifndef SYMMEM_BACKEND_SHM_H
#define SYMMEM_BACKEND_SHM_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <symmem/backend.h>

#include "cpu/matmul.h"
#include "cpu/reduce.h"

#define SHM_MAX_DEVICES 1024
#define SHM_MAX_REFS 6
/* Above this size the data takes longer than a barrier. */
#define SHM_EAGER_BYTES ((size_t)8 << 10)

typedef struct shm_instance shm_instance;
typedef struct shm_segment shm_segment;
typedef struct shm_stream shm_stream;
typedef struct shm_mark shm_mark;
typedef struct shm_event shm_event;
typedef struct shm_capture shm_capture;
typedef struct shm_multicast shm_multicast;
typedef struct shm_op shm_op;

/* The one exported symbol. */
SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);

/* One per context. */
struct shm_instance {
    const symmem_host *host;
    const symmem_clock *clock; /* the host's, which outlives the instance */
    int32_t rank;              /* of the context */
    int32_t world_size;
    int32_t device_count;
    int32_t core_count;      /* that this process may run on */
    int32_t multicast_slots; /* per device, 0: none has multicast */
    bool can_seal;           /* so peers must have sealed what they share */
    symmem_cpu_isa isa;      /* of the loops; SYMMEM_CPU_BEST: the machine's best */
    /* guards everything below, and fields of streams and events that say so */
    pthread_mutex_t lock;
    pthread_cond_t stream_gone;
    shm_stream *streams;
    pthread_mutex_t busy_lock; /* taken after any other; guards the next */
    shm_stream *busy; /* streams with work, so that a wait for a device skips the idle ones */
    bool closed;      /* `host` no longer exists, and the last stream frees the instance */
    shm_capture *captures;
    uint64_t last_capture_id;
    shm_multicast *multicasts;
    int32_t *slots_used;       /* [device] */
    uint64_t granted;          /* bytes that may be allocated until then without another check */
    uint64_t granted_until_ns; /* CLOCK_MONOTONIC */
    _Atomic uint64_t unlimited_until_ns; /* until then no control group is queried */
    _Atomic uint64_t lockless_until_ns;  /* until then the lock is not waited for */
    const char *root; /* a prefix of the paths of what limits memory; "" except in tests */
    pthread_mutex_t blas_lock;
    bool blas_asked; /* with blas_lock; once true, blas and this are constant */
    bool blas_found;
    symmem_cpu_blas blas;
};

/* --- error.c ------------------------------------------------------------------------ */

/* Describes a failed system call and returns the status for its errno. */
symmem_status shm_fail_errno(const symmem_host *host, int system_errno, const char *operation,
                             const char *what);
/* Runs the failpoint `name`, see symmem_host.point. It is one branch if none is active. */
static inline symmem_status shm_failpoint(const symmem_host *host, const char *name) {
    return __builtin_expect(host->has_points, false) ? host->point(host, name) : SYMMEM_OK;
}
/* Runs a failpoint that only notifies. Its name ends in '*'. */
static inline void shm_failpoint_notify(const symmem_host *host, const char *name) {
    if (__builtin_expect(host->has_points, false))
        (void)host->point(host, name);
}
symmem_status shm_out_of_memory(const symmem_host *host, const char *operation);
/* Appends to the message of the failure that was just described, as far as the core can. */
void shm_explain(const symmem_host *host, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- wait.c: time ------------------------------------------------------------------- */

/* Returns the host's replacement for CLOCK_MONOTONIC. NULL: none, or an older core. */
static inline const symmem_clock *shm_clock(const symmem_host *host) {
    return host->size >= offsetof(symmem_host, clock) + sizeof host->clock ? host->clock : NULL;
}
uint64_t shm_now_ns(const symmem_clock *clock);
/* Returns 0 (none) for 0. */
uint64_t shm_deadline_ns(const symmem_clock *clock, uint32_t timeout_ms);
int shm_cond_init(pthread_cond_t *cond);
/* Returns false once the deadline (0: none) has passed. */
bool shm_cond_wait(const symmem_clock *clock, pthread_cond_t *cond, pthread_mutex_t *lock,
                   uint64_t deadline_ns);
/* With the lock. The condition of the waiting threads may have become true. */
void shm_cond_wake(const symmem_clock *clock, pthread_cond_t *cond);

/* --- segment.c: mapped shared memory ------------------------------------------------ */

/* One mapping, used by any number of ranks of this process. Constant but for the first two. */
struct shm_segment {
    shm_segment *next;   /* with the lock of segment.c */
    int reference_count; /* with the lock of segment.c */
    int fd;              /* for exports; -1 where imported */
    void *base;
    size_t bytes; /* whole pages */
    dev_t file_device;
    ino_t file_number;
};

/* Makes zeroed memory of at least `bytes` bytes whose pages are allocated. */
symmem_status shm_segment_create(shm_instance *instance, size_t bytes, const char *operation,
                                 shm_segment **segment_p);
/* Gets the memory behind share->fd: this process's mapping of it, or a new one. */
symmem_status shm_segment_import(shm_instance *instance, const symmem_share *share, size_t bytes,
                                 const char *operation, shm_segment **segment_p);
/* Fills *share with a descriptor of its own. */
symmem_status shm_segment_export(shm_instance *instance, shm_segment *segment,
                                 const char *operation, symmem_share *share);
void shm_segment_release(shm_segment *segment);
/* Rounds up to whole pages. Returns false on overflow. */
bool shm_round_to_pages(size_t bytes, size_t *rounded_p);

/* backing.c: returns a descriptor of `bytes` allocated bytes. The file has no name. */
symmem_status shm_backing_create(shm_instance *instance, size_t bytes, const char *operation,
                                 int *fd_p);
bool shm_backing_usable(char *reason, size_t capacity);
/* Returns whether no process can shorten it. can_seal: whether new memory can be sealed. */
bool shm_backing_is_sealed(int fd);
bool shm_backing_can_seal(void);

/* --- cgroup.c ----------------------------------------------------------------------- */

/* The narrowest of several limits. */
typedef struct shm_memory_left {
    uint64_t left;
    uint64_t limit;       /* 0: not known */
    char where[PATH_MAX]; /* the group's folder; "": no group */
    /* Scratch of the search: a file's path, a line of one, and this process's groups of either
     * version ("": none). It is too large for a stack. */
    char path[PATH_MAX], line[PATH_MAX], first[PATH_MAX], second[PATH_MAX];
} shm_memory_left;

/* No group has a limit, but `left` bytes are available. */
static inline void shm_memory_left_set(shm_memory_left *memory, uint64_t left) {
    memory->left = left;
    memory->limit = 0;
    memory->where[0] = '\0';
}

/* Gets what the control groups of this process leave it of memory, and of processes and threads.
 * The file cache counts as free if `wanted` bytes are not available without it. Returns false if no
 * group has a limit. */
bool shm_cgroup_memory(const char *root, uint64_t wanted, shm_memory_left *memory);
bool shm_cgroup_tasks(const char *root, shm_memory_left *memory);

/* --- memory_budget.c --------------------------------------------------------------- */

#define SHM_MAX_PIECE ((uint64_t)4 << 20)
#define SHM_MIN_PIECE ((uint64_t)64 << 10)

/* Memory that is being allocated, in pieces. */
typedef struct shm_reservation {
    shm_instance *instance;
    shm_memory_left memory; /* as of the latest check */
    uint64_t granted;
    uint64_t until_ns;
    int lock_fd;
} shm_reservation;

void shm_reservation_begin(shm_reservation *reservation, shm_instance *instance, uint64_t bytes);
/* Returns how many of the remaining `bytes` may be allocated now, in one or more parts. 0: they are
 * not available; memory.left says how many are. */
uint64_t shm_reservation_grant(shm_reservation *reservation, uint64_t bytes);
void shm_reservation_took(shm_reservation *reservation, uint64_t bytes);
void shm_reservation_end(shm_reservation *reservation);

/* --- connectivity.c ----------------------------------------------------------------- */

symmem_status shm_connectivity(void *instance, const char *connection, int32_t device_count,
                               int32_t *matrix);

/* --- memory.c ----------------------------------------------------------------------- */

symmem_status shm_memory_alloc(void *instance, int32_t device, size_t bytes, symmem_memory *memory);
void shm_memory_release(void *instance, symmem_memory *memory);
symmem_status shm_memory_share(void *instance, symmem_memory *memory, symmem_share *share);
void shm_memory_unshare(void *instance, symmem_share *share);
symmem_status shm_memory_map(void *instance, int32_t device, const symmem_share *share,
                             size_t bytes, symmem_memory *memory);

/* --- operations (op.c, ops.c) ------------------------------------------------------ */

/* One operation with its arguments by value. It runs at once, waits in a stream, or is captured. */
struct shm_op {
    shm_op *next;
    /* Returns OK or a status with *record_p filled. */
    symmem_status (*run)(const shm_op *op, symmem_error_record *record_p);
    shm_instance *instance;
    shm_stream *report;          /* keeps a failure; NULL: the stream that runs it */
    shm_mark *mark;              /* of event operations; referenced */
    shm_stream *runner;          /* the stream whose worker runs it; NULL: the caller does */
    const char *operation;       /* its name in a record or fault */
    symmem_composite *composite; /* see symmem_exec; NULL in one that runs now */
    uint32_t step;
    bool loose, first;
    bool reports_itself; /* a signal operation, whose failure has already gone to the core */
    union {
        struct {
            const symmem_peers *peers;
            int32_t rank;
            int32_t channel;
            uint32_t timeout_ms;
            symmem_call_id call;
            const char *operation; /* for the fault */
        } signal;
        struct {
            const symmem_peers *peers;
            int32_t channel;
            uint32_t timeout_ms;
            symmem_call_id id;
            symmem_collective call;
        } collective;
        struct {
            void *dst;
            const void *src;
            size_t bytes;
            const char *operation; /* for the record */
        } copy;
        struct {
            void *dst;
            size_t count;
            uint32_t value;
        } fill;
        struct {
            const symmem_peers *peers;
            size_t offset;
            const void *src;
            size_t bytes;
            const char *operation; /* for the record */
        } store;
        struct {
            const symmem_peers *peers;
            size_t offset;
            void *dst;
            size_t count;
            symmem_dtype dtype;
            symmem_reduce_op op;
        } reduce;
        struct {
            void (*fn)(void *arg);
            void *arg;
        } call;
        struct {
            symmem_matmul product;
            uint32_t timeout_ms;
        } matmul;
        symmem_strided_copy strided;
        symmem_local_reduce local;
    } u;
    int32_t ref_count;
    symmem_ref refs[SHM_MAX_REFS];
};

/* Runs a failpoint of a running operation. A failure is described in *record_p. */
symmem_status shm_op_failpoint_slow(const shm_op *op, const char *name, const char *operation,
                                    symmem_error_record *record_p);
static inline symmem_status shm_op_failpoint(const shm_op *op, const char *name,
                                             const char *operation, symmem_error_record *record_p) {
    if (__builtin_expect(!op->instance->host->has_points, true))
        return SYMMEM_OK;
    return shm_op_failpoint_slow(op, name, operation, record_p);
}
/* Runs the operation in a stream, unless it is a step of a composite operation that has failed. The
 * stream is the one that reports a failure. */
symmem_status shm_op_run(const shm_op *op, shm_stream *stream, symmem_error_record *record_p);
/* Makes a heap copy with references of its own. Returns NULL without memory. */
shm_op *shm_op_clone(const shm_op *op);
void shm_op_free(shm_op *op); /* gives the references back */
void shm_op_free_list(shm_op *first);
/* Returns the operation's name in records: exec's name for it, or its own. */
static inline const char *shm_operation(const symmem_exec *exec, const char *own) {
    return exec->operation ? exec->operation : own;
}
/* Initializes the common fields. Most of the rest are other operations' arguments. */
static inline void shm_op_init(shm_op *op, shm_instance *instance,
                               symmem_status (*run)(const shm_op *, symmem_error_record *)) {
    op->next = NULL;
    op->run = run;
    op->instance = instance;
    op->report = NULL;
    op->mark = NULL;
    op->runner = NULL;
    op->reports_itself = false;
    op->ref_count = 0;
    op->composite = NULL;
    op->step = 0;
}
/* Runs *op as exec says: now, later in its stream, or in each launch of the capture's graph. */
symmem_status shm_submit(shm_op *op, const symmem_exec *exec, const char *operation);
/* Queues or captures a clone that the stream or capture then owns. With instance->lock. */
void shm_route_locked(shm_stream *stream, shm_op *op);

symmem_status shm_copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                       const symmem_exec *exec);
symmem_status shm_memset32(void *instance, int32_t device, void *dst, uint32_t value, size_t count,
                           const symmem_exec *exec);
symmem_status shm_write_value32(void *instance, int32_t device, void *dst, uint32_t value,
                                const symmem_exec *exec);
symmem_status shm_host_fn(void *instance, void *stream, void (*fn)(void *arg), void *arg);

/* --- matmul.c, blas.c --------------------------------------------------------------- */

symmem_status shm_matmul(void *instance, int32_t device, const symmem_matmul *product,
                         const symmem_exec *exec);
symmem_status shm_copy_strided(void *instance, int32_t device, const symmem_strided_copy *copy,
                               const symmem_exec *exec);
symmem_status shm_reduce_local(void *instance, int32_t device, const symmem_local_reduce *reduce,
                               const symmem_exec *exec);
/* Returns NULL if there is none. */
const symmem_cpu_blas *shm_blas(shm_instance *instance);
/* Called when the instance opens. Returns INVALID_ARGUMENT if the requested library is unusable. */
symmem_status shm_blas_read_setting(shm_instance *instance);

/* --- stream.c ----------------------------------------------------------------------- */

struct shm_stream {
    shm_instance *instance;
    int32_t device;
    /* with instance->lock */
    shm_stream *next, *previous;
    int32_t reference_count; /* the owner, the worker, and waiting threads */
    shm_capture *capture;    /* NULL: not capturing */
    int32_t branch;          /* in the capture */
    /* with lock */
    pthread_mutex_t lock;
    pthread_cond_t work; /* for the worker */
    pthread_cond_t done; /* for all other threads */
    shm_op *first;
    shm_op *last;
    uint64_t enqueued;
    uint64_t completed;
    /* with instance->busy_lock */
    shm_stream *next_busy, *previous_busy;
    /* with lock again */
    bool stopping;
    bool failed;
    symmem_error_record failure; /* the first since the last synchronize */
    pthread_t worker;
};

/* With its last stream, or when it closes and has none. */
void shm_instance_free(shm_instance *self);
/* Appends a list of `count` operations. */
void shm_stream_push(shm_stream *stream, shm_op *first, shm_op *last, uint64_t count);

symmem_status shm_stream_create(void *instance, int32_t device, void **stream_p);
void shm_stream_destroy(void *instance, void *stream);
/* Returns whether the stream was destroyed. Then waits that involve no peer give up. */
bool shm_stream_stopping(shm_stream *stream);
symmem_status shm_stream_synchronize(void *instance, void *stream, uint32_t timeout_ms,
                                     symmem_error_record *record_p);
symmem_status shm_stream_query(void *instance, void *stream, bool *idle_p);
symmem_status shm_device_synchronize(void *instance, int32_t device, uint32_t timeout_ms);

/* --- event.c ------------------------------------------------------------------------ */

/* One record of an event: a point that a stream reaches once. */
struct shm_mark {
    atomic_int reference_count;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached; /* with lock */
    /* Set before any other thread can see the mark. capture_id 0: recorded in a running stream. */
    uint64_t capture_id;
    int32_t branch;
    int32_t index;  /* in the branch */
    int32_t record; /* number among the capture's records */
};

struct shm_event {
    shm_mark *mark; /* of the latest record, NULL: never; with instance->lock */
};

shm_mark *shm_mark_create(void); /* NULL without memory */
shm_mark *shm_mark_retain(shm_mark *mark);
void shm_mark_release(shm_mark *mark); /* NULL allowed */
symmem_status shm_run_record(const shm_op *op, symmem_error_record *record_p);
symmem_status shm_run_wait(const shm_op *op, symmem_error_record *record_p);

symmem_status shm_event_create(void *instance, int32_t device, void **event_p);
void shm_event_destroy(void *instance, void *event);
symmem_status shm_event_record(void *instance, void *event, void *stream);
symmem_status shm_stream_wait_event(void *instance, void *stream, void *event);
symmem_status shm_event_synchronize(void *instance, void *event, uint32_t timeout_ms);
symmem_status shm_event_query(void *instance, void *event, bool *reached_p);

/* --- capture.c, graph.c ------------------------------------------------------------- */

/* What one stream of a capture recorded. */
typedef struct shm_branch {
    shm_stream *stream; /* NULL once destroyed */
    shm_op *first;
    shm_op *last;
    int32_t count;
} shm_branch;

struct shm_capture { /* with instance->lock until it has ended */
    shm_capture *next;
    uint64_t id;
    shm_branch *branches; /* 0 is the origin's */
    int32_t branch_count;
    int32_t record_count;
    bool broken; /* a joined stream was destroyed */
};

/* Appends to the branch of a capturing stream. With instance->lock. */
void shm_capture_append_locked(shm_stream *stream, shm_op *op);
/* Makes a stream part of the running capture `id`. With instance->lock. */
symmem_status shm_capture_join_locked(shm_stream *stream, uint64_t id);
/* The stream is destroyed. Ends its own capture and breaks another stream's. */
void shm_capture_abandon(shm_stream *stream);

symmem_status shm_capture_begin(void *instance, void *stream);
symmem_status shm_capture_end(void *instance, void *stream, void **graph_p);
symmem_status shm_capture_id(void *instance, void *stream, uint64_t *id_p);
/* Takes ownership of the capture's branches. On failure the capture keeps them. */
symmem_status shm_graph_create(shm_instance *instance, int32_t device, shm_capture *capture,
                               void **graph_p);
symmem_status shm_graph_launch(void *instance, void *graph, void *stream);
void shm_graph_destroy(void *instance, void *graph);

/* --- signals.c, wait.c -------------------------------------------------------------- */

typedef _Atomic uint32_t shm_word;

/* Sleepers on this many channels are woken when the state is poisoned. The others find out at their
 * next tick. */
#define SHM_WAKE_CHANNELS 256

/* The start of each rank's signal state. All zero at first. signals.c describes the rest. */
typedef struct shm_signal_header {
    shm_word sleepers; /* threads of this rank that sleep in the kernel, on any word */
    shm_word poisoned;
    /* processor on which this rank last began to wait, plus 1; 0: it never waited */
    shm_word processor;
    shm_word no_yield_waits; /* in this many future waits the rank does not yield to others */
    shm_word slept[SHM_WAKE_CHANNELS / 32]; /* bit c: a thread has slept on channel c */
    uint32_t reserved[4];                   /* to the next cache line */
} shm_signal_header;

typedef enum shm_seen { SHM_READY, SHM_MISSING, SHM_BROKEN } shm_seen;

/* A wait for one rank, or for each in order. */
typedef struct shm_wait shm_wait;
struct shm_wait {
    const symmem_peers *peers;
    const char *operation;
    int32_t channel;
    int32_t rank; /* -1: all but this rank */
    uint32_t epoch;
    int32_t core_count; /* that this process may run on */
    uint32_t timeout_ms;
    uint64_t start_ns; /* 0: the clock is read when the wait does not end at once */
    /* the word that changes when `rank` is ready */
    shm_word *(*word)(const shm_wait *wait, int32_t rank);
    /* Takes what is waited for, if it is there. Otherwise *value_p gets the word's value. */
    shm_seen (*attempt)(const shm_wait *wait, int32_t rank, uint32_t *value_p);
    /* Looks without taking. */
    bool (*peek)(const shm_wait *wait, int32_t rank);
};

/* Waits. A failure's *fault_p is complete but not yet reported. */
symmem_status shm_wait_run(shm_wait *wait, symmem_fault *fault_p);
/* Describes a failure of the whole operation that occurred while waiting for `awaited_rank` (-1:
 * before or between waits). Returns `status`. */
symmem_status shm_wait_fault(const shm_wait *wait, symmem_status status, int32_t failed_rank,
                             int32_t awaited_rank, symmem_fault *fault_p);
/* Returns whether a thread of the rank with that header has slept on that channel, below
 * SHM_WAKE_CHANNELS. */
bool shm_has_slept(const shm_signal_header *header, int32_t channel);
/* `word` has changed. Wakes threads of `rank` that sleep on it. */
void shm_wake(const symmem_peers *peers, int32_t rank, shm_word *word);

/* Prepares a barrier of all ranks on a channel, for a barrier operation or as part of a
 * collective. */
void shm_sync_prepare(const shm_instance *instance, const symmem_peers *peers,
                      const char *operation, int32_t channel, uint32_t timeout_ms, shm_wait *wait);
/* Release, then acquire. Compares calls if *id is one. A failure's *fault_p is complete but not yet
 * reported. */
symmem_status shm_sync(shm_wait *wait, const symmem_call_id *id, symmem_fault *fault_p);
/* Returns the SYMMEM_CPU_SPLIT_TABLE_WORDS words of rank `owner` for the collective on the
 * channel. */
uint64_t *shm_split_table(const symmem_peers *peers, int32_t owner, int32_t channel);
/* Returns rank `owner`'s eager buffer for the next barrier on the channel. It has
 * shm_eager_bytes(channel) bytes, which may be 0. */
void *shm_eager_buffer(const symmem_peers *peers, int32_t owner, int32_t channel);
size_t shm_eager_bytes(int32_t channel);

size_t shm_signal_bytes(void *instance, int32_t world_size, int32_t channel_count,
                        size_t block_bytes);
symmem_status shm_peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                             void **pads_dev_p);
void shm_peers_close(void *instance, symmem_peers *peers);
symmem_status shm_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                          const symmem_exec *exec);
symmem_status shm_put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                             int32_t channel, const symmem_exec *exec);
symmem_status shm_wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                              int32_t channel, const symmem_exec *exec);
symmem_status shm_signal_reset(void *instance, const symmem_peers *peers);
void shm_signal_poison(void *instance, const symmem_peers *peers);

/* --- collective.c ------------------------------------------------------------------- */

symmem_status shm_collective(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_collective *call, const symmem_exec *exec);

/* --- multicast.c ---------------------------------------------------------- */

symmem_status shm_multicast_create(void *instance, int32_t device, int32_t world_size, size_t bytes,
                                   void **object_p, symmem_share *share);
symmem_status shm_multicast_attach(void *instance, int32_t device, const symmem_share *share,
                                   size_t bytes, void **multicast_p);
symmem_status shm_multicast_bind(void *instance, void *multicast, symmem_memory *own,
                                 const symmem_peers *peers, void **address_p);
void shm_multicast_release(void *instance, void *multicast_or_object);
symmem_status shm_multimem_store(void *instance, const symmem_peers *peers, void *address,
                                 const void *src, size_t bytes, const symmem_exec *exec);
symmem_status shm_multimem_ld_reduce(void *instance, const symmem_peers *peers, const void *address,
                                     void *dst, size_t count, symmem_dtype dtype,
                                     symmem_reduce_op op, const symmem_exec *exec);

#endif
