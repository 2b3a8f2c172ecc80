/* SPDX-License-Identifier: BSD-3-Clause */
#include "delay.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A thread's number is below 2^22. */
#define NUMBER_BITS 22

/* The second of three numbers; false: the thread has ended, or the kernel does not count. */
static bool read_count(int directory, const char *name, uint64_t *us_p) {
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    char text[64], *end = text;
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    (void)strtoull(text, &end, 10);
    *us_p = strtoull(end, NULL, 10) / 1000u;
    return true;
}

/* What has come since anybody looked at the thread. Two threads with one place in the table, of
 * 4096, would be counted anew each time; numbers that follow one another have places apart. */
static uint64_t increment(struct arena *arena, uint32_t number, uint64_t count_us) {
    uint64_t now = count_us << NUMBER_BITS | number;
    uint64_t before = atomic_exchange_explicit(&arena->threads[number % ARENA_THREADS], now,
                                               memory_order_relaxed);
    uint64_t known_us = before >> NUMBER_BITS;
    if (before % (UINT64_C(1) << NUMBER_BITS) != number)
        known_us = 0;
    return count_us > known_us ? count_us - known_us : 0;
}

bool delay_is_counted(void) {
    uint64_t us;
    return read_count(AT_FDCWD, "/proc/thread-self/schedstat", &us);
}

void delay_note_own(struct arena *arena) {
    uint64_t us;
    if (read_count(AT_FDCWD, "/proc/thread-self/schedstat", &us))
        lateness_note(&arena->delays, increment(arena, (uint32_t)syscall(SYS_gettid), us));
}

uint64_t delay_of_process_us(struct arena *arena, pid_t pid) {
    uint64_t most = 0, us;
    char name[64];
    snprintf(name, sizeof(name), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(name);
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        snprintf(name, sizeof(name), "%.20s/schedstat", task->d_name);
        if (task->d_name[0] == '.' || !read_count(dirfd(tasks), name, &us))
            continue;
        us = increment(arena, (uint32_t)strtoul(task->d_name, NULL, 10), us);
        most = us > most ? us : most;
    }
    if (tasks != NULL)
        closedir(tasks);
    return most;
}
