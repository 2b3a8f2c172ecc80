/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ranks of one machine, each in a place of its own, and what each of them reports. */
#ifndef SYMMEM_PLACES_H
#define SYMMEM_PLACES_H

#include <sched.h>
#include <sys/mount.h>

#include <symmem/backend.h>
#include <symmem/symmem.h>

#include "unit_main.h"

const symmem_backend *symmem_backend_entry(uint32_t abi);

enum { LIMIT_MS = 10000, LONGEST_S = 40, END_AFTER_MS = 400 };
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

/* What a rank reports through its pipe. */
struct report {
    bool ran; /* its place could be made */
    symmem_status status;
    symmem_error_record record;
    uint64_t took_ms;
    uint64_t began_ms, told_ms; /* the call in which the other rank ends, if it does */
};

/* What a rank has of its own in a mount namespace. */
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

/* In the process that is to be the rank. */
static void be_rank(const struct place *place, int32_t rank, int to) {
    struct report report = {.ran = true};
    uint64_t begin_ms = now_ms();
    if (rank == 1 && place->end != NEVER &&
        write(to, &report, sizeof(report)) != (ssize_t)sizeof(report))
        _exit(1);
    report.status = life(place, rank, &report);
    report.took_ms = now_ms() - begin_ms;
    _exit(write(to, &report, sizeof(report)) == (ssize_t)sizeof(report) ? 0 : 1);
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
        return umount2("/proc", MNT_DETACH) == 0;
    }
}

/* Of clocks, they differ by a day. */
static bool leave(int flags) {
    return flags == 0 ||
           (unshare(flags) == 0 && ((flags & CLONE_NEWTIME) == 0 ||
                                    write_text("/proc/self/timens_offsets", "boottime 86400 0\n")));
}

/* The child: leaves its namespaces and, where only children are in the new one, has one. */
static void enter_and_be(const struct place *place, int32_t rank, int to) {
    const struct report none = {.ran = false};
    int flags = place->flags[rank];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(LONGEST_S);
    if (!leave(flags) || !take_own(place, rank))
        _exit(write(to, &none, sizeof(none)) == (ssize_t)sizeof(none) ? 0 : 1);
    if ((flags & (CLONE_NEWPID | CLONE_NEWTIME)) == 0)
        be_rank(place, rank, to);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(LONGEST_S);
        be_rank(place, rank, to);
    }
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        _exit(1);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* --- two ranks -------------------------------------------------------------------------------- */

/* A rank that becomes another program is ended once the other has reported. */
static bool run_ranks(const struct place *place, struct report reports[2]) {
    pid_t pids[2];
    int pipes[2][2];
    bool good = true;
    (void)fflush(NULL);
    for (int32_t r = 0; r < 2; r++) {
        CU_ASSERT_EQUAL_FATAL(pipe2(pipes[r], O_CLOEXEC), 0);
        pids[r] = fork();
        CU_ASSERT_FATAL(pids[r] >= 0);
        if (pids[r] == 0)
            enter_and_be(place, r, pipes[r][1]);
        close(pipes[r][1]);
    }
    for (int32_t r = 0; r < 2; r++) {
        int status = 0;
        memset(&reports[r], 0, sizeof(reports[r]));
        ssize_t got = read(pipes[r][0], &reports[r], sizeof(reports[r]));
        good = good && got == (ssize_t)sizeof(reports[r]);
        close(pipes[r][0]);
        if (r == 1 && place->end == BY_EXEC)
            kill(pids[r], SIGKILL);
        CU_ASSERT_EQUAL(waitpid(pids[r], &status, 0), pids[r]);
        good = good && ((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
                        (r == 1 && place->end == BY_EXEC));
    }
    CU_ASSERT(good); /* no crash, and no hang that the alarm had to end */
    return good && reports[0].ran && reports[1].ran;
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
