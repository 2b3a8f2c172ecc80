/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shares that a peer sends to the emulation: memory_map and multicast_attach with any descriptor
 * and any sizes. What was imported must be readable and writable from its first to its last byte;
 * all of it must be given back.
 */
#include "fuzz.h"
#include "shm.h"

#include "../quiet_host.h"
#include "bootstrap/bootstrap.h"
#include "backend.h"

#define FILES 4
#define IMPORTS 8
#define FILE_MAX (1u << 16)

/* --- the core's services to a backend: every failure lands in the thread's record -------- */

__attribute__((format(printf, 5, 6))) static symmem_status
host_fail(const symmem_host *host, symmem_status status, int system_errno, const char *operation,
          const char *format, ...) {
    va_list args;
    va_start(args, format);
    sm_vfail(status, operation, "", format, args);
    va_end(args);
    return sm_error_errno(system_errno);
}

static symmem_status host_fail_sizes(const symmem_host *host, symmem_status status,
                                     int system_errno, const char *operation, uint64_t expected,
                                     uint64_t actual) {
    host_fail(host, status, system_errno, operation, "sizes");
    return sm_error_sizes(expected, actual);
}

static const symmem_host fuzz_host = {
    .size = sizeof(fuzz_host),
    .fail = host_fail,
    .fail_sizes = host_fail_sizes,
    .notice = quiet_notice,
    .point = quiet_point,
    .signal_failed = quiet_signal_failed,
    .peer_state = quiet_peer_state,
    .is_poisoned = quiet_is_poisoned,
};

static void *instance;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    const symmem_backend_config config = {.size = sizeof(config), .world_size = 4};
    unsetenv("SYMMEM_SHM_DEVICES");
    unsetenv("SYMMEM_SHM_MULTICAST_SLOTS");
    FUZZ_CHECK(
        symmem_backend_entry(SYMMEM_BACKEND_ABI)->instance->open(&fuzz_host, &config, &instance) ==
        SYMMEM_OK);
    return 0;
}

/* --- descriptors of all kinds ----------------------------------------------------------- */

/* A multicast object as the emulation lays it out. */
typedef struct multicast_head {
    uint32_t attached, bound;
    int32_t world_size;
    uint32_t reserved;
    uint64_t bytes;
} multicast_head;

static int memory_file(fuzz_input *in, uint8_t form) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    multicast_head head = {.attached = 3, .world_size = 4, .bytes = 4096};
    uint64_t bytes = fuzz_number(in, 4096);
    FUZZ_CHECK(fd >= 0);
    /* A large one has no pages, only a length. */
    if (ftruncate(fd, (off_t)bytes) != 0)
        (void)!ftruncate(fd, (off_t)(bytes % FILE_MAX));
    fuzz_spoil(in, &head, sizeof(head));
    if (bytes >= sizeof(head))
        (void)!pwrite(fd, &head, sizeof(head), 0);
    if ((form & 0x40) != 0)
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    if ((form & 0x80) != 0)
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE);
    return fd;
}

static int any_descriptor(fuzz_input *in) {
    uint8_t form = fuzz_u8(in);
    int pair[2];
    switch (form % 8) {
    case 1:
        return -1;
    case 2:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case 3:
        return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    case 4:
        FUZZ_CHECK(pipe2(pair, O_CLOEXEC) == 0);
        close(pair[1]);
        return pair[0];
    case 5:
        return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    case 6:
        return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    default:
        return memory_file(in, form);
    }
}

static symmem_share any_share(fuzz_input *in, const int *fds) {
    int fd = fds[fuzz_below(in, FILES)];
    off_t length = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    symmem_share share = {.kind = SYMMEM_SHARE_FD, .fd = fd};
    share.mapped_bytes = fuzz_number(in, length > 0 ? (uint64_t)length : 0);
    share.kind = (fuzz_u8(in) & 0x80) != 0 ? (int32_t)fuzz_u32(in) : SYMMEM_SHARE_FD;
    share.same_process = (int32_t)fuzz_below(in, 2);
    return share;
}

/* --- what is done with them ------------------------------------------------------------ */

/* Pages of a sparse file beyond what the machine holds are not to be touched here. */
static void touch(void *ptr, size_t bytes) {
    volatile unsigned char *at = ptr;
    if (bytes == 0)
        return;
    for (size_t i = 0; i < 3; i++) {
        size_t place = i == 0 ? 0 : i == 1 ? bytes / 2 : bytes - 1;
        at[place] = (unsigned char)(at[place] + 1);
    }
}

