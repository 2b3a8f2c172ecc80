/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the fake driver share. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- streams.c ----------------------------------------------------------------------- */

typedef struct fake_op {
    struct fake_op *next;
    void (*run)(void *arg);
    void (*drop)(void *arg); /* when it is over, or its graph is destroyed; NULL: nothing */
    bool blocks;             /* the driver holds whoever launches it until it is over */
    size_t bytes;
    _Alignas(16) char arg[];
} fake_op;

/* Enqueues or captures a copy of `arg`. */
CUresult fake_enqueue(CUstream stream, void (*run)(void *arg), void (*drop)(void *arg),
                      const void *arg, size_t bytes, bool blocks);
bool fake_is_capturing(CUstream stream);
void fake_wait_stream(CUstream stream);
void fake_wait_context(CUcontext context); /* for all its streams */

/* For tests: how many streams were made, how many there are, and that so many more cannot be. */
__attribute__((visibility("default"))) int fake_streams_made(bool urgent);
__attribute__((visibility("default"))) int fake_streams_left(void);
__attribute__((visibility("default"))) void fake_refuse_streams(int count);
/* For tests: the next questions for an event fail. */
__attribute__((visibility("default"))) void fake_refuse_queries(int count);
/* For tests: one event is not recorded, after so many that are. */
__attribute__((visibility("default"))) void fake_refuse_record(int after);

CUresult fake_stream_create(CUstream *stream, unsigned int flags);
CUresult fake_priority_range(int *lowest, int *highest);
CUresult fake_stream_create_with(CUstream *stream, unsigned int flags, int priority);
CUresult fake_stream_destroy(CUstream stream);
CUresult fake_stream_query(CUstream stream);
CUresult fake_stream_wait_event(CUstream stream, CUevent event, unsigned int flags);
CUresult fake_begin_capture(CUstream stream, CUstreamCaptureMode mode);
CUresult fake_end_capture(CUstream stream, CUgraph *graph);
CUresult fake_capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                           CUgraph *graph, const CUgraphNode **dependencies, size_t *count);
CUresult fake_event_create(CUevent *event, unsigned int flags);
CUresult fake_event_destroy(CUevent event);
CUresult fake_event_record(CUevent event, CUstream stream);
CUresult fake_event_query(CUevent event);
CUresult fake_event_elapsed(float *ms, CUevent start, CUevent end);
CUresult fake_instantiate(CUgraphExec *executable, CUgraph graph, unsigned long long flags);
CUresult fake_graph_destroy(CUgraph graph);
CUresult fake_graph_launch(CUgraphExec executable, CUstream stream);
CUresult fake_exec_destroy(CUgraphExec executable);

struct fake_held;
struct fake_held **fake_held_by(CUgraph graph); /* its user objects */

/* --- user_objects.c ------------------------------------------------------------------ */

/* FAKE_CUDA_NO_USER_OBJECTS=create, =retain: that call fails. */
CUresult fake_user_object(CUuserObject *object, void *arg, CUhostFn destroy, unsigned int count,
                          unsigned int flags);
CUresult fake_user_object_release(CUuserObject object, unsigned int count);
CUresult fake_graph_retain(CUgraph graph, CUuserObject object, unsigned int count,
                           unsigned int flags);
struct fake_held *fake_hold_too(const struct fake_held *held);
void fake_let_go(struct fake_held *held);

/* --- modules.c ----------------------------------------------------------------------- */

CUresult fake_load(CUmodule *module, const void *image);
CUresult fake_unload(CUmodule module);
CUresult fake_function(CUfunction *function, CUmodule module, const char *name);
CUresult fake_load_function(CUfunction function);
struct fake_kernel;
/* NULL: its module is gone, or of another context. */
const struct fake_kernel *fake_kernel_of(CUfunction function);
/* Those that were unloaded, of which the device has not got back all. */
__attribute__((visibility("default"))) size_t fake_modules_kept(void);
/* For tests: how often one was loaded, and that so many of the next functions are not found. */
__attribute__((visibility("default"))) int fake_modules_loaded(void);
__attribute__((visibility("default"))) void fake_refuse_functions(int count);

/* --- hold.c -------------------------------------------------------------------------- */

/* For tests: from the next kernel on `after` begin, and then none; -1: all do. */
__attribute__((visibility("default"))) void fake_hold_kernels(int after);
void fake_await_room(void); /* before a kernel begins */
/* For tests: how many have begun. */
__attribute__((visibility("default"))) int fake_kernels_begun(void);
/* For tests: no stream goes on. */
__attribute__((visibility("default"))) void fake_hold_all(bool held);
void fake_await_motion(void); /* before anything begins */
/* For tests: who records an event waits, as for a place in a stream that is full, and who makes a
 * pool. */
__attribute__((visibility("default"))) void fake_hold_calls(bool held);
/* How many of them are held. */
__attribute__((visibility("default"))) int fake_calls_kept(void);
void fake_await_call(void); /* before that */

