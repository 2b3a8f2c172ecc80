/* SPDX-License-Identifier: BSD-3-Clause */
/* SM-TIMEOUT-16, -17: a process seen by its socket alone, as from another namespace, on new kernels
 * and on older ones. */
#include "bootstrap/ipc_sweep.h"
#include "folder.h"
#include "life_process.h"

#include <sys/resource.h>

static char directory[] = "/tmp/symm-life-XXXXXX";

/* --- cases -------------------------------------------------------------------------------------
 */

/* Each kind of kernel: one that tells whose socket it is, one that tells its number, one that tells
 * neither. */
TEST("lives and ends") {
    for (int i = 0; i < 3; i++) {
        kernel(i > 0, i > 1);
        process it = start(NULL);
        sm_liveness *liveness = watch(&it);
        CU_ASSERT_TRUE(stays_alive(liveness));
        CU_ASSERT_TRUE(sm_liveness_sees(liveness, 1));
        CU_ASSERT_FALSE(sm_liveness_is_ending(liveness, &it.identity));
        kill(it.pid, SIGSTOP);
        CU_ASSERT_TRUE(stays_alive(liveness)); /* stopped is not dead */
        end(&it);
        CU_ASSERT_TRUE(is_lost_soon(liveness));
        CU_ASSERT_EQUAL(sm_liveness_ask_of(liveness, 1, &it.identity), SYMMEM_PEER_GONE);
        CU_ASSERT_EQUAL(sm_liveness_ask_of(liveness, 0, &it.identity), SYMMEM_PEER_GONE);
        sm_liveness_learn(liveness, 0, &it.identity); /* first heard of after its end */
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 0), SYMMEM_PEER_GONE);
        sm_liveness_destroy(liveness);
    }
    kernel(false, false);
}

/* The process's boot id is a container's. Its kernel is known to be this one once its socket has
 * answered. */
TEST("a machine under another name") {
    process it = start(NULL), other = start(NULL);
    sm_liveness *liveness = watch(&it);
    it.identity.boot_id++;
    other.identity.boot_id++;
    sm_liveness_learn(liveness, 0, &other.identity);
    sm_liveness_learn(liveness, 1, &it.identity);
    CU_ASSERT_EQUAL(kill(other.pid, SIGKILL), 0);
    CU_ASSERT_EQUAL(waitpid(other.pid, NULL, 0), other.pid);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 0), SYMMEM_PEER_ALIVE); /* who knows */
    CU_ASSERT_FALSE(sm_liveness_sees(liveness, 0));
    CU_ASSERT_FALSE(sm_liveness_is_near(liveness, &other.identity));
    CU_ASSERT_TRUE(sm_liveness_is_near(liveness, &it.identity));
    CU_ASSERT_TRUE(sm_liveness_is_near(liveness, &other.identity)); /* by its boot id */
    CU_ASSERT_TRUE(stays_alive(liveness));
    AWAIT(SOON_MS, sm_liveness_ask(liveness, 0) == SYMMEM_PEER_GONE);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 0), SYMMEM_PEER_GONE);
    close(other.to);
    end(&it);
    CU_ASSERT_TRUE(is_lost_soon(liveness));
    sm_liveness_destroy(liveness);
}

static int fill(const sm_identity *identity, int *fds) {
    int full = 0;
    for (int i = 0; i < MANY; i++) {
        char name[64];
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int used = snprintf(name, sizeof(name), "symmem-life-");
        for (int b = 0; b < SM_LIFE_ID_BYTES; b++)
            used += snprintf(name + used, sizeof(name) - (size_t)used, "%02x", identity->life[b]);
        memcpy(address.sun_path + 1, name, (size_t)used);
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(fds[i], (struct sockaddr *)&address,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used)) != 0)
            full += errno == EAGAIN;
    }
    return full;
}

