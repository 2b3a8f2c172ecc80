/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks on the NCCL backend without NCCL and GPUs: the libraries of fake_nccl.c and the driver of
 * tests/fakes/cuda. Include it in one file of a program.
 */
#ifndef NCCL_RANKS_H
#define NCCL_RANKS_H

#include <dlfcn.h>
#include <stdarg.h>

#include "cuda/kernels.h"
#include "cuda_control.h"
#include "fake_nccl.h"
#include "link_ranks.h"
#include "nccl_internal.h"
#include "driver/image.h"
#include "image.h"

#define OLD_NCCL UNIT_FAKE_DIR "/libfake_nccl_22605.so"
#define PLAIN_NCCL UNIT_FAKE_DIR "/libfake_nccl_22809.so"
#define NEW_NCCL UNIT_FAKE_DIR "/libfake_nccl_22907.so"
#define SHARING_NCCL UNIT_FAKE_DIR "/libfake_nccl_23007.so"
#define NCCL_WITHOUT_RECV UNIT_FAKE_DIR "/libfake_nccl_without_recv.so"

static fake_nccl_state *nccl; /* of the library in use */
static bool with_kernels = true;

/* In place of image.c of both backends: the fake driver takes anything. */
const void *cuda_image(void) {
    return with_kernels ? "kernels" : NULL;
}

const void *nccl_image(void) {
    return with_kernels ? "kernel" : NULL;
}

/* --- the driver, linked in --------------------------------------------------------- */

static bool driver_is_absent;

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags) {
    if (name == NULL || strcmp(name, "libcuda.so.1") != 0)
        return __real_dlopen(name, flags);
    return __real_dlopen(driver_is_absent ? "libcuda-that-is-not-there.so" : NULL, flags);
}

/* Called at each kernel launch. Only the kernel that resolves windows does anything. */
static void (*launching)(const char *name, void **arguments, const void *stream); /* or NULL */

typedef struct resolution {
    const fake_window *window;
    int first, count;
    void **pointers;
} resolution;

static inline void take_resolution(const fake_kernel *kernel, void *args, void **arguments,
                                   void *stream) {
    resolution *wanted = args;
    memcpy(&wanted->window, arguments[0], sizeof wanted->window);
    memcpy(&wanted->first, arguments[1], sizeof wanted->first);
    memcpy(&wanted->count, arguments[2], sizeof wanted->count);
    memcpy(&wanted->pointers, arguments[3], sizeof wanted->pointers);
    if (launching != NULL)
        launching(kernel->name, arguments, stream);
}

/* Does the work of resolve.cu. */
static inline void resolve(const void *args) {
    const resolution *wanted = args;
    for (int i = 0; i < wanted->count; i++)
        wanted->pointers[i] = wanted->window->pointers[wanted->first + i];
}

static inline void take_nothing(const fake_kernel *kernel, void *args, void **arguments,
                                void *stream) {
    if (launching != NULL)
        launching(kernel->name, arguments, stream);
}

static inline void do_nothing(const void *args) {}

const fake_kernel *fake_find_kernel(const char *name) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static fake_kernel kernels[128] = {
        {"symmem_nccl_resolve", resolve, sizeof(resolution), 1, take_resolution}};
    size_t i = 0;
    pthread_mutex_lock(&lock);
    while (kernels[i].name != NULL && strcmp(kernels[i].name, name) != 0)
        i++;
    if (kernels[i].name == NULL) /* names are constants of the backend */
        kernels[i] = (fake_kernel){name, do_nothing, 0, 1, take_nothing};
    pthread_mutex_unlock(&lock);
    return &kernels[i];
}

/* Chooses the result of the rank's next call of that kind, until nccl->call is none. */
static inline void fail_nccl_after(int skip, fake_nccl_call call, fake_nccl_way way, int rank,
                                   ncclResult_t result) {
    nccl->way = way;
    nccl->rank = rank;
    nccl->result = result;
    atomic_store(&nccl->skip, skip);
    nccl->call = call;
}

static inline void fail_nccl(fake_nccl_call call, fake_nccl_way way, int rank,
                             ncclResult_t result) {
    fail_nccl_after(0, call, way, rank, result);
}

/* Rank 0 sees to it while the others wait; so many of the calls go well before. */
static inline void fail_after(rank_env *env, int skip, fake_nccl_call call, fake_nccl_way way,
                              int rank, ncclResult_t result) {
    env_meet(env);
    if (env->rank == 0)
        fail_nccl_after(skip, call, way, rank, result);
    env_meet(env);
}

static inline void fail_none(rank_env *env) {
    env_meet(env);
    if (env->rank == 0)
        nccl->call = FAKE_NO_CALL;
    env_meet(env);
}

/* Aborts wait from now on, or go on. */
static inline void hold_aborts(rank_env *env, bool held) {
    env_meet(env);
    atomic_store(&nccl->held, held);
    env_meet(env);
}

/* Other work, before what is enqueued, that takes long. */
static const void *_Atomic held_stream;

static inline bool is_held(const void *stream) {
    return stream == atomic_load(&held_stream) || nccl->is_running(stream);
}

static inline const void *native_of(const symmem_stream *stream) {
    return ((const cuda_stream *)stream->native)->native;
}

