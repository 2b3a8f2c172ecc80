/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of symmem-cuda-caller share. */
#ifndef SYMMEM_CUDA_CALLER_H
#define SYMMEM_CUDA_CALLER_H

#include <cuda.h>
#include <dlpack/dlpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/symmem.h>

#define LIMIT_MS 30000u
#define COUNT 1000 /* floats of a message */

/* The driver's calls that a program with streams of its own makes. */
/* clang-format off */
#define DRIVER_CALLS(CALL) \
    CALL(Init) CALL(DeviceGetCount) CALL(DevicePrimaryCtxRetain) CALL(CtxPushCurrent) \
    CALL(CtxPopCurrent) CALL(CtxGetCurrent) CALL(CtxDestroy) \
    CALL(ThreadExchangeStreamCaptureMode) CALL(StreamCreate) CALL(StreamDestroy) \
    CALL(StreamQuery) CALL(StreamBeginCapture) CALL(StreamEndCapture) CALL(MemcpyAsync) \
    CALL(MemsetD32Async) CALL(MemHostAlloc) CALL(MemFreeHost) CALL(MemGetInfo) \
    CALL(LaunchHostFunc) CALL(StreamWaitEvent) CALL(EventCreate) CALL(EventRecord) \
    CALL(EventDestroy) CALL(GraphInstantiateWithFlags) CALL(GraphDestroy) CALL(GraphLaunch) \
    CALL(GraphExecDestroy)
/* clang-format on */
struct driver {
    bool is_fake; /* tests/fakes/cuda */
    void (*fail_calls)(const char *name, int after, int count, CUresult result); /* or NULL */
    /* As it has been since CUDA 3.2: cuda.h has the latest one's arguments. */
    CUresult (*CtxCreate)(CUcontext *context, unsigned int flags, CUdevice device);
#define MEMBER(call) __typeof__(cu##call) *call;
    DRIVER_CALLS(MEMBER)
#undef MEMBER
};
/* False: there is none. */
bool driver_load(struct driver *driver);

struct caller {
    int rank, world, device, devices, bad;
    struct driver driver;
    CUstream native;
    symmem_context *context;
    symmem_group *group;
    symmem_handle *handle;
    symmem_stream *stream; /* the native one, wrapped */
    float *memory;         /* the handle's, 4 * COUNT */
    float *out;            /* memory of the device, COUNT */
    float *host;           /* pinned, 2 * COUNT: what goes in, and what comes out */
};

/* A vector in the device's memory. */
struct vector {
    int64_t shape[2];
    DLTensor dl;
};
const DLTensor *vector(struct vector *vector, float *data, int64_t count);

/* Prints one line, and counts what is not good. */
void expect(struct caller *c, const char *what, bool good, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void expect_status(struct caller *c, const char *what, symmem_status got, symmem_status wanted);
/* Required for all that follows. */
void need(struct caller *c, const char *what, symmem_status status);
void need_driver(struct caller *c, const char *what, CUresult result);
const char *backend_wanted(void);    /* SYMMEM_BACKEND, or cuda */
void host_barrier(struct caller *c); /* of the hosts */
double now_s(void);
void sleep_ms(int ms);
/* What the driver says of the native stream; false: it is not idle by then. */
bool is_idle_in(struct caller *c, int ms);

/* The caller's own copies from `host` to `memory` and from `out` back, with one of the library's
 * reductions in between, all on the native stream. The first is late. */
void enqueue_sum(struct caller *c);
void put_in(struct caller *c, int round);   /* by the host */
bool came_out(struct caller *c, int round); /* the sum over all ranks of that round */

/* An executable graph of the caller's. */
void begin_capture(struct caller *c);
CUgraphExec end_capture(struct caller *c, CUgraph *graph_p);
void launch(struct caller *c, CUgraphExec executable);
void end_graph(struct caller *c, CUgraph graph, CUgraphExec executable);

void check_streams(struct caller *c);        /* streams.c */
void check_current(struct caller *c);        /* current.c */
void check_current_lost(struct caller *c);   /* current.c; the last rank has ended */
void check_graphs(struct caller *c);         /* graphs.c */
void check_refused(struct caller *c);        /* graphs.c; on a driver without user objects */
_Noreturn void check_exit(struct caller *c); /* graphs.c */
/* failures.c; they do not return where a rank is to be lost */
void check_lost(struct caller *c);
void check_failures(struct caller *c);

#endif
