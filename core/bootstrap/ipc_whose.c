/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The owner of a socket, as the kernel reports it. The kernel reports user ids of this process's
 * user namespace, and one id stands for all users that the namespace does not know. If that is this
 * process's own id, the id proves nothing, and other evidence has to.
 */
#include "bootstrap/ipc_whose.h"
#include "bootstrap/ipc_socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OVERFLOW_UID 65534u
#define INODE_DIGITS 8

void sm_ipc_path_of(const struct sockaddr_un *address, uint32_t bytes,
                    char path[sizeof(address->sun_path) + 1]) {
    const size_t offset = offsetof(struct sockaddr_un, sun_path);
    memset(path, 0, sizeof(address->sun_path) + 1);
    if (bytes > offset)
        memcpy(path, address->sun_path, bytes - offset);
}

/* Whether each id is one user's, as in the first user namespace and in namespaces like it. */
static bool knows_all_users(void) {
    unsigned long inside = 1, outside = 1, count = 0;
    FILE *map = fopen("/proc/self/uid_map", "re");
    if (map == NULL)
        return false;
    const int fields = fscanf(map, "%lu %lu %lu", &inside, &outside, &count);
    (void)fclose(map);
    return fields == 3 && inside == 0 && count == UINT32_MAX;
}

static bool says_nothing(uid_t uid) {
    return uid == OVERFLOW_UID && geteuid() == OVERFLOW_UID && !knows_all_users();
}

bool sm_ipc_is_own_user(uid_t uid) {
    return uid == geteuid() || uid == 0;
}

/* A peer whose user id is hidden has to prove itself by the session's secret, as all peers do. A
 * message would be lost with its connection, so a lack that passes is waited out once. */
int sm_ipc_ask_user(int connection, struct ucred *other_p) {
    int result = -1;
    *other_p = (struct ucred){.uid = OVERFLOW_UID};
    for (int i = 0; i < 2 && result != 0; i++) {
        socklen_t bytes = sizeof(*other_p);
        result = getsockopt(connection, SOL_SOCKET, SO_PEERCRED, other_p, &bytes);
    }
    return result == 0 ? 0 : errno;
}

/* Whether only the owner may write to the file, and no other user can replace it in its
 * directory. */
static bool is_own_file(const char *path) {
    char directory[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1];
    struct stat file, folder;
    sm_copy_text(directory, sizeof(directory), path);
    char *name = strrchr(directory, '/');
    if (name == NULL)
        return false;
    *name = '\0';
    return lstat(path, &file) == 0 && S_ISSOCK(file.st_mode) && (file.st_mode & 077) == 0 &&
           access(path, W_OK) == 0 && stat(directory, &folder) == 0 &&
           ((folder.st_mode & 022) == 0 || (folder.st_mode & S_ISVTX) != 0);
}

/* A session's abstract name ends with the number of its socket. A process that takes a free name
 * has a socket of another number. If the right socket has the name now, it had it when it was
 * connected. */
static bool is_named_after(const char *name) {
    char line[512];
    bool found = false;
    const size_t length = strlen(name);
    FILE *list = length < INODE_DIGITS ? NULL : fopen("/proc/net/unix", "re");
    if (list == NULL)
        return false;
    const unsigned long number = strtoul(name + length - INODE_DIGITS, NULL, 16);
    while (!found && fgets(line, sizeof(line), list) != NULL) {
        unsigned flags = 0;
        unsigned long inode = 0;
        char at[128] = "";
        found = sscanf(line, "%*s %*x %*x %x %*x %*x %lu %127s", &flags, &inode, at) == 3 &&
                at[0] == '@' && strcmp(at + 1, name) == 0 && (inode & UINT32_MAX) == number;
    }
    (void)fclose(list);
    return found;
}

bool sm_ipc_is_socket_of_user(const struct ucred *holder, const struct sockaddr_un *to,
                              uint32_t bytes) {
    char path[sizeof(to->sun_path) + 1];
    if (!sm_ipc_is_own_user(holder->uid))
        return false;
    if (!says_nothing(holder->uid))
        return true;
    sm_ipc_path_of(to, bytes, path);
    return path[0] != '\0' ? is_own_file(path) : is_named_after(path + 1);
}
