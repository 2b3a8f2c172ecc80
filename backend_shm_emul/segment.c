/* SPDX-License-Identifier: BSD-3-Clause */
/* Mapped shared memory between two guard pages, reference-counted, so that ranks of one process
 * share it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "segment.h"
#include "backing.h"
#include "error.h"

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

bool shm_round_to_pages(size_t bytes, size_t *rounded_p) {
    size_t page = page_bytes();
    if (bytes > PTRDIFF_MAX - 3 * page) /* includes the guard pages */
        return false;
    *rounded_p = (bytes + page - 1) / page * page;
    return true;
}

/* Maps fd with an inaccessible page on either side. Returns NULL with errno. */
static void *map_guarded(int fd, size_t bytes) {
    size_t page = page_bytes();
    char *reserved =
        mmap(NULL, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return NULL;
    void *base =
        mmap(reserved + page, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        int error = errno;
        munmap(reserved, bytes + 2 * page);
        errno = error;
        return NULL;
    }
    return base;
}

static void unmap_guarded(void *base, size_t bytes) {
    size_t page = page_bytes();
    munmap((char *)base - page, bytes + 2 * page);
}

/*
 * The mappings of this process. This is the backend's one process-wide variable, because a mapping
 * belongs to the process and not to a rank. Ranks that are threads must all see a segment at one
 * address (ThreadSanitizer is blind otherwise). Only a lock that they share can tell whether a
 * mapping that a descriptor refers to still exists. Nothing else depends on it, and it is empty
 * when no rank has memory. There are so many lists, chosen by the file's number, that tens of
 * thousands of mappings are found as quickly as ten.
 */
#define MAPPING_LISTS 4096
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static shm_segment *mappings[MAPPING_LISTS];

static void lock_mappings(void) {
    pthread_mutex_lock(&mappings_lock);
}

static void unlock_mappings(void) {
    pthread_mutex_unlock(&mappings_lock);
}

static void register_handlers(void) {
    (void)pthread_atfork(lock_mappings, unlock_mappings, unlock_mappings);
}

/* A child of fork must not find the lock held by a thread that the child does not have. */
static void watch_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, register_handlers);
}

/* With mappings_lock. Returns the mapping of that file, with one more reference, or NULL. A mapping
 * that is too short, because the file has grown since, is left alone, and the file gets another
 * one. */
static shm_segment *find_mapping(const struct stat *file, uint64_t bytes) {
    for (shm_segment *segment = mappings[file->st_ino % MAPPING_LISTS]; segment;
         segment = segment->next) {
        if (segment->file_device == file->st_dev && segment->file_number == file->st_ino &&
            segment->bytes >= bytes) {
            segment->reference_count++;
            return segment;
        }
    }
    return NULL;
}

/* With mappings_lock. Takes ownership of keep_fd (-1 keeps none) on success. */
static symmem_status add_mapping(shm_instance *instance, const struct stat *file, int map_fd,
                                 int keep_fd, size_t bytes, const char *operation,
                                 shm_segment **segment_p) {
    shm_segment *segment = malloc(sizeof *segment);
    if (!segment)
        return shm_out_of_memory(instance->host, operation);
    segment->base = map_guarded(map_fd, bytes);
    if (!segment->base) {
        int error = errno;
        free(segment);
        return shm_fail_errno(instance->host, error, operation, "mapping shared memory");
    }
    segment->reference_count = 1;
    segment->fd = keep_fd;
    segment->bytes = bytes;
    segment->file_device = file->st_dev;
    segment->file_number = file->st_ino;
    shm_segment **list = &mappings[file->st_ino % MAPPING_LISTS];
    segment->next = *list;
    *list = segment;
    *segment_p = segment;
    return SYMMEM_OK;
}

/* Maps the new file. The mapping then owns fd. */
static symmem_status map_own(shm_instance *instance, int fd, size_t bytes, const char *operation,
                             shm_segment **segment_p) {
    struct stat file;
    if (fstat(fd, &file) != 0)
        return shm_fail_errno(instance->host, errno, operation, "looking at shared memory");
    watch_forks();
    pthread_mutex_lock(&mappings_lock);
    symmem_status status = add_mapping(instance, &file, fd, fd, bytes, operation, segment_p);
    pthread_mutex_unlock(&mappings_lock);
    return status;
}

