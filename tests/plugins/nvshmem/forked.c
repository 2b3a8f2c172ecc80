/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NVSHMEM shuts its connections to other ranks down at the exit of the process. A forked child has
 * them too: its exit would cut its parent off, whose next call that takes all ranks then waits for
 * 20 s, or ends the process. So the child parts with them before.
 */
#include "forked.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 4096 /* descriptors that are looked at; NVSHMEM gets the lowest that are free */
#define MOST 64    /* sockets of NVSHMEM's; it has three, whatever the number of ranks */

static bool was_open[FILES];
static struct connection {
    int fd;
    dev_t device;
    ino_t file;
} connections[MOST];
static int count;
static pid_t owner;

static bool is_connection(int fd, struct stat *info) {
    int domain = AF_UNSPEC;
    socklen_t bytes = sizeof domain;
    return fstat(fd, info) == 0 && S_ISSOCK(info->st_mode) &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 &&
           (domain == AF_INET || domain == AF_INET6);
}

void forked_look(void) {
    struct stat info;
    for (int fd = 0; fd < FILES; fd++)
        was_open[fd] = is_connection(fd, &info);
}

/* NVSHMEM's own handler comes next. Closed descriptors could be another's by then. */
static void part(void) {
    struct stat info;
    if (owner == getpid())
        return;
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < count && nothing >= 0; i++) {
        const struct connection *one = &connections[i];
        if (is_connection(one->fd, &info) && info.st_dev == one->device && info.st_ino == one->file)
            (void)dup2(nothing, one->fd);
    }
}

void forked_guard(void) {
    struct stat info;
    owner = getpid();
    for (int fd = 0; fd < FILES && count < MOST; fd++)
        if (!was_open[fd] && is_connection(fd, &info))
            connections[count++] =
                (struct connection){.fd = fd, .device = info.st_dev, .file = info.st_ino};
    atexit(part);
}
