/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the CUDA backend share. */
#ifndef SYMMEM_CUDA_INTERNAL_H
#define SYMMEM_CUDA_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <symmem/backend.h>

#include "cuda/signal.h"
#include "driver/driver.h"

#define CUDA_MAX_DEVICES 64
#define CUDA_MAX_REFS 6
#define CUDA_NS_PER_MS 1000000ull

/* A private stream, for one call at a time: two calls without a stream never wait for each other.
 */
typedef struct cuda_lane {
    struct cuda_lane *next;
    CUstream native;
} cuda_lane;

/* What needs no peers: products, copies, reductions. */
typedef struct cuda_local_kernels {
    CUfunction product[SYMMEM_DTYPE_COUNT]; /* NULL: no product of those */
    CUfunction finish, finish_double;
    CUfunction await_chunk;
    CUfunction copy_strided;
    CUfunction reduce[SYMMEM_DTYPE_COUNT];
} cuda_local_kernels;

/* Of what is common, allreduce_fast.cuh. */
typedef struct cuda_plain_kernels {
    CUfunction lines[2][3]; /* long and short rounds; of 2, 4 and 8 ranks at most */
    CUfunction dealt[2];    /* likewise; of two ranks that reduce a part each */
    CUfunction chunks;
    CUfunction blocks_of_two, blocks, wide;
} cuda_plain_kernels;

typedef struct cuda_kernels {
    CUfunction barrier, near_barrier; /* the latter NULL: none */
    CUfunction put_signal;
    CUfunction wait_signal;
    CUfunction collective[SYMMEM_DTYPE_COUNT];    /* those that reduce */
    CUfunction collective_bytes;                  /* those that only move */
    cuda_plain_kernels plain[SYMMEM_DTYPE_COUNT]; /* NULL: none of those */
    CUfunction moves[2];                          /* by lines, in long and in short rounds */
    CUfunction chunked_moves;
    CUfunction show_words, move_part;
    cuda_local_kernels local;
} cuda_kernels;

struct cuda_mapping;

#define CUDA_KEPT_IMPORTS 16
#define CUDA_KEPT_EVENTS 128

/* Opened when it is first used, so that ranks do not load every device of the host. */
typedef struct cuda_device {
    CUdevice id;
    CUcontext context;             /* the primary one, retained; NULL: not open */
    unsigned long long context_id; /* 0: not known */
    bool kept;                     /* until the process ends */
    bool described;                /* the next one is filled */
    symmem_device_info info;
    cuda_kernels kernels;
    atomic_int fabric, fabric_failures;              /* fabric.c */
    struct cuda_mapping *open_granule;               /* suballoc.c; NULL: none */
    uint64_t series;                                 /* of its granules; 0: not known yet */
    struct cuda_mapping *imports[CUDA_KEPT_IMPORTS]; /* imports.c; NULL: none */
    unsigned int next_import;
    CUmemoryPool scratch;             /* NULL: not made yet */
    CUstream control;                 /* poisons and resets, in the order of the calls; in no
                                         queue of other streams */
    atomic_bool late;                 /* what it was last waited for did not come in time */
    cuda_lane *lanes;                 /* idle ones */
    CUevent events[CUDA_KEPT_EVENTS]; /* inflight.c; under the instance's lock */
    int32_t event_count;
} cuda_device;

/* Pinned memory in pieces of two sizes: the driver's own calls may wait for running kernels. */
#define CUDA_PIECE_BYTES 256
#define CUDA_UNIT_BYTES 65536

typedef struct cuda_pending cuda_pending;
typedef struct cuda_capture cuda_capture;
typedef struct cuda_ending cuda_ending;
typedef struct cuda_staging cuda_staging;
typedef struct cuda_graph cuda_graph;
typedef struct cuda_blas cuda_blas;
typedef struct cuda_mapping cuda_mapping;

