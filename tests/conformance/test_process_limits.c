/* SPDX-License-Identifier: BSD-3-Clause */
/* What a shell, a container or a batch system limits: calls fail, and no process is ended by a
 * signal. */
#include <dirent.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "case_help.h"
#include "resources.h"

#define MIB ((size_t)1 << 20)

/* --- limits of the process -------------------------------------------------------------------- */

static atomic_int signals;

static void count_signal(int number) {
    (void)number;
    atomic_fetch_add(&signals, 1);
}

/* What was called under a limit. */
struct under_limit {
    symmem_status status;
    symmem_error_record record;
};

static struct under_limit answer_of(symmem_status status) {
    return (struct under_limit){.status = status, .record = last_record()};
}

/* It needs nothing of what is limited, or says what that is. */
static void expect_limited(struct tk *t, const struct under_limit *answer, const char *call,
                           const char *name) {
    if (answer->status == SYMMEM_OK)
        return;
    TK_CHECK_MSG(t,
                 answer->status == SYMMEM_NO_SPACE || answer->status == SYMMEM_LIMIT ||
                     answer->status == SYMMEM_OUT_OF_MEMORY,
                 "%s: %s", call, symmem_status_name(answer->status));
    TK_CHECK_MSG(t, strstr(answer->record.message, name) != NULL, "%s: \"%s\" does not name %s",
                 call, answer->record.message, name);
}

/* The calls that take something, with another limit while they run. */
static void call_under(struct tk *t, int resource, rlim_t limit, const char *name) {
    void *ptr = NULL, *own = tk_alloc(t, 4096);
    symmem_handle *handle = NULL;
    symmem_store *store = NULL;
    symmem_pool *pool = NULL;
    char path[4096];
    struct rlimit before, low;
    snprintf(path, sizeof(path), "%s/%s", t->scratch_dir, name);
    const bool has_pool = (t->capabilities & SYMMEM_CAP_POOL) != 0;
    if (has_pool)
        TK_REQUIRE_OK(t, symmem_pool_create(t->context, -1, MIB, &pool));
    TK_REQUIRE(t, syscall(SYS_prlimit64, 0, resource, NULL, &before) == 0);
    low = (struct rlimit){.rlim_cur = limit, .rlim_max = before.rlim_max};
    TK_REQUIRE(t, syscall(SYS_prlimit64, 0, resource, &low, NULL) == 0);
    const struct under_limit answers[] = {
        answer_of(symmem_alloc(t->context, MIB, -1, NULL, &ptr)),
        answer_of(symmem_rendezvous(t->context, own, tk_world_group(t), LONG_MS, &handle)),
        answer_of(symmem_store_open_file(path, &store)),
    };
    void *block = NULL;
    const struct under_limit pooled =
        answer_of(has_pool ? symmem_pool_alloc(pool, 4096, &block) : SYMMEM_OK);
    TK_REQUIRE(t, syscall(SYS_prlimit64, 0, resource, &before, NULL) == 0);
    expect_limited(t, &answers[0], "alloc", name);
    expect_limited(t, &answers[1], "rendezvous", name);
    expect_limited(t, &answers[2], "store_open_file", name);
    expect_limited(t, &pooled, "pool_alloc", name);
    TK_OK(t, symmem_free(t->context, ptr));
    symmem_handle_release(handle);
    if (has_pool) {
        TK_OK(t, symmem_pool_free(pool, block));
        TK_OK(t, symmem_pool_destroy(pool));
    }
    symmem_store_close(store);
    /* Without it all of that works. */
    tk_free(t, tk_alloc(t, MIB));
    handle = tk_rendezvous(t, own, tk_world_group(t));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &store));
    symmem_store_close(store);
}

