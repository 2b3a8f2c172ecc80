/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where shared pages come from: an anonymous file that is sealed, so that nobody who has it can
 * shorten it under those who map it; or, where the kernel makes no anonymous files, a file without
 * a name in /dev/shm. Where it makes them peers take no others, so that a failure there is final.
 * Pages are allocated now, so that a shortage is an error here and not a SIGBUS later.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm.h"

/* From here on the machine's free memory is looked at first: the kernel would rather end some
 * process than refuse pages of an anonymous file. */
#define BIG_BYTES ((size_t)16 << 20)
/* Of an allocation's pages. */
#define MOST_PIECE ((size_t)4 << 20)
#define LEAST_PIECE ((size_t)64 << 10)
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

/* Of what it is no use for this does nothing. */
static void seal(int fd) {
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
}

bool shm_backing_is_sealed(int fd) {
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

bool shm_backing_can_seal(void) {
    int fd = open_sealable();
    if (fd < 0)
        return !is_missing(errno); /* a lack of descriptors passes */
    seal(fd);
    bool sealed = shm_backing_is_sealed(fd);
    close(fd);
    return sealed;
}

/* In pieces: kernels give all pages of one call back if a signal comes, and a profiler's come again
 * before gigabytes are there. A piece that was interrupted is tried by halves. */
static int allocate_pages(int fd, size_t bytes) {
    size_t piece = MOST_PIECE;
    for (size_t done = 0; done < bytes;) {
        size_t count = bytes - done < piece ? bytes - done : piece;
        int error = posix_fallocate(fd, (off_t)done, (off_t)count);
        if (error == 0) {
            done += count;
            piece = piece < MOST_PIECE ? 2 * piece : MOST_PIECE;
        } else if (error != EINTR) {
            return error;
        } else if (piece > LEAST_PIECE) {
            piece /= 2;
        }
    }
    return 0;
}

/* 0, or an errno. */
static int allocate(int fd, size_t bytes) {
    /* The umask may have taken the owner's own bits. */
    if (fchmod(fd, 0600) != 0)
        return errno;
    int error = allocate_pages(fd, bytes);
    if (error == 0)
        seal(fd);
    return error;
}

/* Bytes of memory that can be had without swapping, UINT64_MAX if that is not known. */
static uint64_t available_bytes(void) {
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file)
        return UINT64_MAX;
    uint64_t available = UINT64_MAX;
    char line[128];
    while (fgets(line, sizeof line, file)) {
        unsigned long long kibibytes;
        if (sscanf(line, "MemAvailable: %llu kB", &kibibytes) == 1)
            available = (uint64_t)kibibytes * 1024;
    }
    fclose(file);
    return available;
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

/* 0, or an errno. */
static int create(const symmem_host *host, size_t bytes, int *fd_p) {
    int fd = open_file(host);
    if (fd < 0)
        return errno;
    shm_observe(host, "shm.alloc.size*");
    int error = allocate(fd, bytes);
    if (error == 0)
        *fd_p = fd;
    else
        close(fd);
    return error;
}

symmem_status shm_backing_create(shm_instance *instance, size_t bytes, const char *operation,
                                 int *fd_p) {
    const symmem_host *host = instance->host;
    symmem_status status = shm_point(host, "shm.alloc.create");
    if (status != SYMMEM_OK)
        return status;
    uint64_t free_bytes = bytes >= BIG_BYTES ? available_bytes() : UINT64_MAX;
    if (bytes > INT64_MAX || bytes > free_bytes)
        return host->fail_sizes(host, SYMMEM_NO_SPACE, 0, operation, bytes, free_bytes);

    int fd = -1;
    int error = create(host, bytes, &fd);
    if (error == ENOSPC || error == EFBIG)
        return host->fail_sizes(host, SYMMEM_NO_SPACE, error, operation, bytes,
                                free_bytes == UINT64_MAX ? 0 : free_bytes);
    if (error != 0)
        return shm_fail_errno(host, error, operation, "creating shared memory");
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
