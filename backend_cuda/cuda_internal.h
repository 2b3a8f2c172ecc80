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

/* A private stream, for one call at a time, so that two calls without a stream never wait for each
 * other. */
typedef struct cuda_private_stream {
    struct cuda_private_stream *next;
    CUstream native;
} cuda_private_stream;

/* Kernels that need no peers: products, copies, reductions. */
typedef struct cuda_local_kernels {
    CUfunction product[SYMMEM_DTYPE_COUNT]; /* NULL: no product of those */
    CUfunction finish, finish_double;
    CUfunction await_chunk;
    CUfunction copy_strided;
    CUfunction reduce[SYMMEM_DTYPE_COUNT];
} cuda_local_kernels;

/* The kernels for the common cases, allreduce_fast.cuh. */
typedef struct cuda_fast_kernels {
    CUfunction ll[2][3];   /* long and short rounds; of at most 2, 4 and 8 ranks */
    CUfunction scatter[2]; /* long and short; of two ranks that each reduce a part */
    CUfunction chunks;
    CUfunction blocks_of_two, blocks, wide;
} cuda_fast_kernels;

typedef struct cuda_kernels {
    CUfunction barrier, small_barrier; /* the latter NULL: none */
    CUfunction put_signal;
    CUfunction wait_signal;
    CUfunction collective[SYMMEM_DTYPE_COUNT];  /* those that reduce */
    CUfunction collective_bytes;                /* those that only move */
    cuda_fast_kernels fast[SYMMEM_DTYPE_COUNT]; /* NULL: none of those */
    CUfunction moves[2];                        /* by LL, in long and in short rounds */
    CUfunction chunked_moves;
    CUfunction store_words, composite_move;
    cuda_local_kernels local;
} cuda_kernels;

struct cuda_mapping;

#define CUDA_KEPT_IMPORTS 16
#define CUDA_KEPT_EVENTS 128

/* Opened at its first use, so that ranks do not load every device of the host. */
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
    CUmemoryPool scratch; /* NULL: not made yet */
    CUstream control;     /* poisons and resets, in the order of the calls, in a queue of its own */
    atomic_bool late;     /* the last wait for it timed out */
    cuda_private_stream *private_streams;        /* idle ones */
    struct cuda_event *events[CUDA_KEPT_EVENTS]; /* event.c; under the instance's lock */
    int32_t event_count;
} cuda_device;

/* Pinned memory in blocks of two sizes, because the driver's own calls may wait for running
 * kernels. */
#define CUDA_SMALL_BLOCK_BYTES 256
#define CUDA_LARGE_BLOCK_BYTES 65536

typedef struct cuda_pending cuda_pending;
typedef struct cuda_event cuda_event;
typedef struct cuda_capture cuda_capture;
typedef struct cuda_graph_end cuda_graph_end;
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
    /* Held while finished work is collected, recursively, because releasing a reference may come
     * back here. Taken before `lock`. */
    pthread_mutex_t collecting;
    /* Held while a device is opened. Taken before `lock`, and never under it or under a lock that a
     * call on another device needs. */
    pthread_mutex_t opening;
    /* Held while a stream is destroyed, and while events are recorded on all of them. The driver
     * may make the caller wait there for a place in a full stream. So that is not done under
     * `lock`, which the watcher needs to end the kernels that fill it. Taken before `lock`. */
    pthread_mutex_t ending;
    /* Over everything below. Of the core's entries only peer_state and is_poisoned are called under
     * it. */
    pthread_mutex_t lock;
    pthread_cond_t work;
    cuda_device devices[CUDA_MAX_DEVICES];
    cuda_pending *pending, **pending_end;
    uint64_t looks;                /* passes over pending work */
    uint64_t collections;          /* of any number of passes */
    uint64_t last_number;          /* of pending work */
    _Atomic int32_t pending_count; /* counts work until its failures are reported */
    struct cuda_stream *streams;
    cuda_capture *captures;
    cuda_capture *foreign_captures; /* foreign_capture.c */
    _Atomic int32_t foreign_count;  /* as pending_count, for foreign captures */
    bool looking;                   /* checking foreign captures; under `collecting` */
    bool closing, left; /* left: work outlived close, and the watcher then ends the instance */
    pthread_t watcher;
    struct cuda_multicast_state *multicast; /* multicast.c; NULL: not in use */
    void *extension; /* of a backend that replaces some of this one's entries; NULL otherwise */
    void (*end_extension)(struct cuda_instance *instance); /* no work is left; NULL allowed */
    /* For an operation of the extension. Its fault and peers are freed now, even if a lost device
     * has run no callback. NULL allowed. */
    void (*forget_fault)(struct cuda_instance *instance, const symmem_cuda_fault *fault);
    uint32_t late_ms; /* launch_timeout.c */
} cuda_instance;