TK_TEST(process_limits, are_errors, "SM-LIFE-17", .max_ranks = 1, .flags = TK_PROCESS_ONLY) {
    const struct sigaction count = {.sa_handler = count_signal};
    struct sigaction before;
    if (!is_emulation(t)) /* where memory comes from is up to the backend */
        return;
    atomic_store(&signals, 0);
    TK_REQUIRE(t, sigaction(SIGXFSZ, &count, &before) == 0);
    call_under(t, RLIMIT_FSIZE, 4096, "RLIMIT_FSIZE");
    call_under(t, RLIMIT_FSIZE, 0, "RLIMIT_FSIZE");
    int lowest = dup(STDERR_FILENO);
    TK_REQUIRE(t, lowest >= 0 && close(lowest) == 0);
    call_under(t, RLIMIT_NOFILE, (rlim_t)lowest, "RLIMIT_NOFILE");
    TK_EQ_INT(t, 0, atomic_load(&signals));
    TK_REQUIRE(t, sigaction(SIGXFSZ, &before, NULL) == 0);
}

/* --- control groups --------------------------------------------------------------------------- */

#define GROUP_BYTES (96 * MIB)

static bool write_text(const char *folder, const char *name, const char *text) {
    char path[4096 + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return is_written;
}

/* The folder of this process's memory control group, where it is usually mounted. */
static bool find_own_group(char folder[4096]) {
    char line[2048];
    bool is_found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && !is_found && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const char *first = strstr(line, ":memory:");
        is_found = first != NULL || strncmp(line, "0::", 3) == 0;
        snprintf(folder, 4096, "/sys/fs/cgroup%s%s", first != NULL ? "/memory" : "",
                 first != NULL ? first + 8 : line + 3);
    }
    if (file != NULL)
        fclose(file);
    return is_found;
}

/* This process into a new group in its own one. */
static bool enter_group(const char *folder) {
    char bytes[32], self[32];
    snprintf(bytes, sizeof(bytes), "%zu", GROUP_BYTES);
    snprintf(self, sizeof(self), "%d", (int)getpid());
    return mkdir(folder, 0700) == 0 &&
           (write_text(folder, "memory.limit_in_bytes", bytes) ||
            write_text(folder, "memory.max", bytes)) &&
           write_text(folder, "cgroup.procs", self);
}

/* All that fits, in such pieces, and then one more. */
static void fill_group(struct tk *t, size_t bytes) {
    void *pieces[64] = {NULL};
    size_t count = 0;
    symmem_status status = SYMMEM_OK;
    while (count < TK_COUNT(pieces) && status == SYMMEM_OK)
        status = symmem_alloc(t->context, bytes, -1, NULL, &pieces[count++]);
    if (status != SYMMEM_OK) {
        TK_STATUS(t, SYMMEM_NO_SPACE, status);
        TK_CHECK(t, last_record().expected >= bytes);
        TK_CHECK_MSG(t, strstr(last_record().message, "control group") != NULL, "\"%s\"",
                     last_record().message);
        count--;
    }
    /* Most of it can be had. */
    TK_CHECK_MSG(t, count * bytes >= GROUP_BYTES / 2 || bytes > GROUP_BYTES, "%zu of %zu bytes",
                 count, bytes);
    while (count > 0)
        TK_OK(t, symmem_free(t->context, pieces[--count]));
}

TK_TEST(process_limits, control_group, "SM-ALLOC-19", .max_ranks = 1, .flags = TK_PROCESS_ONLY) {
    char own[4096], folder[4096 + 64], self[32];
    symmem_pool *pool = NULL;
    snprintf(self, sizeof(self), "%d", (int)getpid());
    if (!is_emulation(t) || !find_own_group(own)) {
        TK_CHECK_MSG(t, true, "no control groups here");
        return;
    }
    snprintf(folder, sizeof(folder), "%s/symmem-suite-%s", own, self);
    tk_sleep_ms(1100); /* a backend may remember for a moment that there was no limit */
    const bool is_in = enter_group(folder);
    if (is_in) {
        fill_group(t, 3 * GROUP_BYTES);
        fill_group(t, 8 * MIB);
        fill_group(t, 40 * MIB);
        if ((t->capabilities & SYMMEM_CAP_POOL) != 0) {
            void *block = NULL;
            TK_REQUIRE_OK(t, symmem_pool_create(t->context, -1, 2 * GROUP_BYTES, &pool));
            symmem_status status = symmem_pool_alloc(pool, 64, &block);
            TK_CHECK(t, status == SYMMEM_OK || status == SYMMEM_NO_SPACE);
            TK_OK(t, symmem_pool_free(pool, block));
            TK_OK(t, symmem_pool_destroy(pool));
        }
        tk_free(t, tk_alloc(t, 4096));
        TK_CHECK(t, write_text(own, "cgroup.procs", self));
    } else {
        TK_CHECK_MSG(t, true, "no right to make control groups");
        tk_note(t, "no right to make control groups here");
    }
    /* A group may count as used for a moment after its last process has left. */
    for (int i = 0; i < 100 && rmdir(folder) != 0 && errno == EBUSY; i++)
        tk_sleep_ms(10);
}

