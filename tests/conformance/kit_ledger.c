/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process holds before and after a case: descriptors and shared mappings;
 * the rest of the ledger is in kit_state.c, kit_heap.c and kit_map.c.
 */
#include "kit_internal.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define MAX_FD 65536
#define DEVICE_TYPE_CPU 1 /* kDLCPU */

struct mapping {
    unsigned long start, end;
};

struct descriptor {
    int fd;
    bool is_driver; /* a node of a device's driver, see is_driver_node */
    int flags;      /* the descriptor's own: those of the open file others may share and change */
    dev_t device;   /* device and number tell the file, whose name others may change too */
    ino_t number;
    char target[96];
};

struct kit_ledger {
    bool has_driver; /* the backend's devices are not the CPU */
    struct descriptor *fds;
    int fd_count;
    struct kit_state *state;
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

static const struct descriptor *find_fd(const struct kit_ledger *ledger, int fd) {
    for (int i = 0; i < ledger->fd_count; i++)
        if (ledger->fds[i].fd == fd)
            return &ledger->fds[i];
    return NULL;
}

/* A driver opens its nodes when it first needs them, and keeps them as long as the process. Not
 * those that the kernel makes for all processes (memory, terminals and the like). */
static bool is_driver_node(const struct stat *info) {
    static const unsigned int of_the_kernel[] = {1, 4, 5, 10};
    if (!S_ISCHR(info->st_mode) || (major(info->st_rdev) >= 136 && major(info->st_rdev) <= 143))
        return false;
    for (size_t i = 0; i < sizeof(of_the_kernel) / sizeof(of_the_kernel[0]); i++)
        if (major(info->st_rdev) == of_the_kernel[i])
            return false;
    return true;
}

/* False: it was closed since it was listed, by a thread of the C library's or a driver's. */
static bool describe_fd(const DIR *directory, const char *name, int fd, struct descriptor *found) {
    struct stat info;
    memset(found, 0, sizeof(*found));
    found->fd = fd;
    found->flags = fcntl(fd, F_GETFD);
    if (found->flags < 0)
        return false;
    if (fstat(fd, &info) == 0) {
        found->device = info.st_dev;
        found->number = info.st_ino;
        found->is_driver = is_driver_node(&info);
    }
    ssize_t length = readlinkat(dirfd((DIR *)(uintptr_t)directory), name, found->target,
                                sizeof(found->target) - 1);
    if (length < 0)
        found->target[0] = '\0';
    return true;
}

static void take_fds(struct kit_ledger *ledger) {
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        int fd = listed_fd(entry, directory);
        if (fd < 0)
            continue;
        void *grown = realloc(ledger->fds, ((size_t)ledger->fd_count + 1) * sizeof(*ledger->fds));
        if (grown == NULL)
            break;
        ledger->fds = grown;
        ledger->fd_count +=
            describe_fd(directory, entry->d_name, fd, &ledger->fds[ledger->fd_count]);
    }
    if (directory != NULL)
        closedir(directory);
}

/* What is loaded from a file, as a backend's object, is code and its data, wherever it lies. */
static bool is_loaded(const struct mapping *mapping) {
    Dl_info info;
    return dladdr((void *)(uintptr_t)mapping->start, &info) != 0;
}

/* True for a line of /proc/self/maps that shows memory others can see. What a driver maps of its
 * device stays as long as the process and is no backend's to give back. */