typedef struct cuda_instance {
    const symmem_host *host;
    cuda_driver driver;
    int32_t rank, world_size;
    int32_t device_count;
    cuda_blas *blas; /* with a lock of its own */
    /* Held while finished work is looked after, recursively: releasing a reference comes back
     * here. Taken before `lock`. */
    pthread_mutex_t collecting;
    /* Held while a device is opened. Taken before `lock`, and never under it or under what a call
     * on another device needs. */
    pthread_mutex_t opening;
    /* Held while a stream ends, and while events are recorded on all of them, where the driver may
     * let the caller wait for a place in one that is full: for that, not under `lock`, which the
     * watcher needs to end the kernels that fill it. Taken before `lock`. */
    pthread_mutex_t ending;
    /* Over all below. Of the core's entries only peer_state and is_poisoned are called under it. */
    pthread_mutex_t lock;
    pthread_cond_t work;
    cuda_device devices[CUDA_MAX_DEVICES];
    cuda_pending *pending, **pending_end;
    uint64_t looks;                /* at pending work */
    uint64_t last_number;          /* of pending work */
    _Atomic int32_t pending_count; /* until the last of it is done, failures told */
    struct cuda_stream *streams;
    cuda_capture *captures;
    cuda_capture *adopted;         /* foreign_capture.c */
    _Atomic int32_t adopted_count; /* until the last of it is done, as pending_count */
    bool looking;                  /* at adopted ones; under `collecting` */
    bool closing, left; /* left: work outlived close, and the watcher ends the instance after it */
    pthread_t watcher;
    struct cuda_multicast_state *multicast; /* multicast.c; NULL: not in use */
    void *extension; /* of a backend that is this one but for some entries; NULL otherwise */
    void (*end_extension)(struct cuda_instance *instance); /* no work is left; NULL allowed */
    /* Of an operation of the extension's: neither its fault nor its peers are its any more, though
     * on a device that is lost no callback has said so. NULL allowed. */
    void (*forget_fault)(struct cuda_instance *instance, const symmem_cuda_fault *fault);
    uint32_t late_ms; /* launch_timeout.c */
} cuda_instance;

typedef struct cuda_stream {
    struct cuda_stream *next;
    cuda_instance *instance;
    CUstream native;
    int32_t device;
    bool wrapped;
    cuuint64_t capture;         /* the one that began here; 0: none */
    int32_t users;              /* under the instance's lock: the owner, and pending work */
    bool given_up;              /* likewise: destroyed, and nobody is to wait for chunks any more */
    uint64_t busy_at;           /* likewise: the last look at which some of its work was not over */
    _Atomic uint64_t notes;     /* of its work so far */
    symmem_error_record record; /* the first failure; status OK: none. Under the same lock */
} cuda_stream;

/* A signal operation that a kernel runs, and what the host needs to tell of its failure. Also a
 * product's waiting for chunks, which knows no peers. */
typedef struct cuda_signal_op {
    const symmem_peers *peers;     /* NULL: chunks are waited for */
    const cuda_instance *instance; /* then */
    int32_t chunk_count;
    const char *operation;
    int32_t channel;
    symmem_call_id call;
    symmem_cuda_fault *fault;
} cuda_signal_op;

/* What work needs until it is over, beside references; each NULL: none. */
typedef struct cuda_needs {
    const cuda_signal_op *signal; /* its fault */
    cuda_graph *graph;
    cuda_staging *staging;
    bool told; /* of its failure, which nobody looks for any more */
} cuda_needs;

/* What a capture holds, and later its graph. */
typedef struct cuda_captured {
    struct cuda_captured *next;
    cuda_stream *stream; /* kept: what comes later asks whether it is on the same one */
    symmem_ref refs[CUDA_MAX_REFS];
    int32_t ref_count;
    cuda_signal_op signal; /* fault NULL: another operation */
    cuda_staging *staging;
    /* In an adopted capture: */
    uint64_t failed_ns;                 /* when its failure was first seen; 0: it has not failed */
    struct cuda_captured *next_watched; /* the first one of the next peers */
} cuda_captured;

struct cuda_capture {
    cuda_capture *next;
    cuuint64_t id;
    cuda_captured *held, **held_end, *held_last;
    /* Adopted; all NULL where this library began it. */
    cuda_stream *stream;    /* whose calls tell of failures */
    cuda_ending *ending;    /* of its graph */
    cuda_captured *watched; /* one of each peers */
    bool settled;           /* its graph is gone, and all has been told; under `collecting` */
};

struct cuda_graph {
    int32_t users;    /* under the instance's lock: the owner, and launches */
    bool is_launched; /* likewise: once more, and there is no note of that yet */
    int32_t device;
    CUgraphExec executable;
    cuda_captured *held;
};