/* --- descriptors ------------------------------------------------------------------------------ */

/* The limit is on numbers: no free one may lie below one that is in use, or what is closed for the
 * next one to be opened gives it no place. Gives the first number behind all, and fills the others.
 */
static int fill_gaps(struct tk *t, int gaps[], int most, int *count_p) {
    int first = 0;
    DIR *list = opendir("/proc/self/fd");
    const struct dirent *entry;
    TK_REQUIRE(t, list != NULL);
    while ((entry = readdir(list)) != NULL)
        if (atoi(entry->d_name) != dirfd(list) && atoi(entry->d_name) >= first)
            first = atoi(entry->d_name) + 1;
    closedir(list);
    for (*count_p = 0; *count_p < most; (*count_p)++) {
        gaps[*count_p] = dup(STDERR_FILENO);
        TK_REQUIRE(t, gaps[*count_p] >= 0);
        if (gaps[*count_p] >= first)
            break;
    }
    TK_REQUIRE(t, *count_p < most && close(gaps[*count_p]) == 0);
    return first;
}

/* Rank 1 has no room for one descriptor: it is lost, which is no -1, and the next one arrives. */
TK_TEST(process_limits, one_descriptor, "SM-EXCHANGE-16,SM-ERROR-04", .ranks = {2, 2},
        .flags = TK_PROCESS_ONLY) {
    enum { MOST_GAPS = 256 };
    symmem_group *group = tk_world_group(t);
    tk_group_barrier(t, group);
    TK_REQ(t, "SM-EXCHANGE-16");
    if (t->rank == 0) {
        TK_OK(t, symmem_group_send_fd(group, 1, STDERR_FILENO, LONG_MS));
        TK_OK(t, symmem_group_send_fd(group, 1, STDERR_FILENO, LONG_MS));
    } else {
        struct rlimit before, low;
        int fd = -2, gaps[MOST_GAPS], gap_count = 0;
        const int first = fill_gaps(t, gaps, MOST_GAPS, &gap_count);
        TK_REQUIRE(t, getrlimit(RLIMIT_NOFILE, &before) == 0);
        low = (struct rlimit){.rlim_cur = (rlim_t)first, .rlim_max = before.rlim_max};
        TK_REQUIRE(t, setrlimit(RLIMIT_NOFILE, &low) == 0);
        const struct under_limit answer = answer_of(symmem_group_recv_fd(group, 0, &fd, LONG_MS));
        TK_REQUIRE(t, setrlimit(RLIMIT_NOFILE, &before) == 0);
        TK_STATUS(t, SYMMEM_LIMIT, answer.status);
        TK_EQ_INT(t, -2, fd);
        TK_EQ_SIZE(t, 1, answer.record.expected);
        TK_EQ_SIZE(t, 0, answer.record.actual);
        TK_CHECK_MSG(t, strstr(answer.record.message, "RLIMIT_NOFILE") != NULL, "\"%s\"",
                     answer.record.message);
        TK_OK(t, symmem_group_recv_fd(group, 0, &fd, LONG_MS));
        TK_CHECK(t, fd >= 0 && close(fd) == 0);
        while (gap_count > 0)
            close(gaps[--gap_count]);
    }
    tk_group_barrier(t, group);
}

/* Root may have as many in flight as it likes. False: it cannot be told otherwise. */
static bool give_up_resources(bool gives_up) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    const uint32_t some = 1u << CAP_SYS_RESOURCE | 1u << CAP_SYS_ADMIN;
    if (syscall(SYS_capget, &header, sets) != 0)
        return false;
    sets[0].effective =
        gives_up ? sets[0].effective & ~some : sets[0].effective | (sets[0].permitted & some);
    return syscall(SYS_capset, &header, sets) == 0;
}

