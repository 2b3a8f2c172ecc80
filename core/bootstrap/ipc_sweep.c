/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Removes socket files of killed processes. A file outlives its socket, and a connection to it is
 * then refused. This distinguishes the file from one in use, for every process of this host.
 */
#include "bootstrap/ipc_sweep.h"
#include "bootstrap/bootstrap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Mark in a life file's access time: the file was seen dead after its last change. */
#define SEEN_DEAD 1
#define KEPT_S 3600

/* Whether name, kind and owner of the file are those of this library and user. */
static bool is_ours(int directory, const char *prefix, const char *name) {
    struct stat file;
    return strncmp(name, prefix, strlen(prefix)) == 0 &&
           fstatat(directory, name, &file, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(file.st_mode) &&
           file.st_uid == geteuid();
}

/* Whether the file's socket is dead. A socket of another kind answers EPROTOTYPE from the moment it
 * is bound, so a new one is never taken for dead. Other errors prove nothing. */
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

/* Whether the file is old enough that its job's waits have ended, even if no rank of the job cleans
 * up. Only the time of the file tells. */
static bool is_old(int directory, const char *name) {
    struct stat file;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (fstatat(directory, name, &file, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (file.st_atim.tv_sec == SEEN_DEAD)
        return now.tv_sec - file.st_mtim.tv_sec >= KEPT_S;
    const struct timespec times[2] = {{.tv_sec = SEEN_DEAD}, {.tv_nsec = UTIME_NOW}};
    (void)utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW);
    return false;
}

/* Whether the file may be removed. Ranks in other network namespaces see a process's end by its
 * life file. The file stays until the store tells of the end or, if this store does not know the
 * process, for a long time. */
static bool may_go(int directory, const char *prefix, const char *name, sm_liveness *liveness) {
    if (name[strlen(prefix)] != SM_LIFE_MARK)
        return true;
    return sm_liveness_mark_ended(liveness, name) || is_old(directory, name);
}

void sm_ipc_sweep(const char *directory, sm_liveness *liveness) {
    sm_ipc_sweep_of(directory, sm_boot_id(), liveness);
}

/* The other name of a life file whose owner was killed while it told of the file, if there is one.
 * Either the store knows the owner, and tells of its end now, or no rank waits for the file. */
static bool find_twin(int folder, const char *prefix, const char *name, char twin[NAME_MAX + 1]) {
    const size_t at = strlen(prefix);
    if (strlen(name) > NAME_MAX || (name[at] != SM_LIFE_MARK && name[at] != SM_LIFE_UNTOLD))
        return false;
    sm_copy_text(twin, NAME_MAX + 1, name);
    twin[at] = name[at] == SM_LIFE_MARK ? SM_LIFE_UNTOLD : SM_LIFE_MARK;
    return is_ours(folder, prefix, twin);
}

static void sweep_file(int folder, const char *directory, const char *prefix, const char *name,
                       sm_liveness *liveness) {
    char twin[NAME_MAX + 1];
    if (!is_ours(folder, prefix, name) || !is_dead(directory, name))
        return;
    const bool has_twin = find_twin(folder, prefix, name, twin);
    const bool is_told = name[strlen(prefix)] == SM_LIFE_MARK;
    if (!may_go(folder, prefix, is_told || !has_twin ? name : twin, liveness) && !has_twin)
        return;
    if (has_twin) /* the one that alone would stay goes first */
        (void)unlinkat(folder, is_told ? name : twin, 0);
    (void)unlinkat(folder, has_twin && is_told ? twin : name, 0);
}

void sm_ipc_sweep_one(const char *directory, const char *path, sm_liveness *liveness) {
    char prefix[SM_IPC_PREFIX_BYTES];
    const char *slash = strrchr(path, '/');
    const int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    sm_ipc_prefix(prefix);
    if (slash != NULL)
        sweep_file(folder, directory, prefix, slash + 1, liveness);
    close(folder);
}

void sm_ipc_sweep_of(const char *directory, uint64_t boot_id, sm_liveness *liveness) {
    DIR *listing = opendir(directory);
    if (listing == NULL)
        return;
    char prefix[SM_IPC_PREFIX_BYTES];
    sm_ipc_prefix_of(boot_id, prefix);
    const struct dirent *entry;
    while ((entry = readdir(listing)) != NULL)
        sweep_file(dirfd(listing), directory, prefix, entry->d_name, liveness);
    closedir(listing);
}