typedef struct cuda_stream {
    struct cuda_stream *next;
    cuda_instance *instance;
    CUstream native;
    int32_t device;
    bool wrapped;
    cuuint64_t capture;  /* the one that began here; 0: none */
    int32_t users;       /* under the instance's lock: the owner, and pending work */
    int32_t trim_at;     /* under the instance's lock: users for which a trim is due */
    atomic_bool crowded; /* it is due */
    bool given_up;       /* under the instance's lock: destroyed, and chunk waits are canceled */
    uint64_t busy_at;    /* under the instance's lock: the last pass that found unfinished work */
    uint64_t asked_at;   /* under the instance's lock: the collection that asked for the newest */
    uint64_t over_to;    /* under the instance's lock: ordered entries up to that number are over */
    _Atomic uint64_t notes;     /* number of entries so far */
    symmem_error_record record; /* the first failure; status OK: none. Under the same lock */
} cuda_stream;

/* A signal operation that a kernel runs, and what the host needs to report its failure. Also a
 * product's wait for chunks, which knows no peers. */
typedef struct cuda_signal_op {
    const symmem_peers *peers;     /* NULL: a wait for chunks */
    const cuda_instance *instance; /* for a wait for chunks */
    int32_t chunk_count;
    const char *operation;
    int32_t channel;
    symmem_call_id call;
    symmem_cuda_fault *fault;
} cuda_signal_op;

/* What work needs until it is over, beside references. Each may be NULL: none. */
typedef struct cuda_needs {
    const cuda_signal_op *signal; /* its fault */
    cuda_graph *graph;
    cuda_staging *staging;
    bool told;    /* its failure has been reported, and is not checked any more */
    void **end_p; /* where the event behind it is stored for the core; see symmem_exec */
} cuda_needs;

/* What a capture holds, and later its graph. */
typedef struct cuda_captured {
    struct cuda_captured *next;
    cuda_stream *stream; /* kept, because later work asks whether it is on the same stream */
    symmem_ref refs[CUDA_MAX_REFS];
    int32_t ref_count;
    cuda_signal_op signal; /* fault NULL: another operation */
    cuda_staging *staging;
    /* In a foreign capture: */
    uint64_t failed_ns;                 /* when its failure was first seen; 0: it has not failed */
    struct cuda_captured *next_watched; /* the first one of the next peers */
} cuda_captured;

struct cuda_capture {
    cuda_capture *next;
    cuuint64_t id;
    cuda_captured *held, **held_end, *held_last;
    /* For a foreign capture. All NULL if this library began it. */
    cuda_stream *stream;    /* the stream whose calls report failures */
    cuda_graph_end *ending; /* of its graph */
    cuda_captured *watched; /* one of each peers */
    bool settled;           /* its graph is gone, and everything is reported; under `collecting` */
};

struct cuda_graph {
    int32_t users;    /* under the instance's lock: the owner, and launches */
    bool is_launched; /* under the instance's lock: launched again, without an entry yet */
    int32_t device;
    CUgraphExec executable;
    cuda_captured *held;
};