static void import(fuzz_input *in, const int *fds, symmem_memory *memory) {
    const symmem_backend *table = symmem_backend_entry(SYMMEM_BACKEND_ABI);
    symmem_share share = any_share(in, fds);
    size_t bytes = fuzz_number(in, share.mapped_bytes);
    symmem_memory found = {0};
    symmem_clear_error();
    symmem_status status = table->memory->map(instance, 0, &share, bytes, &found);
    if (status != SYMMEM_OK) {
        static const symmem_memory none;
        fuzz_check_failure(status, 4);
        FUZZ_CHECK(memcmp(&found, &none, sizeof(none)) == 0);
        return;
    }
    FUZZ_CHECK(found.bytes == bytes && found.imported == 1);
    FUZZ_CHECK((uintptr_t)found.ptr % 256 == 0);
    FUZZ_CHECK(bytes <= share.mapped_bytes);
    touch(found.ptr, bytes);
    if (memory->priv != NULL)
        table->memory->release(instance, memory);
    *memory = found;
}

static void join_multicast(fuzz_input *in, const int *fds) {
    const symmem_backend *table = symmem_backend_entry(SYMMEM_BACKEND_ABI);
    symmem_share share = any_share(in, fds);
    size_t bytes = fuzz_number(in, 4096);
    int32_t device = (int32_t)fuzz_below(in, 4);
    unsigned char buffer[64] = {0};
    void *const buffers[4] = {buffer, buffer, buffer, buffer};
    symmem_peers peers = {.size = sizeof(peers),
                          .host = &fuzz_host,
                          .world_size = (int32_t)fuzz_below(in, 4) + 1,
                          .buffers = buffers,
                          .buffer_bytes = sizeof(buffer)};
    void *multicast = NULL, *address = NULL;
    symmem_clear_error();
    symmem_status status = table->multicast->attach(instance, device, &share, bytes, &multicast);
    if (status != SYMMEM_OK) {
        fuzz_check_failure(status, 4);
        FUZZ_CHECK(multicast == NULL);
        return;
    }
    multicast_head head;
    FUZZ_CHECK(pread(share.fd, &head, sizeof(head), 0) == sizeof(head) && head.bytes == bytes);
    status = table->multicast->bind(instance, multicast, NULL, &peers, &address);
    if (status == SYMMEM_OK) {
        FUZZ_CHECK(head.world_size == peers.world_size);
        const symmem_exec exec = {0};
        size_t offset = fuzz_number(in, 0), count = fuzz_number(in, 32);
        unsigned char source[64] = {1};
        if (count > sizeof(source))
            count = sizeof(source);
        status = table->multicast->store(instance, &peers, (void *)((uintptr_t)address + offset),
                                         source, count, &exec);
        FUZZ_CHECK(status != SYMMEM_OK || (offset <= bytes && count <= bytes - offset &&
                                           offset + count <= sizeof(buffer)));
    } else {
        fuzz_check_failure(status, 4);
        FUZZ_CHECK(address == NULL);
    }
    table->multicast->release(instance, multicast);
}

/* A peer may lengthen its file. If it made it shorter, nothing would help. */
static void lengthen(int fd, uint16_t bytes) {
    off_t length = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
    if (length >= 0 && length < (off_t)1 << 40)
        (void)!ftruncate(fd, length + bytes);
}

void fuzz_one(fuzz_input *in) {
    const symmem_backend *table = symmem_backend_entry(SYMMEM_BACKEND_ABI);
    int fds[FILES];
    symmem_memory memories[IMPORTS] = {{0}};
    int mappings = fuzz_count_mappings();
    for (int i = 0; i < FILES; i++)
        fds[i] = any_descriptor(in);
    for (uint32_t steps = 1 + fuzz_below(in, 12); steps > 0; steps--) {
        uint8_t form = fuzz_u8(in);
        int fd = fds[form / 8 % FILES];
        if (form % 4 == 3)
            join_multicast(in, fds);
        else if (form % 8 == 6)
            lengthen(fd, fuzz_u16(in));
        else
            import(in, fds, &memories[form / 8 % IMPORTS]);
    }
    for (int i = 0; i < IMPORTS; i++)
        table->memory->release(instance, &memories[i]);
    for (int i = 0; i < FILES; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    FUZZ_CHECK(fuzz_count_mappings() == mappings);
}
