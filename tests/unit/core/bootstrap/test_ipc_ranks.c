/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors between ranks: gathered, broadcast, sent to one; absent, dying and distant ranks. */
#include "bootstrap/session_fds.h"
#include "session_ranks.h"
#include "unit.h"
#include "last_record.h"

#include <sys/socket.h>

/* A file whose size says whose it is. */
static int own_file(int32_t rank, int index) {
    int fd = memfd_create("rank", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, 1 + rank * 10 + index) != 0)
        return -1;
    return fd;
}

static bool is_file_of(int fd, int32_t rank, int index) {
    struct stat about;
    return fstat(fd, &about) == 0 && about.st_size == 1 + rank * 10 + index &&
           (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

static int gather_fds(test_rank *self, int count, uint32_t timeout_ms, symmem_status *status_p) {
    int own[4], all[4 * RANKS_MAX];
    for (int i = 0; i < count; i++)
        own[i] = self->rank == 1 && i == 0 ? -1 : own_file(self->rank, i);
    *status_p =
        sm_session_all_gather_fds(self->session, "op", own, count, all, sm_deadline_ns(timeout_ms));
    bool right = true;
    for (int at = 0; at < count * self->world_size; at++) {
        int32_t rank = at / count;
        int index = at % count;
        if (*status_p != SYMMEM_OK || (rank == 1 && index == 0))
            right = right && all[at] == -1;
        else
            right = right && is_file_of(all[at], rank, index);
        if (all[at] >= 0)
            close(all[at]);
    }
    for (int i = 0; i < count; i++)
        if (own[i] >= 0)
            close(own[i]);
    EXPECT(right);
    return 0;
}

static int body_fds(test_rank *self) {
    symmem_status status;
    for (int count = 1; count <= 4; count++) {
        EXPECT(gather_fds(self, count, 10000, &status) == 0);
        EXPECT(status == SYMMEM_OK);
    }
    for (int root = 0; root < self->world_size; root++) {
        int file = own_file(self->rank, 0), got = -1;
        status =
            sm_session_broadcast_fd(self->session, "op", root, file, &got, sm_deadline_ns(10000));
        close(file);
        EXPECT(status == SYMMEM_OK && is_file_of(got, root, 0));
        close(got);
    }
    int got = 5;
    EXPECT(sm_session_broadcast_fd(self->session, "op", 0, -1, &got, sm_deadline_ns(10000)) ==
           SYMMEM_OK);
    EXPECT(got == -1);
    if (self->world_size < 2)
        return 0;
    /* In a ring, twice, both ends in the same order. */
    int32_t next = (self->rank + 1) % self->world_size;
    int32_t last = (self->rank + self->world_size - 1) % self->world_size;
    for (int i = 0; i < 2; i++) {
        int file = own_file(self->rank, i);
        status = sm_session_send_fd(self->session, next, file, sm_deadline_ns(10000));
        close(file);
        EXPECT(status == SYMMEM_OK);
    }
    for (int i = 0; i < 2; i++) {
        EXPECT(sm_session_recv_fd(self->session, last, &got, sm_deadline_ns(10000)) == SYMMEM_OK);
        EXPECT(is_file_of(got, last, i));
        close(got);
    }
    EXPECT(sm_session_recv_fd(self->session, 99, &got, 0) == SYMMEM_OUT_OF_RANGE);
    EXPECT(sm_session_send_fd(self->session, -1, 0, 0) == SYMMEM_OUT_OF_RANGE);
    return 0;
}

TEST("socket files") {
    char path[FOLDER_BYTES];
    CU_ASSERT_FATAL(make_folder(path));
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    test_rank ranks[3];
    prepare_ranks(ranks, 3, store, body_fds, NULL);
    for (int i = 0; i < 3; i++)
        ranks[i].socket_dir = path;
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    CU_ASSERT_EQUAL(count_files(path, '\0'), 0);
    symmem_store_close(store);
    rmdir(path);
}

static atomic_int present, gone_on; /* ranks, of those that do not wait */

/* A rank that does not come, and one that dies. */
static int body_absent(test_rank *self) {
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    symmem_status status;
    if (self->rank == 2) {
        await_counter(&gone_on, 2);
    } else {
        atomic_fetch_add(&present, 1);
        await_counter(&present, 2); /* or the other one may be missing, too */
        EXPECT(gather_fds(self, 2, 1000, &status) == 0);
        atomic_fetch_add(&gone_on, 1);
        EXPECT(status == SYMMEM_TIMEOUT);
        EXPECT(last_record().failed_rank == 2); /* rank 1 knows of rank 0 alone, which says it */
        EXPECT(sm_session_id(self->session) == 0);
    }
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    EXPECT(gather_fds(self, 2, 10000, &status) == 0);
    EXPECT(status == SYMMEM_OK);
    return 0;
}

static atomic_int *through; /* in memory that the processes share */

static int body_dies(test_rank *self) {
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    if (self->rank == *(const int32_t *)self->arg) {
        sm_sleep_ns(50000000);
        raise(SIGKILL);
    }
    symmem_status status;
    uint64_t start_ns = sm_now_ns();
    EXPECT(gather_fds(self, 1, 20000, &status) == 0);
    EXPECT(status == SYMMEM_PEER_LOST);
    EXPECT(last_record().failed_rank == *(const int32_t *)self->arg);
    /* Far from the limit; the suite has the bound. */
    EXPECT(sm_now_ns() - start_ns < 5000000000);
    leave_together(through, 2);
    return 0;
}

TEST("absent and dying ranks") {
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    test_rank ranks[3];
    prepare_ranks(ranks, 3, store, body_absent, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);
    for (int32_t victim = 0; victim < 2; victim++) {
        char path[FOLDER_BYTES];
        CU_ASSERT_FATAL(make_folder(path));
        pid_t pids[3];
        atomic_store(through, 0);
        prepare_ranks(ranks, 3, NULL, body_dies, &victim);
        for (int i = 0; i < 3; i++)
            pids[i] = fork_rank(&ranks[i], path);
        for (int i = 0; i < 3; i++)
            CU_ASSERT_EQUAL(reap(pids[i]), i == victim ? 1000 + SIGKILL : 0);
        remove_tree(path);
    }
}

/* Out of reach, on another host or in another network: refused at once, with the ranks' names. */
static int refused_at_once(test_rank *self) {
    int fd = 0, all[3], got;
    uint64_t start_ns = sm_now_ns();
    EXPECT(sm_session_all_gather_fds(self->session, "op", &fd, 1, all, sm_deadline_ns(20000)) ==
           SYMMEM_UNREACHABLE);
    EXPECT(last_is_missing(2) == (self->rank != 2));
    EXPECT(last_record().missing_count == (self->rank == 2 ? 2u : 1u) && all[0] == -1);
    EXPECT(sm_session_broadcast_fd(self->session, "op", 0, fd, &got, sm_deadline_ns(20000)) ==
           SYMMEM_UNREACHABLE);
    EXPECT(sm_now_ns() - start_ns < 10000000000);
    if (self->rank != 2)
        EXPECT(sm_session_send_fd(self->session, 2, fd, 0) == SYMMEM_UNREACHABLE);
    /* The session is up all the same. */
    EXPECT(sm_session_agree(self->session, "op", "end", SYMMEM_OK, sm_deadline_ns(20000)) ==
           SYMMEM_OK);
    return 0;
}

static int body_hosts(test_rank *self) {
    if (self->rank == 2)
        self->identity.boot_id++;
    return refused_at_once(self);
}

/* These sockets have no file names, so it is the network that counts, not the file system. */
static int body_networks(test_rank *self) {
    self->identity.mount_namespace += (uint64_t)self->rank;
    if (self->rank == 2)
        self->identity.net_namespace++;
    return refused_at_once(self);
}

/* Rank 2's socket has no file name and is in another network namespace. No rank reaches it,
 * although it would reach the others, whose sockets have names. It is told all the same, and
 * soon. */
static int body_hidden(test_rank *self) {
    int fd = 0, all[3], got = -1;
    if (self->rank == 2)
        self->identity.net_namespace++;
    EXPECT(sm_session_all_gather_fds(self->session, "op", &fd, 1, all, sm_deadline_ns(15000)) ==
           SYMMEM_UNREACHABLE);
    EXPECT(last_is_missing(2) && last_record().missing_count == 1);
    EXPECT(sm_session_broadcast_fd(self->session, "op", 1, fd, &got, sm_deadline_ns(15000)) ==
           SYMMEM_UNREACHABLE);
    EXPECT(all[0] == -1 && got == -1);
    /* Between two the direction counts. */
    if (self->rank == 2) {
        EXPECT(sm_session_send_fd(self->session, 0, fd, sm_deadline_ns(15000)) == SYMMEM_OK);
        EXPECT(sm_session_recv_fd(self->session, 1, &got, sm_deadline_ns(15000)) ==
               SYMMEM_UNREACHABLE);
        EXPECT(last_record().failed_rank == 1);
    } else if (self->rank == 0) {
        EXPECT(sm_session_recv_fd(self->session, 2, &got, sm_deadline_ns(15000)) == SYMMEM_OK);
        close(got);
    } else {
        EXPECT(sm_session_send_fd(self->session, 2, fd, 0) == SYMMEM_UNREACHABLE);
    }
    EXPECT(sm_session_agree(self->session, "op", "end", SYMMEM_OK, sm_deadline_ns(15000)) ==
           SYMMEM_OK);
    return 0;
}

TEST("one out of reach that reaches others") {
    char path[FOLDER_BYTES];
    symmem_store *store = NULL;
    test_rank ranks[3];
    CU_ASSERT_FATAL(make_folder(path));
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    prepare_ranks(ranks, 3, store, body_hidden, NULL);
    uint64_t start_ns = sm_now_ns(); /* by the ranks' clock */
    ranks[0].socket_dir = ranks[1].socket_dir = path;
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    CU_ASSERT(sm_now_ns() - start_ns < 5000000000);
    symmem_store_close(store);
    remove_tree(path);
}

static int body_not_up(test_rank *self) {
    int got = -1;
    EXPECT(sm_session_send_fd(self->session, 0, 0, 0) == SYMMEM_INVALID_ARGUMENT);
    EXPECT(sm_session_recv_fd(self->session, 0, &got, 0) == SYMMEM_INVALID_ARGUMENT);
    return 0;
}

/* A bad descriptor fails at its rank only, and counts differ nowhere. */
static int body_bad_fd(test_rank *self) {
    int own = self->rank == 2 ? 9999 : own_file(self->rank, 0), all[3];
    symmem_status status =
        sm_session_all_gather_fds(self->session, "op", &own, 1, all, sm_deadline_ns(3000));
    EXPECT(status == (self->rank == 2 ? SYMMEM_SYSTEM : SYMMEM_OK));
    EXPECT(self->rank == 2 || all[2] == -1);
    for (int i = 0; i < 3; i++)
        if (all[i] >= 0)
            close(all[i]);
    if (self->rank != 2)
        close(own);
    EXPECT(sm_session_agree(self->session, "op", "end", status, sm_deadline_ns(3000)) ==
           SYMMEM_SYSTEM);
    EXPECT(last_record().failed_rank == 2 && last_record().system_errno == EBADF);
    /* The root's own. */
    own = self->rank == 0 ? 9999 : -1;
    status = sm_session_all_gather_fds(self->session, "op", &own, 1, all, sm_deadline_ns(3000));
    EXPECT(status == SYMMEM_SYSTEM);
    /* No rank leaves while others may still send to it. */
    EXPECT(sm_session_agree(self->session, "op", "end", status, sm_deadline_ns(3000)) ==
           SYMMEM_SYSTEM);
    EXPECT(last_record().failed_rank == 0);
    return 0;
}

TEST("refusals") {
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    test_rank ranks[3];
    prepare_ranks(ranks, 3, store, body_hosts, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    prepare_ranks(ranks, 3, store, body_networks, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    prepare_ranks(ranks, 3, store, body_bad_fd, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    prepare_ranks(ranks, 2, store, body_not_up, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    symmem_store_close(store);
}

/* Messages from a rank to itself: more than a socket's queue holds, in order. Descriptors that are
 * not received are closed. */
static int body_to_itself(test_rank *self) {
    int32_t own = self->rank;
    int got = -2;
    if (self->world_size > 1)
        EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    EXPECT(sm_session_recv_fd(self->session, own, &got, sm_deadline_ns(10000)) == SYMMEM_TIMEOUT);
    EXPECT(got == -2 && last_record().failed_rank == own);
    EXPECT(sm_session_send_fd(self->session, own, 9999, 0) == SYMMEM_SYSTEM);
    for (int i = 0; i < 30; i++) {
        int file = i == 7 ? -1 : own_file(self->rank, i);
        EXPECT(sm_session_send_fd(self->session, own, file, sm_deadline_ns(10000)) == SYMMEM_OK);
        if (file >= 0)
            close(file);
    }
    for (int i = 0; i < 28; i++) {
        EXPECT(sm_session_recv_fd(self->session, own, &got, 0) == SYMMEM_OK);
        EXPECT(i == 7 ? got == -1 : is_file_of(got, own, i));
        EXPECT(got < 0 || (fcntl(got, F_GETFD) & FD_CLOEXEC) != 0);
        if (got >= 0)
            close(got);
    }
    self->point_name = "ipc.recv.after";
    self->point_status = SYMMEM_LIMIT;
    atomic_store(&self->point_hits, 0);
    EXPECT(sm_session_recv_fd(self->session, own, &got, 0) == SYMMEM_LIMIT);
    EXPECT(strcmp(last_record().stage, "ipc.recv.after") == 0);
    return 0;
}

TEST("to itself") {
    test_rank ranks[3];
    int before = open_fds();
    prepare_ranks(ranks, 1, NULL, body_to_itself, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 1));
    CU_ASSERT_EQUAL(open_fds(), before);
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    prepare_ranks(ranks, 3, store, body_to_itself, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);
    CU_ASSERT_EQUAL(open_fds(), before);
}

enum { FILLED = 600 };

static int send_two(test_rank *self, int32_t source, uint64_t limit_ns) {
    for (int i = 0; self->rank == source && i < 2; i++) {
        int file = own_file(self->rank, i);
        EXPECT(sm_session_send_fd(self->session, 1, file, limit_ns) == SYMMEM_OK);
        close(file);
    }
    EXPECT(sm_session_agree(self->session, "op", "sent", SYMMEM_OK, limit_ns) == SYMMEM_OK);
    return 0;
}

/* All descriptors below a limit are taken. The number of those in `taken`; the last one is below
 * the limit. */
static int take_all(int taken[FILLED]) {
    int count = 0;
    do
        taken[count] = dup(STDIN_FILENO);
    while (taken[count++] < FILLED - 1 && count < FILLED);
    return count;
}

/* Two messages of rank 0, then two of rank 2, for whose first the receiver waits with no room. What
 * was lost is told once, to whom it was for, and the last message arrives. */
static int body_no_room(test_rank *self) {
    const uint64_t limit_ns = sm_deadline_ns(10000);
    struct rlimit limit, none;
    int got = -1, taken[FILLED];
    EXPECT(sm_session_ensure(self->session, "op", limit_ns) == SYMMEM_OK);
    EXPECT(send_two(self, 0, limit_ns) == 0 && send_two(self, 2, limit_ns) == 0);
    if (self->rank != 1)
        return sm_session_agree(self->session, "op", "end", SYMMEM_OK, limit_ns) != SYMMEM_OK;
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int count = take_all(taken);
    none = (struct rlimit){.rlim_cur = (rlim_t)taken[count - 1] + 1, .rlim_max = limit.rlim_max};
    EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    symmem_status status = sm_session_recv_fd(self->session, 2, &got, limit_ns);
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (count > 0)
        close(taken[--count]);
    EXPECT(status == SYMMEM_LIMIT && last_record().expected == 1 && last_record().actual == 0);
    EXPECT(sm_session_recv_fd(self->session, 2, &got, limit_ns) == SYMMEM_OK);
    EXPECT(is_file_of(got, 2, 1) && close(got) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(sm_session_recv_fd(self->session, 0, &got, limit_ns) == SYMMEM_LIMIT);
    EXPECT(sm_session_recv_fd(self->session, 0, &got, sm_deadline_ns(20)) == SYMMEM_TIMEOUT);
    EXPECT(sm_session_agree(self->session, "op", "end", SYMMEM_OK, limit_ns) == SYMMEM_OK);
    return 0;
}

TEST("no room for a descriptor") {
    test_rank ranks[3];
    int before = open_fds();
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    prepare_ranks(ranks, 3, store, body_no_room, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);
    CU_ASSERT_EQUAL(open_fds(), before);
}

/* The number of messages with descriptors that are refused, as if too many were in flight. */
static atomic_int refusals;

ssize_t __real_sendmsg(int fd, const struct msghdr *header, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *header, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *header, int flags) {
    if (header->msg_controllen != 0 && atomic_load(&refusals) > 0) {
        atomic_fetch_sub(&refusals, 1);
        errno = ETOOMANYREFS;
        return -1;
    }
    return __real_sendmsg(fd, header, flags);
}

/* SM-EXCHANGE-20: it passes, or the limit is the cause, though it is a peer that does not take. */
static int body_in_flight(test_rank *self) {
    const uint64_t limit_ns = sm_deadline_ns(10000);
    int all[2], got = -1, file = own_file(self->rank, 0);
    EXPECT(sm_session_ensure(self->session, "op", limit_ns) == SYMMEM_OK);
    if (self->rank == 1) {
        atomic_store(&refusals, 10);
        EXPECT(sm_session_send_fd(self->session, 0, file, limit_ns) == SYMMEM_OK);
        EXPECT(atomic_load(&refusals) == 0);
    } else {
        EXPECT(sm_session_recv_fd(self->session, 1, &got, limit_ns) == SYMMEM_OK);
        EXPECT(is_file_of(got, 1, 0) && close(got) == 0);
    }
    EXPECT(sm_session_agree(self->session, "op", "step", SYMMEM_OK, limit_ns) == SYMMEM_OK);
    if (self->rank == 1)
        atomic_store(&refusals, INT32_MAX);
    symmem_status status = sm_session_all_gather_fds(self->session, "op", &file, 1, all,
                                                     sm_deadline_ns(self->rank == 1 ? 300 : 9000));
    if (self->rank == 1)
        EXPECT(status == SYMMEM_LIMIT && last_record().system_errno == ETOOMANYREFS);
    for (int i = 0; self->rank == 0 && status == SYMMEM_OK && i < 2; i++)
        close(all[i]);
    EXPECT(sm_session_agree(self->session, "op", "step", status, limit_ns) == SYMMEM_LIMIT);
    EXPECT(last_record().failed_rank == 1);
    EXPECT(strstr(last_record().message, "RLIMIT_NOFILE") != NULL);
    atomic_store(&refusals, 0);
    close(file);
    return 0;
}

TEST("too many descriptors in flight") {
    test_rank ranks[2];
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    prepare_ranks(ranks, 2, store, body_in_flight, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    symmem_store_close(store);
}

int unit_setup(void) {
    through = shared_counters(1);
    return through == NULL;
}