/* Work of a stream that is not known to be over. */
struct cuda_pending {
    cuda_pending *next;
    CUevent done; /* NULL: the driver had none, and it is not over before the context is lost */
    bool ended;   /* and was waited for instead */
    int32_t device;
    cuda_stream *stream;
    cuda_graph *graph;
    uint64_t number; /* in the order of the calls */
    bool unordered;  /* another thread's note of later work may stand before it */
    /* Of a launch: what poisoned its handle in one before it of the same graph, NULL: nothing. */
    const cuda_captured *poisoned_by;
    cuda_staging *staging;
    cuda_signal_op signal; /* fault NULL: another operation */
    bool told;
    symmem_ref refs[CUDA_MAX_REFS];
    int32_t ref_count;
};

/* How the own device is linked with the others', for all-reduces by lines: links.c. */
typedef struct cuda_links {
    bool all_linked; /* by NVLink with each of them */
    bool take_turns; /* one of them is the same device */
} cuda_links;

/* The backend's part of symmem_peers. */
typedef struct cuda_peers {
    CUdeviceptr tables; /* buffers, pads and signals: world_size pointers each */
    symmem_cuda_control *control;
    cuda_links links;
    size_t block_bytes; /* of the memory that is shared, or what has as much signal state */
} cuda_peers;

/* links.c */
cuda_links cuda_links_find(const cuda_instance *instance, const symmem_peers *peers);
/* Tells all others, if all of them are linked with this one; in stream order. */
CUresult cuda_links_tell(const cuda_instance *instance, const symmem_peers *peers, cuda_links links,
                         CUstream native);
CUresult cuda_device_uuid(const cuda_driver *driver, int32_t device, CUuuid *uuid_p);

/* backend.c */
extern const symmem_backend cuda_table;
symmem_status cuda_fail(const cuda_instance *instance, CUresult result, const char *operation);
/* EMFILE or ENFILE if no descriptor is left, else 0: neither the driver nor NCCL says that this is
 * why it failed. */
int cuda_descriptors_error(void);
bool cuda_is_capture_error(CUresult result);
symmem_status cuda_no_memory(const cuda_instance *instance, const char *operation);
/* TIMEOUT: the device has not done in time what the call waited for. */
symmem_status cuda_late(const cuda_instance *instance, const char *operation);
symmem_status cuda_point(const cuda_instance *instance, const char *name);

/* device.c */
/* Makes the device's context current, opening the device if need be; the caller's comes back with
 * leave. In between this thread's calls break no capture of somebody else's. Pairs may nest. */
symmem_status cuda_enter(cuda_instance *instance, int32_t device, const char *operation);
bool cuda_reenter(const cuda_instance *instance, int32_t device); /* one that is open */
void cuda_leave(const cuda_instance *instance);
/* Likewise without a context, as far as the driver allows it. */
void cuda_relax(const cuda_driver *driver);
void cuda_restore(const cuda_driver *driver);
void cuda_devices_close(cuda_instance *instance);
/* The context is current. A lane with work under way is not given back but ended. */
CUresult cuda_lane_take(cuda_instance *instance, int32_t device, cuda_lane **lane_p);
void cuda_lane_give(cuda_instance *instance, int32_t device, cuda_lane *lane);
void cuda_lane_end(cuda_instance *instance, int32_t device, cuda_lane *lane);
CUdeviceptr cuda_address(const void *pointer);
uint64_t cuda_now_ns(void);
void cuda_sleep_ns(uint64_t ns);

/* image.c */
const void *cuda_image(void);

/* work.c: work of a device that knows no peers, on a stream or now */
typedef struct cuda_work {
    const char *operation;
    /* Enqueues it; what fails is described. The context is current. */
    symmem_status (*enqueue)(cuda_instance *instance, struct cuda_work *work, CUstream native);
    int32_t device;
    bool capturing;
    const uint64_t *failed; /* see cuda/product.h */
    cuda_signal_op signal;  /* fault NULL: none */
} cuda_work;
symmem_status cuda_work_run(cuda_instance *instance, cuda_work *work, const symmem_exec *exec);
/* So many blocks as `count` elements fill, up to a bound. */
symmem_status cuda_work_launch(cuda_instance *instance, const cuda_work *work, CUfunction kernel,
                               uint64_t count, void *args, CUstream native);
