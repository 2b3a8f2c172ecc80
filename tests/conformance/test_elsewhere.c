/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that see the system otherwise than the others do, and ranks that become another program.
 * Where the system permits no namespaces, a case says so. */
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sync_help.h"

#define DEVICE_TYPE_CPU 1 /* kDLCPU */
#define LONG_S 30
#define FINALIZED_MS 1500u /* several looks at its socket */

/* Slots of values that ranks show each other. */
enum { SLOT_PLACE = 1, SLOT_MET, SLOT_END, SLOT_PID };

enum need { BARRIER, RENDEZVOUS, HOST_BARRIER };

struct job {
    enum need need;
    bool in_pid_namespace, becomes_another, before_groups, finalizes;
};

struct world {
    const char *socket_dir;
    symmem_store *store;
    symmem_context *context;
    symmem_group *group;
    symmem_handle *handle;
    void *memory, *fresh;
};

static bool write_text(const char *path, const char *text) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return written;
}

/* A user who may make no namespaces may in a user namespace, where its numbers stay. */
static bool leave(int flags) {
    char user[64], group[64];
    if (unshare(flags) == 0)
        return true;
    snprintf(user, sizeof user, "%u %u 1\n", geteuid(), geteuid());
    snprintf(group, sizeof group, "%u %u 1\n", getegid(), getegid());
    return unshare(flags | CLONE_NEWUSER) == 0 && write_text("/proc/self/uid_map", user) &&
           write_text("/proc/self/setgroups", "deny") && write_text("/proc/self/gid_map", group);
}

static bool begin_world(struct tk *t, struct world *w) {
    symmem_context_options options = tk_options(t);
    char path[4096];
    snprintf(path, sizeof path, "%s/elsewhere", t->scratch_dir);
    if (symmem_store_open_file(path, &w->store) != SYMMEM_OK)
        return false;
    options.store = w->store;
    options.socket_dir = w->socket_dir;
    return symmem_init(&options, &w->context) == SYMMEM_OK;
}

static bool meet(struct tk *t, struct world *w) {
    uint32_t word = 0xB0000000u + (uint32_t)t->rank, seen = 0;
    return symmem_join(w->context, NULL, LONG_MS) == SYMMEM_OK &&
           symmem_group_create(w->context, "elsewhere", NULL, 0, NULL, &w->group) == SYMMEM_OK &&
           symmem_alloc(w->context, 4096, -1, NULL, &w->memory) == SYMMEM_OK &&
           symmem_alloc(w->context, 4096, -1, NULL, &w->fresh) == SYMMEM_OK &&
           symmem_rendezvous(w->context, w->memory, w->group, LONG_MS, &w->handle) == SYMMEM_OK &&
           symmem_put(w->handle, t->next, 64, &word, 4, NULL) == SYMMEM_OK &&
           symmem_barrier(w->handle, 0, LONG_MS, NULL) == SYMMEM_OK &&
           symmem_get(w->handle, t->rank, 64, &seen, 4, NULL) == SYMMEM_OK &&
           symmem_barrier(w->handle, 0, LONG_MS, NULL) == SYMMEM_OK &&
           seen == 0xB0000000u + (uint32_t)t->previous;
}

static bool await(struct tk *t, int32_t rank, int slot) {
    uint64_t end_ms = tk_now_ms() + LONG_MS;
    while (tk_read_u64(t, rank, slot) == 0 && tk_now_ms() < end_ms)
        tk_sleep_ms(1);
    return tk_read_u64(t, rank, slot) != 0;
}

/* The rank that ends, once all others are about to wait for it. Not through the kit: the process
 * may not be the one that it knows. */
