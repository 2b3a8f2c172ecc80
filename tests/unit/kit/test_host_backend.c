/* SPDX-License-Identifier: BSD-3-Clause */
/* The kit of memory backends: segments, and signals and barriers of words in them. */
#include "unit_main.h"

#include "../../plugins/kit/host_signal.h"
#include "../../plugins/kit/segment.h"
#include "../../plugins/kit/wait.h"

#define RANKS 2
#define CHANNELS 3
#define NS_PER_MS UINT64_C(1000000)

/* --- a core ----------------------------------------------------------------------------------- */

static atomic_int gone_rank, poisoned;
static symmem_fault fault;
static uint64_t expected_bytes;

static symmem_status fail(const symmem_host *host, symmem_status status, int system_errno,
                          const char *operation, const char *format, ...) {
    (void)host, (void)system_errno, (void)operation, (void)format;
    return status;
}

static symmem_status fail_sizes(const symmem_host *host, symmem_status status, int system_errno,
                                const char *operation, uint64_t expected, uint64_t actual) {
    (void)host, (void)system_errno, (void)operation, (void)actual;
    expected_bytes = expected;
    return status;
}

static symmem_peer_state peer_state(const symmem_peers *peers, int32_t rank) {
    (void)peers;
    return rank == gone_rank ? SYMMEM_PEER_GONE : SYMMEM_PEER_ALIVE;
}

static bool is_poisoned(const symmem_peers *peers) {
    return peers->rank == poisoned - 1;
}

static void signal_failed(const symmem_peers *peers, const symmem_fault *what,
                          symmem_error_record *record) {
    (void)peers, (void)record;
    fault = *what;
}

static const symmem_host host = {.size = sizeof(symmem_host),
                                 .fail = fail,
                                 .fail_sizes = fail_sizes,
                                 .peer_state = peer_state,
                                 .is_poisoned = is_poisoned,
                                 .signal_failed = signal_failed};

/* --- signals ---------------------------------------------------------------------------------- */

static const symmem_signal_ops *const signals = &symmem_kit_host_signal;
static void *state[RANKS];
static symmem_peers peers[RANKS];

static void begin(void) {
    const size_t bytes = signals->bytes(NULL, RANKS, CHANNELS, 0);
    gone_rank = -1;
    poisoned = 0;
    fault = (symmem_fault){0};
    for (int32_t r = 0; r < RANKS; r++) {
        state[r] = calloc(1, bytes);
        CU_ASSERT_FATAL(state[r] != NULL);
        peers[r] = (symmem_peers){.size = sizeof(symmem_peers),
                                  .host = &host,
                                  .rank = r,
                                  .world_size = RANKS,
                                  .channel_count = CHANNELS,
                                  .signals = state,
                                  .signal_bytes = bytes};
    }
}

static void end(void) {
    for (int32_t r = 0; r < RANKS; r++)
        free(state[r]);
}

static symmem_status put(int32_t rank, int32_t to, int32_t channel, uint32_t limit_ms) {
    const symmem_exec exec = {.timeout_ms = limit_ms};
    return signals->put(NULL, &peers[rank], to, channel, &exec);
}

static symmem_status take(int32_t rank, int32_t from, int32_t channel, uint32_t limit_ms) {
    const symmem_exec exec = {.timeout_ms = limit_ms};
    return signals->wait(NULL, &peers[rank], from, channel, &exec);
}

