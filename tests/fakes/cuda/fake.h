/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the fake driver share. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

/* --- fake_cuda.c --------------------------------------------------------------------- */

typedef struct fake_entry {
    const char *name;
    void (*function)(void);
} fake_entry;

/* The definition of one of the driver's calls, which cuGetProcAddress finds: the linker puts all
 * entries together. */
#define FAKE(call, ...)                                                                            \
    static CUresult fake_##call(__VA_ARGS__);                                                      \
    static const fake_entry entry_##call __attribute__((used, section("fake_entries"))) = {        \
        "cu" #call, (void (*)(void))fake_##call};                                                  \
    static CUresult fake_##call(__VA_ARGS__)

/* --- streams.c ----------------------------------------------------------------------- */

typedef struct fake_op {
    struct fake_op *next;
    void (*run)(void *arg);
    void (*drop)(void *arg); /* when it is over, or its graph is destroyed; NULL: nothing */
    bool blocks;             /* the driver blocks the launching thread until it is over */
    size_t bytes;
    _Alignas(16) char arg[];
} fake_op;

/* Enqueues or captures a copy of `arg`. */
CUresult fake_enqueue(CUstream stream, void (*run)(void *arg), void (*drop)(void *arg),
                      const void *arg, size_t bytes, bool blocks);
/* Behind a call that enqueues, without a lock: see fake_cuda_hooks.at_once. */
void fake_go_on(CUstream stream);
bool fake_is_capturing(CUstream stream);
void fake_wait_stream(CUstream stream);
void fake_wait_context(CUcontext context); /* for all its streams */
CUresult fake_graph_launch(CUgraphExec executable, CUstream stream);

struct fake_held;
struct fake_held **fake_held_by(CUgraph graph); /* its user objects */

/* --- user_objects.c ------------------------------------------------------------------ */

struct fake_held *fake_hold_too(const struct fake_held *held);
void fake_let_go(struct fake_held *held);

/* --- modules.c ----------------------------------------------------------------------- */

struct fake_kernel;
/* NULL: its module is gone, or of another context. */
const struct fake_kernel *fake_kernel_of(CUfunction function);

/* control.c, too: what tests hold back. */

void fake_await_room(void);   /* before a kernel begins */
void fake_await_motion(void); /* before anything begins */
void fake_await_call(void);   /* before a call that fake_hold_calls is about */

/* --- exit.c -------------------------------------------------------------------------- */

/* With FAKE_CUDA_TAKES_BACK=1 pinned memory is gone once the driver ends, as it does when the
 * process does. For processes whose streams are idle then. */
void fake_take_back_at_exit(void);
void fake_pinned(void *at, size_t bytes);
void fake_unpinned(const void *at);

void fake_watch_end(void); /* of the calling thread */

/* --- elsewhere.c --------------------------------------------------------------------- */

void fake_need_no_capture(const char *call);
void fake_first_pushed(void);
void fake_last_popped(void);

/* --- ranges.c ------------------------------------------------------------------------ */

bool fake_is_known(CUdeviceptr at);
/* ALREADY_MAPPED, as on an H200, for a call that comes while another one for that memory runs. */
CUresult fake_access_begin(CUdeviceptr at);
void fake_access_end(CUdeviceptr at);

/* --- contexts.c ---------------------------------------------------------------------- */

#define FAKE_DEVICES 8
#define FAKE_DEVICE_BYTES ((size_t)1 << 40)

CUcontext fake_current(void); /* NULL: none */
bool fake_in_context(void);   /* one that is alive */
unsigned long long fake_id_of(CUcontext context);
/* Every call that enqueues has the lock of the current context. */
void fake_begin_enqueueing(void);
void fake_end_enqueueing(void);

#define FAKE_NEED_CONTEXT()                                                                        \
    do {                                                                                           \
        if (!fake_in_context())                                                                    \
            return CUDA_ERROR_INVALID_CONTEXT;                                                     \
    } while (0)

/* --- memory.c ------------------------------------------------------------------------ */

bool fake_may_fill(size_t bytes);

static inline void *fake_pointer(CUdeviceptr at) {
    return (void *)(uintptr_t)at;
}

/* --- multicast.c --------------------------------------------------------------------- */

/* A handle of memory or of a multicast object is a descriptor of this process. */
static inline int fake_fd_of(CUmemGenericAllocationHandle handle) {
    return (int)handle - 1;
}

static inline CUmemGenericAllocationHandle fake_handle_of(int fd) {
    return (CUmemGenericAllocationHandle)fd + 1;
}

bool fake_is_multicast(int fd);
void fake_multicast_released(int fd);
CUresult fake_multicast_map(CUdeviceptr at, size_t bytes, int fd);
void fake_multicast_unmap(CUdeviceptr at);
int fake_multicast_find(const void *address, size_t bytes, char **places);

#include "kernels.h"

#endif