symmem_status shm_segment_create(shm_instance *instance, size_t bytes, const char *operation,
                                 shm_segment **segment_p) {
    size_t rounded;
    if (!shm_round_to_pages(bytes, &rounded))
        return instance->host->fail_sizes(instance->host, SYMMEM_NO_SPACE, 0, operation, bytes,
                                          PTRDIFF_MAX);
    int fd;
    symmem_status status = shm_backing_create(instance, rounded, operation, &fd);
    if (status != SYMMEM_OK)
        return status;
    status = shm_failpoint(instance->host, "shm.alloc.map");
    if (status == SYMMEM_OK)
        status = map_own(instance, fd, rounded, operation, segment_p);
    if (status != SYMMEM_OK)
        close(fd);
    return status;
}

/* Checks that the file behind the share is as long as the exporter said. Otherwise an access would
 * raise SIGBUS later. */
static symmem_status check_length(shm_instance *instance, const symmem_share *share, size_t bytes,
                                  const char *operation, struct stat *file_p) {
    const symmem_host *host = instance->host;
    if (fstat(share->fd, file_p) != 0)
        return shm_fail_errno(host, errno, operation, "looking at a received descriptor");
    uint64_t length = file_p->st_size > 0 ? (uint64_t)file_p->st_size : 0;
    if (!S_ISREG(file_p->st_mode) || share->mapped_bytes < bytes || length < share->mapped_bytes)
        return host->fail(host, SYMMEM_MISMATCH, 0, operation,
                          "shared memory of %llu bytes where %llu are needed and %llu announced",
                          (unsigned long long)length, (unsigned long long)bytes,
                          (unsigned long long)share->mapped_bytes);
    return SYMMEM_OK;
}

static symmem_status check_share(shm_instance *instance, const symmem_share *share, size_t bytes,
                                 const char *operation, struct stat *file_p) {
    symmem_status status = check_length(instance, share, bytes, operation, file_p);
    if (status != SYMMEM_OK || !instance->can_seal)
        return status;
    if (!shm_backing_is_sealed(share->fd))
        return instance->host->fail(instance->host, SYMMEM_CORRUPT, 0, operation,
                                    "shared memory that its owner could shorten under this rank");
    /* The owner may have shortened it just before it was sealed. */
    return check_length(instance, share, bytes, operation, file_p);
}

symmem_status shm_segment_import(shm_instance *instance, const symmem_share *share, size_t bytes,
                                 const char *operation, shm_segment **segment_p) {
    struct stat file;
    symmem_status status = check_share(instance, share, bytes, operation, &file);
    if (status != SYMMEM_OK)
        return status;
    watch_forks();
    pthread_mutex_lock(&mappings_lock);
    shm_segment *segment = find_mapping(&file, share->mapped_bytes);
    /* The mapping keeps the memory, so no descriptor per peer is needed. */
    if (!segment)
        status = add_mapping(instance, &file, share->fd, -1, (size_t)share->mapped_bytes, operation,
                             &segment);
    pthread_mutex_unlock(&mappings_lock);
    if (status == SYMMEM_OK)
        *segment_p = segment;
    return status;
}

symmem_status shm_segment_export(shm_instance *instance, shm_segment *segment,
                                 const char *operation, symmem_share *share) {
    int fd = fcntl(segment->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return shm_fail_errno(instance->host, errno, operation, "duplicating a descriptor");
    memset(share, 0, sizeof *share);
    share->kind = SYMMEM_SHARE_FD;
    share->fd = fd;
    share->mapped_bytes = segment->bytes;
    return SYMMEM_OK;
}

void shm_segment_release(shm_segment *segment) {
    pthread_mutex_lock(&mappings_lock);
    bool last = --segment->reference_count == 0;
    shm_segment **place = &mappings[segment->file_number % MAPPING_LISTS];
    if (last) {
        while (*place != segment)
            place = &(*place)->next;
        *place = segment->next;
    }
    pthread_mutex_unlock(&mappings_lock);
    if (!last)
        return;
    unmap_guarded(segment->base, segment->bytes);
    if (segment->fd >= 0)
        close(segment->fd);
    free(segment);
}
