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

/* Whether a connection is refused. A socket of another kind answers EPROTOTYPE. Other errors prove
 * nothing. */
static bool refuses(const char *directory, const char *name) {
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
    bool refuses = connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 &&
                   errno == ECONNREFUSED;
    close(fd);
    return refuses;
}

/* Waits for a bind that is under way in the directory: the kernel makes the file before it connects
 * the file with its socket, and locks the directory until then. To give a file the name that it has
 * takes that lock and changes nothing. */
static void await_bind(int folder, const char *name) {
    (void)renameat(folder, name, folder, name);
}

/* Whether the file's socket is dead. A new one is never taken for dead. */
static bool is_dead(int folder, const char *directory, const char *name) {
    if (!refuses(directory, name))
        return false;
    await_bind(folder, name);
    return refuses(directory, name);
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

static bool is_unsettled(int directory, const char *name) {
    struct stat file;
    return fstatat(directory, name, &file, AT_SYMLINK_NOFOLLOW) == 0 && sm_life_is_unsettled(&file);
}

/* Whether the file may be removed. Ranks in other network namespaces see a process's end by its
 * life file. The file stays until the store tells of the end, or as long as there may be such ranks
 * and the store does not answer or is another one, but not for ever. */
static bool may_go(int directory, const char *prefix, const char *name, sm_liveness *liveness) {
    if (name[strlen(prefix)] != SM_LIFE_MARK)
        return true;
    const int32_t rank = sm_life_rank_of(name);
    return sm_liveness_mark_ended(liveness, rank, name) ||
           sm_liveness_needs_no_file(liveness, rank, name) || is_unsettled(directory, name) ||
           is_old(directory, name);
}

static void sweep_file(int folder, const char *directory, const char *prefix, const char *name,
                       sm_liveness *liveness) {
    if (is_ours(folder, prefix, name) && is_dead(folder, directory, name) &&
        may_go(folder, prefix, name, liveness))
        (void)unlinkat(folder, name, 0);
}

void sm_ipc_sweep(const char *directory, sm_liveness *liveness) {
    sm_ipc_sweep_of(directory, sm_boot_id(), liveness);
}

/* Also does so for another host's file, which that host then removes. */
static void unsettle(const char *path, const char *name) {
    struct stat file;
    if (strncmp(name, "symmem-", 7) == 0 && lstat(path, &file) == 0 && S_ISSOCK(file.st_mode) &&
        file.st_uid == geteuid())
        (void)sm_life_unsettle(path);
}

void sm_ipc_sweep_one(const char *path, sm_liveness *liveness) {
    char prefix[SM_IPC_PREFIX_BYTES], directory[SM_IPC_ADDRESS_MAX];
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path || (size_t)(slash - path) >= sizeof(directory))
        return;
    memcpy(directory, path, (size_t)(slash - path));
    directory[slash - path] = '\0';
    sm_ipc_prefix(prefix);
    const int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        sweep_file(folder, directory, prefix, slash + 1, liveness);
        close(folder);
    }
    unsettle(path, slash + 1);
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
