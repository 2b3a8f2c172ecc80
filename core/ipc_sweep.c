/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Socket files of processes that were killed. A file outlives its socket, and nobody answers there
 * any more: that tells it from one in use, whoever made it on this host.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void prefix_of(uint64_t boot_id, char prefix[SM_IPC_PREFIX_BYTES]) {
    (void)snprintf(prefix, SM_IPC_PREFIX_BYTES, "symmem-%08x", (unsigned)boot_id);
}

void sm_ipc_prefix(char prefix[SM_IPC_PREFIX_BYTES]) {
    prefix_of(sm_boot_id(), prefix);
}

/* Ours by name, kind and owner. */
static bool is_ours(int directory, const char *prefix, const char *name) {
    struct stat file;
    return strncmp(name, prefix, strlen(prefix)) == 0 &&
           fstatat(directory, name, &file, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(file.st_mode) &&
           file.st_uid == geteuid();
}

/* Sockets of another kind answer that they are (EPROTOTYPE), from the moment they are bound, so a
 * new one is never taken for dead. Whatever else goes wrong says nothing. */
static bool is_dead(const char *directory, const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t directory_bytes = strlen(directory);
    size_t name_bytes = strlen(name) + 1;
    if (directory_bytes + 1 + name_bytes > sizeof(address.sun_path))
        return false;
    memcpy(address.sun_path, directory, directory_bytes);
    address.sun_path[directory_bytes] = '/';
    memcpy(address.sun_path + directory_bytes + 1, name, name_bytes);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool dead = connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 &&
                errno == ECONNREFUSED;
    close(fd);
    return dead;
}

void sm_ipc_sweep(const char *directory) {
    sm_ipc_sweep_of(directory, sm_boot_id());
}

void sm_ipc_sweep_of(const char *directory, uint64_t boot_id) {
    DIR *listing = opendir(directory);
    if (listing == NULL)
        return;
    char prefix[SM_IPC_PREFIX_BYTES];
    prefix_of(boot_id, prefix);
    const struct dirent *entry;
    while ((entry = readdir(listing)) != NULL)
        if (is_ours(dirfd(listing), prefix, entry->d_name) && is_dead(directory, entry->d_name))
            (void)unlinkat(dirfd(listing), entry->d_name, 0);
    closedir(listing);
}
