/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocations where control groups or the machine leave little. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "cgroup_tree.h"
#include "shm_fake_host.h"
#include "unit_child.h"
#include "shm.h"

#define KIB 1024ull
#define MIB (1024ull * KIB)

static atomic_int sleeps;      /* of a rank that waits for a lock */
static int anothers_lock = -1; /* given back in the next sleep; its owner has taken memory then */

/* --- allocations -------------------------------------------------------------------- */

static shm_instance *open_in(fake_host *host) {
    shm_instance *instance = fake_open(host);
    instance->root = root;
    return instance;
}

/* In group /a with the limit, of which that much is used; a machine with gibibytes. */
static void plant_group(uint64_t limit, uint64_t used) {
    static const file files[MOST_FILES] = {
        {CGROUP, "0::/a\n"}, {MOUNTS, SECOND}, {"/proc/meminfo", "MemAvailable: 8000000 kB\n"}};
    char text[32];
    plant(files);
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)limit);
    put("/g/a/memory.max", text);
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)used);
    put("/g/a/memory.current", text);
}

static symmem_status take(shm_instance *instance, size_t bytes) {
    symmem_memory memory;
    symmem_status status = backend->memory->alloc(instance, 0, bytes, &memory);
    if (status == SYMMEM_OK)
        backend->memory->release(instance, &memory);
    return status;
}

TEST("an allocation that a control group forbids") {
    fake_host host;
    plant_group(64 * MIB, 4 * MIB);
    shm_instance *instance = open_in(&host);
    const int descriptors = fake_count_descriptors(), mappings = fake_count_shared_mappings();
    CU_ASSERT_EQUAL(take(instance, 61 * MIB), SYMMEM_NO_SPACE);
    CU_ASSERT_EQUAL(host.expected, 61 * MIB);
    /* With memory for the kernel's tables and for the processes themselves. */
    CU_ASSERT(host.actual < 60 * MIB && host.actual > 58 * MIB);
    CU_ASSERT_PTR_NOT_NULL(strstr(host.text, "/g/a, whose limit is 67108864"));
    CU_ASSERT_EQUAL(take(instance, host.actual + 4096), SYMMEM_NO_SPACE);
    CU_ASSERT_EQUAL(take(instance, host.actual), SYMMEM_OK);
    CU_ASSERT_EQUAL(take(instance, 1), SYMMEM_OK);
    CU_ASSERT_EQUAL(fake_count_descriptors(), descriptors);
    CU_ASSERT_EQUAL(fake_count_shared_mappings(), mappings);
    backend->instance->close(instance);
    fell();
}

/* However small: each is looked at where little is left. */
TEST("small allocations that a control group forbids") {
    fake_host host;
    plant_group(64 * MIB, 50 * MIB);
    shm_instance *instance = open_in(&host);
    CU_ASSERT_EQUAL(take(instance, 4096), SYMMEM_OK);
    put("/g/a/memory.current", "67000000\n");
    CU_ASSERT_EQUAL(take(instance, 4096), SYMMEM_NO_SPACE);
    CU_ASSERT_EQUAL(host.actual, 0);
    put("/g/a/memory.max", "max\n");
    CU_ASSERT_EQUAL(take(instance, 4096), SYMMEM_OK);
    backend->instance->close(instance);
    fell();
}

/* What was granted with much left counts for a moment only, and no limit at all for a second. */
TEST("limits that come later") {
    fake_host host;
    plant_group(4096 * MIB, 0);
    shm_instance *instance = open_in(&host);
    CU_ASSERT_EQUAL(take(instance, 4096), SYMMEM_OK);
    CU_ASSERT_EQUAL(take(instance, 24 * MIB), SYMMEM_OK); /* a grant for each piece */
    put("/g/a/memory.max", "4096\n");
    fake_sleep_us(30000);
    CU_ASSERT_EQUAL(take(instance, 4096), SYMMEM_NO_SPACE);
    put("/g/a/memory.max", "max\n");
    CU_ASSERT_EQUAL(take(instance, 4096), SYMMEM_OK);
    put("/g/a/memory.max", "4096\n");
    fake_sleep_us(1100000);
    CU_ASSERT_EQUAL(take(instance, 128 * MIB), SYMMEM_NO_SPACE);
    backend->instance->close(instance);
    fell();
}

TEST("an allocation that the machine has no memory for") {
    static const file files[MOST_FILES] = {
        {"/proc/meminfo", "MemTotal: 90000 kB\nMemAvailable: 20000 kB\nSwapFree: 90000 kB\n"}};
    fake_host host;
    plant(files);
    shm_instance *instance = open_in(&host);
    CU_ASSERT_EQUAL(take(instance, 20 * MIB), SYMMEM_NO_SPACE);
    CU_ASSERT(host.actual > 17 * MIB && host.actual < 20000 * KIB);
    CU_ASSERT_PTR_NOT_NULL(strstr(host.text, "on this machine"));
    CU_ASSERT_EQUAL(take(instance, host.actual), SYMMEM_OK);
    put("/proc/meminfo", "MemAvailable: 20 kB\n");
    fake_sleep_us(30000);
    CU_ASSERT_EQUAL(take(instance, 4096), SYMMEM_NO_SPACE);
    backend->instance->close(instance);
    fell();
}