/* With the device's other kernels. */
CUresult cuda_local_load(const cuda_driver *driver, CUmodule module, cuda_local_kernels *local);

/* module.c */
typedef struct cuda_module { /* of one device; CUDA_MODULE_NONE: not loaded */
    pthread_mutex_t lock;    /* over all of it */
    CUmodule module;
    CUcontext context; /* that it was loaded into, and its id */
    unsigned long long context_id;
    int32_t users;
} cuda_module;

#define CUDA_MODULE_NONE                                                                           \
    { .lock = PTHREAD_MUTEX_INITIALIZER }

/* Loads own->module from `image` unless it is there. The context is current. *loaded_p, unless it
 * is NULL: it was loaded now, so functions that were found before are of another one. */
CUresult cuda_module_take(const cuda_driver *driver, cuda_module *own, CUcontext context,
                          unsigned long long context_id, const void *image, CUmodule *module_p,
                          bool *loaded_p);
/* Also without a context, if that is broken. */
void cuda_module_give(const cuda_driver *driver, cuda_module *own);
/* The same for who is not in the device's context. */
void cuda_module_give_in(cuda_instance *instance, int32_t device, cuda_module *own);

/* kernels.c */
/* The device's kernels, in its context, which is current, for as long as they are not given back.
 */
CUresult cuda_kernels_take(const cuda_driver *driver, int32_t device, int32_t rank,
                           CUcontext context, unsigned long long context_id,
                           cuda_kernels *kernels_p);
/* Also without a context, if that is broken. */
void cuda_kernels_give(const cuda_driver *driver, int32_t device, int32_t rank);
/* Whether several ranks of this process use the device, and so its context. */
bool cuda_kernels_are_shared(int32_t device);

/* scratch.c: memory for the time of a product, aligned to 256 bytes. The context is current. */
CUresult cuda_scratch_take(cuda_instance *instance, int32_t device, size_t bytes, CUstream native,
                           CUdeviceptr *at_p);
void cuda_scratch_give(const cuda_instance *instance, CUdeviceptr at, CUstream native);
void cuda_scratch_close(cuda_instance *instance);

/* local.c */
symmem_status cuda_copy_strided(void *instance, int32_t device, const symmem_strided_copy *copy,
                                const symmem_exec *exec);
symmem_status cuda_reduce_local(void *instance, int32_t device, const symmem_local_reduce *reduce,
                                const symmem_exec *exec);
/* product.c */
symmem_status cuda_matmul(void *instance, int32_t device, const symmem_matmul *product,
                          const symmem_exec *exec);

/* chunk_wait.c: a product whose input does not come */
/* As cuda_take_fault, of an operation without peers. */
symmem_status cuda_take_late(const cuda_signal_op *signal, symmem_error_record *record_p);
/* Tells the device that nobody waits any more, and that somebody does. */
void cuda_end_waiting(const cuda_signal_op *signal);
void cuda_go_on_waiting(const cuda_signal_op *signal);

/* stream_cache.c: the driver's streams. The device has been entered. */
void cuda_natives_open(cuda_instance *instance, int32_t device);
/* One without work; urgent: of the highest priority. */
CUresult cuda_native_take(cuda_instance *instance, int32_t device, bool urgent, CUstream *stream_p);
/* Ends one that was taken; work of its that still runs goes on. entered: false if the device could
 * not be; then one that is not kept is lost. */
void cuda_native_give(cuda_instance *instance, int32_t device, CUstream stream, bool entered);

/* pinned.c */
/* There is pinned memory between the two. Some device's context is current, here and below; at
 * leave, if it is not broken. */
CUresult cuda_pinned_join(const cuda_driver *driver);
void cuda_pinned_leave(const cuda_driver *driver);
/* CUDA_PIECE_BYTES, zeroed. To be given back, or lost until all have left. */
CUresult cuda_piece_take(const cuda_driver *driver, void **piece_p);
void cuda_piece_give(void *piece);
/* CUDA_UNIT_BYTES; likewise. */
CUresult cuda_unit_take(const cuda_driver *driver, void **unit_p);
void cuda_unit_give(void *unit);