/* The driver has more than what it held before the first rank came only if that is left. */
static int live_before;

static inline void use_driver(void) {
    static bool is_used;
    fake_cuda_hooks.at_once = true;
    setenv("FAKE_CUDA_NO_ID", "1", 1); /* or modules stay */
    if (!is_used)
        fake_use_devices(); /* so that the backend keeps nothing of its own */
    if (!is_used)
        live_before = fake_live();
    is_used = true;
}

/* Waits for a destroyed stream's last work, which ends on a thread of its own. */
static inline bool driver_is_as_before(void) {
    AWAIT(5000, fake_live() == live_before);
    return fake_live() == live_before;
}

static inline void use_library(const char *path) {
    void *handle = dlopen(path, RTLD_NOW);
    CU_ASSERT_PTR_NOT_NULL_FATAL(handle);
    nccl = dlsym(handle, "fake_nccl");
    CU_ASSERT_PTR_NOT_NULL_FATAL(nccl);
    setenv("SYMMEM_NCCL_LIBRARY", path, 1);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    use_driver();
    launching = NULL;
    atomic_store(&held_stream, NULL);
    fake_cuda_hooks.is_busy = is_held;
}

/* Waits for ended roots. The backend waits only for a moment, and a root's thread may be
 * delayed. */
static inline bool roots_come_to(int roots) {
    AWAIT(5000, nccl->roots() == roots);
    return nccl->roots() == roots;
}

/* Waits for the roots' threads, which close their descriptors before they end. */
static inline void await_root_threads(void) {
    AWAIT(2000, atomic_load(&nccl->root_threads) == 0);
}

static inline void expect_nothing_left(void) {
    CU_ASSERT_EQUAL(atomic_load(&nccl->comms), 0);
    CU_ASSERT_EQUAL(atomic_load(&nccl->threads), 0);
    CU_ASSERT_EQUAL(atomic_load(&nccl->misuses), 0);
    CU_ASSERT(roots_come_to(0));
    CU_ASSERT_TRUE(driver_is_as_before());
    CU_ASSERT_EQUAL(fake_contexts_pushed(), 0);
    CU_ASSERT_FALSE(nccl->nvls_at_first);
}

/* The cases' ranks are on as many devices. */
static inline void run_nccl(int32_t world, rank_body body, int argument) {
    run_threads((plan){.world = world,
                       .body = body,
                       .argument = argument,
                       .backend = nccl_table(),
                       .together = true,
                       .settle = await_root_threads});
    expect_nothing_left();
}

/* On a library whose load/store domains are of so many ranks; 0: of all. */
static inline void run_on(const char *library, int domain, int32_t world, rank_body body,
                          int argument) {
    use_library(library);
    nccl->domain = domain;
    run_nccl(world, body, argument);
    nccl->domain = 0;
}

/* Runs once with pointers that a kernel asks for, and once with pointers that the host asks for. */
static inline void run_on_both(int domain, int32_t world, rank_body body, int argument) {
    run_on(PLAIN_NCCL, domain, world, body, argument);
    run_on(NEW_NCCL, domain, world, body, argument);
}

static inline void run_plain(plan p) {
    run_on(PLAIN_NCCL, 0, p.world, p.body, p.argument);
}

/* RANKS_TEST on PLAIN_NCCL. */
#define NCCL_TEST(case_name, ...) RANKS_TEST_(case_name, __COUNTER__, run_plain, __VA_ARGS__)

/* Reads the counter before any rank goes on. */
static inline int count_of(rank_env *env, const atomic_int *counter) {
    env_meet(env);
    const int count = atomic_load(counter);
    env_meet(env);
    return count;
}

/* The outcome of each rank, for comparison between two barriers. */
static symmem_status outcomes[MAX_RANKS];

static inline void expect_agreed(rank_env *env, symmem_status own, symmem_status wanted) {
    outcomes[env->rank] = own;
    env_meet(env);
    CHECK_STATUS(env, own, wanted);
    for (int32_t r = 0; r < env->world; r++)
        CHECK(env, outcomes[r] == own);
    env_meet(env);
}

static inline void check_data_of_others(rank_env *env, symmem_handle *handle, int value) {
    void *const *buffers = NULL;
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    for (int32_t r = 0; r < env->world; r++)
        CHECK(env, buffers[r] != NULL && *(int *)buffers[r] == value + r);
}

/* Each rank writes its own part and reads all others'. */
static inline void check_data(rank_env *env, void *ptr, symmem_handle *handle, int value) {
    void *const *buffers = NULL;
    *(int *)ptr = value + env->rank;
    CHECK_OK(env, symmem_group_barrier(env->group, 20000));
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    CHECK(env, buffers[env->rank] == ptr);
    check_data_of_others(env, handle, value);
    CHECK_OK(env, symmem_group_barrier(env->group, 20000));
}

/* A rendezvous of the group as it is now works, and goes again. */
static inline void check_fresh(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    check_data(env, ptr, handle, 1000);
    env_drop(env, handle, ptr);
}

/* So does one for that memory. */
static inline void check_at(rank_env *env, void *ptr) {
    symmem_handle *handle = env_rendezvous(env, ptr);
    check_data(env, ptr, handle, 400);
    symmem_handle_release(handle);
}

#endif
