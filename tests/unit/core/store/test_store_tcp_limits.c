/* SPDX-License-Identifier: BSD-3-Clause */
/* The server of a TCP store in need: strangers, too few descriptors, calls that fail, descriptors
 * that the process closes. */
#include "store_files.h"
#include "tcp_world.h"
#include "last_record.h"

#include <fcntl.h>

/* --- strangers, and a process with few descriptors -------------------------------------------- */

/* A process that says nothing on as many connections as it can make, until `stay` ends. */
static pid_t start_strangers(int count, const int ready[2], const int stay[2]) {
    const pid_t pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid != 0)
        return pid;
    char byte;
    close(stay[1]);
    (void)alarm(20);
    for (int i = 0, fd; i < count; i++)
        (void)sm_tcp_connect(&place.addresses[0], limit(), &fd);
    if (write(ready[1], "r", 1) == 1)
        (void)!read(stay[0], &byte, 1);
    _exit(0);
}

static int count_fds(void) {
    int count = 0;
    for (int fd = 0; fd < 200; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* [SM-STORE-24] */
TEST("strangers leave descriptors to the process") {
    enum { ROOM = 40 };
    int listener = -1, ready[2], stay[2], own[ROOM / 2];
    struct rlimit before, few;
    symmem_store *client = NULL;
    char byte;
    CU_ASSERT_FATAL(pipe(ready) == 0 && pipe(stay) == 0);
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &place, &listener), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)listener + ROOM;
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &few), 0);
    CU_ASSERT_EQUAL_FATAL(open_at(&place, listener, &server), SYMMEM_OK);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
    const int before_them = count_fds();
    const pid_t pid = start_strangers(100, ready, stay);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &few), 0);
    CU_ASSERT_EQUAL(read(ready[0], &byte, 1), 1);
    expect_service();
    CU_ASSERT(count_fds() - before_them <= (int)few.rlim_cur / 8);
    for (int i = 0; i < ROOM / 2; i++)
        CU_ASSERT((own[i] = dup(0)) >= 0);
    CU_ASSERT_EQUAL(open_at(&place, -1, &client), SYMMEM_OK);
    for (int i = 0; i < ROOM / 2; i++)
        close(own[i]);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
    symmem_store_close(client);
    for (int i = 0; i < 2; i++) {
        close(stay[i]);
        close(ready[i]);
    }
    CU_ASSERT_EQUAL(reap(pid), 0);
    end_server();
}

/* [SM-STORE-25] */
TEST("a world that takes more descriptors than there may be") {
    enum { RANKS = 50, NEEDED = RANKS + 4 };
    struct rlimit before, few;
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int lacking = 0; lacking < 2; lacking++) {
        symmem_store *store = NULL;
        sm_tcp_opening opening = {.place = &place, .world_size = RANKS, .incarnation = 1};
        CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &place, &opening.listener), SYMMEM_OK);
        few = before;
        few.rlim_cur = (rlim_t)(opening.listener + NEEDED - lacking);
        opening.deadline_ns = limit();
        CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &few), 0);
        const symmem_status status = sm_store_open_tcp(&opening, &store);
        CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
        CU_ASSERT_EQUAL(status, lacking == 0 ? SYMMEM_OK : SYMMEM_LIMIT);
        if (status == SYMMEM_OK)
            symmem_store_close(store);
    }
    CU_ASSERT_EQUAL(last_record().expected, last_record().actual + 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "RLIMIT_NOFILE"));
}

static void connect_without_descriptors(int error) {
    symmem_store *client = NULL;
    arm((fault){.call = "accept4", .error = error, .others = true});
    CU_ASSERT_EQUAL(open_at(&place, -1, &client), SYMMEM_OK);
    CU_ASSERT_TRUE(disarm());
    symmem_store_close(client);
}

