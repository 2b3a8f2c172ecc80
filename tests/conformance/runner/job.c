/* SPDX-License-Identifier: BSD-3-Clause */
/* The process of one job (jobs.c), and how results come from it to the controller. */
#include "runner.h"

#include <sys/prctl.h>

/* Pointers of the result are the sender's, but for those to what both had before the fork. */
struct message {
    struct runner_result result;
    size_t reason_size, output_size, leaks_size; /* with the end; 0: NULL */
};

bool job_read(int fd, void *bytes, size_t count) {
    for (size_t got = 0; got < count;) {
        ssize_t some = read(fd, (char *)bytes + got, count - got);
        if (some == 0 || (some < 0 && errno != EINTR))
            return false;
        got += some > 0 ? (size_t)some : 0;
    }
    return true;
}

struct arena *runner_make_arena(struct runner *runner) {
    runner->arena_fd =
        runner->options.launcher != NULL ? arena_descriptor(sizeof(struct arena)) : -1;
    if (runner->options.launcher != NULL && runner->arena_fd < 0)
        return NULL;
    return arena_create(runner->arena_fd);
}

static bool write_all(int fd, const void *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t some = write(fd, (const char *)bytes + done, count - done);
        if (some < 0 && errno != EINTR)
            return false;
        done += some > 0 ? (size_t)some : 0;
    }
    return true;
}

static bool send_result(int fd, const struct runner_result *result) {
    struct message message = {.result = *result};
    message.reason_size = result->reason == NULL ? 0 : strlen(result->reason) + 1;
    message.output_size = result->output == NULL ? 0 : strlen(result->output) + 1;
    message.leaks_size = result->leaks == NULL ? 0 : strlen(result->leaks) + 1;
    return write_all(fd, &message, sizeof(message)) &&
           write_all(fd, result->findings,
                     (size_t)result->finding_count * sizeof(*result->findings)) &&
           write_all(fd, result->places, (size_t)result->place_count * sizeof(*result->places)) &&
           write_all(fd, result->reason, message.reason_size) &&
           write_all(fd, result->output, message.output_size) &&
           write_all(fd, result->leaks, message.leaks_size);
}

/* NULL if there is nothing or no memory; the latter makes *good_p false. */
static void *receive(int fd, size_t size, bool *good_p) {
    void *bytes = size == 0 || !*good_p ? NULL : malloc(size);
    if (size > 0)
        *good_p = bytes != NULL && job_read(fd, bytes, size);
    return bytes;
}

bool job_receive(int fd, struct runner_result *result) {
    struct message message;
    bool good = job_read(fd, &message, sizeof(message));
    if (!good)
        return false;
    *result = message.result;
    result->findings =
        receive(fd, (size_t)result->finding_count * sizeof(*result->findings), &good);
    result->places = receive(fd, (size_t)result->place_count * sizeof(*result->places), &good);
    result->reason = receive(fd, message.reason_size, &good);
    result->output = receive(fd, message.output_size, &good);
    result->leaks = receive(fd, message.leaks_size, &good);
    if (!good)
        findings_free(result);
    return good;
}

/* What the controller had is not this process's. */
static void settle(struct runner *runner, int fd) {
    struct arena *arena = runner_make_arena(runner);
    sigset_t blocked = runner->interrupts;
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    runner->job_fd = fd;
    runner->other_count = 0;
    runner->output_file = NULL;
    memset(runner->files, 0, sizeof(runner->files));
    runner->live.on = false;
    if (runner->private_shm)
        runner->private_shm = private_shm_enter_again();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which entering it may have undone */
    setenv("SYMMEM_PRIVATE_SHM", runner->private_shm ? "1" : "0", 1);
    if (arena == NULL)
        exit(RUNNER_FAILED);
    arena->probe = runner->arena->probe;
    arena_seal_probe(arena);
    runner->arena = arena;
    if (!runner->options.verbose)
        runner->output = output_open();
    if (runner->options.keep_ranks)
        runner->crew = crew_open(runner->options.timeout_scale);
}

void job_serve(struct runner *runner, int fd) {
    struct runner_result last = {.verdict = VERDICT_ERROR};
    char bad_ends[192];
    bool good = true;
    struct job_order order;
    settle(runner, fd);
    while (good && job_read(fd, &order, sizeof(order))) {
        struct runner_result result;
        runner_run_case(runner, order.index, order.late_ms, &result);
        good = send_result(fd, &result);
        findings_free(&result);
    }
    if (!crew_close(runner->crew, bad_ends, sizeof(bad_ends)) && good) {
        last.reason = bad_ends;
        (void)send_result(fd, &last);
    }
    exit(RUNNER_PASSED); /* not _exit: coverage and leak detection work at exit */
}

void job_forget(const struct runner *runner) {
    if (runner->job_fd > STDERR_FILENO)
        close(runner->job_fd);
}
