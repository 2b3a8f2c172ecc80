/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the emulation: allocation, sharing, shortages, and that nothing leaks. */
#include <sched.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "shm.h"
#include "shm_fake_host.h"
#include "unit_child.h"
#include "unit_main.h"
#include "backend.h"
#include "error.h"
#include "segment.h"

TEST("table") {
    CU_ASSERT_PTR_NULL(symmem_backend_entry(SYMMEM_BACKEND_ABI + 1));
    CU_ASSERT_STRING_EQUAL(backend->name, "shm");
    CU_ASSERT_EQUAL(backend->size, sizeof(symmem_backend));
    CU_ASSERT_PTR_NULL(backend->stream->wrap);
    CU_ASSERT_PTR_NULL(backend->memory->exchange);
    CU_ASSERT_PTR_NULL(backend->group);
    char reason[64] = "";
    CU_ASSERT_EQUAL(backend->instance->probe(reason, sizeof reason), SYMMEM_OK);
}

/* --- systems that have no anonymous files ------------------------------------------------------
 */

static int memfd_error, memfd_failures, file_error; /* of as many calls; of files without a name */

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags) {
    if (memfd_failures == 0)
        return __real_memfd_create(name, flags);
    memfd_failures--;
    errno = memfd_error;
    return -1;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode) {
    errno = (flags & O_TMPFILE) == O_TMPFILE ? file_error : 0;
    return errno != 0 ? -1 : __real_open(path, flags, mode);
}

/* EINVAL once: an older kernel does not know a flag. */
TEST("no anonymous files") {
    static const struct {
        int error, failures;
        int notices;
        symmem_status status;
    } rows[] = {{ENOSYS, 1, 1, SYMMEM_OK}, {EPERM, 1, 1, SYMMEM_OK},  {EACCES, 1, 1, SYMMEM_OK},
                {EINVAL, 2, 1, SYMMEM_OK}, {EINVAL, 1, 0, SYMMEM_OK}, {EMFILE, 1, 0, SYMMEM_LIMIT}};
    fake_host host;
    void *instance = fake_open(&host);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        symmem_memory memory;
        int before = atomic_load(&host.notice_count);
        memfd_error = rows[i].error;
        memfd_failures = rows[i].failures;
        CU_ASSERT_EQUAL(backend->memory->alloc(instance, 0, 100, &memory), rows[i].status);
        CU_ASSERT_EQUAL(atomic_load(&host.notice_count) - before, rows[i].notices);
        if (rows[i].status == SYMMEM_OK)
            backend->memory->release(instance, &memory);
    }
    backend->instance->close(instance);
}

/* Neither kind: the backend says so, if asked. */
TEST("no shared memory") {
    char reason[64] = "as before";
    memfd_error = ENOSYS;
    file_error = EACCES;
    memfd_failures = 3;
    CU_ASSERT_EQUAL(backend->instance->probe(NULL, 5), SYMMEM_UNSUPPORTED);
    CU_ASSERT_EQUAL(backend->instance->probe(reason, 0), SYMMEM_UNSUPPORTED);
    CU_ASSERT_STRING_EQUAL(reason, "as before");
    CU_ASSERT_EQUAL(backend->instance->probe(reason, sizeof reason), SYMMEM_UNSUPPORTED);
    CU_ASSERT_STRING_EQUAL(reason, "no shared memory: error 13");
    file_error = 0;
}

/* An older core has no such entry, or lacks it. */
TEST("explanations nobody takes") {
    fake_host host;
    fake_host_init(&host);
    host.host.size = offsetof(symmem_host, explain);
    shm_explain(&host.host, " more");
    CU_ASSERT_STRING_EQUAL(host.text, "");
    host.host.size = sizeof(symmem_host);
    shm_explain(&host.host, " more");
    CU_ASSERT_STRING_EQUAL(host.text, " more");
    host.host.explain = NULL;
    shm_explain(&host.host, " and more");
    CU_ASSERT_STRING_EQUAL(host.text, " more");
}