/* Work of a stream that is not known to be over. */
struct cuda_pending {
    cuda_pending *next;
    /* NULL: the driver had none, and it is not over before the context is lost */
    cuda_event *done;
    bool ended; /* or it was waited for instead */
    int32_t device;
    cuda_stream *stream;
    cuda_graph *graph;
    uint64_t number; /* in the order of the calls */
    bool unordered;  /* another thread's entry of later work may stand before it */
    /* For a launch: what poisoned its handle in an earlier launch of the same graph. NULL:
     * nothing. */
    const cuda_captured *poisoned_by;
    cuda_staging *staging;
    cuda_signal_op signal; /* fault NULL: another operation */
    bool told;
    symmem_ref refs[CUDA_MAX_REFS];
    int32_t ref_count;
};

/* Whether this rank's device has NVLink to the others', for LL: links.c. */
typedef struct cuda_links {
    bool all_linked;   /* by NVLink with each of them */
    bool share_device; /* one of them is the same device */
} cuda_links;

/* The backend's part of symmem_peers. */
typedef struct cuda_peers {
    CUdeviceptr tables; /* buffers, pads and signals: world_size pointers each */
    symmem_cuda_control *control;
    cuda_links links;
    size_t block_bytes; /* of the shared memory, or of memory with as much signal state */
} cuda_peers;

/* links.c */
cuda_links cuda_links_find(const cuda_instance *instance, const symmem_peers *peers);
/* Tells all others if all of them are linked with this one. In stream order. */
CUresult cuda_links_tell(const cuda_instance *instance, const symmem_peers *peers, cuda_links links,
                         CUstream native);
CUresult cuda_device_uuid(const cuda_driver *driver, int32_t device, CUuuid *uuid_p);

/* backend.c */
extern const symmem_backend cuda_table;
/* Its groups, of which the NCCL backend's table has some too. */
extern const symmem_instance_ops cuda_instance_ops;
extern const symmem_copy_ops cuda_copy_ops;
extern const symmem_stream_ops cuda_stream_ops;
extern const symmem_graph_ops cuda_graph_ops;
extern const symmem_matmul_ops cuda_matmul_ops;
extern const symmem_topology_ops cuda_topology_ops;
symmem_status cuda_device_count(void *instance, int32_t *count_p);
symmem_status cuda_device_info(void *instance, int32_t device, symmem_device_info *info_p);
symmem_status cuda_fail(const cuda_instance *instance, CUresult result, const char *operation);
/* Returns EMFILE or ENFILE if no descriptor is left, else 0. Neither the driver nor NCCL reports
 * that reason. */
int cuda_descriptors_error(void);
bool cuda_is_capture_error(CUresult result);
symmem_status cuda_no_memory(const cuda_instance *instance, const char *operation);
/* Returns TIMEOUT: the device was late with what the call waited for. */
symmem_status cuda_fail_timeout(const cuda_instance *instance, const char *operation);
symmem_status cuda_failpoint(const cuda_instance *instance, const char *name);

/* device.c */
/* Makes the device's context current, opening the device if needed. cuda_leave restores the
 * caller's. In between this thread's calls break no capture of the program. Pairs may nest. */
symmem_status cuda_enter(cuda_instance *instance, int32_t device, const char *operation);
bool cuda_reenter(const cuda_instance *instance, int32_t device); /* for a device that is open */
void cuda_leave(const cuda_instance *instance);
/* The same without a context, as far as the driver allows it. */
void cuda_relax(const cuda_driver *driver);
void cuda_restore(const cuda_driver *driver);
void cuda_devices_close(cuda_instance *instance);
/* The context is current. A private stream with work in flight is ended instead of given back. */
CUresult cuda_private_stream_take(cuda_instance *instance, int32_t device,
                                  cuda_private_stream **lane_p);
void cuda_private_stream_give(cuda_instance *instance, int32_t device,
                              cuda_private_stream *private_stream);
void cuda_private_stream_end(cuda_instance *instance, int32_t device,
                             cuda_private_stream *private_stream);