static void be_victim(struct tk *t, const struct job *job) __attribute__((noreturn));
static void be_victim(struct tk *t, const struct job *job) {
    struct world w = {0};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(LONG_S);
    bool met = begin_world(t, &w) && (job->before_groups || meet(t, &w));
    tk_share_u64(t, SLOT_MET, met ? 1 : 2);
    for (int32_t r = 0; r < t->last && met; r++)
        met = await(t, r, SLOT_MET);
    tk_sleep_ms(100);
    tk_share_u64(t, SLOT_END, tk_now_ms());
    if (job->finalizes)
        symmem_context_free(w.context);
    for (int32_t r = 0; r < t->last && job->finalizes; r++)
        (void)await(t, r, SLOT_END);
    if (job->becomes_another)
        (void)execlp("sleep", "sleep", "30", (char *)NULL);
    _exit(0);
}

static pid_t placed;

/* And no process is left behind that is about to end: the process between waits for it. */
static void end_placed(int number) {
    (void)number;
    (void)kill(placed, SIGKILL);
}

/* Between the two: a process whose children are in another pid namespace. */
static void enter_place(struct tk *t, const struct job *job) __attribute__((noreturn));
static void enter_place(struct tk *t, const struct job *job) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(LONG_S);
    bool place = !job->in_pid_namespace || leave(CLONE_NEWPID);
    tk_share_u64(t, SLOT_PLACE, place ? 1 : 2);
    if (!place)
        _exit(0);
    if (!job->in_pid_namespace)
        be_victim(t, job);
    pid_t pid = fork();
    if (pid == 0)
        be_victim(t, job);
    placed = pid;
    if (pid > 1)
        (void)signal(SIGTERM, end_placed);
    _exit(pid > 1 && waitpid(pid, NULL, 0) == pid ? 0 : 1);
}

/* Keeps the process in which the victim's was started. */
static void start_victim(struct tk *t, const struct job *job) {
    int status;
    pid_t pid = fork();
    if (pid == 0)
        enter_place(t, job);
    if (!TK_CHECK(t, pid > 1))
        return;
    bool place = await(t, t->rank, SLOT_PLACE) && tk_read_u64(t, t->rank, SLOT_PLACE) == 1;
    for (int32_t r = 0; r < t->last && place; r++)
        TK_CHECK(t, await(t, r, SLOT_END));
    (void)kill(pid, place && job->in_pid_namespace ? SIGTERM : SIGKILL);
    TK_CHECK(t, waitpid(pid, &status, 0) == pid);
    if (place)
        TK_EQ_INT(t, 1, (int)tk_read_u64(t, t->rank, SLOT_MET));
    else
        tk_note(t, "no namespaces here");
}

static symmem_status need(struct world *w, enum need need, uint32_t limit_ms) {
    symmem_handle *none = NULL;
    switch (need) {
    case BARRIER:
        return symmem_barrier(w->handle, 0, limit_ms, NULL);
    case RENDEZVOUS:
        return symmem_rendezvous(w->context, w->fresh, w->group, limit_ms, &none);
    default:
        return symmem_group_barrier(w->group, limit_ms);
    }
}

/* The process lives, whatever has become of its socket. */
static void expect_no_end(struct tk *t, const struct job *job, struct world *w) {
    TK_FAILS(t, TIMEOUT, need(w, job->need, FINALIZED_MS));
}

static void expect_end(struct tk *t, const struct job *job, struct world *w) {
    TK_FAILS(t, PEER_LOST, need(w, job->need, 0));
    uint64_t told_ms = tk_now_ms();
    symmem_error_record record = last_record();
    TK_CHECK(t, symmem_error_is_missing(&record, t->last));
    uint64_t ended_ms = tk_read_u64(t, t->last, SLOT_END);
    TK_CHECK_MSG(t, ended_ms != 0, "told before its end");
    TK_TIMELY(t, told_ms < ended_ms + tk_scaled_ms(1000) + tk_late_ms(t, ended_ms),
              "told %d ms after its end", (int)(told_ms - ended_ms));
}