static bool names_group; /* whether the refusal is the group's */

/* In a child: threads whose stacks are no longer allowed. */
static void refuse_thread(void) {
    fake_host host;
    void *stream = NULL;
    struct rlimit before, low;
    shm_instance *instance = open_in(&host);
    getrlimit(RLIMIT_DATA, &before);
    low = (struct rlimit){.rlim_cur = MIB, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_DATA, &low);
    symmem_status status = backend->stream->create(instance, 0, &stream);
    setrlimit(RLIMIT_DATA, &before);
    backend->instance->close(instance);
    const bool is_named = strstr(host.text, "(pids.max of the control group ") != NULL;
    if (is_named != names_group || (is_named && strstr(host.text, "/g/a is 9)") == NULL))
        exit(1);
    exit(status == SYMMEM_LIMIT ? CHOSEN : 1);
}

TEST("a thread that a control group forbids") {
    plant_group(64 * MIB, 0);
    put("/g/a/pids.max", "9\n");
    for (int left = 0; left < 2 && UNIT_SHADOW_MEMORY == 0; left++) {
        put("/g/a/pids.current", left == 0 ? "9\n" : "8\n");
        names_group = left == 0;
        CU_ASSERT(has_chosen(end_in_child(refuse_thread)));
    }
    fell();
}

/* --- one after the other ------------------------------------------------------------ */

static int lock_group(void) {
    char path[64];
    snprintf(path, sizeof path, "%s/g/a", root);
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool has_lock = false;
    AWAIT(2000, (has_lock = flock(fd, LOCK_EX | LOCK_NB) == 0));
    CU_ASSERT_FATAL(has_lock);
    return fd;
}

/* In place of the C library's, so that a wait is not confused with a late machine. */
int nanosleep(const struct timespec *time, struct timespec *left) {
    sleeps++;
    if (anothers_lock >= 0) {
        put("/g/a/memory.current", "60000000\n");
        close(anothers_lock);
        anothers_lock = -1;
    }
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
    return errno == 0 ? 0 : -1;
}

/* What another rank took meanwhile is seen. */
TEST("where little is left ranks take turns") {
    fake_host host;
    plant_group(64 * MIB, 45 * MIB);
    shm_instance *instance = open_in(&host);
    anothers_lock = lock_group();
    CU_ASSERT_EQUAL(take(instance, 8 * MIB), SYMMEM_NO_SPACE);
    CU_ASSERT_EQUAL(anothers_lock, -1);
    CU_ASSERT(host.actual < 8 * MIB);
    /* It is given back, whatever became of the allocation. */
    CU_ASSERT_EQUAL(take(instance, 4096), SYMMEM_OK);
    close(lock_group());
    backend->instance->close(instance);
    fell();
}

static int interruptions; /* of the next calls */

/* In place of the C library's: a signal that comes while pages are allocated. */
int posix_fallocate(int fd, off_t offset, off_t bytes) {
    if (interruptions > 0 && interruptions-- > 0)
        return EINTR;
    return fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
}

/* A piece that was interrupted is tried again under the same lock. */
TEST("an interrupted turn") {
    fake_host host;
    plant_group(64 * MIB, 45 * MIB);
    shm_instance *instance = open_in(&host);
    interruptions = 2;
    CU_ASSERT_EQUAL(take(instance, 8 * MIB), SYMMEM_OK);
    CU_ASSERT_EQUAL(interruptions, 0);
    close(lock_group()); /* it is given back */
    backend->instance->close(instance);
    fell();
}

/* With much left no rank waits; a rank that is stopped holds up no other for ever. */
TEST("a lock that is not given back") {
    fake_host host;
    plant_group(1024 * MIB, 0);
    shm_instance *instance = open_in(&host);
    const int fd = lock_group();
    sleeps = 0;
    CU_ASSERT_EQUAL(take(instance, 8 * MIB), SYMMEM_OK);
    CU_ASSERT_EQUAL(sleeps, 0);
    put("/g/a/memory.max", "67108864\n");
    put("/g/a/memory.current", "42000000\n");
    fake_sleep_us(30000);
    const uint64_t begin_ms = fake_now_ms();
    CU_ASSERT_EQUAL(take(instance, 12 * MIB), SYMMEM_OK);
    CU_ASSERT(fake_now_ms() - begin_ms >= 300);
    CU_ASSERT(sleeps > 0 && sleeps <= 5000); /* of 200 us at least */
    sleeps = 0;                              /* nor twice */
    CU_ASSERT_EQUAL(take(instance, 12 * MIB), SYMMEM_OK);
    CU_ASSERT_EQUAL(sleeps, 0);
    close(fd);
    backend->instance->close(instance);
    fell();
}