CUdeviceptr cuda_address(const void *pointer);
uint64_t cuda_now_ns(void);
void cuda_sleep_ns(uint64_t ns);

/* image.c */
const void *cuda_image(void);

/* work.c: work of a device that knows no peers, on a stream or now */
typedef struct cuda_work {
    const char *operation;
    /* Enqueues it. Failures are described. The context is current. */
    symmem_status (*enqueue)(cuda_instance *instance, struct cuda_work *work, CUstream native);
    int32_t device;
    bool capturing;
    const uint64_t *failed; /* see cuda/product.h */
    cuda_signal_op signal;  /* fault NULL: none */
} cuda_work;
symmem_status cuda_work_run(cuda_instance *instance, cuda_work *work, const symmem_exec *exec);
/* Launches as many blocks as `count` elements fill, up to a bound. */
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

/* Loads own->module from `image` unless it is loaded. The context is current. *loaded_p, unless
 * NULL: it was loaded now, so functions that were found before are invalid. */
CUresult cuda_module_take(const cuda_driver *driver, cuda_module *own, CUcontext context,
                          unsigned long long context_id, const void *image, CUmodule *module_p,
                          bool *loaded_p);
/* Also without a context, if that is broken. */
void cuda_module_give(const cuda_driver *driver, cuda_module *own);
/* The same for a caller outside the device's context. */
void cuda_module_give_in(cuda_instance *instance, int32_t device, cuda_module *own);

/* kernels.c */
/* Returns the device's kernels, in its context, which is current. They stay valid until they are
 * given back. */
CUresult cuda_kernels_take(const cuda_driver *driver, int32_t device, int32_t rank,
                           CUcontext context, unsigned long long context_id,
                           cuda_kernels *kernels_p);
/* Also without a context, if that is broken. */
void cuda_kernels_give(const cuda_driver *driver, int32_t device, int32_t rank);
/* Returns whether several ranks of this process use the device, and so its context. */
bool cuda_kernels_are_shared(int32_t device);

/* scratch.c: memory for the duration of a product, aligned to 256 bytes. The context is current. */
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

/* chunk_wait.c: a product whose input does not arrive */
/* As cuda_take_fault, for an operation without peers. */
symmem_status cuda_take_chunk_fault(const cuda_signal_op *signal, symmem_error_record *record_p);
/* Tells the device that its chunk waits are canceled (cancel) or count again (allow). */
void cuda_cancel_chunk_waits(const cuda_signal_op *signal);
void cuda_allow_chunk_waits(const cuda_signal_op *signal);

/* stream_cache.c: the driver's streams. The device has been entered. */
void cuda_stream_cache_open(cuda_instance *instance, int32_t device);
/* Returns one without work. urgent: of the highest priority. */
CUresult cuda_cached_stream_take(cuda_instance *instance, int32_t device, bool urgent,
                                 CUstream *stream_p);
/* Ends one that was taken. Its running work goes on. entered: false if the device could not be
 * entered. Then a stream that is not kept is lost. */
void cuda_cached_stream_give(cuda_instance *instance, int32_t device, CUstream stream,
                             bool entered);

/* pinned.c */
/* Pinned memory exists between join and leave. Some device's context is current, here and below; at
 * leave, unless it is broken. */
CUresult cuda_pinned_join(const cuda_driver *driver);
void cuda_pinned_leave(const cuda_driver *driver);
/* Returns CUDA_SMALL_BLOCK_BYTES, zeroed. To be given back, or lost until all have left. */
CUresult cuda_small_block_take(const cuda_driver *driver, void **piece_p);
void cuda_small_block_give(void *piece);
/* Returns CUDA_LARGE_BLOCK_BYTES, with the same rules. */
CUresult cuda_large_block_take(const cuda_driver *driver, void **unit_p);
void cuda_large_block_give(void *unit);

