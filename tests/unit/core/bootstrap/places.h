/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ranks of one machine, each in a place of its own, and what each of them reports. */
#ifndef SYMMEM_PLACES_H
#define SYMMEM_PLACES_H

#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include <symmem/backend.h>
#include <symmem/symmem.h>

#include "unit_child.h"
#include "unit_main.h"

const symmem_backend *symmem_backend_entry(uint32_t abi);

enum { LIMIT_MS = 10000, PLACE_LONGEST_S = 40, END_AFTER_MS = 400 };
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

/* The report that a rank sends through its socket. */
struct report {
    symmem_status status;
    symmem_error_record record;
    uint64_t took_ms;
    uint64_t began_ms, told_ms; /* the call in which the other rank ends, if it does */
};

/* The files of its own that a rank has in a mount namespace. */
enum own { OWN_NOTHING = 0, OWN_SOCKET_DIR, OWN_BOOT_ID, OWN_EMPTY_BOOT_ID, OWN_NO_PROC };

/* When the second rank ends. */
enum its_end { NEVER = 0, IN_BARRIER, BEFORE_GROUPS, BY_EXEC };

struct place {
    const char *directory; /* of the store */
    const char *socket_dir;
    bool of_first; /* the second rank's sockets have no file names */
    enum its_end end;
    enum own own[2];
    int flags[2]; /* CLONE_NEW... of each rank */
};

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* --- a rank ----------------------------------------------------------------------------------- */

static void end_now(const struct place *place) {
    usleep(END_AFTER_MS * 1000);
    if (place->end == BY_EXEC)
        (void)execlp("sleep", "sleep", "20", (char *)NULL);
    _exit(0);
}

static symmem_status exchange_words(symmem_handle *handle, int32_t rank) {
    uint32_t mine = 0xB0000000u + (uint32_t)rank, seen = 0;
    symmem_status status = symmem_put(handle, 1 - rank, 64, &mine, 4, NULL);
    if (status == SYMMEM_OK)
        status = symmem_barrier(handle, 0, LIMIT_MS, NULL);
    if (status == SYMMEM_OK)
        status = symmem_get(handle, rank, 64, &seen, 4, NULL);
    if (status == SYMMEM_OK && seen != 0xB0000000u + (uint32_t)(1 - rank))
        status = SYMMEM_CORRUPT;
    if (status == SYMMEM_OK)
        status = symmem_barrier(handle, 0, LIMIT_MS, NULL);
    return status;
}

/* From the context on. The wait for a rank that ends has no limit. */
static symmem_status meet(const struct place *place, int32_t rank, symmem_context *context,
                          struct report *report) {
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    void *memory = NULL;
    if (rank == 1 && place->end == BEFORE_GROUPS)
        end_now(place);
    report->began_ms = now_ms();
    symmem_status status = symmem_group_create(context, "all", NULL, 0, NULL, &group);
    if (status == SYMMEM_OK)
        status = symmem_alloc(context, 4096, 0, NULL, &memory);
    if (status == SYMMEM_OK)
        status = symmem_rendezvous(context, memory, group,
                                   place->end == BEFORE_GROUPS ? 0 : LIMIT_MS, &handle);
    if (status == SYMMEM_OK)
        status = exchange_words(handle, rank);
    if (status == SYMMEM_OK && place->end != NEVER) {
        if (rank == 1)
            end_now(place);
        report->began_ms = now_ms();
        status = symmem_barrier(handle, 0, 0, NULL);
    }
    report->told_ms = now_ms();
    symmem_last_error(&report->record);
    symmem_handle_release(handle);
    return status;
}

static symmem_status life(const struct place *place, int32_t rank, struct report *report) {
    const symmem_backend *table = symmem_backend_entry(SYMMEM_BACKEND_ABI);
    symmem_context_options options;
    symmem_store *store = NULL;
    symmem_context *context = NULL;
    symmem_context_options_init(&options);
    options.rank = rank;
    options.world_size = 2;
    options.socket_dir = place->of_first && rank != 0 ? NULL : place->socket_dir;
    symmem_status status = symmem_store_open_file(place->directory, &store);
    options.store = store;
    if (status == SYMMEM_OK)
        status = symmem_init(&options, &context);
    if (status == SYMMEM_OK)
        status = symmem_register_backend(context, table);
    if (status == SYMMEM_OK)
        status = symmem_set_backend(context, table->name);
    if (status == SYMMEM_OK)
        status = symmem_set_allow_overlapping_devices(context, 1);
    symmem_last_error(&report->record);
    if (status == SYMMEM_OK)
        status = meet(place, rank, context, report);
    symmem_context_free(context);
    symmem_store_close(store);
    return status;
}

/* Runs the rank's life in the process that was started for it. */
static void be_rank(const struct place *place, int32_t rank, int to) {
    struct report report = {0};
    uint64_t begin_ms = now_ms();
    report.status = life(place, rank, &report);
    report.took_ms = now_ms() - begin_ms;
    const int status = write(to, &report, sizeof(report)) == (ssize_t)sizeof(report) ? 0 : 1;
    if (UNIT_ADDRESS_SANITIZER)
        _exit(status); /* its leak checker finds no process in another pid namespace */
    exit(status);
}

static bool write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return good;
}

