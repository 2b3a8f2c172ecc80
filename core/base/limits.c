/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits of the process and of the machine, by name and with their figures, for error records. */
#include "base/base.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static bool take_limit(int error, const struct rlimit *found, uint64_t *limit_p) {
    if (error != 0 || found->rlim_cur == RLIM_INFINITY)
        return false;
    *limit_p = found->rlim_cur;
    return true;
}

/* Into a `struct rlimit found`. A resource is of another type with each C library. */
#define LIMIT_OF(resource, limit_p) take_limit(getrlimit((resource), &found), &found, (limit_p))

bool sm_file_limit(uint64_t *bytes_p) {
    struct rlimit found;
    return LIMIT_OF(RLIMIT_FSIZE, bytes_p);
}

/* What a process has of what its limits are about, in bytes. */
typedef struct usage {
    uint64_t addresses, data, locked, mappings;
} usage;

static void look_at_usage(usage *used) {
    char line[256];
    uint64_t kibibytes;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "VmSize: %" SCNu64, &kibibytes) == 1)
            used->addresses = kibibytes * 1024;
        if (sscanf(line, "VmData: %" SCNu64, &kibibytes) == 1)
            used->data = kibibytes * 1024;
        if (sscanf(line, "VmLck: %" SCNu64, &kibibytes) == 1)
            used->locked = kibibytes * 1024;
    }
    if (file != NULL)
        (void)fclose(file);
    file = fopen("/proc/self/maps", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        used->mappings += strchr(line, '\n') != NULL;
    if (file != NULL)
        (void)fclose(file);
}

static bool read_number(const char *path, uint64_t *number_p) {
    FILE *file = fopen(path, "re");
    const bool found = file != NULL && fscanf(file, "%" SCNu64, number_p) == 1;
    if (file != NULL)
        (void)fclose(file);
    return found;
}

static void explain(const char *name, uint64_t limit) {
    char text[96];
    (void)snprintf(text, sizeof(text), " (%s is %" PRIu64 ")", name, limit);
    sm_explain_text(text);
}

static void explain_used(const char *name, uint64_t limit, uint64_t used) {
    char text[96];
    (void)snprintf(text, sizeof(text), " (%s is %" PRIu64 ", used are %" PRIu64 ")", name, limit,
                   used);
    sm_explain_text(text);
}

/* Address space, data, locked memory, number of mappings: whichever may have been the one. Of
 * locked memory the first bit may have been too much. */
static void explain_memory(int system_errno) {
    usage used = {.addresses = 0};
    struct rlimit found;
    uint64_t limit;
    look_at_usage(&used);
    if (LIMIT_OF(RLIMIT_AS, &limit))
        explain_used("RLIMIT_AS", limit, used.addresses);
    if (LIMIT_OF(RLIMIT_DATA, &limit))
        explain_used("RLIMIT_DATA", limit, used.data);
    if (LIMIT_OF(RLIMIT_MEMLOCK, &limit) && (system_errno == EAGAIN || used.locked > 0))
        explain_used("RLIMIT_MEMLOCK", limit, used.locked);
    /* A call may need several. */
    if (read_number("/proc/sys/vm/max_map_count", &limit) && used.mappings + 8 >= limit)
        explain_used("vm.max_map_count", limit, used.mappings);
}

void sm_explain_errno(int system_errno) {
    struct rlimit found;
    uint64_t limit;
    switch (system_errno) {
    case EMFILE:
        if (LIMIT_OF(RLIMIT_NOFILE, &limit))
            explain("RLIMIT_NOFILE", limit);
        break;
    case ETOOMANYREFS: /* not this process's alone: of the user's */
        if (LIMIT_OF(RLIMIT_NOFILE, &limit))
            explain("RLIMIT_NOFILE, which also counts a user's descriptors in flight,", limit);
        break;
    case ENFILE:
        sm_explain_text(" (fs.file-max of the machine)");
        break;
    case EAGAIN: /* a thread or its stack, or memory that has to be locked */
        if (LIMIT_OF(RLIMIT_NPROC, &limit))
            explain("RLIMIT_NPROC", limit);
        explain_memory(system_errno);
        break;
    case ENOMEM:
        explain_memory(system_errno);
        break;
    case EFBIG:
        if (LIMIT_OF(RLIMIT_FSIZE, &limit))
            explain("RLIMIT_FSIZE", limit);
        break;
    default:
        break;
    }
}

/* --- the standard error ----------------------------------------------------------------------- */

/* The signals that a write raises in its own thread: SIGPIPE without a reader, SIGXFSZ for a file
 * that is too long. */
static void fill_with_write_signals(sigset_t *set) {
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGPIPE);
    (void)sigaddset(set, SIGXFSZ);
}

void sm_tell_stderr(const char *text) {
    const struct timespec now = {0, 0};
    sigset_t set, before, pending;
    fill_with_write_signals(&set);
    (void)sigpending(&pending);
    (void)pthread_sigmask(SIG_BLOCK, &set, &before);
    (void)fprintf(stderr, "symmem: %s\n", text);
    /* Those that waited before are the program's own. */
    if (sigismember(&pending, SIGPIPE) == 1)
        (void)sigdelset(&set, SIGPIPE);
    if (sigismember(&pending, SIGXFSZ) == 1)
        (void)sigdelset(&set, SIGXFSZ);
    while (sigtimedwait(&set, NULL, &now) > 0) {
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}
