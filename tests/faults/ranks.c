/* SPDX-License-Identifier: BSD-3-Clause */
#include "ranks.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

long long ranks_now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

uint64_t ranks_random(unsigned long seed) {
    static uint64_t state;
    if (state == 0)
        state = seed * 0x9e3779b97f4a7c15u + 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 11;
}

void ranks_path(const char *folder, const char *name, int number, char path[RANKS_PATH]) {
    if (number < 0)
        (void)snprintf(path, RANKS_PATH, "%s/%s", folder, name);
    else
        (void)snprintf(path, RANKS_PATH, "%s/%s%d", folder, name, number);
}

void ranks_make_folder(const char *parent, char folder[200]) {
    static unsigned number;
    char path[RANKS_PATH];
    (void)snprintf(folder, 200, "%s/%u", parent, number++);
    bool made = mkdir(folder, 0700) == 0;
    ranks_path(folder, "store", -1, path);
    made = made && mkdir(path, 0700) == 0;
    ranks_path(folder, "sockets", -1, path);
    if (!made || mkdir(path, 0700) != 0) {
        perror(folder);
        exit(2);
    }
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info, (void)kind, (void)place;
    return remove(path);
}

void ranks_remove_folder(const char *folder) {
    (void)nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static _Noreturn void be_rank(const char *folder, int rank, const char *const *arguments) {
    char out[RANKS_PATH], *own[16] = {NULL};
    ranks_path(folder, "out", rank, out);
    (void)unlink(out); /* an earlier job's */
    const int fd = open(out, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    for (int i = 0; i < 15 && arguments[i] != NULL; i++)
        own[i] = strdup(arguments[i]);
    if (fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0 &&
        prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && own[0] != NULL)
        (void)execv(own[0], own);
    _exit(126);
}

pid_t ranks_start(const char *folder, int rank, const char *const *arguments) {
    const pid_t pid = fork();
    if (pid == 0)
        be_rank(folder, rank, arguments);
    if (pid < 0) {
        perror("a rank cannot be started");
        exit(2);
    }
    return pid;
}

int ranks_left_in(const char *directory, const char *besides, const char *and_besides,
                  char first[128]) {
    int count = 0;
    DIR *listing = opendir(directory);
    for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, besides) == 0 ||
            strcmp(entry->d_name, and_besides) == 0)
            continue;
        if (count++ == 0)
            (void)snprintf(first, 128, "%.120s", entry->d_name);
    }
    if (listing != NULL)
        (void)closedir(listing);
    return count;
}