/* Each look leaves an entry in the socket's queue. */
TEST("a full queue is alive") {
    int fds[MANY];
    sm_identity self;
    sm_life_file *file = NULL;
    process it = start(NULL);
    sm_liveness *liveness = watch(&it);
    CU_ASSERT(fill(&it.identity, fds) > 0);
    CU_ASSERT_TRUE(stays_alive(liveness));
    end(&it);
    CU_ASSERT_TRUE(is_lost_soon(liveness));
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    /* The queue is emptied now and then. */
    CU_ASSERT_EQUAL_FATAL(sm_identity_self(&self), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_identity_listen(&self, NULL, 0, &file), SYMMEM_OK);
    CU_ASSERT(fill(&self, fds) > 0);
    sm_life_serve();
    sm_life_answer answer;
    sm_life_ask(&self, true, &answer);
    CU_ASSERT_EQUAL(answer.by_name, SM_LIFE_LIVES);
    CU_ASSERT(answer.pidfd >= 0 && answer.pid == getpid());
    close(answer.pidfd);
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    sm_identity_unlisten(&self, file);
    sm_liveness_destroy(liveness);
}

/* In another network namespace the abstract name does not exist, so the file tells. */
static void by_file(bool is_old, bool is_removed) {
    kernel(is_old, is_old);
    process it = start(directory);
    CU_ASSERT(strncmp(it.identity.life_file, directory, strlen(directory)) == 0);
    it.identity.life[0] ^= 1;
    it.identity.net_namespace++;
    sm_liveness *liveness = watch(&it);
    CU_ASSERT_TRUE(stays_alive(liveness));
    CU_ASSERT_TRUE(sm_liveness_sees(liveness, 1));
    if (is_removed)
        CU_ASSERT_EQUAL(unlink(it.identity.life_file), 0);
    CU_ASSERT_TRUE(stays_alive(liveness));
    end(&it);
    /* Without a pidfd and without a file, no process can tell that this one ended. */
    bool lost = is_old && is_removed ? !stays_alive(liveness) : is_lost_soon(liveness);
    CU_ASSERT_EQUAL(lost, !is_old || !is_removed);
    if (!is_removed)
        CU_ASSERT_EQUAL(unlink(it.identity.life_file), 0);
    sm_liveness_destroy(liveness);
    kernel(false, false);
}

TEST("by a file") {
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    by_file(false, false);
    by_file(true, false);
    by_file(false, true);
    by_file(true, true);
    /* A process that ends in good order removes its file. A directory that cannot be used is a
     * failure of the group, not of this function. */
    process it = start(directory);
    tell(&it, AND_END_LIFE);
    CU_ASSERT_EQUAL(rmdir(directory), 0);
    end(&it);
    CU_ASSERT_PTR_NULL(sm_life_file_begin(directory, 0));
    cannot_listen = true;
    CU_ASSERT_EQUAL(mkdir(directory, 0700), 0);
    CU_ASSERT_PTR_NULL(sm_life_file_begin(directory, 0));
    CU_ASSERT_EQUAL(rmdir(directory), 0); /* nothing is left there */
    cannot_listen = false;
}

/* The next ones. */
static int failing_unlinks, failing_renames, failing_times;

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path) {
    errno = EIO;
    return failing_unlinks > 0 && failing_unlinks-- ? -1 : __real_unlink(path);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to) {
    errno = EIO;
    return failing_renames > 0 && failing_renames-- ? -1 : __real_rename(from, to);
}

int __real_utimensat(int folder, const char *name, const struct timespec times[2], int flags);
int __wrap_utimensat(int folder, const char *name, const struct timespec times[2], int flags);
int __wrap_utimensat(int folder, const char *name, const struct timespec times[2], int flags) {
    errno = EIO;
    return failing_times > 0 && failing_times-- ? -1 : __real_utimensat(folder, name, times, flags);
}