TEST("no descriptor for a connection") {
    bool gave_way = false;
    char byte;
    begin_server();
    connect_without_descriptors(EMFILE); /* it waits for one */
    connect_without_descriptors(EAGAIN); /* the connection has gone again */
    /* Sooner than a stranger's time is over: once in a few tries, on a busy machine. */
    for (int i = 0; i < 5 && !gave_way; i++) {
        const uint64_t begin_ns = sm_now_ns();
        const int stranger = connect_raw();
        usleep(20000);
        connect_without_descriptors(EMFILE);
        AWAIT(500, __real_recv(stranger, &byte, 1, MSG_DONTWAIT) == 0);
        gave_way = __real_recv(stranger, &byte, 1, MSG_DONTWAIT) == 0 &&
                   sm_now_ns() - begin_ns < SM_TCP_HELLO_MS * 1000000ull;
        close(stranger);
    }
    CU_ASSERT_TRUE(gave_way);
    end_server();
}

/* --- calls of the server that fail ------------------------------------------------------------ */

TEST("a connection that the server cannot keep is made again") {
    static const char *const calls[] = {"calloc", "epoll_ctl"};
    begin_server();
    for (size_t i = 0; i < 2; i++) {
        symmem_store *client = NULL;
        arm((fault){.call = calls[i], .error = ENOMEM, .others = true});
        CU_ASSERT_EQUAL(open_at(&place, -1, &client), SYMMEM_OK);
        CU_ASSERT_TRUE(disarm());
        symmem_store_close(client);
    }
    end_server();
}

TEST("calls of the server that fail") {
    static const struct {
        const char *call;
        int error;
        symmem_status set, get;
    } cases[] = {{"malloc", ENOMEM, SYMMEM_OUT_OF_MEMORY, SYMMEM_OUT_OF_MEMORY},
                 {"realloc", ENOMEM, SYMMEM_PEER_LOST, SYMMEM_PEER_LOST},
                 {"send", EPIPE, SYMMEM_PEER_LOST, SYMMEM_PEER_LOST},
                 {"send", EAGAIN, SYMMEM_OK, SYMMEM_OK},
                 {"recv", EAGAIN, SYMMEM_OK, SYMMEM_OK},
                 {"epoll_wait", EINTR, SYMMEM_OK, SYMMEM_OK}};
    static char value[5000], found[5000];
    size_t bytes = 0;
    begin_server();
    CU_ASSERT_EQUAL(symmem_store_set(server, "k", value, sizeof(value), LIMIT_MS), SYMMEM_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const fault next = {.call = cases[i].call, .error = cases[i].error, .others = true};
        arm(next);
        CU_ASSERT_EQUAL(symmem_store_set(server, "k", value, sizeof(value), LIMIT_MS),
                        cases[i].set);
        AWAIT(3000, has_struck()); /* it may wait again only after it has answered */
        CU_ASSERT_TRUE(disarm());
        expect_service(); /* by a connection that is kept */
        arm(next);
        CU_ASSERT_EQUAL(symmem_store_get(server, "k", found, sizeof(found), &bytes, LIMIT_MS),
                        cases[i].get);
        AWAIT(3000, has_struck());
        CU_ASSERT_TRUE(disarm());
        expect_service();
    }
    arm((fault){.call = "malloc", .error = ENOMEM, .skips = 1, .others = true}); /* of its key */
    CU_ASSERT_EQUAL(symmem_store_set(server, "new", "v", 1, LIMIT_MS), SYMMEM_OUT_OF_MEMORY);
    CU_ASSERT_TRUE(disarm());
    CU_ASSERT_EQUAL(symmem_store_get(server, "new", found, 1, &bytes, LIMIT_MS), SYMMEM_NOT_FOUND);
    end_server();
}

/* Rank 0 with each call that opening makes failing once: a record, and nothing is left. */
TEST("opening with each call failing once") {
    int failed = 0;
    for (int nth = 0;; nth++) {
        sm_tcp_place at;
        symmem_store *store = NULL;
        int listener = -1;
        CU_ASSERT_FATAL(nth < 100);
        const int fds = open_fds();
        arm((fault){.error = ENOMEM, .skips = nth});
        symmem_status status = sm_tcp_listen_anywhere(true, &at, &listener);
        if (status == SYMMEM_OK)
            status = open_at(&at, listener, &store);
        const bool struck = disarm();
        if (status == SYMMEM_OK)
            symmem_store_close(store);
        else
            CU_ASSERT(last_record().status == status && last_record().message[0] != '\0');
        CU_ASSERT_EQUAL(open_fds(), fds);
        failed += status != SYMMEM_OK;
        if (!struck)
            break;
    }
    CU_ASSERT(failed >= 12);
}

