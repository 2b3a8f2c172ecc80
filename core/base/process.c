/* SPDX-License-Identifier: BSD-3-Clause */
/* What the system tells of a process. */
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXITING 0x4u /* PF_EXITING of linux/sched.h: set where the end of a thread begins */

bool sm_read_text(const char *path, char *text, size_t capacity) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got;
    int error;
    do {
        got = read(fd, text, capacity - 1);
        error = errno;
    } while (got < 0 && error == EINTR);
    close(fd);
    errno = error;
    if (got <= 0)
        return false;
    text[got] = '\0';
    return true;
}

/* The file `stat` of a process or of one of its threads. */
static bool read_stat(const char *path, sm_process *process_p) {
    char text[1024];
    if (!sm_read_text(path, text, sizeof(text)))
        return false;
    /* The command, field 2, may hold blanks and parentheses: count from its last one. */
    const char *after = strrchr(text, ')');
    long long threads;
    unsigned long long start;
    unsigned int flags;
    char state;
    if (after == NULL || sscanf(after + 1,
                                " %c %*s %*s %*s %*s %*s %u %*s %*s %*s %*s %*s %*s %*s %*s "
                                "%*s %*s %lld %*s %llu",
                                &state, &flags, &threads, &start) != 4)
        return false;
    *process_p = (sm_process){.start_time = start,
                              .thread_count = (long)threads,
                              .state = state,
                              .is_exiting = (flags & EXITING) != 0};
    return true;
}

bool sm_process_read(int32_t pid, sm_process *process_p) {
    char path[32];
    if (pid == 0)
        return read_stat("/proc/self/stat", process_p);
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    return read_stat(path, process_p);
}

bool sm_process_numbers_are_ours(void) {
    char text[16] = "", own[16];
    (void)snprintf(own, sizeof(own), "%d", (int)getpid());
    return readlink("/proc/self", text, sizeof(text) - 1) > 0 && strcmp(text, own) == 0;
}

/* One that is gone by now has ended. */
static bool thread_is_exiting(const char *tasks, const char *name) {
    char path[64];
    sm_process thread;
    snprintf(path, sizeof(path), "%s/%.20s/stat", tasks, name);
    if (read_stat(path, &thread))
        return thread.is_exiting;
    return errno == ENOENT || errno == ESRCH;
}

static bool all_are_exiting(int32_t pid) {
    char tasks[32];
    snprintf(tasks, sizeof(tasks), "/proc/%d/task", pid);
    DIR *directory = opendir(tasks);
    if (directory == NULL)
        return false;
    bool result = true;
    const struct dirent *entry;
    while (result && (entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.')
            result = thread_is_exiting(tasks, entry->d_name);
    closedir(directory);
    return result;
}

/* The first thread is asked first: of a process that lives it almost always does, too. */
bool sm_process_is_ending(int32_t pid, uint64_t start_time) {
    sm_process first;
    return sm_process_read(pid, &first) && first.start_time == start_time && first.is_exiting &&
           all_are_exiting(pid);
}

uint64_t sm_boot_id(void) {
    char text[64];
    return sm_read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text))
               ? sm_hash(text, strcspn(text, "\n"), SM_HASH_SEED)
               : 0;
}