/* Of the last rank to end no other one removes what is left. */
TEST("a call on the file that fails once") {
    struct stat about;
    char place[] = "/tmp/symm-life-XXXXXX";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(place));
    failing_times = 1;
    sm_life_file *file = sm_life_file_begin(place, 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(failing_times, 0);
    CU_ASSERT_EQUAL(count_files(place, '\0'), 1);
    CU_ASSERT(lstat(sm_life_file_path(file), &about) == 0 && sm_life_is_unsettled(&about));
    failing_times = 1;
    sm_life_file_settle(file);
    CU_ASSERT_EQUAL(failing_times, 0);
    CU_ASSERT(lstat(sm_life_file_path(file), &about) == 0 && !sm_life_is_unsettled(&about));
    failing_times = 1;
    CU_ASSERT_TRUE(sm_life_unsettle(sm_life_file_path(file)));
    CU_ASSERT(lstat(sm_life_file_path(file), &about) == 0 && sm_life_is_unsettled(&about));
    failing_unlinks = 1;
    sm_life_file_end(file);
    CU_ASSERT_EQUAL(failing_unlinks, 0);
    CU_ASSERT_EQUAL(count_files(place, '\0'), 0);
    CU_ASSERT_EQUAL(rmdir(place), 0);
}

/* Then there is none, and nothing is left. */
TEST("a file that cannot be made") {
    char place[] = "/tmp/symm-life-XXXXXX";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(place));
    failing_times = 2;
    CU_ASSERT_PTR_NULL(sm_life_file_begin(place, 1));
    failing_renames = 1;
    CU_ASSERT_PTR_NULL(sm_life_file_begin(place, 1));
    CU_ASSERT_EQUAL(failing_times + failing_renames, 0);
    CU_ASSERT_EQUAL(rmdir(place), 0);
}

static void age(const char *path, time_t seconds) {
    struct stat file;
    CU_ASSERT_EQUAL_FATAL(lstat(path, &file), 0);
    const struct timespec times[2] = {file.st_atim, {.tv_sec = file.st_mtim.tv_sec - seconds}};
    CU_ASSERT_EQUAL(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

/* SM-EXCHANGE-23: another rank clears the directory before anybody has looked. */
TEST("by a file that was swept") {
    char place[] = "/tmp/symm-life-XXXXXX";
    symmem_store *store = NULL;
    sm_liveness *sweeper = NULL;
    kernel(true, true);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(place));
    process it = start(place), living = start(place), stranger = start(place);
    it.identity.life[0] ^= 1;
    it.identity.net_namespace++;
    sm_liveness *liveness = watch(&it);
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, &sweeper), SYMMEM_OK);
    sm_liveness_read(liveness, store, "w");
    sm_liveness_read(sweeper, store, "w");
    put_identity(store, &it);
    end(&it);
    end(&stranger);
    age(stranger.identity.life_file, 7200);
    sm_ipc_sweep(place, sweeper);
    CU_ASSERT(access(it.identity.life_file, F_OK) != 0 && errno == ENOENT);
    CU_ASSERT_TRUE(is_lost_soon(liveness));
    CU_ASSERT_EQUAL(access(living.identity.life_file, F_OK), 0);
    /* Another store's stays, for an hour from the first look on. */
    for (int sweeps = 0; sweeps < 3; sweeps++) {
        sm_ipc_sweep(place, sweeps == 1 ? NULL : sweeper);
        CU_ASSERT_EQUAL(access(stranger.identity.life_file, F_OK), 0);
    }
    age(stranger.identity.life_file, 3500);
    sm_ipc_sweep(place, sweeper);
    CU_ASSERT_EQUAL(access(stranger.identity.life_file, F_OK), 0);
    age(stranger.identity.life_file, 200);
    sm_ipc_sweep(place, sweeper);
    CU_ASSERT(access(stranger.identity.life_file, F_OK) != 0 && errno == ENOENT);
    /* A later process of that rank's number is not said to have ended. */
    sm_liveness_learn(liveness, 1, &living.identity);
    CU_ASSERT_TRUE(stays_alive(liveness));
    end(&living);
    CU_ASSERT_EQUAL(unlink(living.identity.life_file), 0);
    CU_ASSERT_EQUAL(rmdir(place), 0);
    sm_liveness_destroy(liveness);
    sm_liveness_destroy(sweeper);
    symmem_store_close(store);
    kernel(false, false);
}

/* A name that is free can be taken by anybody. */
TEST("another user's answer is none") {
    kernel(true, true);
    process it = start(NULL);
    sm_liveness *liveness = watch(&it);
    CU_ASSERT_TRUE(stays_alive(liveness));
    says_another_user = true;
    CU_ASSERT_TRUE(is_lost_soon(liveness));
    sm_liveness_destroy(liveness);
    end(&it);
    kernel(false, false);
}

