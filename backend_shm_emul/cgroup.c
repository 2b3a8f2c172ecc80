/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the control groups of this process leave it: the limit of a container, a batch job or a
 * service. The kernel reports nothing before it ends a process for exceeding that. Version 1 has a
 * tree of folders for each controller, version 2 one tree for all. A process may be in both. The
 * limit of every group on the path to the root holds. Nothing is cached, because limits change and
 * processes are moved.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cgroup.h"

typedef enum resource { RESOURCE_MEMORY, RESOURCE_TASKS, RESOURCE_COUNT } resource;

static const char *const controllers[RESOURCE_COUNT] = {"memory", "pids"};

/* A group's files with a limit and with what is used of it. */
static const struct {
    resource kind;
    bool first, second; /* version */
    const char *limit, *used;
} files[] = {
    {RESOURCE_MEMORY, false, true, "memory.max", "memory.current"},
    {RESOURCE_MEMORY, true, false, "memory.limit_in_bytes", "memory.usage_in_bytes"},
    {RESOURCE_MEMORY, true, false, "memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"},
    {RESOURCE_TASKS, true, true, "pids.max", "pids.current"},
};

/* A walk from a process's group up to its mount. */
typedef struct walk {
    const char *root; /* a prefix of the paths of all files */
    resource kind;
    uint64_t wanted;
    bool second;
    char *path; /* PATH_MAX bytes: of the group, and of its files */
    shm_memory_left *memory;
} walk;

/* --- one group ---------------------------------------------------------------------- */

/* Makes self->path the path of a file of the group. Returns false if it does not fit. */
static bool enter(walk *self, const char *name, size_t *length_p) {
    *length_p = strlen(self->path);
    if (*length_p + 1 + strlen(name) >= PATH_MAX)
        return false;
    self->path[*length_p] = '/';
    memcpy(self->path + *length_p + 1, name, strlen(name) + 1);
    return true;
}

/* Returns false for a file that does not exist or holds a word, as "max". */
static bool read_limit(walk *self, const char *name, uint64_t *number_p) {
    char text[32] = "";
    size_t length;
    if (!enter(self, name, &length))
        return false;
    const int fd = open(self->path, O_RDONLY | O_CLOEXEC);
    self->path[length] = '\0';
    if (fd < 0)
        return false;
    const ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    unsigned long long number;
    if (got <= 0 || sscanf(text, "%llu", &number) != 1)
        return false;
    *number_p = number;
    return true;
}

/* Returns the bytes of the file cache, which the kernel frees before it ends any process. Shared
 * memory is not among them. Version 1 says "total_" for a group with those below it. */
static uint64_t cached_bytes(walk *self) {
    size_t length;
    if (!enter(self, "memory.stat", &length))
        return 0;
    FILE *file = fopen(self->path, "re");
    self->path[length] = '\0';
    if (!file)
        return 0;
    char name[64];
    unsigned long long bytes, own[2] = {0, 0}, total[2] = {0, 0};
    bool has_total = false;
    while (fscanf(file, "%63s %llu", name, &bytes) == 2) {
        const bool is_total = strncmp(name, "total_", 6) == 0;
        const char *plain = is_total ? name + 6 : name;
        has_total = has_total || is_total;
        if (strcmp(plain, "inactive_file") == 0)
            (is_total ? total : own)[0] = bytes;
        if (strcmp(plain, "active_file") == 0)
            (is_total ? total : own)[1] = bytes;
    }
    fclose(file);
    return has_total ? total[0] + total[1] : own[0] + own[1];
}

static uint64_t left(uint64_t limit, uint64_t used) {
    return used < limit ? limit - used : 0;
}

static void add_cgroup_limit(walk *self) {
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        uint64_t limit, used;
        if (files[i].kind != self->kind || !(self->second ? files[i].second : files[i].first) ||
            !read_limit(self, files[i].limit, &limit) || limit > INT64_MAX / 2 ||
            !read_limit(self, files[i].used, &used))
            continue;
        if (self->kind == RESOURCE_MEMORY && left(limit, used) < self->wanted) {
            const uint64_t cached = cached_bytes(self);
            used -= cached < used ? cached : used;
        }
        if (left(limit, used) >= self->memory->left)
            continue;
        self->memory->left = left(limit, used);
        self->memory->limit = limit;
        memcpy(self->memory->where, self->path, strlen(self->path) + 1);
    }
}

/* --- finding the group ------------------------------------------------------------- */

