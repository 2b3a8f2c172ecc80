/* SPDX-License-Identifier: BSD-3-Clause */
/* The descriptors of the rank that serves a TCP store: too few, taken by strangers, closed. */
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "resources.h"
#include "tcp_help.h"

#define LIMIT_MS 10000u

/* Closes what its parent had open, of which a device's driver may have a hundred. */
static void leave_open(int only) {
    for (int fd = 3; fd < 4096; fd++)
        if (fd != only)
            close(fd);
}

/* Rank 0 in a process of its own, which may have few descriptors. */
static pid_t in_child(struct tk *t, const char *address,
                      int (*body)(const char *address, int ready)) {
    int ready[2];
    char byte = 0;
    TK_REQUIRE(t, pipe(ready) == 0);
    const pid_t pid = fork();
    TK_REQUIRE(t, pid >= 0);
    if (pid == 0) {
        alarm(20);
        leave_open(ready[1]);
        _exit(body(address, ready[1]));
    }
    close(ready[1]);
    struct pollfd said = {.fd = ready[0], .events = POLLIN};
    TK_CHECK(t, poll(&said, 1, 10000) == 1 && read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    return pid;
}

static bool limit_descriptors(rlim_t most) {
    const struct rlimit few = {.rlim_cur = most, .rlim_max = most};
    return setrlimit(RLIMIT_NOFILE, &few) == 0;
}

static int serve_strangers(const char *address, int ready) {
    symmem_store *store = NULL;
    if (!limit_descriptors(64) || symmem_store_open(address, 0, 2, LIMIT_MS, &store) != SYMMEM_OK ||
        write(ready, "r", 1) != 1)
        return 1;
    for (;;)
        pause();
}

TK_TEST(store_tcp, strangers_leave_descriptors, "SM-STORE-24", .max_ranks = 1,
        .flags = TK_NO_CONTEXT | TK_PROCESS_ONLY) {
    char address[ADDRESS_BYTES];
    symmem_store *client = NULL;
    int silent[100];
    const uint16_t port = tcp_free_port(t);
    tcp_address(address, port, "w");
    const pid_t pid = in_child(t, address, serve_strangers);
    for (size_t i = 0; i < LENGTH(silent); i++)
        silent[i] = tcp_connect(t, port);
    const uint64_t begin_ms = tk_now_ms();
    TK_OK(t, symmem_store_open(address, 1, 2, LIMIT_MS, &client));
    TK_OK(t, symmem_store_set(client, "k", "", 0, LIMIT_MS));
    TK_WITHIN(t, 1000, begin_ms);
    TK_CHECK(t, kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    for (size_t i = 0; i < LENGTH(silent); i++)
        close(silent[i]);
    symmem_store_close(client);
}

static int serve_too_many(const char *address, int ready) {
    symmem_store *store = NULL;
    const bool is_refused = limit_descriptors(48) &&
                            symmem_store_open(address, 0, 64, LIMIT_MS, &store) == SYMMEM_LIMIT &&
                            last_record().expected >= 64 + 4 && last_record().actual == 48 &&
                            symmem_store_open(address, 0, 16, LIMIT_MS, &store) == SYMMEM_OK;
    return is_refused && write(ready, "r", 1) == 1 ? 0 : 1;
}

TK_TEST(store_tcp, world_needs_descriptors, "SM-STORE-25", .max_ranks = 1,
        .flags = TK_NO_CONTEXT | TK_PROCESS_ONLY) {
    char address[ADDRESS_BYTES];
    int status = -1;
    tcp_address(address, tcp_free_port(t), "w");
    const pid_t pid = in_child(t, address, serve_too_many);
    TK_CHECK(t, waitpid(pid, &status, 0) == pid && status == 0);
}

/* A program that makes itself a daemon, say. */
static int close_all(const char *address, int ready) {
    symmem_store *store = NULL;
    int64_t sum = 0;
    struct rusage used;
    if (symmem_store_open(address, 0, 2, LIMIT_MS, &store) != SYMMEM_OK ||
        write(ready, "r", 1) != 1 || symmem_store_wait(store, "here", LIMIT_MS) != SYMMEM_OK)
        return 1;
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    const uint64_t begin_ms = tk_now_ms();
    while (symmem_store_add(store, "n", 1, &sum, LIMIT_MS) == SYMMEM_OK)
        if (tk_now_ms() - begin_ms > 5000)
            return 2;
    if (last_record().message[0] == '\0')
        return 3;
    tk_sleep_ms(2000);
    symmem_store_close(store);
    return getrusage(RUSAGE_SELF, &used) == 0 && used.ru_utime.tv_sec + used.ru_stime.tv_sec < 1
               ? 0
               : 4;
}

TK_TEST(store_tcp, server_loses_its_descriptors, "SM-STORE-26", .max_ranks = 1,
        .flags = TK_NO_CONTEXT | TK_PROCESS_ONLY) {
    char address[ADDRESS_BYTES];
    symmem_store *client = NULL;
    int status = -1;
    tcp_address(address, tcp_free_port(t), "w");
    const pid_t pid = in_child(t, address, close_all);
    TK_REQUIRE_OK(t, symmem_store_open(address, 1, 2, LIMIT_MS, &client));
    const symmem_status said = symmem_store_set(client, "here", "", 0, LIMIT_MS);
    TK_CHECK(t, said == SYMMEM_OK || said == SYMMEM_PEER_LOST); /* rank 0 may be quicker */
    TK_FAILS(t, PEER_LOST, symmem_store_wait(client, "never", LIMIT_MS));
    TK_CHECK(t, waitpid(pid, &status, 0) == pid);
    TK_EQ_INT(t, 0, WEXITSTATUS(status));
    symmem_store_close(client);
}
