/* SPDX-License-Identifier: BSD-3-Clause */
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 20)

symmem_status symmem_kit_fail_errno(const symmem_host *host, int error, const char *operation,
                                    const char *step) {
    const symmem_status status = error == EMFILE || error == ENFILE ? SYMMEM_LIMIT
                                 : error == ENOMEM                  ? SYMMEM_OUT_OF_MEMORY
                                 : error == ENOSPC                  ? SYMMEM_NO_SPACE
                                                                    : SYMMEM_SYSTEM;
    return host->fail(host, status, error, operation, "%s: %s", step, strerror(error));
}

static size_t whole_pages(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* All pages now, so that a shortage is an error here and not a signal later; in pieces, for a
 * kernel that is interrupted gives back all of one. 0 or an errno. */
static int reserve(int fd, size_t bytes) {
    if (fchmod(fd, 0600) != 0)
        return errno;
    for (size_t done = 0; done < bytes;) {
        const size_t next = bytes - done < PIECE ? bytes - done : PIECE;
        const int error = posix_fallocate(fd, (off_t)done, (off_t)next);
        if (error != 0 && error != EINTR)
            return error;
        done += error == 0 ? next : 0;
    }
    /* A file that takes none is one whose length the kernel keeps, or EINVAL. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 && errno != EINVAL &&
        errno != EPERM)
        return errno;
    return 0;
}

static symmem_status map_file(const symmem_host *host, int fd, const char *operation,
                              symmem_memory made, symmem_memory *memory) {
    made.ptr = mmap(NULL, whole_pages(made.bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (made.ptr == MAP_FAILED)
        return symmem_kit_fail_errno(host, errno, operation, "mmap");
    *memory = made;
    return SYMMEM_OK;
}

symmem_status symmem_kit_segment_make(const symmem_host *host, int fd, int32_t device, size_t bytes,
                                      symmem_memory *memory) {
    const uint64_t limit = (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE);
    const symmem_memory made = {.bytes = bytes, .device = device, .priv = (void *)(intptr_t)fd};
    if (bytes > limit)
        return host->fail_sizes(host, SYMMEM_NO_SPACE, ENOSPC, "alloc", bytes, limit);
    const int error = reserve(fd, whole_pages(bytes));
    if (error != 0)
        return symmem_kit_fail_errno(host, error, "alloc", "reserving memory");
    return map_file(host, fd, "alloc", made, memory);
}

/* Peers that have mapped the memory keep it: the file lives until its last mapping goes. */
void symmem_kit_segment_release(void *instance, symmem_memory *memory) {
    (void)instance;
    munmap(memory->ptr, whole_pages(memory->bytes));
    if (!memory->imported)
        close((int)(intptr_t)memory->priv);
}

symmem_status symmem_kit_segment_share(const symmem_host *host, const symmem_memory *memory,
                                       symmem_share *share) {
    const int fd = fcntl((int)(intptr_t)memory->priv, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return symmem_kit_fail_errno(host, errno, "rendezvous", "duplicating a descriptor");
    share->kind = SYMMEM_SHARE_FD;
    share->fd = fd;
    share->mapped_bytes = whole_pages(memory->bytes);
    return SYMMEM_OK;
}

void symmem_kit_segment_unshare(void *instance, symmem_share *share) {
    (void)instance;
    close(share->fd);
    share->fd = -1;
}

symmem_status symmem_kit_segment_map(const symmem_host *host, int32_t device,
                                     const symmem_share *share, size_t bytes,
                                     symmem_memory *memory) {
    const symmem_memory made = {.bytes = bytes, .device = device, .imported = 1};
    struct stat file; /* comes from outside: too short a file would be fatal later */
    if (fstat(share->fd, &file) != 0)
        return symmem_kit_fail_errno(host, errno, "rendezvous", "looking at a peer's memory");
    if ((uint64_t)file.st_size < whole_pages(bytes))
        return host->fail(host, SYMMEM_MISMATCH, 0, "rendezvous", "%lld of %zu bytes are there",
                          (long long)file.st_size, bytes);
    return map_file(host, share->fd, "rendezvous", made, memory);
}