static bool faults(const char *address) {
    touched = address;
    return is_fatal(end_in_child(touch));
}

/* Acts like a kernel that gives all pages of a call back when a signal comes within that many
 * pages. */
static off_t most_at_once = INT64_MAX;
int posix_fallocate(int fd, off_t at, off_t bytes) {
    static int interruptions;
    if (bytes > most_at_once)
        return ++interruptions < 1000 ? EINTR : ENOSPC;
    return fallocate(fd, 0, at, bytes) == 0 ? 0 : errno;
}

/* A seal that the kernel has no memory for. */
static bool no_seals;
int fcntl(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    const long argument = va_arg(args, long);
    va_end(args);
    if (no_seals && command == F_ADD_SEALS) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

/* Peers would refuse it, and it would be they who have failed. */
TEST("memory that could not be sealed") {
    int descriptors = fake_count_descriptors(), mappings = fake_count_shared_mappings();
    fake_host host;
    void *instance = fake_open(&host);
    symmem_memory memory = {.ptr = &host};
    no_seals = true;
    CU_ASSERT_EQUAL(backend->memory->alloc(instance, 0, 5000, &memory), SYMMEM_OUT_OF_MEMORY);
    no_seals = false;
    CU_ASSERT_PTR_EQUAL(memory.ptr, &host);
    CU_ASSERT_EQUAL_FATAL(backend->memory->alloc(instance, 0, 5000, &memory), SYMMEM_OK);
    backend->memory->release(instance, &memory);
    backend->instance->close(instance);
    CU_ASSERT_EQUAL(fake_count_descriptors(), descriptors);
    CU_ASSERT_EQUAL(fake_count_shared_mappings(), mappings);
}

TEST("alloc") {
    fake_host host;
    void *instance = fake_open(&host);
    static const size_t sizes[] = {1, 4095, 4096, 4097, 3000001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        symmem_memory memory;
        most_at_once = sizes[i] > 1 << 20 ? 1 << 17 : INT64_MAX;
        CU_ASSERT_EQUAL_FATAL(backend->memory->alloc(instance, 2, sizes[i], &memory), SYMMEM_OK);
        CU_ASSERT_EQUAL((uintptr_t)memory.ptr % 4096, 0);
        CU_ASSERT_EQUAL(memory.bytes, sizes[i]);
        CU_ASSERT_EQUAL(memory.device, 2);
        CU_ASSERT_EQUAL(memory.imported, 0);
        const char *bytes = memory.ptr;
        bool zero = true;
        for (size_t k = 0; k < sizes[i]; k++)
            zero = zero && bytes[k] == 0;
        CU_ASSERT(zero);
        size_t end = (sizes[i] + 4095) / 4096 * 4096;
        CU_ASSERT(faults(bytes - 1));
        CU_ASSERT(!faults(bytes + end - 1));
        CU_ASSERT(faults(bytes + end));
        backend->memory->release(instance, &memory);
        backend->memory->release(instance, &memory); /* emptied: nothing to do */
    }
    most_at_once = INT64_MAX;
    backend->instance->close(instance);
}

/* The object has no name, is the owner's alone whatever the umask, and is not inherited. */
TEST("privacy") {
    fake_host host;
    void *instance = fake_open(&host);
    mode_t before = umask(0777);
    symmem_memory memory;
    symmem_share share;
    CU_ASSERT_EQUAL_FATAL(backend->memory->alloc(instance, 0, 100, &memory), SYMMEM_OK);
    umask(before);
    CU_ASSERT_EQUAL_FATAL(backend->memory->share(instance, &memory, &share), SYMMEM_OK);
    struct stat file;
    CU_ASSERT_EQUAL(fstat(share.fd, &file), 0);
    CU_ASSERT_EQUAL(file.st_mode & 07777u, 0600u);
    CU_ASSERT_EQUAL(file.st_nlink, 0);
    CU_ASSERT_EQUAL(file.st_size, 4096);
    CU_ASSERT((file.st_blocks) * 512 >= 4096);
    CU_ASSERT(fcntl(share.fd, F_GETFD) & FD_CLOEXEC);
    backend->memory->unshare(instance, &share);
    CU_ASSERT_EQUAL(share.fd, -1);
    backend->memory->unshare(instance, &share);
    backend->memory->release(instance, &memory);
    backend->instance->close(instance);
}

TEST("import") {
    int descriptors = fake_count_descriptors();
    int mappings = fake_count_shared_mappings();
    fake_host host;
    void *instance = fake_open(&host);
    symmem_memory own;
    symmem_memory near;
    symmem_memory far;
    symmem_share share;
    CU_ASSERT_EQUAL_FATAL(backend->memory->alloc(instance, 0, 5000, &own), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(backend->memory->share(instance, &own, &share), SYMMEM_OK);
    CU_ASSERT_EQUAL(share.kind, SYMMEM_SHARE_FD);
    CU_ASSERT_EQUAL(share.mapped_bytes, 8192);
    int before_import = fake_count_descriptors();
    CU_ASSERT_EQUAL(backend->memory->map(instance, 1, &share, 5000, &far), SYMMEM_OK);
    CU_ASSERT_EQUAL(fake_count_descriptors(), before_import);
    share.same_process = 1;
    CU_ASSERT_EQUAL(backend->memory->map(instance, 1, &share, 5000, &near), SYMMEM_OK);
    CU_ASSERT_PTR_EQUAL(near.ptr, own.ptr);
    CU_ASSERT_PTR_EQUAL(far.ptr, own.ptr); /* one mapping per process, for all ranks */
    CU_ASSERT(far.imported && near.imported);
    strcpy((char *)own.ptr + 4990, "shared");
    CU_ASSERT_STRING_EQUAL((char *)far.ptr + 4990, "shared");
    /* Not the announced size, or not the announced process. */
    symmem_memory none = {.ptr = &none};
    CU_ASSERT_EQUAL(backend->memory->map(instance, 1, &share, 8193, &none), SYMMEM_MISMATCH);
    share.same_process = 0;
    CU_ASSERT_EQUAL(backend->memory->map(instance, 1, &share, 8193, &none), SYMMEM_MISMATCH);
    share.mapped_bytes = 1 << 20;
    CU_ASSERT_EQUAL(backend->memory->map(instance, 1, &share, 8192, &none), SYMMEM_MISMATCH);
    int fd = share.fd;
    share.fd = -1;
    CU_ASSERT_EQUAL(backend->memory->map(instance, 1, &share, 8192, &none), SYMMEM_SYSTEM);
    int pipe_fds[2];
    CU_ASSERT_EQUAL(pipe2(pipe_fds, O_CLOEXEC), 0);
    share.fd = pipe_fds[0];
    share.mapped_bytes = 0;
    CU_ASSERT_EQUAL(backend->memory->map(instance, 1, &share, 0, &none), SYMMEM_MISMATCH);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    CU_ASSERT_PTR_EQUAL(none.ptr, &none);
    share.fd = fd;
    backend->memory->unshare(instance, &share);
    /* The owner's release leaves the peers' mappings. */
    backend->memory->release(instance, &own);
    strcpy(near.ptr, "still");
    CU_ASSERT_STRING_EQUAL(far.ptr, "still");
    backend->memory->release(instance, &near);
    CU_ASSERT_STRING_EQUAL(far.ptr, "still");
    backend->memory->release(instance, &far);
    backend->instance->close(instance);
    CU_ASSERT_EQUAL(fake_count_descriptors(), descriptors);
    CU_ASSERT_EQUAL(fake_count_shared_mappings(), mappings);
}

/* A mapping that was long enough once is not taken for a file that has grown since. */
TEST("import of a file that grew") {
    int mappings = fake_count_shared_mappings();
    fake_host host;
    void *instance = fake_open(&host);
    symmem_memory first, second;
    symmem_share share = {.kind = SYMMEM_SHARE_FD, .mapped_bytes = 4096};
    share.fd = memfd_create("grows", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CU_ASSERT_FATAL(share.fd >= 0 && ftruncate(share.fd, 4096) == 0);
    CU_ASSERT_EQUAL(backend->memory->map(instance, 0, &share, 4096, &first), SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(fcntl(share.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    CU_ASSERT_EQUAL_FATAL(backend->memory->map(instance, 0, &share, 4096, &first), SYMMEM_OK);
    CU_ASSERT_EQUAL(ftruncate(share.fd, 1 << 20), 0);
    share.mapped_bytes = 1 << 20;
    CU_ASSERT_EQUAL_FATAL(backend->memory->map(instance, 0, &share, 1 << 20, &second), SYMMEM_OK);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(second.ptr, first.ptr);
    ((char *)second.ptr)[(1 << 20) - 1] = 1; /* was behind the mapping */
    backend->memory->release(instance, &first);
    backend->memory->release(instance, &second);
    backend->memory->unshare(instance, &share);
    backend->instance->close(instance);
    CU_ASSERT_EQUAL(fake_count_shared_mappings(), mappings);
}

TEST("too much") {
    fake_host host;
    void *instance = fake_open(&host);
    symmem_memory memory = {.ptr = &host};
    static const size_t sizes[] = {SIZE_MAX, (size_t)PTRDIFF_MAX + 5, (size_t)1 << 62,
                                   (size_t)1 << 50};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CU_ASSERT_EQUAL(backend->memory->alloc(instance, 0, sizes[i], &memory), SYMMEM_NO_SPACE);
        CU_ASSERT(host.expected >= sizes[i]);
        CU_ASSERT(host.actual < host.expected);
    }
    CU_ASSERT_PTR_EQUAL(memory.ptr, &host);
    backend->instance->close(instance);
}

/* Each failpoint fails once. The call returns its status and leaves nothing behind. */
TEST("test points") {
    static const char *const names[] = {"shm.alloc.create", "shm.alloc.backing", "shm.alloc.map",
                                        "shm.export", "shm.import.map"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fake_host host;
        void *instance = fake_open(&host);
        int descriptors = fake_count_descriptors();
        int mappings = fake_count_shared_mappings();
        host.fail_name = names[i];
        host.fail_status = SYMMEM_BACKEND;
        symmem_memory own;
        symmem_memory peer;
        symmem_share share;
        symmem_status status = backend->memory->alloc(instance, 0, 5000, &own);
        CU_ASSERT_EQUAL(status, i < 3 ? SYMMEM_BACKEND : SYMMEM_OK);
        if (status == SYMMEM_OK) {
            status = backend->memory->share(instance, &own, &share);
            CU_ASSERT_EQUAL(status, i == 3 ? SYMMEM_BACKEND : SYMMEM_OK);
            if (status == SYMMEM_OK) {
                CU_ASSERT_EQUAL(backend->memory->map(instance, 0, &share, 5000, &peer),
                                SYMMEM_BACKEND);
                backend->memory->unshare(instance, &share);
            }
            backend->memory->release(instance, &own);
        }
        CU_ASSERT_EQUAL(atomic_load(&host.fail_count), 1);
        CU_ASSERT_PTR_NOT_NULL(strstr(host.text, names[i]));
        CU_ASSERT_EQUAL(fake_count_descriptors(), descriptors);
        CU_ASSERT_EQUAL(fake_count_shared_mappings(), mappings);
        backend->instance->close(instance);
    }
}

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d\n", __FILE__, __LINE__);                                        \
            return;                                                                                \
        }                                                                                          \
    } while (0)

static void no_descriptors(void) {
    fake_host host;
    void *instance = fake_open(&host);
    symmem_memory memory;
    symmem_share share;
    REQUIRE(backend->memory->alloc(instance, 0, 10, &memory) == SYMMEM_OK);
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    symmem_status exported = backend->memory->share(instance, &memory, &share);
    symmem_memory more;
    symmem_status allocated = backend->memory->alloc(instance, 0, 10, &more);
    symmem_status big = backend->memory->alloc(instance, 0, (size_t)32 << 20, &more);
    setrlimit(RLIMIT_NOFILE, &before);
    REQUIRE(exported == SYMMEM_LIMIT || exported == SYMMEM_SYSTEM);
    REQUIRE(allocated == SYMMEM_LIMIT);
    REQUIRE(big == SYMMEM_LIMIT);
    REQUIRE(atomic_load(&host.notice_count) == 0); /* that /dev/shm is too small would be untrue */
    backend->memory->release(instance, &memory);
    backend->instance->close(instance);
    exit(CHOSEN);
}

static void no_addresses(void) {
    fake_host host;
    void *instance = fake_open(&host);
    struct rlimit before;
    getrlimit(RLIMIT_AS, &before);
    struct rlimit tight = {.rlim_cur = (rlim_t)64 << 20, .rlim_max = before.rlim_max};
    int descriptors = fake_count_descriptors();
    setrlimit(RLIMIT_AS, &tight);
    symmem_memory memory;
    symmem_status status = backend->memory->alloc(instance, 0, (size_t)128 << 20, &memory);
    setrlimit(RLIMIT_AS, &before);
    REQUIRE(status == SYMMEM_OUT_OF_MEMORY);
    REQUIRE(fake_count_descriptors() == descriptors);
    backend->instance->close(instance);
    exit(CHOSEN);
}

TEST("limits") {
    CU_ASSERT(has_chosen(end_in_child(no_descriptors)));
    if (UNIT_SHADOW_MEMORY == 0)
        CU_ASSERT(has_chosen(end_in_child(no_addresses)));
}

static int write_peers(fake_rank *rank) {
    int32_t own = rank->peers.rank;
    for (int32_t peer = 0; peer < rank->peers.world_size; peer++)
        ((int32_t *)rank->peers.buffers[peer])[own] = own * 257 + peer;
    if (fake_barrier(rank, 0, 20000, NULL) != SYMMEM_OK)
        return 1;
    for (int32_t peer = 0; peer < rank->peers.world_size; peer++)
        if (((int32_t *)rank->peers.buffers[own])[peer] != peer * 257 + own)
            return 2;
    return 0;
}

TEST("worlds") {
    int descriptors = fake_count_descriptors();
    int mappings = fake_count_shared_mappings();
    fake_world *world = fake_world_open(4, 2, 100000);
    CU_ASSERT_EQUAL(fake_run_processes(world, write_peers), 0);
    CU_ASSERT_EQUAL(fake_run_threads(world, write_peers), 0);
    fake_world_close(world);
    CU_ASSERT_EQUAL(fake_count_descriptors(), descriptors);
    CU_ASSERT_EQUAL(fake_count_shared_mappings(), mappings);
}

/* A block takes no more pages than it needs, and the guards on either side have addresses. */
TEST("rounding") {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    static const int pages[] = {0, 1, 1, 1, 2, 2};
    const size_t bytes[] = {0, 1, page - 1, page, page + 1, 2 * page};
    const size_t most = PTRDIFF_MAX - 3 * page;
    size_t rounded = 0;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        CU_ASSERT(shm_round_to_pages(bytes[i], &rounded));
        CU_ASSERT_EQUAL(rounded, (size_t)pages[i] * page);
    }
    CU_ASSERT(shm_round_to_pages(most, &rounded));
    CU_ASSERT(!shm_round_to_pages(most + 1, &rounded));
}