/* --- descriptors that the process closes ------------------------------------------------------ */

/* Whether it is one of the server's: a sanitizer has none of these. */
static bool is_servers(int fd) {
    char name[64], link[64] = "";
    struct sockaddr_in own;
    socklen_t bytes = sizeof(own);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(name, link, sizeof(link) - 1);
    if (length > 0 && strncmp(link, "anon_inode:[event", 17) == 0)
        return true;
    return getsockname(fd, (struct sockaddr *)&own, &bytes) == 0 && own.sin_family == AF_INET &&
           own.sin_port == ((struct sockaddr_in *)&place.addresses[0].address)->sin_port;
}

/* [SM-STORE-26] */
TEST("the process closes the server's descriptors, and opens others") {
    bool closed[256] = {false};
    int count = 0;
    const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    begin_server();
    const int fd = member();
    for (int at = 3; at < 256; at++)
        closed[at] = is_servers(at);
    for (int at = 3; at < 256; at++) { /* so that each number is another file's */
        count += closed[at];
        CU_ASSERT(!closed[at] || dup2(other, at) == at);
    }
    CU_ASSERT_EQUAL(count, 5); /* epoll's, eventfd's, the one that listens, two clients' */
    AWAIT(4000, symmem_store_set(server, "k", "", 0, LIMIT_MS) == SYMMEM_SYSTEM);
    EXPECT_FAIL(symmem_store_set(server, "k", "", 0, LIMIT_MS), SYMMEM_SYSTEM, "store_set");
    CU_ASSERT_STRING_EQUAL(last_record().stage, "store server");
    CU_ASSERT_TRUE(ends(fd));
    symmem_store_close(server);
    for (int at = 3; at < 256; at++) {
        CU_ASSERT(!closed[at] || fcntl(at, F_GETFD) >= 0);
        if (closed[at])
            close(at);
    }
    close(other);
}

TEST("the process closes what wakes the server") {
    begin_server();
    for (int at = 3; at < 256; at++) {
        char name[64], link[64] = "";
        snprintf(name, sizeof(name), "/proc/self/fd/%d", at);
        if (readlink(name, link, sizeof(link) - 1) > 0 && strcmp(link, "anon_inode:[eventfd]") == 0)
            close(at);
    }
    const uint64_t begin_ns = sm_now_ns();
    end_server(); /* that it is to end is noticed at the next look */
    CU_ASSERT(sm_now_ns() - begin_ns < 5000000000ull);
}

TEST("a server that meets a closed descriptor ends") {
    static const fault cases[] = {{"epoll_wait", EBADF, 0, true},
                                  {"recv", EBADF, 0, true},
                                  {"recv", ENOTSOCK, 0, true},
                                  {"send", EBADF, 0, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin_server();
        symmem_store *own = server;
        const int fd = member();
        arm(cases[i]);
        (void)!symmem_store_set(own, "k", "", 0, LIMIT_MS);
        AWAIT(3000, has_struck());
        CU_ASSERT_TRUE(disarm());
        AWAIT(3000, symmem_store_set(own, "k", "", 0, LIMIT_MS) == SYMMEM_SYSTEM);
        EXPECT_FAIL(symmem_store_set(own, "k", "", 0, LIMIT_MS), SYMMEM_SYSTEM, "store_set");
        CU_ASSERT(last_record().system_errno == cases[i].error && last_record().failed_rank == 0);
        CU_ASSERT_STRING_EQUAL(last_record().stage, "store server");
        CU_ASSERT_TRUE(ends(fd)); /* the others are told as well */
        symmem_store_close(own);
    }
    static const int of_accept[] = {EBADF, ENOTSOCK};
    for (size_t i = 0; i < 2; i++) {
        symmem_store *client = NULL;
        begin_server();
        arm((fault){.call = "accept4", .error = of_accept[i], .others = true});
        EXPECT_FAIL(open_at(&place, -1, &client), SYMMEM_TIMEOUT, "store_open");
        CU_ASSERT_TRUE(disarm());
        EXPECT_FAIL(symmem_store_set(server, "k", "", 0, LIMIT_MS), SYMMEM_SYSTEM, "store_set");
        symmem_store_close(server);
    }
}