/* staging.c: a stream's copies from and to ordinary host memory */
/* Returns a CUmemorytype, or 0 for memory that the driver does not know. */
unsigned int cuda_memory_type(const cuda_driver *driver, CUdeviceptr address);
bool cuda_is_ordinary(const cuda_driver *driver, CUdeviceptr address);
/*
 * Enqueues the copy. *staging_p: what it needs until it is over, also after a failure; NULL:
 * nothing. The context is current.
 */
CUresult cuda_copy_enqueue(cuda_instance *instance, CUstream native, bool capturing,
                           CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                           cuda_staging **staging_p);
void cuda_staging_give(cuda_staging *staging); /* NULL allowed */
/* From now on a failed copy does not access the ordinary memory. NULL allowed. */
void cuda_staging_give_up(cuda_staging *staging);
/* Enqueues a copy of up to CUDA_STAGED_BYTES to the device, without waiting. The caller may reuse
 * `bytes` at once. *staging_p as above. */
#define CUDA_STAGED_BYTES 32768
CUresult cuda_staging_send(cuda_instance *instance, CUstream native, CUdeviceptr dst,
                           const void *bytes, size_t count, cuda_staging **staging_p);
/* Another way than the driver's copy to move bytes between two addresses that the device sees. */
typedef struct cuda_mover {
    CUresult (*move)(const cuda_instance *instance, const struct cuda_mover *mover, CUdeviceptr dst,
                     CUdeviceptr src, size_t bytes, CUstream native);
} cuda_mover;
/* As cuda_copy_enqueue, by `mover`. At most one end is ordinary memory. Pieces are multiples of 16
 * bytes, except the last. */
CUresult cuda_move_enqueue(cuda_instance *instance, CUstream native, CUdeviceptr dst,
                           CUdeviceptr src, size_t bytes, const cuda_mover *mover,
                           cuda_staging **staging_p);

/* fabric.c */
/* Called when the instance opens. Returns INVALID_ARGUMENT if the setting is neither on nor off. */
symmem_status cuda_fabric_read_setting(const cuda_instance *instance);
/* Returns whether memory of an open device can be requested with fabric handles. */
bool cuda_fabric_is_offered(cuda_instance *instance, int32_t device);
/* Returns whether a request with them that ended so should be repeated without. */
bool cuda_fabric_may_be_why(CUresult result);
/* Notes how the repeated request ended. If it succeeded the driver is not asked for handles again:
 * at once if it refused them, after several failures in a row if those may be temporary. */
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
/* For a device's memory that is requested from the driver. */
CUmemAllocationProp cuda_memory_property(int32_t device, bool fabric);
/* For local memory: the size that the driver gave it. */
size_t cuda_memory_mapped_bytes(const symmem_memory *memory);
CUmemGenericAllocationHandle cuda_memory_handle(const symmem_memory *memory);
symmem_status cuda_memory_share(void *instance, symmem_memory *memory, symmem_share *share);
void cuda_memory_unshare(void *instance, symmem_share *share);
symmem_status cuda_memory_map(void *instance, int32_t device, const symmem_share *share,
                              size_t bytes, symmem_memory *memory);

/* suballoc.c, imports.c: release what they keep, at a device's end. The granule also goes if memory
 * is short. The context is current, unless it is broken. */
void cuda_granule_close(cuda_instance *instance, int32_t device);
void cuda_imports_close(cuda_instance *instance, int32_t device);

/* inflight.c: work in flight, its references and failures */
/* Allocates the in-flight entry before enqueueing. If allocation failed afterwards, the only safe
 * choice would be to block until the work is done. The context is current in all of these. */
symmem_status cuda_pending_make(cuda_stream *stream, const char *operation,
                                cuda_pending **pending_p);
/* Frees an entry whose work was never enqueued. NULL is a no-op. */
void cuda_pending_drop(cuda_instance *instance, cuda_pending *pending);
/* After enqueueing: keeps references, watches the signal operation, and takes over what the work
 * needs. It takes them over on failure too, which means that the driver recorded no event. */
