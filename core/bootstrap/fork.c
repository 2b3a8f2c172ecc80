/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects in the child of a fork. The child has copies of the parent's objects, but none of the
 * parent's threads. Releasing the resources of such a copy would release the parent's. So each
 * object that belongs to no other object remembers the process that made it.
 */
#include "bootstrap/bootstrap.h"
#include "store/store_tcp_server.h"

#include <pthread.h>
#include <stdatomic.h>

/* The number of forks between the process that loaded the library and this one. */
static _Atomic uint32_t generation;

/* --- locks ------------------------------------------------------------------------------------ */

static struct {
    pthread_mutex_t mutex; /* guards the list */
    sm_fork_lock *first;
} locks = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int sm_fork_lock_open(sm_fork_lock *lock, bool waits) {
    const int error = waits ? sm_cond_init(&lock->changed) : 0;
    if (error != 0)
        return error;
    (void)sm_fork_generation();
    lock->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    lock->waits = waits;
    lock->before = NULL;
    (void)pthread_mutex_lock(&locks.mutex);
    lock->next = locks.first;
    if (lock->next != NULL)
        lock->next->before = lock;
    locks.first = lock;
    (void)pthread_mutex_unlock(&locks.mutex);
    return 0;
}

void sm_fork_lock_close(sm_fork_lock *lock) {
    (void)pthread_mutex_lock(&locks.mutex);
    if (lock->next != NULL)
        lock->next->before = lock->before;
    *(lock->before == NULL ? &locks.first : &lock->before->next) = lock->next;
    (void)pthread_mutex_unlock(&locks.mutex);
    if (lock->waits)
        (void)pthread_cond_destroy(&lock->changed);
    (void)pthread_mutex_destroy(&lock->mutex);
}

static void take_locks(void) {
    (void)pthread_mutex_lock(&locks.mutex);
    for (sm_fork_lock *lock = locks.first; lock != NULL; lock = lock->next)
        (void)pthread_mutex_lock(&lock->mutex);
}

/* Threads that wait for a condition stay in the parent. The child makes its conditions anew. */
static void give_locks(bool in_child) {
    for (sm_fork_lock *lock = locks.first; lock != NULL; lock = lock->next) {
        if (in_child && lock->waits)
            (void)sm_cond_init(&lock->changed);
        (void)pthread_mutex_unlock(&lock->mutex);
    }
    (void)pthread_mutex_unlock(&locks.mutex);
}

/* --- forks ------------------------------------------------------------------------------------ */

/* Waits until no thread of the parent is opening or closing a socket. */
static void before(void) {
    sm_tcp_server_lock_all();
    sm_ipc_lock_all();
    sm_life_lock_all();
    take_locks();
}

static void in_parent(void) {
    give_locks(false);
    sm_life_unlock_all();
    sm_ipc_unlock_all();
    sm_tcp_server_unlock_all();
}

static void in_child(void) {
    (void)atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
    sm_life_forget_all();
    sm_ipc_forget_all();
    sm_tcp_server_forget_all();
    give_locks(true);
    sm_life_unlock_all();
    sm_ipc_unlock_all();
    sm_tcp_server_unlock_all();
}

static void register_handlers(void) {
    (void)pthread_atfork(before, in_parent, in_child);
}

uint32_t sm_fork_generation(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, register_handlers);
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

bool sm_fork_is_parents(uint32_t made_in) {
    return made_in != atomic_load_explicit(&generation, memory_order_relaxed);
}

symmem_status sm_fork_refuse(const char *operation) {
    return sm_fail(SYMMEM_NOT_INITIALIZED, operation, "fork",
                   "the object is the parent process's: a child of fork makes its own");
}