static bool parse_shared(const char *line, struct mapping *mapping) {
    char permissions[8] = "";
    if (sscanf(line, "%lx-%lx %7s", &mapping->start, &mapping->end, permissions) != 3)
        return false;
    if (strstr(line, " /dev/") != NULL && strstr(line, " /dev/shm/") == NULL &&
        strstr(line, " /dev/zero") == NULL)
        return false;
    return permissions[3] == 's' || strstr(line, "/memfd:") != NULL ||
           (strstr(line, "/dev/shm/") != NULL && !is_loaded(mapping));
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

struct kit_ledger *kit_ledger_open(const struct kit_setup *setup) {
    struct kit_ledger *ledger = calloc(1, sizeof(*ledger));
    if (ledger != NULL) {
        ledger->has_driver = setup->arena->probe.device_type != DEVICE_TYPE_CPU;
        take_fds(ledger);
        take_mappings(ledger);
        ledger->state = kit_state_take();
        kit_heap_begin();
        kit_map_begin();
    }
    return ledger;
}

void kit_add(struct kit_text *text, const char *format, ...) {
    size_t used = strlen(text->at);
    va_list args;
    if (used > 0 && used + 2 < text->capacity)
        used += (size_t)snprintf(text->at + used, text->capacity - used, ", ");
    va_start(args, format);
    vsnprintf(text->at + used, text->capacity - used, format, args);
    va_end(args);
}

static const char *kind_of(const char *target) {
    static const struct {
        const char *prefix, *kind;
    } kinds[] = {{"socket:", "socket"},
                 {"pipe:", "pipe"},
                 {"anon_inode:[eventfd]", "eventfd"},
                 {"anon_inode:[timerfd]", "timer descriptor"},
                 {"anon_inode:[pidfd]", "process descriptor"},
                 {"anon_inode:", "anonymous descriptor"},
                 {"/memfd:", "memory descriptor"},
                 {"/dev/shm/", "shared memory descriptor"}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(target, kinds[i].prefix, strlen(kinds[i].prefix)) == 0)
            return kinds[i].kind;
    return "descriptor";
}

/* Whether a device was opened in the case: its driver then opened more than its nodes. */
static bool opened_device(const struct kit_ledger *before) {
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;
    bool opened = false;
    while (before->has_driver && directory != NULL && (entry = readdir(directory)) != NULL) {
        int fd = listed_fd(entry, directory);
        struct descriptor now;
        if (fd >= 0 && find_fd(before, fd) == NULL &&
            describe_fd(directory, entry->d_name, fd, &now))
            opened = opened || now.is_driver;
    }
    if (directory != NULL)
        closedir(directory);
    return opened;
}

/* Pipes, sockets and the like have no name by which the driver's could be told from others. */
static bool may_be_drivers(const struct descriptor *found) {
    return found->is_driver || strncmp(found->target, "pipe:", 5) == 0 ||
           strncmp(found->target, "socket:", 7) == 0 ||
           strcmp(found->target, "anon_inode:[eventfd]") == 0;
}

static void name_new_fds(const struct kit_ledger *before, bool device, struct kit_text *text) {
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;
    int still_open = 0;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        int fd = listed_fd(entry, directory);
        struct descriptor now;
        if (fd < 0 || !describe_fd(directory, entry->d_name, fd, &now))
            continue;
        const struct descriptor *known = find_fd(before, fd);
        if (known == NULL && ((device && may_be_drivers(&now)) || tk_is_foreign_socket(fd)))
            continue;
        if (known == NULL) {
            kit_add(text, "%s %d (%s)", kind_of(now.target), fd, now.target);
            continue;
        }
        still_open++;
        if (now.device != known->device || now.number != known->number)
            kit_add(text, "descriptor %d was %s, is %s", fd, known->target, now.target);
        else if (now.flags != known->flags)
            kit_add(text, "flags of descriptor %d (%s) changed", fd, now.target);
    }
    if (directory != NULL)
        closedir(directory);
    if (still_open < before->fd_count)
        kit_add(text, "descriptor closed that the case had not opened");
}

static bool was_mapped(const struct kit_ledger *before, const struct mapping *mapping) {
    for (int i = 0; i < before->mapping_count; i++)
        if (mapping->start >= before->mappings[i].start && mapping->end <= before->mappings[i].end)
            return true;
    return false;
}

/* Its driver's memory that both it and the device see, which the kernel shows so. */
static bool may_map_drivers(const char *line) {
    return strstr(line, " /dev/zero") != NULL;
}

static void name_mapping(const struct mapping *mapping, const char *line, struct kit_text *text) {
    const char *path = strchr(line, '/');
    struct kit_stack asked;
    bool known = kit_map_asked(mapping->start, mapping->end, &asked);
    if (known && kit_stack_is_librarys(&asked))
        return;
    kit_add(text, "mapping of %lu bytes (%.120s)", mapping->end - mapping->start,
            path == NULL ? "anonymous" : path);
    if (known)
        kit_stack_describe(&asked, text);
}

static void name_new_mappings(const struct kit_ledger *before, bool device, struct kit_text *text) {
    FILE *maps = fopen("/proc/self/maps", "re");
    struct mapping mapping;
    char line[512];
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        if (!parse_shared(line, &mapping) || was_mapped(before, &mapping) ||
            (device && may_map_drivers(line)))
            continue;
        line[strcspn(line, "\n")] = '\0';
        name_mapping(&mapping, line, text);
    }
    if (maps != NULL)
        fclose(maps);
}

void kit_ledger_close(struct kit_ledger *ledger, unsigned case_flags, char *text, size_t capacity) {
    struct kit_text found = {text, capacity};
    text[0] = '\0';
    if (ledger == NULL)
        return;
    kit_heap_end(&found);
    kit_map_end(&found);
    bool device = opened_device(ledger);
    name_new_fds(ledger, device, &found);
    name_new_mappings(ledger, device, &found);
    kit_state_compare(ledger->state, case_flags, device, &found);
    free(ledger->mappings);
    free(ledger->fds);
    free(ledger);
}