/* One of those that wait, without a limit, and are told. */
static void survive(struct tk *t, const struct job *job) {
    struct world w = {0};
    if (!TK_CHECK(t, await(t, t->last, SLOT_PLACE)) || tk_read_u64(t, t->last, SLOT_PLACE) != 1)
        return;
    bool met = begin_world(t, &w);
    if (job->before_groups)
        met = met && symmem_group_create(w.context, "early", NULL, 0, NULL, &w.group) == SYMMEM_OK;
    else
        met = met && meet(t, &w);
    TK_CHECK_MSG(t, met, "%s", last_record().message);
    tk_share_u64(t, SLOT_MET, met ? 1 : 2);
    if (met && job->finalizes)
        expect_no_end(t, job, &w);
    else if (met)
        expect_end(t, job, &w);
    tk_share_u64(t, SLOT_END, 1);
    symmem_handle_release(w.handle);
    symmem_context_free(w.context);
    symmem_store_close(w.store);
}

static void rank_of_job(struct tk *t, void *arg) {
    const struct job *job = arg;
    if (t->rank == t->last)
        start_victim(t, job);
    else
        survive(t, job);
}

static bool works_in_child(struct tk *t) {
    return TK_CHECK_MSG(t, true, "a device's driver does not work in a child") &&
           t->device_type == DEVICE_TYPE_CPU;
}

static void run_job(struct tk *t, struct job job) {
    if (works_in_child(t))
        tk_run_child(t, rank_of_job, &job, LONG_S * 1000);
}

/* --- a directory that is cleaned -------------------------------------------------------------- */

/* The last rank is killed in a network and a pid namespace of its own, where only its socket's file
 * tells of it. */
static void stay_elsewhere(struct tk *t, struct world *w) __attribute__((noreturn));
static void stay_elsewhere(struct tk *t, struct world *w) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool place = leave(CLONE_NEWPID | CLONE_NEWNET);
    pid_t pid = place ? fork() : -1;
    if (pid > 1)
        tk_share_u64(t, SLOT_PID, (uint64_t)pid);
    if (pid != 0)
        tk_share_u64(t, SLOT_PLACE, pid > 1 ? 1 : 2);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        tk_share_u64(t, SLOT_MET, begin_world(t, w) ? 1 : 2);
        sleep(LONG_S);
        _exit(0);
    }
    _exit(pid > 1 && waitpid(pid, NULL, 0) == pid ? 0 : 1);
}

static void be_killed_elsewhere(struct tk *t, struct world *w) {
    pid_t pid = fork();
    if (pid == 0)
        stay_elsewhere(t, w);
    if (!TK_CHECK(t, pid > 1))
        return;
    if (!await(t, t->rank, SLOT_PLACE) || tk_read_u64(t, t->rank, SLOT_PLACE) != 1) {
        tk_note(t, "no namespaces here");
        TK_CHECK(t, waitpid(pid, NULL, 0) == pid);
        return;
    }
    for (int32_t r = 0; r <= t->last; r++)
        TK_CHECK(t, await(t, r, SLOT_MET));
    TK_EQ_INT(t, 1, (int)tk_read_u64(t, t->rank, SLOT_MET));
    (void)kill((pid_t)tk_read_u64(t, t->rank, SLOT_PID), SIGKILL); /* its parent awaits its end */
    TK_CHECK(t, waitpid(pid, NULL, 0) == pid);
    tk_share_u64(t, SLOT_END, tk_now_ms());
}

/* Rank 0 finalizes then, and so cleans the directory; the others look after it only now. */
static void survive_in(struct tk *t, struct world *w) {
    if (!TK_CHECK(t, await(t, t->last, SLOT_PLACE)) || tk_read_u64(t, t->last, SLOT_PLACE) != 1)
        return;
    TK_CHECK_MSG(t, begin_world(t, w), "%s", last_record().message);
    tk_share_u64(t, SLOT_MET, 1);
    TK_CHECK(t, await(t, t->rank == 0 ? t->last : 0, SLOT_END));
    if (t->rank != 0 &&
        TK_OK(t, symmem_group_create(w->context, "late", NULL, 0, NULL, &w->group))) {
        uint64_t begin_ms = tk_now_ms();
        TK_FAILS(t, PEER_LOST, symmem_group_barrier(w->group, 0));
        TK_WITHIN(t, 1000, begin_ms);
        TK_EQ_INT(t, t->last, last_record().failed_rank);
    }
    symmem_context_free(w->context);
    symmem_store_close(w->store);
    tk_share_u64(t, SLOT_END, tk_now_ms());
    for (int32_t r = 0; r < t->last; r++) /* that rank 0 has ended, too, would be told */
        TK_CHECK(t, await(t, r, SLOT_END));
}

