/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocates shared pages. They come from an anonymous file that is sealed, so that no process can
 * shorten it under those who map it. If the kernel has no anonymous files, they come from a file
 * without a name in /dev/shm. If the kernel has them, peers accept no others, so a failure there is
 * final.
 *
 * Pages are allocated now, so that a shortage is an error here and not a SIGBUS later. The memory
 * that is left is checked before that. The kernel would rather end a process than refuse pages of
 * an anonymous file, and it ends a process that makes a file longer than RLIMIT_FSIZE.
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

#include "backing.h"
#include "cgroup.h"
#include "error.h"
#include "memory_budget.h"

#define NOEXEC_SEAL 8u /* MFD_NOEXEC_SEAL, from Linux 6.3 on */

/* Returns a new, private descriptor, or -1 with errno. The file never has a name, so a killed
 * process leaves none. */
static int open_unsealed(void) {
    return open("/dev/shm", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
}

/* Newer kernels may require the flag that forbids execution. Older ones do not know it. */
static int open_sealable(void) {
    int fd = memfd_create("symmem", MFD_CLOEXEC | NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? memfd_create("symmem", MFD_CLOEXEC | MFD_ALLOW_SEALING) : fd;
}

/* Returns whether an error of memfd_create says that this process has no such call. */
static bool is_missing_folder(int error) {
    return error == ENOSYS || error == EPERM || error == EACCES || error == EINVAL;
}

/* Returns 0, or an errno if the file is unusable. */
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
        return !is_missing_folder(errno); /* a lack of descriptors passes */
    const bool sealed = seal(fd) == 0;
    close(fd);
    return sealed;
}

/* --- pages -------------------------------------------------------------------------- */

/* Allocates in pieces, because a signal makes kernels give back all pages of one call, and a
 * profiler's signals come again before gigabytes are allocated. An interrupted piece is retried by
 * halves. Returns 0, an errno, or SHORTAGE with the available bytes in reservation->memory. */
#define SHORTAGE (-1)
static int allocate_pages(shm_reservation *reservation, int fd, uint64_t bytes) {
    uint64_t piece = SHM_MAX_PIECE;
    for (uint64_t done = 0; done < bytes;) {
        uint64_t count = shm_reservation_grant(reservation, bytes - done);
        if (count == 0) {
            reservation->memory.left += done;
            return SHORTAGE;
        }
        if (count > piece)
            count = piece;
        const int error = posix_fallocate(fd, (off_t)done, (off_t)count);
        if (error == 0) {
            done += count;
            shm_reservation_took(reservation, count);
            piece = piece < SHM_MAX_PIECE ? 2 * piece : SHM_MAX_PIECE;
        } else if (error != EINTR) {
            return error;
        } else if (piece > SHM_MIN_PIECE) {
            piece /= 2;
        }
    }
    return 0;
}

/* Returns 0, or as allocate_pages. */
static int allocate(shm_instance *instance, int fd, size_t bytes, shm_reservation *reservation) {
    /* The umask may have cleared the owner's bits. */
    if (fchmod(fd, 0600) != 0)
        return errno;
    shm_reservation_begin(reservation, instance, bytes);
    const int error = allocate_pages(reservation, fd, bytes);
    shm_reservation_end(reservation);
    if (error != 0)
        return error;
    /* Peers accept an unsealed file only if the kernel cannot seal. */
    const int unsealed = seal(fd);
    return unsealed == EPERM || unsealed == EINVAL ? 0 : unsealed;
}

/* Opens a sealable file or, without kernel support, an unsealed one. Returns -1 with errno. */
static int open_file(const symmem_host *host) {
    int fd = open_sealable();
    if (fd >= 0 || !is_missing_folder(errno))
        return fd;
    host->notice(
        host, "no anonymous files here: using /dev/shm, where a rank can shorten what it shares");
    return open_unsealed();
}

/* --- failures ----------------------------------------------------------------------- */

static symmem_status fail_shortage(const symmem_host *host, const char *operation, size_t bytes,
                                   const shm_memory_left *memory) {
    symmem_status status =
        host->fail_sizes(host, SYMMEM_NO_SPACE, 0, operation, bytes, memory->left);
    const size_t length = strlen(memory->where), most = 100;
    if (length > 0)
        shm_explain(host, " in the control group %s%s, whose limit is %llu",
                    length > most ? "..." : "", memory->where + (length > most ? length - most : 0),
                    (unsigned long long)memory->limit);
    else
        shm_explain(host, " on this machine");
    return status;
}

/* For a file system with a size of its own, as /dev/shm. */
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

/* No file may be longer than the limit. */
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

/* --- entry points ------------------------------------------------------------------ */

static symmem_status create(shm_instance *instance, size_t bytes, const char *operation,
                            shm_reservation *reservation, int *fd_p) {
    const symmem_host *host = instance->host;
    int fd = open_file(host);
    if (fd < 0)
        return fail_to_open(host, errno, operation, bytes);
    shm_failpoint_notify(host, "shm.alloc.size*");
    const int error = allocate(instance, fd, bytes, reservation);
    symmem_status status = SYMMEM_OK;
    if (error == SHORTAGE)
        status = fail_shortage(host, operation, bytes, &reservation->memory);
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
    symmem_status status = shm_failpoint(host, "shm.alloc.create");
    if (status != SYMMEM_OK)
        return status;
    if (bytes > INT64_MAX)
        return host->fail_sizes(host, SYMMEM_NO_SPACE, 0, operation, bytes, INT64_MAX);
    status = check_file_limit(host, operation, bytes);
    if (status != SYMMEM_OK)
        return status;

    int fd = -1;
    shm_reservation *reservation = malloc(sizeof *reservation);
    if (!reservation)
        return shm_out_of_memory(host, operation);
    status = create(instance, bytes, operation, reservation, &fd);
    free(reservation);
    if (status != SYMMEM_OK)
        return status;
    status = shm_failpoint(host, "shm.alloc.backing");
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
