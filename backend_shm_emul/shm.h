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

#endif
