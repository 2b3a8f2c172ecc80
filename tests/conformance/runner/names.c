/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names that a case leaves behind. Only those count that are certain to be its own: whatever is in
 * its temporary directory, whatever is new in /dev/shm if that is the run's own, and elsewhere what
 * a rank was seen to hold (kit_held.c) and came into being during the case.
 */
#include "runner.h"

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>

struct names {
    struct timespec start; /* of the case, on the clock of the file systems */
    int count;
    char (*shm)[256];
};

struct text {
    char *at;
    size_t capacity, used;
};

static void add(struct text *text, const char *directory, const char *name) {
    char path[600];
    snprintf(path, sizeof(path), "%s%s%s", directory, directory[0] == '\0' ? "" : "/", name);
    if (text->used < text->capacity && strstr(text->at, path) == NULL)
        text->used += (size_t)snprintf(text->at + text->used, text->capacity - text->used, "%s%s",
                                       text->used == 0 ? "" : " ", path);
}

static bool is_dots(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static void remember(struct names *names, const char *name) {
    void *grown = realloc(names->shm, (size_t)(names->count + 1) * sizeof(*names->shm));
    if (grown == NULL)
        return;
    names->shm = grown;
    snprintf(names->shm[names->count++], sizeof(*names->shm), "%s", name);
}

struct names *names_take(const struct runner_run *run) {
    struct names *names = calloc(1, sizeof(*names));
    DIR *directory = run->runner->private_shm ? opendir("/dev/shm") : NULL;
    const struct dirent *entry;
    if (names != NULL)
        clock_gettime(CLOCK_REALTIME_COARSE, &names->start);
    while (names != NULL && directory != NULL && (entry = readdir(directory)) != NULL)
        if (!is_dots(entry->d_name))
            remember(names, entry->d_name);
    if (directory != NULL)
        closedir(directory);
    return names;
}

void names_free(struct names *names) {
    if (names != NULL)
        free(names->shm);
    free(names);
}

static bool was_there(const struct names *before, const char *name) {
    for (int i = 0; i < before->count; i++)
        if (strcmp(before->shm[i], name) == 0)
            return true;
    return false;
}

/* What is in `path` and not among the names of before (NULL: there were none). */
static void find_in(const char *path, const struct names *before, struct text *text) {
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (!is_dots(entry->d_name) && (before == NULL || !was_there(before, entry->d_name)))
            add(text, path, entry->d_name);
    if (directory != NULL)
        closedir(directory);
}

/* Where the file system does not keep the time of birth, that of the last change is the next best:
 * the path is known to have been held by a rank. */
static bool came_since(const char *path, const struct timespec *start) {
    struct statx info = {0}; /* MemorySanitizer does not know what statx writes */
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME | STATX_CTIME, &info) != 0)
        return false;
    struct statx_timestamp born =
        (info.stx_mask & STATX_BTIME) != 0 ? info.stx_btime : info.stx_ctime;
    return born.tv_sec > start->tv_sec ||
           (born.tv_sec == start->tv_sec && (long)born.tv_nsec >= start->tv_nsec);
}

static void find_held(const struct names *before, const char *held, struct text *text) {
    while (*held != '\0') {
        size_t length = strcspn(held, "\n");
        char path[512];
        snprintf(path, sizeof(path), "%.*s", (int)length, held);
        if (came_since(path, &before->start))
            add(text, "", path);
        held += length + (held[length] == '\n');
    }
}

void names_find(const struct names *before, const struct runner_run *run, char *text,
                size_t capacity) {
    struct text found = {text, capacity, 0};
    char temporary[sizeof(run->scratch) + 8];
    text[0] = '\0';
    if (before == NULL)
        return;
    snprintf(temporary, sizeof(temporary), "%s/tmp", run->scratch);
    find_in(temporary, NULL, &found);
    if (run->runner->private_shm)
        find_in("/dev/shm", before, &found);
    for (int rank = 0; rank < run->entry->ranks && !run->arena_broken; rank++) {
        const struct arena_rank *own = &run->runner->arena->ranks[rank];
        char held[sizeof(own->held) + 1];
        memcpy(held, own->held, sizeof(own->held));
        held[sizeof(own->held)] = '\0'; /* whatever the rank has written there */
        find_held(before, held, &found);
    }
}
