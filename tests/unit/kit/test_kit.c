/* SPDX-License-Identifier: BSD-3-Clause */
/* The kit of backends over engines: waits, a thread that may wait for ever, and quiet. */
#include "unit_main.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../plugins/kit/collective.h"
#include "../../plugins/kit/helper.h"
#include "../../plugins/kit/host_memory.h"
#include "../../plugins/kit/quiet.h"
#include "../../plugins/kit/wait.h"

#define NS_PER_MS UINT64_C(1000000)

/* --- a core ---------------------------------------------------------------------------------- */

static atomic_int gone_rank, poisoned;
static symmem_status failed;

static symmem_status note_failure(const symmem_host *host, symmem_status status, int system_errno,
                                  const char *operation, const char *format, ...) {
    (void)host, (void)system_errno, (void)operation, (void)format;
    return failed = status;
}

static symmem_peer_state peer_state(const symmem_peers *peers, int32_t rank) {
    (void)peers;
    return rank == gone_rank ? SYMMEM_PEER_GONE : SYMMEM_PEER_ALIVE;
}

static bool is_poisoned(const symmem_peers *peers) {
    (void)peers;
    return poisoned != 0;
}

static const symmem_host host = {.size = sizeof(symmem_host),
                                 .fail = note_failure,
                                 .peer_state = peer_state,
                                 .is_poisoned = is_poisoned};
/* A group of ranks 2 and 1 of the context. */
static const int32_t global_ranks[] = {2, 1};
static const symmem_peers peers = {
    .size = sizeof(symmem_peers), .world_size = 2, .global_ranks = global_ranks};

static void begin(void) {
    gone_rank = -1;
    poisoned = 0;
    failed = SYMMEM_OK;
}

static uint64_t ms_since(uint64_t begin_ns) {
    return (symmem_kit_now_ns() - begin_ns) / NS_PER_MS;
}

/* --- waits ----------------------------------------------------------------------------------- */

static symmem_status wait_for_nothing(uint32_t limit_ms, const symmem_peers *whose, int32_t peer) {
    symmem_kit_wait wait = symmem_kit_wait_begin(limit_ms);
    symmem_status status = SYMMEM_OK;
    while (status == SYMMEM_OK)
        status = symmem_kit_wait_turn(&wait, &host, whose, peer, "put");
    CU_ASSERT_EQUAL(status, failed);
    return status;
}

TEST("a wait ends at its limit") {
    const uint64_t begin_ns = symmem_kit_now_ns();
    begin();
    CU_ASSERT_EQUAL(wait_for_nothing(30, &peers, 1), SYMMEM_TIMEOUT);
    CU_ASSERT(ms_since(begin_ns) >= 30);
    CU_ASSERT_EQUAL(wait_for_nothing(1, NULL, 0), SYMMEM_TIMEOUT);
}

