/* SPDX-License-Identifier: BSD-3-Clause */
/* What control groups leave. */
#include "cgroup_tree.h"

#define FIRST                                                                                      \
    "32 31 0:29 / /c/cpu rw - cgroup cgroup rw,cpu\n36 31 0:32 / /c/mem rw - cgroup none "         \
    "rw,memory\n"
#define NONE "9223372036854771712\n"

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
