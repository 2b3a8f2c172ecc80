/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library must not do to the process that uses it. */
#include <signal.h>
#include <unistd.h>

#include "sync_help.h"

static atomic_int taken;

static void take(int number) {
    (void)number;
    atomic_fetch_add(&taken, 1);
}

/* A context's whole life; the ledger of each case compares the settings. */
static void settings_stay(struct tk *t) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    TK_OK(t, symmem_barrier(handle, 0, tk_scaled_ms(LONG_MS), NULL));
    if (symmem_handle_reset(handle, tk_scaled_ms(LONG_MS)) != SYMMEM_OK)
        TK_CHECK_MSG(t, false, "reset failed");
    tk_end_context(t);
}

/* Blocked in the one thread that the program has, a signal stays pending: threads of the library
 * must not take it in its stead. */
static void no_thread_takes_signals(struct tk *t) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    symmem_stream *stream = NULL;
    struct sigaction action = {.sa_handler = take}, before;
    sigset_t one, mask, pending;
    atomic_store(&taken, 0);
    /* Their threads begin with the mask of the thread that they are started by. */
    if ((t->capabilities & SYMMEM_CAP_STREAMS) != 0)
        stream = tk_stream(t);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    TK_REQUIRE(t, pthread_sigmask(SIG_BLOCK, &one, &mask) == 0);
    TK_REQUIRE(t, sigaction(SIGUSR2, &action, &before) == 0);
    TK_OK(t, symmem_barrier(handle, 0, tk_scaled_ms(LONG_MS), stream));
    if (stream != NULL)
        tk_synchronize(t, stream);
    TK_CHECK(t, kill(getpid(), SIGUSR2) == 0);
    tk_sleep_ms(5);
    TK_CHECK(t, sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2) == 1);
    TK_EQ_INT(t, 0, atomic_load(&taken));
    TK_CHECK(t, pthread_sigmask(SIG_SETMASK, &mask, NULL) == 0); /* now it comes */
    TK_EQ_INT(t, 1, atomic_load(&taken));
    TK_CHECK(t, sigaction(SIGUSR2, &before, NULL) == 0);
}

static const struct tk_case cases[] = {
    {.name = "life.settings_stay",
     .requirements = "SM-LIFE-10",
     .max_ranks = 2,
     .body = settings_stay},
    {.name = "life.no_thread_takes_signals",
     .requirements = "SM-LIFE-11",
     .max_ranks = 2,
     .flags = TK_PROCESS_ONLY,
     .body = no_thread_takes_signals},
};
TK_SUITE(life_process, cases);