TEST("a wait ends with its peer") {
    begin();
    gone_rank = 1;
    CU_ASSERT_EQUAL(wait_for_nothing(0, &peers, 1), SYMMEM_PEER_LOST);
    CU_ASSERT_EQUAL(wait_for_nothing(100, &peers, 0), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(wait_for_nothing(100, &peers, -1), SYMMEM_TIMEOUT);
}

TEST("a wait ends when its handle is poisoned, but not if it was before") {
    symmem_kit_wait wait = symmem_kit_wait_begin(0);
    symmem_status status;
    begin();
    CU_ASSERT_EQUAL(symmem_kit_wait_turn(&wait, &host, &peers, 1, "put"), SYMMEM_OK);
    poisoned = 1;
    do
        status = symmem_kit_wait_turn(&wait, &host, &peers, 1, "put");
    while (status == SYMMEM_OK);
    CU_ASSERT_EQUAL(status, SYMMEM_POISONED);
    CU_ASSERT_EQUAL(wait_for_nothing(60, &peers, 1), SYMMEM_TIMEOUT);
}

/* --- the thread ------------------------------------------------------------------------------ */

static atomic_int runs, released, hanging;

static void count(void *arg) {
    atomic_store((atomic_int *)arg, atomic_fetch_add(&runs, 1) + 1);
}

static void hang(void *arg) {
    atomic_store(&hanging, 1);
    while (atomic_load(&released) == 0)
        usleep(1000);
    count(arg);
}

static bool at_once(void *arg) {
    (void)arg;
    return true;
}

static bool hangs_now(void *arg) {
    (void)arg;
    return atomic_load(&hanging) != 0;
}

static atomic_int hung_result, first_result, second_result;

TEST("the thread runs what it is asked for, and is left when that hangs") {
    static symmem_kit_helper helper = SYMMEM_KIT_HELPER_INIT;
    bool began = false;
    const uint64_t begin_ns = symmem_kit_now_ns();
    runs = released = hanging = 0;
    CU_ASSERT_EQUAL_FATAL(symmem_kit_helper_start(&helper), 0);
    CU_ASSERT(symmem_kit_helper_run(&helper, count, &first_result, 0, NULL, NULL, &began));
    CU_ASSERT(began && first_result == 1);
    CU_ASSERT(!symmem_kit_helper_run(&helper, hang, &hung_result, 0, hangs_now, NULL, &began));
    CU_ASSERT(began);
    CU_ASSERT(!symmem_kit_helper_run(&helper, count, &second_result, begin_ns + NS_PER_MS, NULL,
                                     NULL, &began));
    CU_ASSERT(!began);
    /* It is busy. */
    CU_ASSERT(!symmem_kit_helper_run(&helper, count, &second_result, 0, at_once, NULL, &began));
    CU_ASSERT(!began);
    symmem_kit_helper_abandon(&helper);
    CU_ASSERT(symmem_kit_helper_run(&helper, count, &second_result, 0, NULL, NULL, &began));
    CU_ASSERT(began && second_result == 2);
    released = 1;
    for (int i = 0; i < 5000 && hung_result == 0; i++)
        usleep(1000);
    CU_ASSERT_EQUAL(hung_result, 3);
    CU_ASSERT(symmem_kit_helper_run(&helper, count, &second_result, 0, NULL, NULL, &began));
    CU_ASSERT_EQUAL(second_result, 4);
}

/* --- quiet ----------------------------------------------------------------------------------- */

static symmem_kit_helper helper = SYMMEM_KIT_HELPER_INIT;
static atomic_int flushes, flushed_ranks, progressed, flush_error, hangs_for;
static symmem_kit_traffic *traffic;

static int flush(void *engine, const int32_t *ranks, int flushed) {
    CU_ASSERT(engine == &helper);
    int bits = 0;
    for (int i = 0; i < flushed; i++) {
        bits |= 1 << ranks[i];
        while (ranks[i] == atomic_load(&hangs_for))
            usleep(1000);
    }
    flushes++;
    flushed_ranks = bits;
    return flush_error;
}

static void progress(void *instance) {
    CU_ASSERT(instance == &traffic);
    if (progressed++ == 20)
        symmem_kit_traffic_end(traffic, 0);
}

static symmem_status quiet(uint32_t limit_ms, int *error_p) {
    const symmem_kit_quiet own = {&helper, flush, &helper, progress, &traffic};
    const symmem_exec exec = {.timeout_ms = limit_ms};
    return symmem_kit_quiet_run(&own, traffic, &host, &peers, &exec, error_p);
}

static void begin_quiet(void) {
    begin();
    flushes = flushed_ranks = flush_error = 0;
    progressed = 1000;
    hangs_for = -1;
    CU_ASSERT_EQUAL_FATAL(symmem_kit_helper_start(&helper), 0);
    traffic = symmem_kit_traffic_new(3);
    CU_ASSERT_FATAL(traffic != NULL);
}

TEST("quiet flushes what was put, once") {
    int error = -1;
    begin_quiet();
    CU_ASSERT_EQUAL(quiet(1, &error), SYMMEM_OK);
    CU_ASSERT(error == 0 && flushes == 0);
    symmem_kit_traffic_put(traffic, 0);
    symmem_kit_traffic_put(traffic, 2);
    CU_ASSERT_EQUAL(quiet(0, &error), SYMMEM_OK);
    CU_ASSERT(flushes == 1 && flushed_ranks == 5);
    CU_ASSERT_EQUAL(quiet(0, &error), SYMMEM_OK);
    CU_ASSERT_EQUAL(flushes, 1);
    flush_error = 9;
    symmem_kit_traffic_put(traffic, 1);
    CU_ASSERT_EQUAL(quiet(0, &error), SYMMEM_BACKEND);
    CU_ASSERT(error == 9 && flushed_ranks == 2);
    flush_error = 0;
    CU_ASSERT_EQUAL(quiet(0, &error), SYMMEM_OK); /* what failed is under way still */
    CU_ASSERT_EQUAL(flushes, 3);
    symmem_kit_traffic_free(traffic);
}

TEST("quiet waits for what the engine tells of") {
    int error;
    begin_quiet();
    symmem_kit_traffic_begin(traffic, 0);
    CU_ASSERT_EQUAL(quiet(20, &error), SYMMEM_TIMEOUT);
    progressed = 0;
    CU_ASSERT_EQUAL(quiet(0, &error), SYMMEM_OK);
    CU_ASSERT(progressed >= 20 && flushes == 0);
    symmem_kit_traffic_free(traffic);
}

/* The peer is rank 1 of the group and of the context. */
TEST("quiet leaves alone what is under way to a rank that has ended") {
    int error;
    begin_quiet();
    hangs_for = 1;
    symmem_kit_traffic_put(traffic, 1);
    CU_ASSERT_EQUAL(quiet(50, &error), SYMMEM_TIMEOUT);
    CU_ASSERT(!symmem_kit_traffic_has_lost(traffic));
    symmem_kit_traffic_put(traffic, 2);
    symmem_kit_traffic_begin(traffic, 1);
    gone_rank = 1;
    CU_ASSERT_EQUAL(quiet(0, &error), SYMMEM_OK);
    CU_ASSERT_EQUAL(flushed_ranks, 4);
    CU_ASSERT(symmem_kit_traffic_has_lost(traffic));
    symmem_kit_traffic_free(traffic);
}

/* No peer of the call's, but its process is watched. */
TEST("quiet notices the end of a process that is watched") {
    int error;
    pid_t pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid == 0) {
        pause();
        _exit(0);
    }
    begin_quiet();
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    CU_ASSERT_FATAL(fd > 0);
    symmem_kit_traffic_watch(traffic, 0, fd);
    symmem_kit_traffic_begin(traffic, 0);
    CU_ASSERT_EQUAL(quiet(50, &error), SYMMEM_TIMEOUT);
    kill(pid, SIGKILL);
    CU_ASSERT_EQUAL(quiet(0, &error), SYMMEM_OK);
    CU_ASSERT(symmem_kit_traffic_has_lost(traffic));
    symmem_kit_traffic_free(traffic);
    CU_ASSERT_EQUAL(waitpid(pid, NULL, 0), pid);
    CU_ASSERT_EQUAL(fcntl(fd, F_GETFD), -1);
}