static bool take_own(const struct place *place, int32_t rank) {
    static const char boot_id[] = "/proc/sys/kernel/random/boot_id";
    char file[128], text[64];
    if (place->own[rank] == OWN_NOTHING)
        return true;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return false;
    switch (place->own[rank]) {
    case OWN_SOCKET_DIR:
        return mount("tmpfs", place->socket_dir, "tmpfs", 0, "size=1m") == 0;
    case OWN_BOOT_ID:
        snprintf(file, sizeof(file), "%s.boot%d", place->directory, (int)rank);
        snprintf(text, sizeof(text), "0000000%d-1111-2222-3333-444444444444\n", (int)rank);
        return write_text(file, text) && mount(file, boot_id, NULL, MS_BIND, NULL) == 0;
    case OWN_EMPTY_BOOT_ID:
        return mount("/dev/null", boot_id, NULL, MS_BIND, NULL) == 0;
    default:
        return mount("none", "/proc", "tmpfs", 0, "size=1m") == 0;
    }
}

/* A user who may make no namespaces may in a user namespace, where its numbers stay. */
static bool leave_as_own_user(int flags) {
    char user[64], group[64];
    snprintf(user, sizeof(user), "%u %u 1\n", geteuid(), geteuid());
    snprintf(group, sizeof(group), "%u %u 1\n", getegid(), getegid());
    return errno == EPERM && (flags & CLONE_NEWUSER) == 0 && unshare(flags | CLONE_NEWUSER) == 0 &&
           write_text("/proc/self/uid_map", user) && write_text("/proc/self/setgroups", "deny") &&
           write_text("/proc/self/gid_map", group);
}

/* In a time namespace the clock is a day ahead. */
static bool leave(int flags) {
    if (flags != 0 && unshare(flags) != 0 && !leave_as_own_user(flags))
        return false;
    return (flags & CLONE_NEWTIME) == 0 ||
           write_text("/proc/self/timens_offsets", "boottime 86400 0\n");
}

/* Says whether the rank's place could be made; true once both could. */
static bool both_entered(int to, bool entered) {
    bool both = false;
    if (write(to, &entered, sizeof(entered)) != (ssize_t)sizeof(entered))
        _exit(1);
    return read(to, &both, sizeof(both)) == (ssize_t)sizeof(both) && both;
}

/* The child: leaves its namespaces and, where only children are in the new one, has one. */
static void enter_and_be(const struct place *place, int32_t rank, int to) {
    int flags = place->flags[rank];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(PLACE_LONGEST_S);
    if (!both_entered(to, leave(flags) && take_own(place, rank)))
        _exit(0);
    if ((flags & (CLONE_NEWPID | CLONE_NEWTIME)) == 0)
        be_rank(place, rank, to);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(PLACE_LONGEST_S);
        be_rank(place, rank, to);
    }
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        _exit(1);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* --- two ranks -------------------------------------------------------------------------------- */

/* Lets both ranks begin. If one rank's place cannot be made, neither begins, because the other
 * would wait for a rank that never comes. */
static bool let_begin(const int ends[2]) {
    bool both = true;
    for (int32_t r = 0; r < 2; r++) {
        bool entered = false;
        CU_ASSERT_EQUAL(read(ends[r], &entered, sizeof(entered)), (ssize_t)sizeof(entered));
        both = both && entered;
    }
    for (int32_t r = 0; r < 2; r++)
        CU_ASSERT_EQUAL(write(ends[r], &both, sizeof(both)), (ssize_t)sizeof(both));
    return both;
}

/* A rank that becomes another program is ended once the other has reported. */
static bool has_ended_well(const struct place *place, int32_t rank, pid_t pid) {
    bool by_exec = rank == 1 && place->end == BY_EXEC;
    int status = 0;
    if (by_exec)
        kill(pid, SIGKILL);
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    return by_exec || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* False if a place cannot be made here. */
static bool run_ranks(const struct place *place, struct report reports[2]) {
    pid_t pids[2];
    int ends[2];
    bool good = true;
    (void)fflush(NULL);
    for (int32_t r = 0; r < 2; r++) {
        int pair[2];
        CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        pids[r] = fork();
        CU_ASSERT_FATAL(pids[r] >= 0);
        if (pids[r] == 0)
            enter_and_be(place, r, pair[1]);
        close(pair[1]);
        ends[r] = pair[0];
    }
    bool both = let_begin(ends);
    for (int32_t r = 0; r < 2; r++) {
        bool tells = both && (r == 0 || place->end == NEVER);
        memset(&reports[r], 0, sizeof(reports[r]));
        if (tells && read(ends[r], &reports[r], sizeof(reports[r])) != (ssize_t)sizeof(reports[r]))
            good = false;
        close(ends[r]);
        good = has_ended_well(place, r, pids[r]) && good;
    }
    CU_ASSERT(good); /* no crash, and no hang that the alarm had to end */
    return good && both;
}

/* A directory of the test's own with one for the store and one for sockets in it. */
struct room {
    char top[64], store[80], sockets[80];
};

static void room_make(struct room *room) {
    snprintf(room->top, sizeof(room->top), "/tmp/symm-ns-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(room->top));
    snprintf(room->store, sizeof(room->store), "%s/store", room->top);
    snprintf(room->sockets, sizeof(room->sockets), "%s/s", room->top);
    CU_ASSERT_EQUAL_FATAL(mkdir(room->sockets, 0700), 0);
}

static void room_end(const struct room *room) {
    char command[160];
    CU_ASSERT_EQUAL(rmdir(room->sockets), 0); /* no socket is left in it */
    snprintf(command, sizeof(command), "rm -rf -- '%s'", room->top);
    CU_ASSERT_EQUAL(system(command), 0);
}

#endif