/* So many more, in a message that no process takes until the socket is closed. -1: it cannot be
 * sent. */
static int put_in_flight(int count) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * 100)];
    } control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec byte = {.iov_base = &control, .iov_len = 1};
    const size_t fds_bytes = (size_t)count * sizeof(int);
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = 0};
    int ends[2], fds[100];
    for (int i = 0; i < count; i++)
        fds[i] = STDERR_FILENO;
    control.header.cmsg_len = (__typeof__(control.header.cmsg_len))CMSG_LEN(fds_bytes);
    message.msg_controllen = (__typeof__(message.msg_controllen))CMSG_SPACE(fds_bytes);
    memcpy(CMSG_DATA(&control.header), fds, fds_bytes);
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    const bool is_sent = sendmsg(ends[0], &message, 0) == 1;
    close(ends[0]);
    return is_sent ? ends[1] : -1;
}

/* Of this user too many are in flight; once they are there, the next one is sent. */
TK_TEST(process_limits, descriptors_in_flight, "SM-EXCHANGE-20", .ranks = {2, 2},
        .flags = TK_PROCESS_ONLY) {
    enum { SOME = 8, MANY = 100 };
    symmem_group *group = tk_world_group(t);
    int fd = -1;
    tk_group_barrier(t, group);
    if (t->rank == 0) {
        struct rlimit before, low;
        int held = put_in_flight(MANY), lowest = dup(STDERR_FILENO);
        TK_REQUIRE(t, held >= 0 && lowest >= 0 && lowest + SOME < MANY && close(lowest) == 0);
        TK_REQUIRE(t, getrlimit(RLIMIT_NOFILE, &before) == 0 && give_up_resources(true));
        low = (struct rlimit){.rlim_cur = (rlim_t)(lowest + SOME), .rlim_max = before.rlim_max};
        TK_REQUIRE(t, setrlimit(RLIMIT_NOFILE, &low) == 0);
        const struct under_limit answer =
            answer_of(symmem_group_send_fd(group, 1, STDERR_FILENO, tk_limit_ms(t, 300)));
        close(held);
        symmem_status later = symmem_group_send_fd(group, 1, STDERR_FILENO, LONG_MS);
        TK_REQUIRE(t, setrlimit(RLIMIT_NOFILE, &before) == 0 && give_up_resources(false));
        TK_STATUS(t, SYMMEM_LIMIT, answer.status);
        TK_CHECK_MSG(t,
                     strstr(answer.record.message, "RLIMIT_NOFILE") != NULL &&
                         strstr(answer.record.message, "in flight") != NULL,
                     "\"%s\"", answer.record.message);
        TK_OK(t, later);
    } else {
        TK_CHECK(t, TK_OK(t, symmem_group_recv_fd(group, 0, &fd, LONG_MS)) && close(fd) == 0);
    }
    tk_group_barrier(t, group);
}

/* --- costs ------------------------------------------------------------------------------------ */

#define TENSORS 20

/* All of them, with those that guard others. */
static int count_mappings(void) {
    char part[512];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    while (file != NULL && fgets(part, sizeof(part), file) != NULL)
        count += strchr(part, '\n') != NULL;
    if (file != NULL)
        fclose(file);
    return count;
}

TK_TEST(process_limits, costs_of_a_tensor, "SM-LIFE-19", .max_ranks = 8, .flags = TK_PROCESS_ONLY) {
    int descriptors = 0, mappings = 0;
    const char *name = backend_name(t);
    for (int i = 0; i <= TENSORS; i++) {
        (void)tk_handle(t, 4096, tk_world_group(t));
        if (i == 0) { /* the first makes the group's own, too */
            descriptors = resources_descriptors();
            mappings = count_mappings();
        }
    }
    descriptors = resources_descriptors() - descriptors;
    mappings = count_mappings() - mappings;
    TK_CHECK_MSG(t, descriptors <= (t->rank == 0 ? 3 : 2) * TENSORS || strcmp(name, "shm") != 0,
                 "%d for %d tensors", descriptors, TENSORS);
    TK_CHECK_MSG(t, mappings <= (4 * t->world_size + 6) * TENSORS || strcmp(name, "shm") != 0,
                 "%d for %d tensors", mappings, TENSORS);
}
