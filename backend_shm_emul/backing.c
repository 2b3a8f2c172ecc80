/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where shared pages come from: POSIX shared memory without a name, or, where /dev/shm is missing
 * or too small, an anonymous file. Pages are allocated now, so that a shortage is an error here and
 * not a SIGBUS later.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "shm.h"

#define NAME_ATTEMPTS 8
/* From here on the machine's free memory is looked at first: the kernel would rather end some
 * process than refuse pages of an anonymous file. */
#define BIG_BYTES ((size_t)16 << 20)
/* Of an allocation's pages. */
#define FIRST_PIECE ((size_t)64 << 20)
#define LAST_PIECE ((size_t)64 << 10)

/* By a name that is gone at once: a process that is killed in between leaves it. */
static int open_named(const symmem_host *host) {
    for (int attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
        uint64_t random[2];
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
            return -1;
        char name[64];
        snprintf(name, sizeof name, "/symmem-%016llx%016llx", (unsigned long long)random[0],
                 (unsigned long long)random[1]);
        int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0) {
            if (host)
                shm_observe(host, "shm.alloc.named*");
            shm_unlink(name);
            return fd;
        }
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

/* A new, nameless, private descriptor, or -1 with errno. `host` may be NULL. Where the kernel makes
 * files without any name, there is no moment at which a killed process leaves one. */
static int open_posix(const symmem_host *host) {
    int fd = open("/dev/shm", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
        return open_named(host);
    return fd;
}

/* In pieces: kernels give all pages of one call back if a signal comes, and a profiler's come again
 * before gigabytes are there. A piece that was interrupted is tried by halves. */
static int allocate_pages(int fd, size_t bytes) {
    size_t piece = FIRST_PIECE;
    for (size_t done = 0; done < bytes;) {
        size_t count = bytes - done < piece ? bytes - done : piece;
        int error = posix_fallocate(fd, (off_t)done, (off_t)count);
        if (error == 0)
            done += count;
        else if (error != EINTR)
            return error;
        else if (piece > LAST_PIECE)
            piece /= 2;
    }
    return 0;
}

/* 0, or an errno with what is free in *free_p. */
static int allocate(int fd, size_t bytes, uint64_t *free_p) {
    struct statvfs file_system;
    if (fstatvfs(fd, &file_system) == 0)
        *free_p = (uint64_t)file_system.f_bavail * file_system.f_frsize;
    /* The umask may have taken the owner's own bits. */
    if (fchmod(fd, 0600) != 0)
        return errno;
    return allocate_pages(fd, bytes);
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

static int allocated(const symmem_host *host, int fd, size_t bytes, int *fd_p, uint64_t *free_p) {
    if (fd < 0)
        return errno;
    shm_observe(host, "shm.alloc.size*");
    int error = allocate(fd, bytes, free_p);
    if (error == 0)
        *fd_p = fd;
    else
        close(fd);
    return error;
}

/* A lack of descriptors or kernel memory would hit the other kind just the same. */
static bool other_kind_may_help(int error) {
    return error != EMFILE && error != ENFILE && error != ENOMEM && error != EFBIG;
}

symmem_status shm_backing_create(shm_instance *instance, size_t bytes, const char *operation,
                                 int *fd_p) {
    const symmem_host *host = instance->host;
    symmem_status status = shm_point(host, "shm.alloc.create");
    if (status != SYMMEM_OK)
        return status;
    uint64_t free_bytes = bytes >= BIG_BYTES ? available_bytes() : UINT64_MAX;
    if (bytes > INT64_MAX || bytes > free_bytes)
        return host->fail_sizes(host, SYMMEM_NO_SPACE, ENOSPC, operation, bytes, free_bytes);

    int fd = -1;
    int error = allocated(host, open_posix(host), bytes, &fd, &free_bytes);
    if (error != 0 && instance->fallback && other_kind_may_help(error)) {
        host->notice(host, "/dev/shm is absent, not writable or too small: using anonymous files");
        error = allocated(host, memfd_create("symmem", MFD_CLOEXEC), bytes, &fd, &free_bytes);
    }
    if (error == ENOSPC || error == EFBIG)
        return host->fail_sizes(host, SYMMEM_NO_SPACE, error, operation, bytes,
                                free_bytes == UINT64_MAX ? 0 : free_bytes);
    if (error != 0)
        return shm_fail_errno(host, error, operation, "creating shared memory in /dev/shm");
    status = shm_point(host, "shm.alloc.backing");
    if (status != SYMMEM_OK) {
        close(fd);
        return status;
    }
    *fd_p = fd;
    return SYMMEM_OK;
}

bool shm_backing_usable(bool fallback, char *reason, size_t capacity) {
    int fd = open_posix(NULL);
    int error = errno;
    if (fd < 0 && fallback)
        fd = memfd_create("symmem", MFD_CLOEXEC);
    if (fd >= 0) {
        close(fd);
        return true;
    }
    if (reason && capacity > 0)
        snprintf(reason, capacity, "no shared memory: /dev/shm: error %d%s", error,
                 fallback ? "" : " (anonymous files are forbidden)");
    return false;
}