/* Says who holds the lock of a file: the group's, or one that differs from that in one number. */
typedef enum oddity { EXACT, MAJOR, MINOR, INODE, ODDITIES } oddity;

static void plant_lock(int fd, int pid, oddity odd) {
    char text[128];
    struct stat about;
    CU_ASSERT_FATAL(fstat(fd, &about) == 0);
    snprintf(text, sizeof text,
             "1: POSIX  ADVISORY  WRITE 1 00:01:1 0 EOF\n"
             "2: FLOCK  ADVISORY  WRITE %d %02x:%02x:%llu 0 EOF\n",
             pid, major(about.st_dev) + (odd == MAJOR), minor(about.st_dev) + (odd == MINOR),
             (unsigned long long)about.st_ino + (odd == INODE));
    put("/proc/locks", text);
}

static void plant_holder(int fd, int pid) {
    plant_lock(fd, pid, EXACT);
}

/* One that another user holds is none. */
TEST("a lock of another user's") {
    fake_host host;
    plant_group(64 * MIB, 42000000);
    shm_instance *instance = open_in(&host);
    const int fd = lock_group();
    plant_holder(fd, 77); /* no process here */
    sleeps = 0;
    CU_ASSERT_EQUAL(take(instance, 12 * MIB), SYMMEM_OK);
    CU_ASSERT_EQUAL(sleeps, 0);
    backend->instance->close(instance);
    instance = open_in(&host);
    put("/proc/77/comm", "own\n");
    const uint64_t begin_ms = fake_now_ms();
    CU_ASSERT_EQUAL(take(instance, 12 * MIB), SYMMEM_OK);
    CU_ASSERT(fake_now_ms() - begin_ms >= 300);
    close(fd);
    backend->instance->close(instance);
    fell();
}

/* Without waiting: the lock is none of this user's. */
static void expect_no_turn(void) {
    fake_host host;
    shm_instance *instance = open_in(&host);
    sleeps = 0;
    CU_ASSERT_EQUAL(take(instance, 12 * MIB), SYMMEM_OK);
    CU_ASSERT_EQUAL(sleeps, 0);
    backend->instance->close(instance);
}

TEST("whose a lock is") {
    char name[64];
    plant_group(64 * MIB, 42000000);
    const int fd = lock_group();
    put("/proc/77/comm", "own\n");
    for (oddity odd = MAJOR; odd < ODDITIES; odd++) { /* another file's */
        plant_lock(fd, 77, odd);
        expect_no_turn();
    }
    plant_holder(fd, 0);
    put("/proc/0/comm", "nobody's\n");
    expect_no_turn();
    snprintf(name, sizeof name, "%s/proc/77", root);
    if (chown(name, geteuid() + 1, (gid_t)-1) == 0) { /* root alone may say so */
        plant_holder(fd, 77);
        expect_no_turn();
    }
    close(fd);
    fell();
}

/* --- a lock that changes hands ------------------------------------------------------ */

static int locks_asked;
static void (*at_lock)(int times); /* before the answer */

/* In place of the C library's: what becomes of a lock between two looks at its holder. */
int flock(int fd, int operation) {
    if (at_lock && (operation & LOCK_UN) == 0)
        at_lock(++locks_asked);
    return (int)syscall(SYS_flock, fd, operation);
}

static int held = -1;

static void give_back_at_second(int times) {
    if (times == 2) {
        close(held);
        held = -1;
    }
}

static void pass_on_at_second(int times) {
    if (times == 2)
        plant_holder(held, 77); /* own */
    if (times == 3) {
        close(held);
        held = -1;
    }
}

/* Another user's lock that is given back, or goes to a rank of this user, is waited for. */
TEST("a lock that changes hands") {
    static void (*const ways[])(int) = {give_back_at_second, pass_on_at_second};
    for (int i = 0; i < 2; i++) {
        fake_host host;
        plant_group(64 * MIB, 42000000);
        put("/proc/77/comm", "own\n");
        shm_instance *instance = open_in(&host);
        held = lock_group();
        plant_holder(held, 78); /* no process here */
        sleeps = locks_asked = 0;
        at_lock = ways[i];
        CU_ASSERT_EQUAL(take(instance, 12 * MIB), SYMMEM_OK);
        at_lock = NULL;
        CU_ASSERT_EQUAL(held, -1);
        CU_ASSERT(sleeps > 0);
        close(lock_group()); /* the rank had it, and gave it back */
        backend->instance->close(instance);
        fell();
    }
}
