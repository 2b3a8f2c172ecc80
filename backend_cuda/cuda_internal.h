/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the CUDA skeleton share. See README.md: a check of shapes, not a backend. */
#ifndef SYMMEM_CUDA_INTERNAL_H
#define SYMMEM_CUDA_INTERNAL_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <symmem/backend.h>

#define CUDA_MAX_DEVICES 64
#define CUDA_MAX_REFS 3

typedef struct cuda_device {
    CUdevice id;
    CUcontext context; /* the primary one, retained */
    CUstream stream;   /* for calls with exec->stream NULL; never the legacy stream */
    CUfunction barrier_kernel;
    CUfunction put_kernel;
    CUfunction wait_kernel;
} cuda_device;

/* References that wait for an event: released by a thread that may call the driver. */
typedef struct cuda_pending {
    struct cuda_pending *next;
    CUevent done;
    symmem_ref refs[CUDA_MAX_REFS];
    int32_t ref_count;
} cuda_pending;

/* The device's form of symmem_fault, in host memory that the device can write. 0: none. */
typedef struct cuda_fault {
    _Atomic uint32_t code; /* a status, negated; written last by the kernel */
    uint32_t operation;
    int32_t channel;
    int32_t failed_rank;
    uint64_t elapsed_ns;
    uint64_t missing[SYMMEM_MAX_WORLD_SIZE / 64];
} cuda_fault;

typedef struct cuda_instance {
    const symmem_host *host;
    int32_t device_count;
    int32_t multicast_allowed;
    cuda_device devices[CUDA_MAX_DEVICES];
    pthread_mutex_t lock;
    cuda_pending *pending;       /* under lock */
    struct cuda_stream *streams; /* under lock: device_synchronize walks it */
} cuda_instance;

/* One mapping in this process, shared by the exporter and importers of the same process. */
typedef struct cuda_mapping {
    _Atomic int32_t users;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t mapped_bytes;
} cuda_mapping;

typedef struct cuda_stream {
    struct cuda_stream *next;
    cuda_instance *instance;
    CUstream native;
    int32_t device;
    bool wrapped;
    cuda_fault *fault; /* pinned */
} cuda_stream;

/* The backend's part of symmem_peers. */
typedef struct cuda_peers {
    CUdeviceptr tables; /* buffers, pads and signals: world_size pointers each */
    cuda_fault *fault;  /* pinned; for operations without a stream and in graphs */
    uint32_t *abort;    /* pinned; waiting kernels poll it */
} cuda_peers;

/* backend.c */
symmem_status cuda_fail(const cuda_instance *instance, CUresult result, const char *operation);
/* Makes the device's context current; the caller's comes back with leave. */
symmem_status cuda_enter(const cuda_instance *instance, int32_t device, const char *operation);
void cuda_leave(void);
CUdeviceptr cuda_address(const void *pointer);

/* memory.c */
symmem_status cuda_memory_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory);
void cuda_memory_release(void *instance, symmem_memory *memory);
symmem_status cuda_memory_export(void *instance, symmem_memory *memory, symmem_share *share);
void cuda_share_close(void *instance, symmem_share *share);
symmem_status cuda_memory_import(void *instance, int32_t device, const symmem_share *share,
                                 size_t bytes, symmem_memory *memory);

/* stream.c */
/* Where an operation goes: the stream's own, or the device's private one for exec->stream NULL. */
CUstream cuda_exec_stream(const cuda_instance *instance, int32_t device, const symmem_exec *exec);
/* After enqueueing: keeps exec->refs until the work is over, or waits if there is no stream. */
symmem_status cuda_exec_done(cuda_instance *instance, int32_t device, const symmem_exec *exec,
                             const char *operation);
void cuda_collect(cuda_instance *instance);
symmem_status cuda_copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                        const symmem_exec *exec);
symmem_status cuda_memset32(void *instance, int32_t device, void *dst, uint32_t value, size_t count,
                            const symmem_exec *exec);
symmem_status cuda_write_value32(void *instance, int32_t device, void *dst, uint32_t value,
                                 const symmem_exec *exec);
symmem_status cuda_stream_create(void *instance, int32_t device, void **stream_p);
symmem_status cuda_stream_wrap(void *instance, int32_t device, void *native, void **stream_p);
void cuda_stream_destroy(void *instance, void *stream);
symmem_status cuda_stream_synchronize(void *instance, void *stream, uint32_t timeout_ms,
                                      symmem_error_record *record_p);
symmem_status cuda_stream_query(void *instance, void *stream, bool *idle_p);
symmem_status cuda_device_synchronize(void *instance, int32_t device, uint32_t timeout_ms);
symmem_status cuda_host_fn(void *instance, void *stream, void (*fn)(void *arg), void *arg);

/* graph.c: events and capture */
symmem_status cuda_event_create(void *instance, int32_t device, void **event_p);
void cuda_event_destroy(void *instance, void *event);
symmem_status cuda_event_record(void *instance, void *event, void *stream);
symmem_status cuda_stream_wait_event(void *instance, void *stream, void *event);
symmem_status cuda_event_synchronize(void *instance, void *event, uint32_t timeout_ms);
symmem_status cuda_event_query(void *instance, void *event, bool *reached_p);
symmem_status cuda_capture_begin(void *instance, void *stream);
symmem_status cuda_capture_end(void *instance, void *stream, void **graph_p);
symmem_status cuda_capture_id(void *instance, void *stream, uint64_t *id_p);
symmem_status cuda_graph_launch(void *instance, void *graph, void *stream);
void cuda_graph_destroy(void *instance, void *graph);
/* Ties references to the graph that the stream is recording. */
symmem_status cuda_capture_refs(cuda_instance *instance, CUgraph graph, const symmem_exec *exec);

/* signal.c */
size_t cuda_signal_bytes(void *instance, int32_t world_size, int32_t channel_count);
symmem_status cuda_peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                              void **pads_dev_p);
void cuda_peers_close(void *instance, symmem_peers *peers);
symmem_status cuda_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                           const symmem_exec *exec);
symmem_status cuda_put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, const symmem_exec *exec);
symmem_status cuda_wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                               int32_t channel, const symmem_exec *exec);
symmem_status cuda_signal_reset(void *instance, const symmem_peers *peers);
void cuda_signal_poison(void *instance, const symmem_peers *peers);

#endif
