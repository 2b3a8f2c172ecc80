/* SPDX-License-Identifier: BSD-3-Clause */
/* SM-TIMEOUT-16: what looks like a process's end and is none. */
#include "identity_child.h"
#include "unit_main.h"

#include <poll.h>
#include <sys/syscall.h>

/* Bytes in pages of 4 KiB, which take the kernel a while to release. */
#define MUCH ((size_t)512 << 20)
#define TRIES 5
#define LONG_NS 10000000000u

/* Without huge pages, of which there would be few. */
static bool take_much(void) {
    void *memory = mmap(NULL, MUCH, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    (void)madvise(memory, MUCH, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < MUCH; i += 4096)
        ((volatile char *)memory)[i] = 1;
    return true;
}

/* The process goes on without its first thread. */
static bool start_second_thread(void) {
    pthread_t thread;
    return pthread_create(&thread, NULL, sleep_a_minute, NULL) == 0;
}

static void leave_first_thread(void) {
    syscall(SYS_exit, 0);
}

static void do_nothing(void) {}

/* A child that is watched as rank 1, and lives. */
static pid_t start_watched(bool (*first)(void), void (*then)(void), sm_identity *identity_p,
                           sm_liveness **liveness_p) {
    pid_t pid = start_child(identity_p, first, then);
    CU_ASSERT_FATAL(pid > 1);
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, liveness_p), SYMMEM_OK);
    sm_liveness_learn(*liveness_p, 1, identity_p);
    CU_ASSERT_EQUAL(sm_liveness_ask(*liveness_p, 1), SYMMEM_PEER_ALIVE);
    return pid;
}

static bool system_is_through(int pidfd) {
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

/* Whether that is said when the process has begun to end; false if the system was through by then.
 */
static bool is_said_to_end(const sm_identity *child) {
    sm_liveness *liveness = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, &liveness), SYMMEM_OK);
    sm_liveness_learn(liveness, 1, child);
    uint64_t end_ns = sm_now_ns() + LONG_NS;
    while (!sm_process_is_ending(child->pid, child->start_time) && sm_now_ns() < end_ns)
        continue;
    CU_ASSERT_FALSE(sm_process_is_ending(child->pid, child->start_time + 1));
    bool said = sm_liveness_is_ending(liveness, child);
    sm_identity self;
    CU_ASSERT_EQUAL(sm_identity_self(&self), SYMMEM_OK);
    CU_ASSERT_FALSE(sm_liveness_is_ending(liveness, &self));
    said = said && sm_liveness_ask(liveness, 1) == SYMMEM_PEER_ALIVE;
    sm_liveness_destroy(liveness);
    return said;
}

/* A process is not GONE before the kernel has finished its end. Until then a device may still write
 * on its behalf. */
static bool slow_end(void) {
    sm_identity child = {0};
    sm_liveness *liveness = NULL;
    pid_t pid = start_watched(take_much, do_nothing, &child, &liveness);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    CU_ASSERT_FATAL(pidfd >= 0);
    kill(pid, SIGKILL);
    bool said = is_said_to_end(&child);
    uint64_t end_ns = sm_now_ns() + LONG_NS;
    while (sm_liveness_ask(liveness, 1) != SYMMEM_PEER_GONE && sm_now_ns() < end_ns)
        continue;
    CU_ASSERT_TRUE(system_is_through(pidfd));
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_GONE);
    close(pidfd);
    waitpid(pid, NULL, 0);
    CU_ASSERT_FALSE(sm_process_is_ending(pid, child.start_time));
    sm_liveness_destroy(liveness);
    return said;
}

TEST("an end that takes the system long") {
    bool said = false;
    for (int i = 0; i < TRIES && !said; i++)
        said = slow_end();
    CU_ASSERT_TRUE(said);
}

/* A zombie that has a thread is no end. */
TEST("a process whose first thread has left") {
    sm_identity child = {0};
    sm_liveness *liveness = NULL;
    pid_t pid = start_watched(start_second_thread, leave_first_thread, &child, &liveness);
    for (int i = 0; i < 6; i++) {
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
        CU_ASSERT_FALSE(sm_liveness_is_ending(liveness, &child));
        usleep(15000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_GONE);
    sm_liveness_destroy(liveness);
}