/* Returns whether `names`, separated by commas, contains `name`. */
static bool has_name(const char *names, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = names; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* Decodes mountinfo's \040 for a space and the like, in place. */
static void decode(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        unsigned code;
        if (*from == '\\' && sscanf(from, "\\%3o", &code) == 1 && strlen(from) >= 4) {
            *to = (char)code;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* Returns the path from a mount's own group to `group`, or "" if that lies elsewhere. */
static const char *below(const char *mounted, const char *group) {
    const size_t length = strcmp(mounted, "/") == 0 ? 0 : strlen(mounted);
    if (strncmp(group, "/..", 3) == 0 || strcmp(group, "/") == 0 ||
        strncmp(group, mounted, length) != 0 || (group[length] != '/' && group[length] != '\0'))
        return "";
    return group + length;
}

/* Ends the `index`th word of a line with a zero and returns it. NULL: there are fewer words. */
static char *take_word(char *line, int index) {
    char *rest = NULL;
    char *word = strtok_r(line, " \n", &rest);
    while (word && index-- > 0)
        word = strtok_r(NULL, " \n", &rest);
    return word;
}

/* Returns the path from a mount to the group in it, if that line of mountinfo is the mount of a
 * group. Then *point_p is the mount point. */
static const char *find_way(walk *self, char *line, const char **point_p) {
    char *type = strstr(line, " - ");
    if (!type)
        return NULL;
    *type = '\0';
    type += 3;
    self->second = strncmp(type, "cgroup2 ", 8) == 0;
    const char *group = self->second ? self->memory->second : self->memory->first;
    if (group[0] == '\0' || (!self->second && strncmp(type, "cgroup ", 7) != 0))
        return NULL;
    const char *options = take_word(type, 2);
    if (!self->second && (!options || !has_name(options, controllers[self->kind])))
        return NULL;
    char *mounted = take_word(line, 3);
    char *point = mounted ? take_word(mounted + strlen(mounted) + 1, 0) : NULL;
    if (!point)
        return NULL;
    decode(mounted);
    decode(point);
    *point_p = point;
    return below(mounted, group);
}

static void add_mount_limits(walk *self, char *line) {
    const char *point;
    const char *way = find_way(self, line, &point);
    if (!way)
        return;
    const int top = snprintf(self->path, PATH_MAX, "%s%s", self->root, point);
    if ((size_t)top + strlen(way) >= PATH_MAX)
        return;
    memcpy(self->path + top, way, strlen(way) + 1);
    for (;;) {
        add_cgroup_limit(self);
        char *last = strrchr(self->path + top, '/');
        if (!last)
            return;
        *last = '\0';
    }
}

/* Reads a line of /proc/self/cgroup, "number:controllers:path". Version 2 has the number 0 and no
 * controllers. */
static void take_group(const walk *self, char *line) {
    line[strcspn(line, "\n")] = '\0';
    char *names = strchr(line, ':');
    char *group = names ? strchr(names + 1, ':') : NULL;
    if (!group || strlen(group + 1) >= PATH_MAX)
        return;
    *names++ = '\0';
    *group++ = '\0';
    if (strcmp(line, "0") == 0 && *names == '\0')
        memcpy(self->memory->second, group, strlen(group) + 1);
    else if (has_name(names, controllers[self->kind]))
        memcpy(self->memory->first, group, strlen(group) + 1);
}

/* Reads the next line. The rest of a line that is too long is skipped, because it names no
 * controller. */
static bool next_line(FILE *file, char line[PATH_MAX]) {
    for (bool is_rest = false; fgets(line, PATH_MAX, file);) {
        const bool is_whole = strchr(line, '\n') != NULL;
        if (is_whole && !is_rest)
            return true;
        is_rest = !is_whole;
    }
    return false;
}

/* Passes each line of a file of /proc/self to one of the two functions above. */
static void read_lines(walk *self, const char *name, bool mounts) {
    char *line = self->memory->line;
    if ((size_t)snprintf(self->path, PATH_MAX, "%s/proc/self/%s", self->root, name) >= PATH_MAX)
        return;
    FILE *file = fopen(self->path, "re");
    if (!file)
        return;
    while (next_line(file, line)) {
        if (mounts)
            add_mount_limits(self, line);
        else
            take_group(self, line);
    }
    fclose(file);
}

static bool find_limit(const char *root, resource kind, uint64_t wanted, shm_memory_left *memory) {
    walk self = {
        .root = root, .kind = kind, .wanted = wanted, .path = memory->path, .memory = memory};
    memory->first[0] = memory->second[0] = '\0';
    shm_memory_left_set(memory, UINT64_MAX);
    read_lines(&self, "cgroup", false);
    if (memory->first[0] != '\0' || memory->second[0] != '\0')
        read_lines(&self, "mountinfo", true);
    return memory->left != UINT64_MAX;
}

bool shm_cgroup_memory(const char *root, uint64_t wanted, shm_memory_left *memory) {
    return find_limit(root, RESOURCE_MEMORY, wanted, memory);
}

bool shm_cgroup_tasks(const char *root, shm_memory_left *memory) {
    return find_limit(root, RESOURCE_TASKS, 0, memory);
}