TEST("quiet is given up when the handle is poisoned, but not if it was before") {
    int error;
    begin_quiet();
    poisoned = 1;
    symmem_kit_traffic_put(traffic, 0);
    CU_ASSERT_EQUAL(quiet(0, &error), SYMMEM_OK);
    hangs_for = 0;
    symmem_kit_traffic_put(traffic, 0);
    CU_ASSERT_EQUAL(quiet(50, &error), SYMMEM_TIMEOUT);
    symmem_kit_traffic_free(traffic);
}

/* --- memory of the CPU ----------------------------------------------------------------------- */

TEST("memory of the CPU") {
    uint32_t words[4] = {1, 2, 3, 4}, other[4] = {0};
    symmem_device_info info = {0};
    int32_t devices = 0;
    const symmem_copy_ops *copy = &symmem_kit_host_copy;
    CU_ASSERT_EQUAL(copy->copy(NULL, 0, other, words, sizeof(words), NULL), SYMMEM_OK);
    CU_ASSERT_EQUAL(memcmp(words, other, sizeof(words)), 0);
    CU_ASSERT_EQUAL(copy->copy(NULL, 0, NULL, NULL, 0, NULL), SYMMEM_OK);
    CU_ASSERT_EQUAL(copy->memset32(NULL, 0, words, 7, 3, NULL), SYMMEM_OK);
    CU_ASSERT(words[0] == 7 && words[2] == 7 && words[3] == 4);
    CU_ASSERT_EQUAL(copy->write_value32(NULL, 0, &words[3], 9, NULL), SYMMEM_OK);
    CU_ASSERT_EQUAL(words[3], 9);
    CU_ASSERT_EQUAL(symmem_kit_host_devices(NULL, &devices), SYMMEM_OK);
    CU_ASSERT_EQUAL(devices, SYMMEM_MAX_WORLD_SIZE);
    CU_ASSERT_EQUAL(symmem_kit_host_device(NULL, 3, &info), SYMMEM_OK);
    CU_ASSERT(info.device_type == 1 && strstr(info.name, "3") != NULL);
}
