/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client of PMIx. Its calls take deadlines of whole seconds, or none, so each is made in a thread
 * that its caller can leave behind. The library is not used while that thread is in it, and never
 * again if the call was to change something there.
 */
#include "store/store_pmix.h"
#include "base/fork.h"
#include "store/deadline_call.h"
#include "store/store_pmix_abi.h"
#include "store/store_tcp_wire.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SYMMEM_PMIX_H
#include <pmix.h>
#define SAME(ours, theirs) _Static_assert((ours) == (theirs), #theirs)
SAME(sizeof(sm_pmix_proc), sizeof(pmix_proc_t));
SAME(offsetof(sm_pmix_proc, rank), offsetof(pmix_proc_t, rank));
SAME(sizeof(sm_pmix_value), sizeof(pmix_value_t));
SAME(offsetof(sm_pmix_value, data), offsetof(pmix_value_t, data));
SAME(sizeof(sm_pmix_info), sizeof(pmix_info_t));
SAME(offsetof(sm_pmix_info, value), offsetof(pmix_info_t, value));
SAME(SM_PMIX_ERR_TIMEOUT, PMIX_ERR_TIMEOUT);
SAME(SM_PMIX_ERR_NOT_FOUND, PMIX_ERR_NOT_FOUND);
SAME(SM_PMIX_RANK_WILDCARD, PMIX_RANK_WILDCARD);
SAME(SM_PMIX_GLOBAL, PMIX_GLOBAL);
SAME(SM_PMIX_STRING, PMIX_STRING);
SAME(SM_PMIX_INT, PMIX_INT);
SAME(SM_PMIX_UINT32, PMIX_UINT32);
#endif

#define STAGE "PMIx"
#define PAUSE_FIRST_NS 5000000u
#define PAUSE_LAST_NS 50000000u
#define END_NS 5000000000ull /* of PMIx_Finalize */

static sm_pmix_calls calls;
static char load_error[160];

/* One init for all users of the process, which PMIx counts as well. The lock is held for short, and
 * never in PMIx, so that a fork does not wait for PMIx and a child finds it free. */
static sm_fork_lock lock;
static int lock_error;
static int users;
static bool is_busy;          /* a thread begins or ends the use of PMIx */
static atomic_int calls_left; /* calls that were left behind, and have not come back */
static uint32_t made_in;      /* the process that uses PMIx, or is busy with it */
static sm_pmix_proc self;

/* --- the library ------------------------------------------------------------------------------ */

static void load(void) {
    lock_error = sm_fork_lock_open(&lock, true);
    const struct {
        const char *name;
        void *at;
    } symbols[] = {{"PMIx_Init", &calls.init}, {"PMIx_Finalize", &calls.finalize},
                   {"PMIx_Put", &calls.put},   {"PMIx_Commit", &calls.commit},
                   {"PMIx_Get", &calls.get},   {"PMIx_Error_string", &calls.error_string}};
    /* It stays: it may have handlers of its own at the process's end. */
    void *library = dlopen(SM_PMIX_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        sm_copy_text(load_error, sizeof(load_error), dlerror());
    for (size_t i = 0; library != NULL && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *found = dlsym(library, symbols[i].name);
        memcpy(symbols[i].at, &found, sizeof(found));
        if (found == NULL)
            (void)snprintf(load_error, sizeof(load_error), "%s has no function %s", SM_PMIX_LIBRARY,
                           symbols[i].name);
    }
    if (lock_error != 0)
        sm_copy_text(load_error, sizeof(load_error), "no condition for a lock");
}

static bool is_loaded(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load);
    return load_error[0] == '\0';
}

bool sm_pmix_offered(void) {
    return secure_getenv("PMIX_NAMESPACE") != NULL && secure_getenv("PMIX_RANK") != NULL &&
           is_loaded();
}

/* --- calls with a deadline -------------------------------------------------------------------- */

typedef struct pmix_task {
    sm_deadline_call call;
    void (*step)(struct pmix_task *task);
    int result;
    int seconds; /* of a get's own deadline; 0: as long as there is time */
    sm_pmix_proc proc;
    char key[64];
    char text[512]; /* given, or gotten */
    uint32_t number;
} pmix_task;

static void init(pmix_task *task) {
    task->result = calls.init(&task->proc, NULL, 0);
}

static void finalize(pmix_task *task) {
    task->result = calls.finalize(NULL, 0);
}

static void publish(pmix_task *task) {
    sm_pmix_value value = {.type = SM_PMIX_STRING, .data.string = task->text};
    task->result = calls.put(SM_PMIX_GLOBAL, task->key, &value);
    if (task->result == SM_PMIX_SUCCESS)
        task->result = calls.commit();
}

