/* SPDX-License-Identifier: BSD-3-Clause */
#include "resources_open.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *family_name(int family) {
    return family == AF_UNIX    ? "unix"
           : family == AF_INET  ? "inet"
           : family == AF_INET6 ? "inet6"
                                : "other";
}

/* To ThreadSanitizer a look at a descriptor of another thread's is a race, so the kernel is asked.
 */
static void describe_socket(int fd, char *what, size_t capacity) {
    int family = 0, listens = 0;
    socklen_t length = sizeof(family);
    (void)syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
    length = sizeof(listens);
    (void)syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length);
    snprintf(what, capacity, "%s%s socket", listens ? "listening " : "", family_name(family));
}

/* False: it was closed meanwhile, or is the one by which they are listed. */
static bool describe(int directory, const char *name, struct resources_descriptor *found) {
    char link[sizeof(found->what)] = "";
    struct stat info;
    found->fd = atoi(name);
    if (found->fd == directory || fstatat(directory, name, &info, 0) != 0)
        return false;
    found->device = (uint64_t)info.st_dev;
    found->number = (uint64_t)info.st_ino;
    if (S_ISSOCK(info.st_mode))
        describe_socket(found->fd, found->what, sizeof(found->what));
    else if (readlinkat(directory, name, link, sizeof(link) - 1) > 0)
        memcpy(found->what, link, sizeof(link));
    return true;
}

void resources_take_open(struct resources_open *open) {
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;
    memset(open, 0, sizeof(*open));
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        struct resources_descriptor found = {0};
        if (entry->d_name[0] == '.' || !describe(dirfd(directory), entry->d_name, &found))
            continue;
        if (open->known < RESOURCES_OPEN_MAX)
            open->at[open->known++] = found;
        open->count++;
    }
    if (directory != NULL)
        closedir(directory);
}

static bool has(const struct resources_open *open, const struct resources_descriptor *wanted) {
    for (int i = 0; i < open->known; i++)
        if (open->at[i].fd == wanted->fd && open->at[i].device == wanted->device &&
            open->at[i].number == wanted->number)
            return true;
    return false;
}

__attribute__((format(printf, 3, 4))) static void add(char *text, size_t capacity,
                                                      const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, capacity - used, format, arguments);
    va_end(arguments);
}

static void add_missing(char *text, size_t capacity, const char *title,
                        const struct resources_open *from, const struct resources_open *in) {
    int count = 0;
    for (int i = 0; i < from->known; i++)
        if (!has(in, &from->at[i]))
            add(text, capacity, "%s%d %s", count++ == 0 ? title : ", ", from->at[i].fd,
                from->at[i].what);
}

void resources_leave_out(struct resources_open *open, bool (*is_left_out)(int fd)) {
    int stay = 0;
    for (int i = 0; i < open->known; i++)
        if (!is_left_out(open->at[i].fd))
            open->at[stay++] = open->at[i];
    open->count -= open->known - stay;
    open->known = stay;
}

bool resources_are_like(const struct resources_open *before, const struct resources_open *now,
                        char *text, size_t capacity) {
    text[0] = '\0';
    if (now->count == before->count)
        return true;
    add(text, capacity, "%d descriptors, before %d", now->count, before->count);
    add_missing(text, capacity, "; gone: ", before, now);
    add_missing(text, capacity, "; new: ", now, before);
    return false;
}

bool resources_are_as_many(const struct resources_open *before, char *text, size_t capacity) {
    struct resources_open now;
    resources_take_open(&now);
    return resources_are_like(before, &now, text, capacity);
}
