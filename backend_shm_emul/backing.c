/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where shared pages come from: an anonymous file that is sealed, so that nobody who has it can
 * shorten it under those who map it; or, where the kernel makes no anonymous files, a file without
 * a name in /dev/shm. Where it makes them peers take no others, so that a failure there is final.
 * Pages are allocated now, so that a shortage is an error here and not a SIGBUS later. What is left
 * is looked at before: of an anonymous file's pages the kernel would rather end some process than
 * refuse them, and of a file longer than RLIMIT_FSIZE it ends the one that asks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "shm.h"

#define NOEXEC_SEAL 8u /* MFD_NOEXEC_SEAL, from Linux 6.3 on */

/* A new, private descriptor, or -1 with errno. It never has a name, so that there is no moment at
 * which a killed process leaves one. */
static int open_unsealed(void) {
    return open("/dev/shm", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
}

/* Newer kernels may insist on hearing that nobody will execute it, older ones do not know the word.
 */
static int open_sealable(void) {
    int fd = memfd_create("symmem", MFD_CLOEXEC | NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? memfd_create("symmem", MFD_CLOEXEC | MFD_ALLOW_SEALING) : fd;
}

/* Whether an error of memfd_create says that there is no such call here, for this process. */
static bool is_missing(int error) {
    return error == ENOSYS || error == EPERM || error == EACCES || error == EINVAL;
}

/* 0, or an errno: it is no use for it. */
static int seal(int fd) {
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) == 0 ? 0 : errno;
}

bool shm_backing_is_sealed(int fd) {
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

bool shm_backing_can_seal(void) {
    int fd = open_sealable();
    if (fd < 0)
        return !is_missing(errno); /* a lack of descriptors passes */
    const bool sealed = seal(fd) == 0;
    close(fd);
    return sealed;
}

/* --- pages -------------------------------------------------------------------------- */

/* In pieces: kernels give all pages of one call back if a signal comes, and a profiler's come again
 * before gigabytes are there. A piece that was interrupted is tried by halves. 0, an errno, or
 * SHORTAGE with what there is in taking->room. */
#define SHORTAGE (-1)
static int allocate_pages(shm_taking *taking, int fd, uint64_t bytes) {
    uint64_t piece = SHM_MOST_PIECE;
    for (uint64_t done = 0; done < bytes;) {
        uint64_t count = shm_taking_grant(taking, bytes - done);
        if (count == 0) {
            taking->room.left += done;
            return SHORTAGE;
        }
        if (count > piece)
            count = piece;
        const int error = posix_fallocate(fd, (off_t)done, (off_t)count);
        if (error == 0) {
            done += count;
            shm_taking_took(taking, count);
            piece = piece < SHM_MOST_PIECE ? 2 * piece : SHM_MOST_PIECE;
        } else if (error != EINTR) {
            return error;
        } else if (piece > SHM_LEAST_PIECE) {
            piece /= 2;
        }
    }
    return 0;
}

/* 0, or as allocate_pages. */
static int allocate(shm_instance *instance, int fd, size_t bytes, shm_taking *taking) {
    /* The umask may have taken the owner's own bits. */
    if (fchmod(fd, 0600) != 0)
        return errno;
    shm_taking_begin(taking, instance, bytes);
    const int error = allocate_pages(taking, fd, bytes);
    shm_taking_end(taking);
    if (error != 0)
        return error;
    /* Peers take nothing else, but where there is nothing else. */
    const int unsealed = seal(fd);
    return unsealed == EPERM || unsealed == EINVAL ? 0 : unsealed;
}

/* A file of the usual kind or, where there is none, of the other one; -1 with errno. */
static int open_file(const symmem_host *host) {
    int fd = open_sealable();
    if (fd >= 0 || !is_missing(errno))
        return fd;
    host->notice(
        host, "no anonymous files here: using /dev/shm, where a rank can shorten what it shares");
    return open_unsealed();
}

/* --- failures ----------------------------------------------------------------------- */

static symmem_status fail_shortage(const symmem_host *host, const char *operation, size_t bytes,
                                   const shm_room *room) {
    symmem_status status = host->fail_sizes(host, SYMMEM_NO_SPACE, 0, operation, bytes, room->left);
    const size_t length = strlen(room->where), most = 100;
    if (length > 0)
        shm_explain(host, " in the control group %s%s, whose limit is %llu",
                    length > most ? "..." : "", room->where + (length > most ? length - most : 0),
                    (unsigned long long)room->limit);
    else
        shm_explain(host, " on this machine");
    return status;
}

/* Of a file system with a size of its own, as /dev/shm. */
static symmem_status fail_full(const symmem_host *host, const char *operation, size_t bytes,
                               int fd) {
    struct statvfs about = {.f_blocks = 0};
    (void)fstatvfs(fd, &about);
    const bool is_limited = about.f_blocks > 0;
    symmem_status status =
        host->fail_sizes(host, SYMMEM_NO_SPACE, ENOSPC, operation, bytes,
                         is_limited ? (uint64_t)about.f_bavail * about.f_frsize : 0);
    if (is_limited)
        shm_explain(host, " in /dev/shm, which has %llu",
                    (unsigned long long)about.f_blocks * about.f_frsize);
    else
        shm_explain(host, ": the system gives no more");
    return status;
}

/* No file may be so long. */
static symmem_status check_file_limit(const symmem_host *host, const char *operation,
                                      size_t bytes) {
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    if (limit.rlim_cur >= bytes)
        return SYMMEM_OK;
    return host->fail_sizes(host, SYMMEM_NO_SPACE, EFBIG, operation, bytes, limit.rlim_cur);
}

static symmem_status fail_to_open(const symmem_host *host, int error, const char *operation,
                                  size_t bytes) {
    if (error != ENOSPC)
        return shm_fail_errno(host, error, operation, "creating shared memory");
    host->fail_sizes(host, SYMMEM_NO_SPACE, error, operation, bytes, 0);
    shm_explain(host, " in /dev/shm, which has as many files as it may have");
    return SYMMEM_NO_SPACE;
}

/* --- both --------------------------------------------------------------------------- */

static symmem_status create(shm_instance *instance, size_t bytes, const char *operation,
                            shm_taking *taking, int *fd_p) {
    const symmem_host *host = instance->host;
    int fd = open_file(host);
    if (fd < 0)
        return fail_to_open(host, errno, operation, bytes);
    shm_observe(host, "shm.alloc.size*");
    const int error = allocate(instance, fd, bytes, taking);
    symmem_status status = SYMMEM_OK;
    if (error == SHORTAGE)
        status = fail_shortage(host, operation, bytes, &taking->room);
    else if (error == ENOSPC)
        status = fail_full(host, operation, bytes, fd);
    else if (error == EFBIG)
        status = host->fail_sizes(host, SYMMEM_NO_SPACE, error, operation, bytes, 0);
    else if (error != 0)
        status = shm_fail_errno(host, error, operation, "creating shared memory");
    if (status == SYMMEM_OK)
        *fd_p = fd;
    else
        close(fd);
    return status;
}

symmem_status shm_backing_create(shm_instance *instance, size_t bytes, const char *operation,
                                 int *fd_p) {
    const symmem_host *host = instance->host;
    symmem_status status = shm_point(host, "shm.alloc.create");
    if (status != SYMMEM_OK)
        return status;
    if (bytes > INT64_MAX)
        return host->fail_sizes(host, SYMMEM_NO_SPACE, 0, operation, bytes, INT64_MAX);
    status = check_file_limit(host, operation, bytes);
    if (status != SYMMEM_OK)
        return status;

    int fd = -1;
    shm_taking *taking = malloc(sizeof *taking);
    if (!taking)
        return shm_out_of_memory(host, operation);
    status = create(instance, bytes, operation, taking, &fd);
    free(taking);
    if (status != SYMMEM_OK)
        return status;
    status = shm_point(host, "shm.alloc.backing");
    if (status != SYMMEM_OK) {
        close(fd);
        return status;
    }
    *fd_p = fd;
    return SYMMEM_OK;
}

bool shm_backing_usable(char *reason, size_t capacity) {
    int fd = open_sealable();
    if (fd < 0)
        fd = open_unsealed();
    if (fd >= 0) {
        close(fd);
        return true;
    }
    if (reason && capacity > 0)
        snprintf(reason, capacity, "no shared memory: error %d", errno);
    return false;
}
