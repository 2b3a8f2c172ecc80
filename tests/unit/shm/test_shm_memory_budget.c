/* SPDX-License-Identifier: BSD-3-Clause */
/* What control groups and the machine leave, in trees of files that stand for those of the kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
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

#include "folder.h"
#include "shm_fake_host.h"
#include "unit_child.h"
#include "shm.h"
#include "unit_main.h"
#include "cgroup.h"

#define KIB 1024ull
#define MIB (1024ull * KIB)
#define MOST_FILES 12

typedef struct file {
    const char *path, *text;
} file;

static char root[FOLDER_BYTES];
static atomic_int sleeps;      /* of a rank that waits for a lock */
static int anothers_lock = -1; /* given back in the next sleep; its owner has taken memory then */

/* --- trees -------------------------------------------------------------------------- */

static void put(const char *path, const char *text) {
    char whole[512];
    CU_ASSERT_FATAL((size_t)snprintf(whole, sizeof whole, "%s%s", root, path) < sizeof whole);
    for (char *at = strchr(whole + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    FILE *out = fopen(whole, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    CU_ASSERT(fputs(text, out) >= 0);
    CU_ASSERT_EQUAL(fclose(out), 0);
}

static void plant(const file files[MOST_FILES]) {
    CU_ASSERT_FATAL(make_folder(root));
    for (int i = 0; i < MOST_FILES && files[i].path; i++)
        put(files[i].path, files[i].text);
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *at) {
    (void)about, (void)kind, (void)at;
    return remove(path);
}

static void fell(void) {
    CU_ASSERT_EQUAL(nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

#define CGROUP "/proc/self/cgroup"
#define MOUNTS "/proc/self/mountinfo"
#define SECOND "26 23 0:22 / /g rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define FIRST                                                                                      \
    "32 31 0:29 / /c/cpu rw - cgroup cgroup rw,cpu\n36 31 0:32 / /c/mem rw - cgroup none "         \
    "rw,memory\n"
#define NONE "9223372036854771712\n"

/* --- control groups ----------------------------------------------------------------- */

/* What is found where `wanted` bytes are asked for, and the files: the process's groups and the
 * mounts, then limits and what is used in the two versions. */
#define TREE(what, wanted, left, limit, where, ...)                                                \
    {                                                                                              \
        what, wanted, left, limit, where, {                                                        \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define GROUPS(groups, mounts)                                                                     \
    {CGROUP, groups}, {                                                                            \
        MOUNTS, mounts                                                                             \
    }
#define LIMIT(group, max, used)                                                                    \
    {group "/memory.max", #max "\n"}, {                                                            \
        group "/memory.current", #used "\n"                                                        \
    }
#define LIMIT_1(group, max, used)                                                                  \
    {group "/memory.limit_in_bytes", #max "\n"}, {                                                 \
        group "/memory.usage_in_bytes", #used "\n"                                                 \
    }

/* `left` UINT64_MAX: no group has a limit. */
static const struct {
    const char *what;
    uint64_t wanted, left, limit;
    const char *where;
    file files[MOST_FILES];
} trees[] = {
    TREE("the group's own limit", 1, 70, 100, "/g/a", GROUPS("0::/a\n", SECOND),
         LIMIT("/g/a", 100, 30)),
    TREE("one above is narrower", 1, 5, 200, "/g/a", GROUPS("0::/a/b/c\n", SECOND),
         LIMIT("/g/a/b/c", 100, 30), LIMIT("/g/a/b", max, 40), LIMIT("/g/a", 200, 195)),
    TREE("the mount's own group", 1, 2, 10, "/g", GROUPS("0::/\n", SECOND), LIMIT("/g", 10, 8)),
    TREE("more is used than allowed", 1, 0, 100, "/g/a", GROUPS("0::/a\n", SECOND),
         LIMIT("/g/a", 100, 101)),
    TREE("no limit", 1, UINT64_MAX, 0, "", GROUPS("0::/a\n", SECOND), LIMIT("/g/a", max, 101)),
    TREE("high is no limit, nor is swap", 1, 70, 100, "/g/a", GROUPS("0::/a\n", SECOND),
         LIMIT("/g/a", 100, 30), {"/g/a/memory.high", "10\n"}, {"/g/a/memory.swap.max", "1000\n"},
         {"/g/a/memory.swap.current", "0\n"}),
    TREE("the cache is given back", 6, 65, 100, "/g/a", GROUPS("0::/a\n", SECOND),
         LIMIT("/g/a", 100, 95),
         {"/g/a/memory.stat",
          "anon 5\nfile 90\nshmem 30\nactive_anon 5\ninactive_file 40\nactive_file 20\nslab 1\n"}),
    TREE("the cache is not asked for", 5, 5, 100, "/g/a", GROUPS("0::/a\n", SECOND),
         LIMIT("/g/a", 100, 95), {"/g/a/memory.stat", "inactive_file 40\n"}),
    TREE("more cache than use", 6, 100, 100, "/g/a", GROUPS("0::/a\n", SECOND),
         LIMIT("/g/a", 100, 95), {"/g/a/memory.stat", "inactive_file 96\n"}),
    TREE("version 1", 1, 70, 100, "/c/mem/a",
         GROUPS("3:cpu:/x\n2:memory:/a/b\n0::/\n", FIRST SECOND),
         {"/c/mem/a/b/memory.limit_in_bytes", NONE}, LIMIT_1("/c/mem/a", 100, 30)),
    TREE("version 1: no limit", 1, UINT64_MAX, 0, "", GROUPS("2:memory:/a\n", FIRST),
         {"/c/mem/a/memory.limit_in_bytes", NONE}, {"/c/mem/a/memory.usage_in_bytes", "30\n"}),
    TREE("version 1: with swap", 1, 20, 120, "/c/mem/a", GROUPS("2:memory:/a\n", FIRST),
         LIMIT_1("/c/mem/a", 100, 50), {"/c/mem/a/memory.memsw.limit_in_bytes", "120\n"},
         {"/c/mem/a/memory.memsw.usage_in_bytes", "100\n"}),
    TREE("version 1: cache of all below", 60, 65, 100, "/c/mem/a", GROUPS("2:memory:/a\n", FIRST),
         LIMIT_1("/c/mem/a", 100, 95),
         {"/c/mem/a/memory.stat",
          "inactive_file 1\nactive_file 1\nhierarchical_memory_limit 100\ntotal_inactive_file 40\n"
          "total_active_file 20\n"}),
    TREE("several controllers together", 1, 7, 9, "/c/m",
         GROUPS("2:cpu,memory:/\n", "36 31 0:32 / /c/m rw - cgroup none rw,cpu,memory\n"),
         LIMIT_1("/c/m", 9, 2)),
    TREE("another controller", 1, UINT64_MAX, 0, "",
         GROUPS("2:memoryx,xmemory:/a\n", "36 31 0:32 / /c/mem rw - cgroup none rw,memoryx\n"),
         LIMIT_1("/c/mem/a", 9, 2)),
    TREE("a container without a namespace", 1, 7, 9, "/c/mem/job",
         GROUPS("2:memory:/docker/1/job\n",
                "36 31 0:32 /docker/1 /c/mem rw - cgroup none rw,memory\n"),
         LIMIT_1("/c/mem/job", 9, 2), LIMIT_1("/c/mem/docker/1/job", 1, 1)),
    TREE(
        "the mount is of another group", 1, 7, 9, "/c/mem",
        GROUPS("2:memory:/docker/12\n", "36 31 0:32 /docker/1 /c/mem rw - cgroup none rw,memory\n"),
        LIMIT_1("/c/mem", 9, 2), LIMIT_1("/c/mem2", 1, 1)),
    TREE("outside of the namespace", 1, 7, 9, "/g", GROUPS("0::/../b\n", SECOND), LIMIT("/g", 9, 2),
         LIMIT("/b", 1, 1)),
    TREE("a mount with a space", 1, 7, 9, "/my g/a",
         GROUPS("0::/a\n", "1 1 0:1 / /my\\040g rw - cgroup2 none rw\n"), LIMIT("/my g/a", 9, 2)),
    TREE("lines that say nothing", 1, 7, 9, "/g/a",
         GROUPS(
             "\nx\n1:\n0::/a\n",
             "\n1\n - cgroup2\n1 2 3 4 - cgroup2 x y\n1 2 3 / /t rw - tmpfs none memory\n" SECOND),
         LIMIT("/g/a", 9, 2)),
    TREE("controllers that come first", 1, 7, 9, "/c/m",
         GROUPS("2:memory,cpu:/\n0:cpu:/x\n", "36 31 0:32 / /c/m rw - cgroup none rw,memory,cpu\n"),
         LIMIT_1("/c/m", 9, 2)),
    TREE("the mount is of this very group", 1, 7, 9, "/c/mem",
         GROUPS("2:memory:/docker/1\n", "36 31 0:32 /docker/1 /c/mem rw - cgroup none rw,memory\n"),
         LIMIT_1("/c/mem", 9, 2)),
    TREE("what looks like a code, and half a code", 1, 7, 9, "/\\x/g\\04/a",
         GROUPS("0::/a\n", "1 1 0:1 / /\\x/g\\04 rw - cgroup2 none rw\n"),
         LIMIT("/\\x/g\\04/a", 9, 2)),
    TREE("lines that lack words", 1, 7, 9, "/g/a",
         GROUPS("2:memory:/a\n0::/a\n",
                "1 2 3 - cgroup2 x y\n1 2 3 / - cgroup2 x y\n1 2 3 / /c - cgroup x\n" SECOND),
         LIMIT("/g/a", 9, 2), LIMIT_1("/c/a", 1, 1)),
    TREE("nobody says what is used", 1, 7, 20, "/g", GROUPS("0::/a\n", SECOND),
         {"/g/a/memory.max", "9\n"}, LIMIT("/g", 20, 13)),
    TREE("one above is wider", 1, 7, 9, "/g/a", GROUPS("0::/a\n", SECOND), LIMIT("/g/a", 9, 2),
         LIMIT("/g", 20, 13)),
    TREE("no mount", 1, UINT64_MAX, 0, "", GROUPS("0::/a\n", "\n")),
    TREE("no groups", 1, UINT64_MAX, 0, "", {MOUNTS, SECOND}, LIMIT("/g", 9, 2)),
    TREE("nothing", 1, UINT64_MAX, 0, "", {"/proc/self/comm", "x\n"}),
};

TEST("memory of control groups") {
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        shm_memory_left memory;
        plant(trees[i].files);
        const bool found = shm_cgroup_memory(root, trees[i].wanted, &memory);
        const bool as_it_should =
            found == (trees[i].left != UINT64_MAX) && memory.left == trees[i].left &&
            memory.limit == trees[i].limit &&
            strncmp(memory.where, root, strlen(memory.where) > 0 ? strlen(root) : 0) == 0 &&
            strcmp(memory.where + (found ? strlen(root) : 0), trees[i].where) == 0;
        if (!as_it_should)
            fprintf(stderr, "%s: %llu of %llu left in '%s'\n", trees[i].what,
                    (unsigned long long)memory.left, (unsigned long long)memory.limit,
                    memory.where);
        CU_ASSERT(as_it_should);
        fell();
    }
}

/* Overlays' mounts have lines of many thousand characters, whose end may look like a line. */
TEST("lines of any length") {
    static const file files[MOST_FILES] = {{CGROUP, "0::/a\n"},
                                           {"/g/a/memory.max", "9\n"},
                                           {"/g/a/memory.current", "2\n"},
                                           {"/x/a/memory.max", "1\n"},
                                           {"/x/a/memory.current", "1\n"}};
    char mounts[PATH_MAX + 1000];
    shm_memory_left memory;
    plant(files);
    for (size_t length = PATH_MAX - 20; length < PATH_MAX + 10; length++) {
        memset(mounts, 'm', length);
        snprintf(mounts + length, sizeof mounts - length, "1 2 3 / /x - cgroup2 x y\n%s", SECOND);
        put(MOUNTS, mounts);
        CU_ASSERT(shm_cgroup_memory(root, 1, &memory) && memory.left == 7);
    }
    fell();
}

/* A group whose path, or whose files' paths, are longer than paths can be is passed over. */
TEST("groups too deep to be named") {
    static const file files[MOST_FILES] = {
        {MOUNTS, SECOND}, {"/g/memory.max", "9\n"}, {"/g/memory.current", "2\n"}};
    char text[PATH_MAX + 8];
    shm_memory_left memory;
    plant(files);
    for (size_t length = PATH_MAX - 90; length < PATH_MAX - 6; length++) {
        const int used = snprintf(text, sizeof text, "0::/");
        memset(text + used, 'x', length - (size_t)used);
        snprintf(text + length, sizeof text - length, "\n");
        put(CGROUP, text);
        const bool fits = strlen(root) + strlen("/g") + length - strlen("0::") < PATH_MAX;
        CU_ASSERT_EQUAL(shm_cgroup_memory(root, 1, &memory), fits);
        CU_ASSERT_EQUAL(memory.left, fits ? 7 : UINT64_MAX);
    }
    fell();
}

TEST("tasks of control groups") {
    static const file files[MOST_FILES] = {
        {CGROUP, "8:pids:/a\n0::/b\n"},
        {MOUNTS, "39 31 0:36 / /c/pids rw - cgroup cgroup rw,pids\n" SECOND},
        {"/c/pids/a/pids.max", "20\n"},
        {"/c/pids/a/pids.current", "17\n"},
        {"/c/pids/pids.max", "max\n"},
        {"/g/b/pids.max", "9\n"},
        {"/g/b/pids.current", "9\n"}};
    shm_memory_left memory;
    plant(files);
    CU_ASSERT(shm_cgroup_tasks(root, &memory));
    CU_ASSERT(memory.left == 0 && memory.limit == 9);
    CU_ASSERT(!shm_cgroup_memory(root, 1, &memory));
    fell();
}

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
    if (chown(name, 65534, (gid_t)-1) == 0) { /* root alone may say so */
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