/* A child of its would otherwise keep its socket. */
TEST("a fork is not its parent") {
    kernel(true, true);
    process it = start(NULL);
    sm_liveness *liveness = watch(&it);
    tell(&it, AND_FORK);
    CU_ASSERT_TRUE(stays_alive(liveness));
    end(&it);
    CU_ASSERT_TRUE(is_lost_soon(liveness));
    sm_liveness_destroy(liveness);
    kernel(false, false);
}

/* The process closes its socket and lives. The store tells why. */
TEST("another program, and a context that has ended") {
    for (int is_here = 0; is_here < 2; is_here++) {
        for (int execs = 0; execs < 2; execs++) {
            symmem_store *store = NULL;
            process it = start(NULL);
            it.identity.pid_namespace -= (uint64_t)is_here;
            sm_liveness *liveness = watch(&it);
            CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
            sm_liveness_read(liveness, store, "w");
            put_identity(store, &it);
            CU_ASSERT_TRUE(stays_alive(liveness));
            if (!execs)
                CU_ASSERT_EQUAL(symmem_store_remove(store, "w/id/1", 1000), SYMMEM_OK);
            tell(&it, execs ? AND_EXEC : AND_END_LIFE);
            bool lost = execs ? is_lost_soon(liveness) : !stays_alive(liveness);
            CU_ASSERT_EQUAL(lost, execs != 0);
            CU_ASSERT_FALSE(!execs && sm_liveness_is_ending(liveness, &it.identity));
            end(&it);
            CU_ASSERT_TRUE(is_lost_soon(liveness));
            sm_liveness_destroy(liveness);
            symmem_store_close(store);
        }
    }
}

TEST("nothing is kept") {
    process it = start(NULL);
    int before = dup(0);
    close(before);
    for (int i = 0; i < 5; i++) {
        sm_liveness *liveness = watch(&it);
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
        sm_liveness_destroy(liveness);
    }
    int after = dup(0);
    close(after);
    CU_ASSERT_EQUAL(before, after);
    end(&it);
}

/* A pidfd that was opened by number is the process's only if the same process answers once more. */
TEST("a number that another process has by now") {
    static const struct {
        int moves_on;
        bool changes_hands, holds;
    } rows[] = {{0, false, true}, {1, false, false}, {0, true, false}};
    process it = start(NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        sm_life_answer answer;
        kernel(true, false);
        moves_on = rows[i].moves_on;
        changes_hands = rows[i].changes_hands;
        sm_life_ask(&it.identity, true, &answer);
        CU_ASSERT_EQUAL(answer.by_name, SM_LIFE_LIVES);
        CU_ASSERT_EQUAL(answer.pidfd >= 0, rows[i].holds);
        if (answer.pidfd >= 0)
            close(answer.pidfd);
    }
    moves_on = 0;
    changes_hands = false;
    kernel(false, false);
    end(&it);
}

/* One is put by for this: the process is held all the same, and its end seen. */
TEST("no descriptor for a look") {
    static const int errors[] = {0, EMFILE, ENFILE};
    for (int i = 0; i < 3; i++) {
        struct rlimit old;
        process it = start(NULL);
        sm_liveness *liveness = watch(&it);
        CU_ASSERT_EQUAL(getrlimit(RLIMIT_NOFILE, &old), 0);
        const int next = dup(0);
        close(next);
        const struct rlimit tight = {.rlim_cur = (rlim_t)next, .rlim_max = old.rlim_max};
        if (errors[i] == 0)
            CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &tight), 0);
        peer_pidfd_error = errors[i];
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
        CU_ASSERT_TRUE(sm_liveness_sees(liveness, 1));
        CU_ASSERT_EQUAL(peer_pidfd_error, 0);
        CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &old), 0);
        end(&it);
        CU_ASSERT_TRUE(is_lost_soon(liveness));
        sm_liveness_destroy(liveness);
    }
}