TEST("a signal is one by its channel and source, and is taken once") {
    begin();
    CU_ASSERT_EQUAL(put(0, 1, 2, 20), SYMMEM_OK);
    CU_ASSERT_EQUAL(put(1, 1, 2, 20), SYMMEM_OK);
    CU_ASSERT_EQUAL(take(1, 0, 1, 5), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(fault.missing[0], 1);
    CU_ASSERT(fault.failed_rank == 0 && fault.channel == 1 && fault.elapsed_ns >= 5 * NS_PER_MS);
    CU_ASSERT_STRING_EQUAL(fault.operation, "wait_signal");
    CU_ASSERT_EQUAL(put(0, 1, 2, 5), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(fault.missing[0], 2);
    CU_ASSERT_EQUAL(take(1, 0, 2, 20), SYMMEM_OK);
    CU_ASSERT_EQUAL(take(1, 0, 2, 5), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(take(1, 1, 2, 20), SYMMEM_OK);
    end();
}

TEST("a slot with another value is corrupt") {
    begin();
    memset(state[1], 7, peers[1].signal_bytes);
    CU_ASSERT_EQUAL(put(0, 1, 0, 0), SYMMEM_CORRUPT);
    CU_ASSERT(fault.actual == 0x07070707 && fault.failed_rank == 1);
    CU_ASSERT_EQUAL(take(1, 0, 0, 0), SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(signals->reset(NULL, &peers[1]), SYMMEM_OK);
    CU_ASSERT_EQUAL(put(0, 1, 0, 0), SYMMEM_OK);
    end();
}

TEST("a wait ends with its peer, but not if that has done its part") {
    begin();
    CU_ASSERT_EQUAL(put(0, 1, 0, 0), SYMMEM_OK);
    gone_rank = 0;
    CU_ASSERT_EQUAL(take(1, 0, 0, 0), SYMMEM_OK);
    CU_ASSERT_EQUAL(take(1, 0, 0, 0), SYMMEM_PEER_LOST);
    CU_ASSERT(fault.failed_rank == 0 && fault.missing[0] == 1);
    end();
}

TEST("a wait ends when the peer or this rank has given up") {
    begin();
    signals->poison(NULL, &peers[0]);
    CU_ASSERT_EQUAL(take(1, 0, 0, 0), SYMMEM_POISONED);
    CU_ASSERT(fault.failed_rank == 0 && fault.missing[0] == 0);
    CU_ASSERT_EQUAL(signals->reset(NULL, &peers[0]), SYMMEM_OK);
    poisoned = 2;
    CU_ASSERT_EQUAL(take(1, 0, 0, 0), SYMMEM_POISONED);
    CU_ASSERT_EQUAL(fault.failed_rank, 1);
    end();
}

static atomic_int rounds[RANKS];

static void *meet(void *peers_v) {
    const symmem_peers *own = peers_v;
    const symmem_exec exec = {.timeout_ms = 20000};
    for (int i = 1; i <= 500; i++) {
        atomic_store(&rounds[own->rank], i);
        CU_ASSERT_EQUAL(signals->barrier(NULL, own, 1, &exec), SYMMEM_OK);
        CU_ASSERT(atomic_load(&rounds[1 - own->rank]) >= i);
    }
    return NULL;
}

TEST("a barrier holds for each rank") {
    pthread_t other;
    const symmem_exec exec = {.timeout_ms = 5};
    begin();
    CU_ASSERT_EQUAL_FATAL(pthread_create(&other, NULL, meet, &peers[1]), 0);
    meet(&peers[0]);
    CU_ASSERT_EQUAL(pthread_join(other, NULL), 0);
    CU_ASSERT_EQUAL(put(1, 0, 2, 20), SYMMEM_OK); /* is no arrival */
    CU_ASSERT_EQUAL(signals->barrier(NULL, &peers[0], 2, &exec), SYMMEM_TIMEOUT);
    CU_ASSERT(fault.failed_rank == 1 && fault.missing[0] == 2 && fault.channel == 2);
    end();
}

/* --- segments --------------------------------------------------------------------------------- */

TEST("a segment is the owner's, backed, of one length, and peers can map it") {
    symmem_memory own = {0}, peer = {0};
    symmem_share share = {.fd = -1};
    struct stat info;
    const int fd = memfd_create("unit", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL_FATAL(symmem_kit_segment_make(&host, fd, 3, 5000, &own), SYMMEM_OK);
    CU_ASSERT(own.bytes == 5000 && own.device == 3 && own.imported == 0);
    CU_ASSERT_EQUAL(fstat(fd, &info), 0);
    CU_ASSERT_EQUAL(info.st_mode & 0777, 0600);
    CU_ASSERT_EQUAL(ftruncate(fd, 0), -1);
    CU_ASSERT_EQUAL_FATAL(symmem_kit_segment_share(&host, &own, &share), SYMMEM_OK);
    CU_ASSERT(share.fd != fd && (fcntl(share.fd, F_GETFD) & FD_CLOEXEC) != 0);
    CU_ASSERT_EQUAL(symmem_kit_segment_map(&host, 1, &share, 1 << 20, &peer), SYMMEM_MISMATCH);
    CU_ASSERT_EQUAL_FATAL(symmem_kit_segment_map(&host, 1, &share, 5000, &peer), SYMMEM_OK);
    CU_ASSERT(peer.imported != 0 && peer.ptr != own.ptr);
    ((char *)own.ptr)[4999] = 9;
    CU_ASSERT_EQUAL(((char *)peer.ptr)[4999], 9);
    const int shared = share.fd;
    symmem_kit_segment_unshare(NULL, &share);
    CU_ASSERT(share.fd == -1 && fcntl(shared, F_GETFD) == -1);
    symmem_kit_segment_release(NULL, &own);
    CU_ASSERT_EQUAL(fcntl(fd, F_GETFD), -1);
    CU_ASSERT_EQUAL(((char *)peer.ptr)[4999], 9);
    symmem_kit_segment_release(NULL, &peer);
}

TEST("a segment that is too large has no space") {
    symmem_memory memory = {0};
    const int fd = memfd_create("unit", MFD_CLOEXEC);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(symmem_kit_segment_make(&host, fd, 0, (size_t)1 << 50, &memory),
                    SYMMEM_NO_SPACE);
    CU_ASSERT(expected_bytes == (uint64_t)1 << 50 && memory.ptr == NULL);
    CU_ASSERT_EQUAL(close(fd), 0); /* it is the caller's still */
}

TEST("what an errno stands for") {
    CU_ASSERT_EQUAL(symmem_kit_fail_errno(&host, EMFILE, "alloc", "x"), SYMMEM_LIMIT);
    CU_ASSERT_EQUAL(symmem_kit_fail_errno(&host, ENOMEM, "alloc", "x"), SYMMEM_OUT_OF_MEMORY);
    CU_ASSERT_EQUAL(symmem_kit_fail_errno(&host, ENOSPC, "alloc", "x"), SYMMEM_NO_SPACE);
    CU_ASSERT_EQUAL(symmem_kit_fail_errno(&host, EACCES, "alloc", "x"), SYMMEM_SYSTEM);
}