/* staging.c: a stream's copies from and to ordinary host memory */
/* A CUmemorytype, or 0 of memory that the driver does not know. */
unsigned int cuda_memory_type(const cuda_driver *driver, CUdeviceptr address);
bool cuda_is_ordinary(const cuda_driver *driver, CUdeviceptr address);
/*
 * Enqueues the copy. *staging_p: what it needs until it is over, NULL if nothing; after a failure
 * too. The context is current.
 */
CUresult cuda_copy_enqueue(cuda_instance *instance, CUstream native, bool capturing,
                           CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                           cuda_staging **staging_p);
void cuda_staging_give(cuda_staging *staging); /* NULL allowed */
/* From now on nothing touches the ordinary memory, of a copy that fails; NULL allowed. */
void cuda_staging_give_up(cuda_staging *staging);
/* Enqueues a copy of up to CUDA_STAGED_BYTES to the device, for which it never waits: `bytes` are
 * the caller's again at once. *staging_p as above. */
#define CUDA_STAGED_BYTES 32768
CUresult cuda_staging_send(cuda_instance *instance, CUstream native, CUdeviceptr dst,
                           const void *bytes, size_t count, cuda_staging **staging_p);
/* Another way than the driver's copy to get bytes from one place to another, both of which the
 * device sees. */
typedef struct cuda_mover {
    CUresult (*move)(const cuda_instance *instance, const struct cuda_mover *mover, CUdeviceptr dst,
                     CUdeviceptr src, size_t bytes, CUstream native);
} cuda_mover;
/* As cuda_copy_enqueue, by `mover`; at most one end is ordinary memory. Pieces are multiples of 16
 * bytes but for the last. */
CUresult cuda_move_enqueue(cuda_instance *instance, CUstream native, CUdeviceptr dst,
                           CUdeviceptr src, size_t bytes, const cuda_mover *mover,
                           cuda_staging **staging_p);

/* fabric.c */
/* When the instance opens: INVALID_ARGUMENT if the setting is neither on nor off. */
symmem_status cuda_fabric_read_setting(const cuda_instance *instance);
/* Whether memory of a device that is open can be asked for with fabric handles. */
bool cuda_fabric_is_offered(cuda_instance *instance, int32_t device);
/* What was asked for with them ended so: it is worth asking without. */
bool cuda_fabric_may_be_why(CUresult result);
/* And that ended so. If it was good the driver is not asked for them again: at once if it refused
 * them, after some failures in a row if those may pass. */
void cuda_fabric_was_why(cuda_instance *instance, int32_t device, CUresult with, CUresult without);
void cuda_fabric_was_granted(cuda_instance *instance, int32_t device);
void cuda_fabric_export(const cuda_driver *driver, CUmemGenericAllocationHandle memory,
                        symmem_share *share);
/* PEER_ACCESS_UNSUPPORTED: it is of another fabric. */
CUresult cuda_fabric_import(const cuda_driver *driver, const symmem_share *share,
                            CUmemGenericAllocationHandle *memory_p);

/* memory.c */
symmem_status cuda_memory_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory);
void cuda_memory_release(void *instance, symmem_memory *memory);
/* Of a device's memory that is asked of the driver. */
CUmemAllocationProp cuda_memory_property(int32_t device, bool fabric);
/* Of own memory: the size that the driver gave it. */
size_t cuda_memory_mapped_bytes(const symmem_memory *memory);
CUmemGenericAllocationHandle cuda_memory_handle(const symmem_memory *memory);
symmem_status cuda_memory_export(void *instance, symmem_memory *memory, symmem_share *share);
void cuda_share_close(void *instance, symmem_share *share);
symmem_status cuda_memory_import(void *instance, int32_t device, const symmem_share *share,
                                 size_t bytes, symmem_memory *memory);

/* suballoc.c, imports.c: what they keep, at a device's end; of the granule also where memory is
 * short. The context is current, unless it is broken. */
void cuda_granule_close(cuda_instance *instance, int32_t device);
void cuda_imports_close(cuda_instance *instance, int32_t device);

/* inflight.c: work under way, its references and failures */
/* A note of work is made before the work is enqueued, which otherwise would have to be waited for
 * where there is no room for one. The context is current in all of these. */
