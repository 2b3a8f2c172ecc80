/* SPDX-License-Identifier: BSD-3-Clause */
/* User objects of graphs. The last reference's end runs the destructor in a thread of the driver's.
 * FAKE_CUDA_NO_USER_OBJECTS=create, =retain: that call fails. */
#include <sched.h>

#include "fake.h"

struct CUuserObject_st {
    atomic_uint count;
    CUhostFn destroy;
    void *arg;
};

static atomic_bool changing; /* some graph */

/* What a graph, or one that was instantiated, holds. */
struct fake_held {
    struct fake_held *next;
    CUuserObject object;
    unsigned int count;
};

static void *destroy(void *opaque) {
    CUuserObject object = opaque;
    object->destroy(object->arg);
    free(object);
    return NULL;
}

static void release(CUuserObject object, unsigned int count) {
    pthread_t thread;
    sigset_t all, before;
    if (atomic_fetch_sub(&object->count, count) != count)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, destroy, object) != 0 || pthread_detach(thread) != 0)
        abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

FAKE(UserObjectCreate, CUuserObject *object_p, void *arg, CUhostFn destructor, unsigned int count,
     unsigned int flags) {
    FAKE_CALL("cuUserObjectCreate");
    const char *refused = getenv("FAKE_CUDA_NO_USER_OBJECTS");
    if (refused != NULL && refused[0] == 'c')
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUuserObject object = calloc(1, sizeof *object);
    if (object == NULL || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *object = (struct CUuserObject_st){.destroy = destructor, .arg = arg};
    atomic_init(&object->count, count);
    *object_p = object;
    return CUDA_SUCCESS;
}

FAKE(UserObjectRelease, CUuserObject object, unsigned int count) {
    FAKE_CALL("cuUserObjectRelease");
    release(object, count);
    return CUDA_SUCCESS;
}

static struct fake_held *hold(struct fake_held *next, CUuserObject object, unsigned int count) {
    struct fake_held *held = malloc(sizeof *held);
    if (held == NULL)
        abort();
    *held = (struct fake_held){next, object, count};
    return held;
}

FAKE(GraphRetainUserObject, CUgraph graph, CUuserObject object, unsigned int count,
     unsigned int flags) {
    FAKE_CALL("cuGraphRetainUserObject");
    const char *refused = getenv("FAKE_CUDA_NO_USER_OBJECTS");
    if (graph == NULL || (refused != NULL && refused[0] == 'r'))
        return CUDA_ERROR_INVALID_VALUE;
    struct fake_held **held = fake_held_by(graph);
    if (atomic_exchange(&changing, true)) {
        fprintf(stderr, "two threads change a graph at once\n");
        abort();
    }
    if (flags != CU_GRAPH_USER_OBJECT_MOVE)
        atomic_fetch_add(&object->count, count);
    *held = hold(*held, object, count);
    sched_yield(); /* for others to come */
    atomic_store(&changing, false);
    return CUDA_SUCCESS;
}

struct fake_held *fake_hold_too(const struct fake_held *held) {
    struct fake_held *own = NULL;
    for (; held != NULL; held = held->next) {
        atomic_fetch_add(&held->object->count, held->count);
        own = hold(own, held->object, held->count);
    }
    return own;
}

void fake_let_go(struct fake_held *held) {
    while (held != NULL) {
        struct fake_held *next = held->next;
        release(held->object, held->count);
        free(held);
        held = next;
    }
}