symmem_status cuda_pending_add(cuda_pending *pending, const symmem_exec *exec,
                               const cuda_needs *needs, const char *operation);
/* For work that failed after a part of it was enqueued. Waits for that part, as long as calls
 * without a deadline of their own do. Returns false if the entry keeps what the part needs, or if
 * its end is unknown. */
bool cuda_pending_rest(cuda_pending *pending, const symmem_exec *exec, const cuda_needs *needs,
                       const char *operation);
/* Allocates an entry for an orphan, in case it is needed. NULL: no memory. */
cuda_pending *cuda_orphan_make(cuda_instance *instance, int32_t device);
void cuda_orphan_drop(cuda_pending *orphan);
/* Makes a stream's remaining work an orphan of the instance, like that of a destroyed stream, with
 * what it needs. Without an entry nothing is kept. */
void cuda_orphan(cuda_pending *orphan, CUstream native, const symmem_exec *exec,
                 const cuda_needs *needs, const char *operation);
/* Collects all work that is over: reports failures, releases references. */
void cuda_collect(cuda_instance *instance);
/* Collects work of one stream once many entries have gathered there, by a single query, which takes
 * the host as long as much of a launch. */
void cuda_trim(cuda_stream *stream);
/* Makes the next check of that handle look for failures, as a kernel does that fails. */
void cuda_note_failure(const symmem_peers *peers);
/* Whether work in flight with those peers has failed, and that is not reported yet. */
bool cuda_has_failed_work(cuda_instance *instance, const symmem_peers *peers);
/* True while this thread runs cuda_collect. Release functions must not block then, because other
 * threads wait for the collecting lock. */
bool cuda_is_collecting(void);
/* Tells the device what the host knows about the peers. */
void cuda_watch_peers(const cuda_signal_op *signal);
/* Only about lost peers. A reset zeroes the device's words before the core clears its poison. A
 * thread that watches while nothing is pending must not write the poison again. */
void cuda_watch_lost(const cuda_signal_op *signal);
/* Builds the core's fault from what the kernel wrote, reports it to the core, and clears it. */
symmem_status cuda_take_fault(const cuda_signal_op *signal, symmem_error_record *record_p);
/* The same, and keeps the record for the stream if it is the first one. */
void cuda_check_fault(cuda_stream *stream, const cuda_signal_op *signal);
/* For work that is over, or whose device is lost. Its fault will be freed, and is not written any
 * more. */
void cuda_forget_fault(cuda_instance *instance, const cuda_signal_op *signal);
/* Returns whether work failed because this rank's state was poisoned, by a failure that the core
 * does not know yet. */
bool cuda_is_consequence(const cuda_signal_op *signal);
/* For work that is over and not yet reported. Waits for a limited time until that failure has been
 * reported. */
void cuda_await_cause(cuda_instance *instance, const cuda_signal_op *signal);
void cuda_stream_drop(cuda_stream *stream);

/* exit.c */
/* Called each time that a library was loaded, because what is registered last runs first. */
void cuda_await_at_exit(void);
/* Brackets work of the backend's own threads. False: the process ends, and the thread does nothing
 * and does not call cuda_busy_end. */
bool cuda_busy_begin(void);
void cuda_busy_end(void);

/* watcher.c */
symmem_status cuda_watcher_start(cuda_instance *instance);
/* Without work. `leave`: work is left, and after it the watcher ends the instance. */
void cuda_watcher_stop(cuda_instance *instance);
void cuda_watcher_leave(cuda_instance *instance);
/* Frees everything that the instance has. */
void cuda_instance_end(cuda_instance *instance); /* backend.c */

/* copy.c */
symmem_status cuda_copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                        const symmem_exec *exec);
/* For a copy on a stream whose enqueueing failed. Frees or keeps what was made for it. */
void cuda_copy_end_failed(cuda_instance *instance, cuda_pending *pending, const symmem_exec *exec,
                          const cuda_needs *needs, const char *operation);
