/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library must not do to the process that uses it. */
#include <dirent.h>

#include "case_help.h"

#define DEVICE_TYPE_CPU 1 /* kDLCPU */

static atomic_int taken;

static void take(int number) {
    (void)number;
    atomic_fetch_add(&taken, 1);
}

/* A context's whole life; the ledger of each case compares the settings. */
TK_TEST(life, settings_stay, "SM-LIFE-10", .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    if (symmem_handle_reset(handle, LONG_MS) != SYMMEM_OK)
        TK_CHECK_MSG(t, false, "reset failed");
    tk_end_context(t);
}

static uint64_t blocked_by(int directory, const char *task) {
    char path[64], line[256];
    unsigned long long mask = 0;
    snprintf(path, sizeof(path), "%s/status", task);
    int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (file == NULL && fd >= 0)
        close(fd);
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "SigBlk: %llx", &mask) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return mask;
}

struct threads {
    int count;
    int ids[64];
};

static bool is_in(const struct threads *threads, int id) {
    for (int i = 0; i < threads->count; i++)
        if (threads->ids[i] == id)
            return true;
    return false;
}

/* The threads that there are, and what those block that are not `known`. */
static uint64_t look_at_threads(struct tk *t, const struct threads *known, struct threads *found) {
    DIR *directory = opendir("/proc/self/task");
    const struct dirent *entry;
    uint64_t blocked = 0;
    found->count = 0;
    TK_REQUIRE(t, directory != NULL);
    while ((entry = readdir(directory)) != NULL && found->count < 64) {
        if (entry->d_name[0] == '.')
            continue;
        found->ids[found->count++] = atoi(entry->d_name);
        if (!is_in(known, found->ids[found->count - 1]))
            blocked |= blocked_by(dirfd(directory), entry->d_name);
    }
    closedir(directory);
    return blocked;
}

/* Looks at the threads that are not `known`, because a sanitizer has threads of its own. */
static void expect_faults_open(struct tk *t, const struct threads *known) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    struct threads now;
    uint64_t blocked = look_at_threads(t, known, &now);
    TK_CHECK(t, (t->capabilities & SYMMEM_CAP_STREAMS) == 0 || now.count > known->count);
    for (size_t i = 0; i < LENGTH(faults); i++)
        TK_CHECK_MSG(t, (blocked >> (faults[i] - 1) & 1) == 0, "a thread blocks %s",
                     strsignal(faults[i]));
}

/* The threads that there are without a context: those that one starts when it is made count. */
static void know_threads(struct tk *t, struct threads *known) {
    const symmem_context_options options = tk_options(t);
    tk_end_context(t);
    (void)look_at_threads(t, &(struct threads){0}, known);
    tk_reinit(t, &options);
}

/* Blocked in the one thread that the program has, a signal stays pending: threads of the library
 * must not take it in its stead. */
TK_TEST(life, no_thread_takes_signals, "SM-LIFE-11", .max_ranks = 2, .flags = TK_PROCESS_ONLY) {
    symmem_handle *handle;
    symmem_stream *stream = NULL;
    struct sigaction action = {.sa_handler = take}, before;
    sigset_t one, mask, pending;
    struct threads known = {0};
    atomic_store(&taken, 0);
    if (t->device_type == DEVICE_TYPE_CPU)
        know_threads(t, &known);
    handle = tk_handle(t, 256, tk_world_group(t));
    /* Their threads begin with the mask of the thread that they are started by. */
    if ((t->capabilities & SYMMEM_CAP_STREAMS) != 0)
        stream = tk_stream(t);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    TK_REQUIRE(t, pthread_sigmask(SIG_BLOCK, &one, &mask) == 0);
    TK_REQUIRE(t, sigaction(SIGUSR2, &action, &before) == 0);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
    tk_synchronize(t, stream);
    TK_CHECK(t, kill(getpid(), SIGUSR2) == 0);
    tk_sleep_ms(5);
    TK_CHECK(t, sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2) == 1);
    TK_EQ_INT(t, 0, atomic_load(&taken));
    TK_CHECK(t, pthread_sigmask(SIG_SETMASK, &mask, NULL) == 0); /* now it comes */
    TK_EQ_INT(t, 1, atomic_load(&taken));
    TK_CHECK(t, sigaction(SIGUSR2, &before, NULL) == 0);
    /* A device's driver has threads of its own. */
    if (t->device_type == DEVICE_TYPE_CPU)
        expect_faults_open(t, &known);
}