symmem_status cuda_pending_make(cuda_stream *stream, const char *operation,
                                cuda_pending **pending_p);
/* Of work that did not come to be; NULL: nothing. */
void cuda_pending_drop(cuda_instance *instance, cuda_pending *pending);
/* Of work that is over; with the context. */
void cuda_kept_events_end(cuda_instance *instance, int32_t device);
/* After enqueueing: keeps references, watches the signal operation, and takes over what the work
 * needs, also where it fails, which is when the driver does not mark the end of the work. */
symmem_status cuda_pending_add(cuda_pending *pending, const symmem_exec *exec,
                               const cuda_needs *needs, const char *operation);
/* Of work that failed when a part of it was enqueued: waits for that, for as long as calls do that
 * have no limit of their own. False: the note keeps what it needs, or nobody knows what becomes of
 * it. */
bool cuda_pending_rest(cuda_pending *pending, const symmem_exec *exec, const cuda_needs *needs,
                       const char *operation);
/* A note for what is left behind, if it comes to that; NULL: no memory. */
cuda_pending *cuda_leaving_make(cuda_instance *instance, int32_t device);
void cuda_leaving_drop(cuda_pending *leaving);
/* Leaves what a stream has to do to the instance, as that of one that was destroyed, with what it
 * needs. Nothing is left where there is no note. */
void cuda_leave_behind(cuda_pending *leaving, CUstream native, const symmem_exec *exec,
                       const cuda_needs *needs, const char *operation);
/* Looks after all work that is over: failures are told, references released. */
void cuda_collect(cuda_instance *instance);
/* Whether this thread is at that: other calls wait for it, so what is released waits for nothing
 * that takes long. */
bool cuda_is_collecting(void);
/* Tells the device what the host knows of the peers. */
void cuda_watch_peers(const cuda_signal_op *signal);
/* Only who is lost. A reset has zeroed what the device was told before the core forgets its poison:
 * that must not be told once more by who watches while nothing is pending. */
void cuda_watch_lost(const cuda_signal_op *signal);
/* Builds the core's fault of what the kernel wrote, tells the core, and clears it. */
symmem_status cuda_take_fault(const cuda_signal_op *signal, symmem_error_record *record_p);
/* Likewise, and keeps its record for the stream if it is the first one. */
void cuda_look_for_fault(cuda_stream *stream, const cuda_signal_op *signal);
/* Of work that is over, or whose device is lost: nobody is to write to its fault any more. */
void cuda_forget_fault(cuda_instance *instance, const cuda_signal_op *signal);
/* Whether work failed because this rank's state was poisoned, by a failure that the core does not
 * know yet. */
bool cuda_is_consequence(const cuda_signal_op *signal);
/* Of work that is over and has not been told: for a while, until that failure has been. */
void cuda_await_cause(cuda_instance *instance, const cuda_signal_op *signal);
void cuda_stream_drop(cuda_stream *stream);

/* exit.c */
/* Each time that a library was loaded: what is registered last comes first. */
void cuda_await_at_exit(void);
/* Around what a thread of the backend's own does. False: the process ends, and it does nothing, nor
 * calls cuda_busy_end. */
bool cuda_busy_begin(void);
void cuda_busy_end(void);

/* watcher.c */
symmem_status cuda_watcher_start(cuda_instance *instance);
/* Without work; `leave`: work is left, and after it the watcher ends the instance. */
void cuda_watcher_stop(cuda_instance *instance);
void cuda_watcher_leave(cuda_instance *instance);
/* Gives all back that the instance has. */
void cuda_instance_end(cuda_instance *instance); /* backend.c */

/* copy.c */
symmem_status cuda_copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                        const symmem_exec *exec);
/* Of a copy on a stream whose enqueueing failed: what was made for it goes, or is kept. */
void cuda_copy_end_failed(cuda_instance *instance, cuda_pending *pending, const symmem_exec *exec,
                          const cuda_needs *needs, const char *operation);
symmem_status cuda_memset32(void *instance, int32_t device, void *dst, uint32_t value, size_t count,
                            const symmem_exec *exec);
symmem_status cuda_write_value32(void *instance, int32_t device, void *dst, uint32_t value,
                                 const symmem_exec *exec);