static void rank_in_directory(struct tk *t, void *arg) {
    struct world w = {.socket_dir = arg};
    if (t->rank == t->last)
        be_killed_elsewhere(t, &w);
    else
        survive_in(t, &w);
}

TK_TEST(elsewhere, cleaned_directory, "SM-EXCHANGE-23", .ranks = {3, 3},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {
    char directory[64];
    tk_short_path(t, "cleaned", -1, directory);
    if (!works_in_child(t))
        return;
    if (t->rank == 0)
        TK_REQUIRE(t, mkdir(directory, 0700) == 0);
    tk_out_of_band_barrier(t);
    tk_run_child(t, rank_in_directory, directory, LONG_S * 1000);
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_CHECK_MSG(t, rmdir(directory) == 0, "%s is not empty", directory);
}

#define ELSEWHERE(name_, requirements_, ...)                                                       \
    TK_TEST(elsewhere, name_, requirements_, .ranks = {2, 2},                                      \
            .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {  \
        run_job(t, (struct job){__VA_ARGS__});                                                     \
    }

ELSEWHERE(pid_namespace_barrier, "SM-TIMEOUT-16", .need = BARRIER, .in_pid_namespace = true)
ELSEWHERE(pid_namespace_rendezvous, "SM-TIMEOUT-16", .need = RENDEZVOUS, .in_pid_namespace = true)
ELSEWHERE(pid_namespace_host_barrier, "SM-TIMEOUT-16", .need = HOST_BARRIER,
          .in_pid_namespace = true, .before_groups = true)
ELSEWHERE(another_program, "SM-TIMEOUT-17", .need = BARRIER, .becomes_another = true)
ELSEWHERE(another_program_rendezvous, "SM-TIMEOUT-17", .need = RENDEZVOUS, .becomes_another = true)
ELSEWHERE(finalized_is_no_end, "SM-TIMEOUT-17,SM-TIMEOUT-18", .need = BARRIER, .finalizes = true)
ELSEWHERE(finalized_is_no_end_elsewhere, "SM-TIMEOUT-17,SM-TIMEOUT-18", .need = HOST_BARRIER,
          .finalizes = true, .in_pid_namespace = true)

/* --- a machine under several names ------------------------------------------------------------ */

static bool take_boot_id(struct tk *t) {
    char path[4096], text[64];
    snprintf(path, sizeof path, "%s/boot_id.%d", t->scratch_dir, (int)t->rank);
    snprintf(text, sizeof text, "0000000%d-1111-2222-3333-444444444444\n", (int)t->rank);
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return false;
    bool written = fputs(text, file) >= 0;
    return fclose(file) == 0 && written && leave(CLONE_NEWNS) &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount(path, "/proc/sys/kernel/random/boot_id", NULL, MS_BIND, NULL) == 0;
}

static void meet_under_another_name(struct tk *t, void *arg) {
    struct world w = {0};
    (void)arg;
    if (!tk_all_agree(t, SLOT_PLACE, take_boot_id(t))) {
        TK_CHECK_MSG(t, true, "not permitted here");
        tk_note(t, "no namespaces here");
        return;
    }
    bool met = begin_world(t, &w) && meet(t, &w);
    TK_CHECK_MSG(t, met, "%s", last_record().message);
    tk_out_of_band_barrier(t);
    symmem_handle_release(w.handle);
    symmem_context_free(w.context);
    symmem_store_close(w.store);
}

TK_TEST(elsewhere, one_machine_several_names, "SM-EXCHANGE-15", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS, .timeout_s = 60) {
    if (works_in_child(t))
        tk_run_child(t, meet_under_another_name, NULL, LONG_S * 1000);
}
