/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process holds before and after a case: descriptors and shared mappings. */
#include "kit_internal.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_FD 65536

struct mapping {
    unsigned long start, end;
};

struct kit_ledger {
    unsigned char open_fds[MAX_FD / 8];
    int fd_count;
    struct mapping *mappings;
    int mapping_count;
};

/* The number of a descriptor in /proc/self/fd, -1 for anything else and for the listing's own. */
static int listed_fd(const struct dirent *entry, DIR *directory) {
    char *end = NULL;
    long fd = strtol(entry->d_name, &end, 10);

    if (end == entry->d_name || *end != '\0' || fd < 0 || fd >= MAX_FD || fd == dirfd(directory))
        return -1;
    return (int)fd;
}

static bool is_listed(const struct kit_ledger *ledger, int fd) {
    return (ledger->open_fds[fd / 8] & (1u << (fd % 8))) != 0;
}

static void take_fds(struct kit_ledger *ledger) {
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        int fd = listed_fd(entry, directory);

        if (fd < 0)
            continue;
        ledger->open_fds[fd / 8] = (unsigned char)(ledger->open_fds[fd / 8] | (1u << (fd % 8)));
        ledger->fd_count++;
    }
    if (directory != NULL)
        closedir(directory);
}

/* True for a line of /proc/self/maps that shows memory others can see. */
static bool parse_shared(const char *line, struct mapping *mapping) {
    char permissions[8] = "";

    if (sscanf(line, "%lx-%lx %7s", &mapping->start, &mapping->end, permissions) != 3)
        return false;
    return permissions[3] == 's' || strstr(line, "/memfd:") != NULL ||
           strstr(line, "/dev/shm/") != NULL;
}

static void add_mapping(struct kit_ledger *ledger, const struct mapping *mapping) {
    size_t count = (size_t)ledger->mapping_count + 1;
    struct mapping *grown = realloc(ledger->mappings, count * sizeof(*grown));

    if (grown == NULL)
        return;
    ledger->mappings = grown;
    ledger->mappings[ledger->mapping_count++] = *mapping;
}

static void take_mappings(struct kit_ledger *ledger) {
    FILE *maps = fopen("/proc/self/maps", "re");
    struct mapping mapping;
    char line[512];

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        if (parse_shared(line, &mapping))
            add_mapping(ledger, &mapping);
    if (maps != NULL)
        fclose(maps);
}

struct kit_ledger *kit_ledger_open(void) {
    struct kit_ledger *ledger = calloc(1, sizeof(*ledger));

    if (ledger != NULL) {
        take_fds(ledger);
        take_mappings(ledger);
    }
    return ledger;
}

static void add_text(char *text, size_t capacity, const char *what, const char *name) {
    size_t used = strlen(text);

    snprintf(text + used, capacity - used, "%s%s %s", used == 0 ? "" : ", ", what, name);
}

static void name_new_fds(const struct kit_ledger *before, char *text, size_t capacity) {
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;
    int still_open = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        int fd = listed_fd(entry, directory);
        char target[128] = "";
        char name[160];

        if (fd < 0)
            continue;
        if (is_listed(before, fd)) {
            still_open++;
            continue;
        }
        if (readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1) < 0)
            target[0] = '\0';
        snprintf(name, sizeof(name), "%d (%s)", fd, target);
        add_text(text, capacity, "descriptor", name);
    }
    if (directory != NULL)
        closedir(directory);
    if (still_open < before->fd_count)
        add_text(text, capacity, "descriptor closed that", "the case had not opened");
}

static bool was_mapped(const struct kit_ledger *before, const struct mapping *mapping) {
    for (int i = 0; i < before->mapping_count; i++)
        if (mapping->start >= before->mappings[i].start && mapping->end <= before->mappings[i].end)
            return true;
    return false;
}

static void name_new_mappings(const struct kit_ledger *before, char *text, size_t capacity) {
    FILE *maps = fopen("/proc/self/maps", "re");
    struct mapping mapping;
    char line[512];

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        const char *path;
        char name[200];

        if (!parse_shared(line, &mapping) || was_mapped(before, &mapping))
            continue;
        line[strcspn(line, "\n")] = '\0';
        path = strchr(line, '/');
        snprintf(name, sizeof(name), "of %lu bytes (%.120s)", mapping.end - mapping.start,
                 path == NULL ? "anonymous" : path);
        add_text(text, capacity, "mapping", name);
    }
    if (maps != NULL)
        fclose(maps);
}

void kit_ledger_close(struct kit_ledger *ledger, char *text, size_t capacity) {
    text[0] = '\0';
    if (ledger == NULL)
        return;
    name_new_fds(ledger, text, capacity);
    name_new_mappings(ledger, text, capacity);
    free(ledger->mappings);
    free(ledger);
}