static void get(pmix_task *task) {
    sm_pmix_value *value = NULL;
    sm_pmix_info limit = {.key = SM_PMIX_TIMEOUT, .value.type = SM_PMIX_INT};
    limit.value.data.integer = task->seconds;
    task->result = calls.get(&task->proc, task->key, &limit, task->seconds > 0 ? 1 : 0, &value);
    if (task->result != SM_PMIX_SUCCESS || value == NULL)
        return;
    if (value->type == SM_PMIX_STRING && value->data.string != NULL) {
        sm_copy_text(task->text, sizeof(task->text), value->data.string);
        free(value->data.string);
    } else if (value->type == SM_PMIX_UINT32) {
        task->number = value->data.uint32;
    }
    free(value);
}

static void run_task(sm_deadline_call *base) {
    pmix_task *task = SM_CONTAINER(base, pmix_task, call);
    task->step(task);
}

static void free_task(sm_deadline_call *base) {
    pmix_task *task = SM_CONTAINER(base, pmix_task, call);
    if (base->is_left && task->step == get)
        calls_left--;
    free(task);
}

/* In whole seconds, not beyond the deadline if that is a second away; 0: none. */
static int seconds_left(uint64_t deadline_ns) {
    const uint64_t now_ns = sm_tcp_now_ns();
    if (deadline_ns == 0)
        return 0;
    return deadline_ns > now_ns + 1000000000ull ? (int)((deadline_ns - now_ns) / 1000000000ull) : 1;
}

/* `io` has the step, and its results afterwards. */
static symmem_status call(pmix_task *io, const char *name, uint64_t deadline_ns) {
    if (calls_left != 0)
        return sm_fail(SYMMEM_UNSUPPORTED, "store_open", STAGE,
                       "an earlier call of PMIx has not come back");
    pmix_task *task = malloc(sizeof(*task));
    if (task == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "store_open", STAGE, "no memory for a call");
    const int left_s = seconds_left(deadline_ns);
    *task = *io;
    task->call = (sm_deadline_call){.run = run_task, .destroy = free_task};
    if (task->seconds == 0)
        task->seconds = left_s;
    if (!sm_deadline_call_run(&task->call, deadline_ns)) {
        if (errno != ETIMEDOUT)
            return sm_fail_errno(errno, "store_open", STAGE, "no thread for %s", name);
        calls_left++;
        return sm_fail(SYMMEM_TIMEOUT, "store_open", STAGE, "%s did not come back in time", name);
    }
    *io = *task;
    sm_deadline_call_release(&task->call);
    if (io->result == SM_PMIX_SUCCESS)
        return SYMMEM_OK;
    const symmem_status status = io->result == SM_PMIX_ERR_TIMEOUT     ? SYMMEM_TIMEOUT
                                 : io->result == SM_PMIX_ERR_NOT_FOUND ? SYMMEM_NOT_FOUND
                                                                       : SYMMEM_SYSTEM;
    return sm_fail(status, "store_open", STAGE, "%s failed: %s", name,
                   calls.error_string(io->result));
}

/* --- begin and end ---------------------------------------------------------------------------- */

static symmem_status read_number(const char *key, uint64_t deadline_ns, uint32_t *number_p) {
    pmix_task task = {.step = get, .proc = self};
    task.proc.rank = SM_PMIX_RANK_WILDCARD;
    sm_copy_text(task.key, sizeof(task.key), key);
    const symmem_status status = call(&task, "PMIx_Get of the job's size", deadline_ns);
    *number_p = task.number;
    return status;
}

/* PMIx's ranks must be the world's, for rank 0 is looked for by its number. */
static symmem_status check_world(int32_t rank, int32_t world_size, uint64_t deadline_ns,
                                 bool *is_local_p) {
    uint32_t size = 0, local = 0;
    symmem_status status = read_number(SM_PMIX_JOB_SIZE, deadline_ns, &size);
    if (status != SYMMEM_OK)
        return status;
    if (size != (uint32_t)world_size || self.rank != (uint32_t)rank) {
        (void)sm_fail(SYMMEM_INVALID_ARGUMENT, "store_open", STAGE,
                      "PMIx has this process as rank %u of %u, and it is rank %d of %d: name a "
                      "store of its own in SYMMEM_STORE",
                      self.rank, size, rank, world_size);
        return sm_error_sizes(size, (uint64_t)world_size);
    }
    SM_ATTEMPT(asking);
    *is_local_p = read_number(SM_PMIX_LOCAL_SIZE, deadline_ns, &local) == SYMMEM_OK &&
                  local == size; /* not told, it may be anywhere */
    return SYMMEM_OK;
}

static symmem_status begin_first(uint64_t deadline_ns) {
    pmix_task task = {.step = init};
    const symmem_status status = call(&task, "PMIx_Init", deadline_ns);
    self = task.proc;
    return status;
}