/* stream.c */
/* Until the stream's work so far has ended; not for capturing streams. */
CUresult cuda_wait_idle(cuda_instance *instance, CUstream native, uint32_t timeout_ms,
                        const cuda_signal_op *signal);
/* Without a limit, in a call of the user's, which tells him that it waits. */
CUresult cuda_wait_call(cuda_instance *instance, CUstream native);
/* Of the collective call of the user's that this thread is in; 0: none. */
uint64_t cuda_call_deadline(const symmem_host *host);
/* In such a call, until its deadline, but so that there is time to tell the
 * other ranks; NOT_READY then. Without one as before. */
CUresult cuda_wait_in_time(cuda_instance *instance, CUstream native);
symmem_status cuda_stream_create(void *instance, int32_t device, void **stream_p);
symmem_status cuda_stream_wrap(void *instance, int32_t device, void *native, void **stream_p);
void cuda_stream_destroy(void *instance, void *stream);
symmem_status cuda_stream_synchronize(void *instance, void *stream, uint32_t timeout_ms,
                                      symmem_error_record *record_p);
symmem_status cuda_stream_query(void *instance, void *stream, bool *idle_p);
symmem_status cuda_device_synchronize(void *instance, int32_t device, uint32_t timeout_ms);
symmem_status cuda_host_fn(void *instance, void *stream, void (*fn)(void *arg), void *arg);

/* event.c */
symmem_status cuda_event_create(void *instance, int32_t device, void **event_p);
void cuda_event_destroy(void *instance, void *event);
symmem_status cuda_event_record(void *instance, void *event, void *stream);
symmem_status cuda_stream_wait_event(void *instance, void *stream, void *event);
symmem_status cuda_event_synchronize(void *instance, void *event, uint32_t timeout_ms);
symmem_status cuda_event_query(void *instance, void *event, bool *reached_p);

/* graph.c */
symmem_status cuda_capture_begin(void *instance, void *stream);
symmem_status cuda_capture_end(void *instance, void *stream, void **graph_p);
/* CUDA_BROKEN_CAPTURE: of one that can only be ended. */
#define CUDA_BROKEN_CAPTURE UINT64_MAX
/* The context is current. */
CUresult cuda_capture_ask(const cuda_driver *driver, CUstream native, uint64_t *id_p);
symmem_status cuda_capture_id(void *instance, void *stream, uint64_t *id_p);
symmem_status cuda_graph_launch(void *instance, void *graph, void *stream);
void cuda_graph_destroy(void *instance, void *graph);
void cuda_graph_drop(cuda_instance *instance, cuda_graph *graph);
/* As cuda_pending_add, for a stream that captures. */
symmem_status cuda_captured_add(cuda_instance *instance, cuuint64_t id, const symmem_exec *exec,
                                const cuda_needs *needs, const char *operation);
/* What was captured of an operation before it failed: the program may launch the graph yet. The
 * record of that failure stays. */
void cuda_captured_rest(cuda_instance *instance, cuuint64_t id, const symmem_exec *exec);
void cuda_captured_free(cuda_captured *held);
/* Of this library or adopted; NULL: not known. The instance's lock is held. */
cuda_capture *cuda_capture_find(const cuda_instance *instance, cuuint64_t id);

/* foreign_capture.c: captures of the program's own */
/* As cuda_capture_id, before anything is captured that needs something: a capture that this library
 * did not begin is adopted. The context is current. */
symmem_status cuda_capture_join(cuda_instance *instance, cuda_stream *stream, const char *operation,
                                uint64_t *id_p);
/* Tells of failures in launches, and lets go what belonged to graphs that are gone. True: there is
 * something yet to be told, which was there at begin_ns. `collecting` is held. */
bool cuda_adopted_look(cuda_instance *instance, uint64_t begin_ns);
/* Lets all go. Nobody else uses the instance. */
void cuda_adopted_close(cuda_instance *instance);

/* connectivity.c */
symmem_status cuda_connectivity(void *instance, const char *connection, int32_t device_count,
                                int32_t *matrix);

