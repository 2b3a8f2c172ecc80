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

static inline CUdeviceptr cuda_address(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

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
    CUfunction wait_value;
    CUfunction signal_count, wait_counts;
    CUfunction collective[SYMMEM_DTYPE_COUNT];  /* those that reduce */
    CUfunction collective_bytes;                /* those that only move */
    cuda_fast_kernels fast[SYMMEM_DTYPE_COUNT]; /* NULL: none of those */
    CUfunction moves[2];                        /* by LL, in long and in short rounds */
    CUfunction chunked_moves;
    CUfunction store_words, composite_move;
    CUfunction splits;                   /* all-to-alls with splits in memory */
    CUfunction tile[SYMMEM_DTYPE_COUNT]; /* reductions of a piece of all ranks' buffers */
    cuda_local_kernels local;
} cuda_kernels;

struct cuda_mapping;

#define CUDA_KEPT_IMPORTS 16
#define CUDA_KEPT_EVENTS 128
#define CUDA_KEPT_ENTRIES 128

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
    struct cuda_pending *spare; /* inflight.c; the same */
    int32_t spare_count;
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
typedef struct cuda_plans cuda_plans;
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
    /* Tells on which device a rank of the context has its memory, for an extension whose memory is
     * not this backend's. False: not known. NULL: it is asked of memory/. */
    bool (*find_device)(const struct cuda_instance *instance, int32_t rank, CUuuid *uuid_p);
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
    _Atomic uint64_t notes;        /* number of entries so far; changed under the same lock */
    _Atomic(cuda_pending *) ready; /* spare.c; NULL: none. Filled under the same lock */
    symmem_error_record record;    /* the first failure; status OK: none. Under the same lock */
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
    symmem_cuda_fault *block; /* for a launch's fault; stays with the entry. NULL: none yet */
    int32_t ref_count;
    symmem_ref refs[CUDA_MAX_REFS]; /* last: the others are cleared for the next work */
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
    cuda_plans **plans; /* plan.c: each channel's, under its order; NULL: none are kept */
} cuda_peers;

#endif