/* --- exit.c -------------------------------------------------------------------------- */

/* With FAKE_CUDA_TAKES_BACK=1 pinned memory is gone once the driver ends, as it does when the
 * process does. For processes whose streams are idle then. */
void fake_take_back_at_exit(void);
void fake_pinned(void *at, size_t bytes);
void fake_unpinned(const void *at);

/* --- left.c -------------------------------------------------------------------------- */

void fake_watch_end(void); /* of the calling thread */

/* --- elsewhere.c --------------------------------------------------------------------- */

CUresult fake_exchange_mode(CUstreamCaptureMode *mode);
void fake_need_no_capture(const char *call);
void fake_first_pushed(void);
void fake_last_popped(void);

/* --- ranges.c ------------------------------------------------------------------------ */

/* Also for a fake of a library that maps memory itself; `bytes` of forget is not looked at. */
__attribute__((visibility("default"))) void fake_know(CUdeviceptr at, size_t bytes);
__attribute__((visibility("default"))) void fake_forget(CUdeviceptr at, size_t bytes);
bool fake_is_known(CUdeviceptr at);
/* ALREADY_MAPPED, as on an H200, for a call that comes while another one for that memory runs. */
CUresult fake_access_begin(CUdeviceptr at);
void fake_access_end(CUdeviceptr at);

/* --- fake_cuda.c --------------------------------------------------------------------- */

/* For tests: handles of memory that there are, and calls so far. */
__attribute__((visibility("default"))) int fake_handles_held(void);
/* And how much has been made with a handle for the fabric. */
__attribute__((visibility("default"))) int fake_shared_made(void);
/* For the fake management library: what this process uses, and what others do; 0: there are none.
 */
__attribute__((visibility("default"))) size_t fake_device_bytes(void);
__attribute__((visibility("default"))) size_t fake_others_bytes(void);
__attribute__((visibility("default"))) int fake_imports(void);
__attribute__((visibility("default"))) int fake_exports(void);
/* Not more memory than that is created in all, and not more filled at once: OUT_OF_MEMORY. */
__attribute__((visibility("default"))) void fake_run_short(size_t held_bytes, size_t fill_bytes);

/* A call of the driver that enqueues; for other libraries that are played here, too. */
CUresult fake_cuda_enqueue(CUstream stream, void (*run)(void *arg), const void *arg, size_t bytes);
/* Waits for all that runs in the calling thread's context, with its lock held; likewise. */
void fake_cuda_quiet(void);
CUcontext fake_current(void); /* NULL: none */
bool fake_in_context(void);   /* one that is alive */
unsigned long long fake_id_of(CUcontext context);
/* For tests: what cuDevicePrimaryCtxReset does. Whoever uses a stream of before is aborted. */
__attribute__((visibility("default"))) void fake_reset_context(CUdevice device);

/* --- pools.c ------------------------------------------------------------------------- */

CUresult fake_free_async(CUdeviceptr at, CUstream stream);
CUresult fake_pool_create(CUmemoryPool *pool, const CUmemPoolProps *properties);
CUresult fake_pool_destroy(CUmemoryPool pool);
CUresult fake_pool_set(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult fake_alloc_from_pool(CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream stream);

/* --- multicast.c --------------------------------------------------------------------- */

#define FAKE_DEVICES 8

/* A handle of memory or of a multicast object is a descriptor of this process. */
static inline int fake_fd_of(CUmemGenericAllocationHandle handle) {
    return (int)handle - 1;
}

static inline CUmemGenericAllocationHandle fake_handle_of(int fd) {
    return (CUmemGenericAllocationHandle)fd + 1;
}

bool fake_is_multicast(int fd);
CUresult fake_multicast_granularity(size_t *bytes, const CUmulticastObjectProp *property,
                                    CUmulticastGranularity_flags option);
CUresult fake_multicast_create(CUmemGenericAllocationHandle *handle,
                               const CUmulticastObjectProp *property);
CUresult fake_multicast_add(CUmemGenericAllocationHandle handle, CUdevice device);
CUresult fake_multicast_bind(CUmemGenericAllocationHandle handle, size_t at,
                             CUmemGenericAllocationHandle memory, size_t memory_at, size_t bytes,
                             unsigned long long flags);
CUresult fake_multicast_unbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t at,
                               size_t bytes);
void fake_multicast_released(int fd);
CUresult fake_multicast_map(CUdeviceptr at, size_t bytes, int fd);
void fake_multicast_unmap(CUdeviceptr at);
int fake_multicast_find(const void *address, size_t bytes, char **places);
/* For tests: how many calls there were, and how many of cuMulticastCreate. */
__attribute__((visibility("default"))) unsigned int fake_multicast_calls(void);
__attribute__((visibility("default"))) unsigned int fake_multicast_creates(void);

#include "kernels.h"

#endif