symmem_status cuda_memset32(void *instance, int32_t device, void *dst, uint32_t value, size_t count,
                            const symmem_exec *exec);
symmem_status cuda_write_value32(void *instance, int32_t device, void *dst, uint32_t value,
                                 const symmem_exec *exec);

/* stream.c */
/* Waits until the stream's work so far has ended. Not for capturing streams. */
CUresult cuda_wait_idle(cuda_instance *instance, CUstream native, uint32_t timeout_ms,
                        const cuda_signal_op *signal);
/* Without a deadline, in a user's call, which prints a notice that it waits. */
CUresult cuda_wait_call(cuda_instance *instance, CUstream native);
/* Returns the deadline of the collective user's call that this thread serves; 0: none. */
uint64_t cuda_call_deadline(const symmem_host *host);
/* In such a call waits until a little before its deadline, so that there is time to tell the other
 * ranks, and then returns NOT_READY. Without a deadline as before. */
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
/* An event behind work in flight, which several may use, and which is used again once that work is
 * over and nobody has it any more. */
struct cuda_event {
    CUevent native;
    int32_t device;
    bool kept; /* for the next work, unlike one that the program made */
    _Atomic int32_t users;
};
/* The context is current. The caller is the event's one user. */
CUresult cuda_event_take(cuda_instance *instance, int32_t device, cuda_event **event_p);
/* The work behind which it was recorded is over. Also if the context is lost. */
void cuda_event_give(cuda_instance *instance, cuda_event *event);
/* With the device's context. */
void cuda_kept_events_end(cuda_instance *instance, int32_t device);
symmem_status cuda_event_create(void *instance, int32_t device, void **event_p);
void cuda_event_destroy(void *instance, void *event);
symmem_status cuda_event_record(void *instance, void *event, void *stream);
symmem_status cuda_stream_wait_event(void *instance, void *stream, void *event);
symmem_status cuda_event_synchronize(void *instance, void *event, uint32_t timeout_ms);
symmem_status cuda_event_query(void *instance, void *event, bool *reached_p);

/* graph.c */
symmem_status cuda_capture_begin(void *instance, void *stream);
symmem_status cuda_capture_end(void *instance, void *stream, void **graph_p);
/* CUDA_BROKEN_CAPTURE: it can only be ended. */
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
/* Keeps what an operation captured before it failed, because the program may still launch the
 * graph. The record of that failure stays. */
void cuda_captured_rest(cuda_instance *instance, cuuint64_t id, const symmem_exec *exec);
void cuda_captured_free(cuda_captured *held);
/* One of this library or a foreign one. NULL: not known. The instance's lock is held. */
cuda_capture *cuda_capture_find(const cuda_instance *instance, cuuint64_t id);

/* foreign_capture.c: captures that the program began */
/* As cuda_capture_id, before anything is captured that needs something. A capture that this library
 * did not begin is tracked from now on. The context is current. */
symmem_status cuda_capture_join(cuda_instance *instance, const symmem_exec *exec,
                                const char *operation, uint64_t *id_p);
/* Reports failures of launches, and frees what belonged to graphs that are gone. True: something
 * that existed at begin_ns is still to be reported. `collecting` is held. */
bool cuda_foreign_captures_check(cuda_instance *instance, uint64_t begin_ns);
/* Frees all. No other thread uses the instance. */
void cuda_foreign_captures_close(cuda_instance *instance);

/* connectivity.c */
symmem_status cuda_connectivity(void *instance, const char *connection, int32_t device_count,
                                int32_t *matrix);

/* signal.c */
/* A signal operation or collective: kernels on a stream, and what the host keeps for them. */
typedef struct cuda_launch {
    symmem_cuda_signal_args args;
    cuda_signal_op signal; /* the caller sets the operation's name, the rest is filled in */
    CUresult (*enqueue)(cuda_instance *instance, struct cuda_launch *launch, CUstream native);
    CUfunction kernel;
    unsigned int threads;
    bool begun; /* set by enqueue: a kernel is enqueued, so a later failure is a fault */
    /* its kernels cannot be stopped: without a stream it is waited for, without a deadline */
    bool stays;
    cuda_pending *orphan; /* without a stream: the entry in case it is abandoned */
} cuda_launch;
/* Runs or enqueues it. */
symmem_status cuda_launch_run(cuda_instance *instance, const symmem_peers *peers, int32_t peer,
                              int32_t channel, const symmem_exec *exec, cuda_launch *launch);