/* signal.c */
/* A signal operation or collective: kernels on a stream, and what the host keeps of them. */
typedef struct cuda_launch {
    symmem_cuda_signal_args args;
    cuda_signal_op signal; /* the caller sets the operation's name, the rest is filled in */
    CUresult (*enqueue)(cuda_instance *instance, struct cuda_launch *launch, CUstream native);
    CUfunction kernel;
    unsigned int threads;
    bool begun; /* set by enqueue: a kernel is on its way, so a failure of the next is a fault */
    bool stays; /* kernels of it know no stop: without a stream it is waited for, however long */
    cuda_pending *leaving; /* without a stream: for what is withdrawn */
} cuda_launch;
/* Runs or enqueues it. */
symmem_status cuda_launch_run(cuda_instance *instance, const symmem_peers *peers, int32_t peer,
                              int32_t channel, const symmem_exec *exec, cuda_launch *launch);
CUresult cuda_launch_kernel(const cuda_instance *instance, CUfunction kernel, unsigned int blocks,
                            unsigned int threads, void *args, CUstream native);
unsigned int cuda_barrier_threads(int32_t world_size);
/* What a kernel of barrier_small.cuh gets; false: the launch is not for one. */
bool cuda_near_of(const cuda_launch *launch, symmem_cuda_near *near);
size_t cuda_signal_bytes(void *instance, int32_t world_size, int32_t channel_count,
                         size_t block_bytes);
symmem_status cuda_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                           const symmem_exec *exec);
symmem_status cuda_put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, const symmem_exec *exec);
symmem_status cuda_wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                               int32_t channel, const symmem_exec *exec);

/* launch_timeout.c */
/* Reads how long to wait for the device beyond a call's limit. */
symmem_status cuda_withdrawn_open(cuda_instance *instance);
/*
 * Until the kernels of a call without a stream are over; then the lane is given back. NOT_READY:
 * the device did not come to an end of them in time. Then the call was withdrawn and has failed,
 * with *status_p, and the fault and the lane are no more the caller's. The context is current.
 */
CUresult cuda_launch_wait(cuda_instance *instance, int32_t device, cuda_launch *launch,
                          const symmem_exec *exec, cuda_lane *lane, symmem_status *status_p);
/* Whether the device has yet to begin or to end kernels on `peers`: of a call that was withdrawn,
 * or failed in the middle, as a launch of a graph without a mark has. */
bool cuda_has_pending(cuda_instance *instance, const symmem_peers *peers);

/* collective.c */
symmem_status cuda_collective(void *instance, const symmem_peers *peers, int32_t channel,
                              const symmem_collective *call, const symmem_exec *exec);

/* How many blocks are to move them. */
unsigned int cuda_blocks_for(size_t bytes);

/* composite.c: parts of composed operations, on streams */
/* On the device: what the operation's parts look at. */
symmem_cuda_state *cuda_state_of(const symmem_whole *whole);
/* Before every part: the first begins the operation anew. */
CUresult cuda_part_begin(const cuda_instance *instance, const symmem_exec *exec, CUstream native);
/* Of work that failed when nothing of it was enqueued but that: it may come to it when the handle
 * is gone, and keeps that until then. Drops the note otherwise; NULL: the stream captures. */
void cuda_part_end_failed(cuda_instance *instance, cuda_pending *pending, const symmem_exec *exec,
                          const char *operation);
/* A copy of memory that the device sees, unless a part has failed. */
CUresult cuda_part_move(const cuda_instance *instance, const symmem_exec *exec, CUdeviceptr dst,
                        CUdeviceptr src, size_t bytes, CUstream native);

/* peers.c */
symmem_status cuda_peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                              void **pads_dev_p);
void cuda_peers_close(void *instance, symmem_peers *peers);
symmem_status cuda_signal_reset(void *instance, const symmem_peers *peers);
void cuda_signal_poison(void *instance, const symmem_peers *peers);
/* Poisons, and stops the channel's calls without a stream until a reset. The context is current,
 * here and below. */
CUresult cuda_channel_stop(cuda_instance *instance, const symmem_peers *peers, int32_t channel);
/* What the device has of the channel, behind all that was stopped. */
CUresult cuda_channel_look(cuda_instance *instance, const symmem_peers *peers, int32_t channel,
                           symmem_cuda_state *state_p);
void cuda_signal_check(void *instance, const symmem_peers *peers);

#endif
