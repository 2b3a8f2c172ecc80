/* SPDX-License-Identifier: BSD-3-Clause */
/* SM-TIMEOUT-08: what looks like a process's end and is none. */
#include "internal.h"

#include <CUnit/Basic.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of pages of 4 KiB, which the system takes a while to take back. */
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

static void *sleep_long(void *arg) {
    for (int i = 0; i < 60; i++)
        sleep(1);
    return arg;
}

/* The process goes on without its first thread. */
static bool leave_first_thread(void) {
    pthread_t thread;
    return pthread_create(&thread, NULL, sleep_long, NULL) == 0;
}

/* A child that does so, sends its identity and sleeps, or leaves its first thread. */
static pid_t start_child(sm_identity *identity_p, bool (*begin)(void)) {
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        sm_identity identity = {0};
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent || !begin() ||
            sm_identity_self(&identity) != SYMMEM_OK ||
            write(ends[1], &identity, sizeof(identity)) != sizeof(identity))
            _exit(1);
        if (begin == leave_first_thread)
            syscall(SYS_exit, 0); /* of the thread */
        sleep_long(NULL);
        _exit(0);
    }
    close(ends[1]);
    bool got = pid > 1 && read(ends[0], identity_p, sizeof(*identity_p)) == sizeof(*identity_p);
    close(ends[0]);
    return got ? pid : -1;
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
    bool said = sm_liveness_is_ending(liveness, 1);
    CU_ASSERT_FALSE(sm_liveness_is_ending(liveness, 0));
    CU_ASSERT_FALSE(sm_liveness_is_ending(liveness, 2));
    said = said && sm_liveness_ask(liveness, 1) == SYMMEM_PEER_ALIVE;
    sm_liveness_destroy(liveness);
    return said;
}

/* Nobody is told GONE before the system is through: till then a device may go on writing for it. */
static bool slow_end(void) {
    sm_identity child = {0};
    pid_t pid = start_child(&child, take_much);
    CU_ASSERT_FATAL(pid > 1);
    sm_liveness *liveness = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, &liveness), SYMMEM_OK);
    sm_liveness_learn(liveness, 1, &child);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    CU_ASSERT_FATAL(pidfd >= 0);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
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

static void test_slow_end(void) {
    bool said = false;
    for (int i = 0; i < TRIES && !said; i++)
        said = slow_end();
    CU_ASSERT_TRUE(said);
}

/* A zombie that has a thread is no end. */
static void test_first_thread_has_left(void) {
    sm_identity child = {0};
    pid_t pid = start_child(&child, leave_first_thread);
    CU_ASSERT_FATAL(pid > 1);
    sm_liveness *liveness = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, &liveness), SYMMEM_OK);
    sm_liveness_learn(liveness, 1, &child);
    for (int i = 0; i < 6; i++) {
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
        CU_ASSERT_FALSE(sm_liveness_is_ending(liveness, 1));
        usleep(15000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_GONE);
    sm_liveness_destroy(liveness);
}

int main(void) {
    CU_pSuite suite;
    if (CU_initialize_registry() != CUE_SUCCESS ||
        (suite = CU_add_suite("ending", NULL, NULL)) == NULL)
        return 2;
    CU_add_test(suite, "an end that takes the system long", test_slow_end);
    CU_add_test(suite, "a process whose first thread has left", test_first_thread_has_left);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    unsigned run = CU_get_number_of_tests_run();
    CU_cleanup_registry();
    return failures == 0 && run == 2 ? 0 : 1;
}
