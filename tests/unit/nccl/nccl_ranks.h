/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks on the NCCL backend without NCCL and GPUs: the libraries of fake_nccl.c and the driver of
 * fake_cuda.c. Include it in one file of a program.
 */
#ifndef NCCL_RANKS_H
#define NCCL_RANKS_H

#include <dlfcn.h>
#include <stdarg.h>

#include "fake_cuda.h"
#include "fake_nccl.h"
#include "link_ranks.h"
#include "nccl_internal.h"

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

/* What resolve.cu does. */
static inline void launch(const char *name, void **arguments) {
    const fake_window *window;
    int first, count;
    void **pointers;
    if (strcmp(name, "symmem_nccl_resolve") != 0)
        return;
    memcpy(&window, arguments[0], sizeof window);
    memcpy(&first, arguments[1], sizeof first);
    memcpy(&count, arguments[2], sizeof count);
    memcpy(&pointers, arguments[3], sizeof pointers);
    for (int i = 0; i < count; i++)
        pointers[i] = window->pointers[first + i];
}

static inline void use_library(const char *path) {
    void *handle = dlopen(path, RTLD_NOW);
    CU_ASSERT_PTR_NOT_NULL_FATAL(handle);
    nccl = dlsym(handle, "fake_nccl");
    CU_ASSERT_PTR_NOT_NULL_FATAL(nccl);
    setenv("SYMMEM_NCCL_LIBRARY", path, 1);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    fake_cuda.launch = launch;
    fake_cuda.is_device = nccl->is_window;
    fake_cuda.is_busy = nccl->is_running;
}

/* One that ends is waited for only for a moment, and its thread may be kept from running. */
static inline bool roots_come_to(int roots) {
    for (int i = 0; i < 5000 && nccl->roots() != roots; i++)
        usleep(1000);
    return nccl->roots() == roots;
}

/* Nor has it closed its descriptor before. */
static inline void await_root_threads(void) {
    for (int i = 0; i < 2000 && atomic_load(&nccl->root_threads) != 0; i++)
        usleep(1000);
}

static inline void expect_nothing_left(void) {
    CU_ASSERT_EQUAL(atomic_load(&nccl->comms), 0);
    CU_ASSERT_EQUAL(atomic_load(&nccl->threads), 0);
    CU_ASSERT_EQUAL(atomic_load(&nccl->misuses), 0);
    CU_ASSERT(roots_come_to(0));
    CU_ASSERT_EQUAL(atomic_load(&fake_cuda.live), 0);
    CU_ASSERT_EQUAL(atomic_load(&fake_cuda.contexts), 0);
    CU_ASSERT_FALSE(nccl->nvls_at_first);
}

/* The cases' ranks are on as many devices. */
static inline void run_nccl(int32_t world, rank_body body, int argument) {
    run_threads((plan){.world = world,
                       .body = body,
                       .argument = argument,
                       .backend = nccl_table(),
                       .settle = await_root_threads});
    expect_nothing_left();
}

/* What each rank got, for comparison; between two meetings. */
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
    if (handle != NULL)
        check_data(env, ptr, handle, 1000);
    symmem_handle_release(handle);
    if (ptr != NULL)
        CHECK_OK(env, symmem_free(env->context, ptr));
}

#endif
