/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the fake driver share. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../cuda_control.h"

/* --- control.c ----------------------------------------------------------------------- */

typedef struct fake_site {
    const char *name;
    _Atomic int calls;
    atomic_bool listed;
    struct fake_site *next;
} fake_site;

bool fake_call_fails(fake_site *site, CUresult *answer);

/* How each of the driver's calls begins: it is counted, and fails if a test wants it to. */
#define FAKE_CALL(its_name)                                                                        \
    do {                                                                                           \
        static fake_site site_ = {.name = its_name};                                               \
        CUresult answer_;                                                                          \
        if (fake_call_fails(&site_, &answer_))                                                     \
            return answer_;                                                                        \
    } while (0)

/* And one that a capture does not see, see elsewhere.c. */
#define FAKE_UNSEEN_CALL(its_name)                                                                 \
    do {                                                                                           \
        fake_need_no_capture(its_name);                                                            \
        FAKE_CALL(its_name);                                                                       \
    } while (0)

/* What is made, and given back. */
void fake_count(int change);

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

/* --- hold.c -------------------------------------------------------------------------- */

void fake_await_room(void);   /* before a kernel begins */
void fake_await_motion(void); /* before anything begins */
void fake_await_call(void);   /* before that */

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

bool fake_is_known(CUdeviceptr at);
/* ALREADY_MAPPED, as on an H200, for a call that comes while another one for that memory runs. */
CUresult fake_access_begin(CUdeviceptr at);
void fake_access_end(CUdeviceptr at);

/* --- fake_cuda.c --------------------------------------------------------------------- */

CUcontext fake_current(void); /* NULL: none */
bool fake_in_context(void);   /* one that is alive */
unsigned long long fake_id_of(CUcontext context);

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

#include "kernels.h"

#endif