static void end_last(void) {
    pmix_task task = {.step = finalize};
    SM_ATTEMPT(ending);
    (void)!call(&task, "PMIx_Finalize", sm_tcp_now_ns() + END_NS);
}

/* A child of fork cannot go on with what its parent has begun in PMIx. */
static bool is_parents(void) {
    return (is_busy || users > 0) && sm_fork_is_parents(made_in);
}

/* The thread may begin or end the use now, and calls be_free afterwards. TIMEOUT: another one has
 * not come back by then. UNSUPPORTED: the parent process uses PMIx. */
static symmem_status become_busy(uint64_t deadline_ns) {
    const struct timespec until = {(time_t)(deadline_ns / 1000000000ull),
                                   (long)(deadline_ns % 1000000000ull)};
    int error = 0;
    (void)pthread_mutex_lock(&lock.mutex);
    while (is_busy && !is_parents() && error != ETIMEDOUT)
        error = deadline_ns == 0 ? pthread_cond_wait(&lock.changed, &lock.mutex)
                                 : pthread_cond_timedwait(&lock.changed, &lock.mutex, &until);
    const bool parents = is_parents(), done = !is_busy && !parents;
    if (done) {
        is_busy = true;
        made_in = sm_fork_generation();
    }
    (void)pthread_mutex_unlock(&lock.mutex);
    if (parents)
        return sm_fail(SYMMEM_UNSUPPORTED, "store_open", STAGE,
                       "the parent process uses PMIx, so that its child cannot");
    return done ? SYMMEM_OK
                : sm_fail(SYMMEM_TIMEOUT, "store_open", STAGE,
                          "another thread has not come back from PMIx in time");
}

static void be_free(int more_users) {
    (void)pthread_mutex_lock(&lock.mutex);
    users += more_users;
    is_busy = false;
    (void)pthread_cond_broadcast(&lock.changed);
    (void)pthread_mutex_unlock(&lock.mutex);
}

symmem_status sm_pmix_begin(int32_t rank, int32_t world_size, uint64_t deadline_ns,
                            bool *is_local_p) {
    if (!is_loaded())
        return sm_fail(SYMMEM_UNSUPPORTED, "store_open", STAGE, "%s", load_error);
    if (secure_getenv("PMIX_NAMESPACE") == NULL)
        return sm_fail(SYMMEM_UNSUPPORTED, "store_open", STAGE,
                       "no launcher offers PMIx to this process: PMIX_NAMESPACE is not set");
    symmem_status status = become_busy(deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    if (users == 0)
        status = begin_first(deadline_ns);
    const bool has_begun = status == SYMMEM_OK;
    if (has_begun)
        status = check_world(rank, world_size, deadline_ns, is_local_p);
    if (has_begun && status != SYMMEM_OK && users == 0)
        end_last();
    be_free(status == SYMMEM_OK ? 1 : 0);
    return status;
}

/* In a child of fork there is nothing to end. A thread that does not come back keeps PMIx. */
void sm_pmix_end(void) {
    SM_ATTEMPT(ending);
    if (become_busy(sm_tcp_now_ns() + END_NS) == SYMMEM_OK) {
        if (users == 1)
            end_last();
        be_free(-1);
    }
}

/* --- what travels ----------------------------------------------------------------------------- */

symmem_status sm_pmix_publish(const char *key, const char *text, uint64_t deadline_ns) {
    pmix_task task = {.step = publish};
    sm_copy_text(task.key, sizeof(task.key), key);
    sm_copy_text(task.text, sizeof(task.text), text);
    return call(&task, "PMIx_Put", deadline_ns);
}

/* Open MPI's server answers as soon as rank 0 has published, unless that one still had to end PMIx
 * for the world before; Slurm's answers at once in any case. So it is asked again, once a second or
 * after a moment. */
symmem_status sm_pmix_look_up(const char *key, char *text, size_t capacity, uint64_t deadline_ns) {
    uint64_t pause_ns = PAUSE_FIRST_NS;
    for (;;) {
        pmix_task task = {.step = get, .proc = self};
        task.proc.rank = 0;
        task.seconds = 1;
        sm_copy_text(task.key, sizeof(task.key), key);
        const symmem_status status = call(&task, "PMIx_Get of rank 0's store", deadline_ns);
        if (status == SYMMEM_OK)
            sm_copy_text(text, capacity, task.text);
        if (status != SYMMEM_NOT_FOUND && status != SYMMEM_TIMEOUT)
            return status;
        if (deadline_ns != 0 && sm_tcp_now_ns() + pause_ns >= deadline_ns)
            return sm_fail(SYMMEM_TIMEOUT, "store_open", STAGE, "rank 0 has published no store");
        (void)sm_tcp_ready(-1, 0, sm_tcp_now_ns() + pause_ns);
        pause_ns = pause_ns * 2 < PAUSE_LAST_NS ? pause_ns * 2 : PAUSE_LAST_NS;
    }
}