CUresult cuda_launch_kernel(const cuda_instance *instance, CUfunction kernel, unsigned int blocks,
                            unsigned int threads, void *args, CUstream native);
unsigned int cuda_barrier_threads(int32_t world_size);
/* Fills the arguments of a kernel of barrier_small.cuh. Returns false if the launch cannot use
 * one. */
bool cuda_small_barrier_of(const cuda_launch *launch, symmem_cuda_small_barrier *small);
size_t cuda_signal_bytes(void *instance, int32_t world_size, int32_t channel_count,
                         size_t block_bytes);
symmem_status cuda_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                           const symmem_exec *exec);
symmem_status cuda_put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, const symmem_exec *exec);
symmem_status cuda_wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                               int32_t channel, const symmem_exec *exec);

/* launch_timeout.c */
/* Reads how long to wait for the device beyond a call's deadline. */
symmem_status cuda_launch_timeout_open(cuda_instance *instance);
/*
 * Waits until the kernels of a call without a stream are over, then gives the private stream back.
 * NOT_READY: the device was late. Then the call was abandoned and has failed, with *status_p, and
 * the caller does not own the fault and the private stream any more. The context is current.
 */
CUresult cuda_launch_wait(cuda_instance *instance, int32_t device, cuda_launch *launch,
                          const symmem_exec *exec, cuda_private_stream *private_stream,
                          symmem_status *status_p);
/* Returns whether the device has yet to begin or to end kernels on `peers`, of a call that was
 * abandoned, or that failed in the middle, as a graph's launch without an event has. */
bool cuda_has_pending(cuda_instance *instance, const symmem_peers *peers);

/* collective.c */
symmem_status cuda_collective(void *instance, const symmem_peers *peers, int32_t channel,
                              const symmem_collective *call, const symmem_exec *exec);

/* Returns how many blocks move that many bytes. */
unsigned int cuda_blocks_for(size_t bytes);

/* composite.c: steps of composite operations, on streams */
/* On the device: the state that the operation's steps read. */
symmem_cuda_state *cuda_state_of(const symmem_composite *composite);
/* Before every step. The first one begins the operation anew. */
CUresult cuda_composite_begin(const cuda_instance *instance, const symmem_exec *exec,
                              CUstream native);
/* For work that failed after only this was enqueued. It may run after the handle is gone, and keeps
 * that until then. Otherwise frees the entry. NULL: the stream captures. */
void cuda_composite_end_failed(cuda_instance *instance, cuda_pending *pending,
                               const symmem_exec *exec, const char *operation);
/* Copies memory that the device sees, unless a step has failed. */
CUresult cuda_composite_move(const cuda_instance *instance, const symmem_exec *exec,
                             CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream native);

/* peers.c */
symmem_status cuda_peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                              void **pads_dev_p);
void cuda_peers_close(void *instance, symmem_peers *peers);
symmem_status cuda_signal_reset(void *instance, const symmem_peers *peers);
void cuda_signal_poison(void *instance, const symmem_peers *peers);
/* Poisons, and stops the channel's calls without a stream until a reset. The context is current,
 * here and below. */
CUresult cuda_channel_stop(cuda_instance *instance, const symmem_peers *peers, int32_t channel);
/* Reads the device's state of the channel, after everything that was stopped. */
CUresult cuda_channel_read(cuda_instance *instance, const symmem_peers *peers, int32_t channel,
                           symmem_cuda_state *state_p);
void cuda_signal_check(void *instance, const symmem_peers *peers);

#endif
