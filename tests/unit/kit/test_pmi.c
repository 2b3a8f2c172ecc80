/* SPDX-License-Identifier: BSD-3-Clause */
/* The kit's process manager, of which this process is rank 0 of two, and speaks for both. */
#include "unit_main.h"

#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../plugins/kit/pmi.h"

#define LIMIT_MS 10000

static char name[32]; /* of the socket */
static bool peer_has_manager;

static symmem_status fail(const symmem_host *host, symmem_status status, int system_errno,
                          const char *operation, const char *format, ...) {
    (void)host, (void)system_errno, (void)operation, (void)format;
    return status;
}

/* What a rank says begins with the name; behind it is whether it has a manager. */
static symmem_status all_gather(const symmem_exchange *exchange, const void *in, size_t bytes,
                                void *out) {
    const int64_t has = peer_has_manager;
    (void)exchange;
    memcpy(name, in, sizeof name);
    memcpy(out, in, bytes);
    memset((char *)out + bytes, 0, bytes);
    memcpy((char *)out + 2 * bytes - sizeof has, &has, sizeof has);
    return SYMMEM_OK;
}

static symmem_status agree(const symmem_exchange *exchange, symmem_status own, const char *stage) {
    (void)exchange, (void)stage;
    return own;
}

static const symmem_host host = {.size = sizeof(symmem_host), .fail = fail};
static const symmem_exchange exchange = {
    .size = sizeof(symmem_exchange), .world_size = 2, .all_gather = all_gather, .agree = agree};

static int connect_second(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path + 1, name, strlen(name));
    CU_ASSERT_EQUAL(connect(fd, (void *)&address,
                            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))),
                    0);
    return fd;
}

static void expect(int fd, const char *answer) {
    char text[256] = "";
    size_t held = 0;
    struct pollfd one = {.fd = fd, .events = POLLIN};
    while (held < strlen(answer) && poll(&one, 1, LIMIT_MS) == 1) {
        const ssize_t got = recv(fd, text + held, strlen(answer) - held, 0);
        if (got <= 0)
            break;
        held += (size_t)got;
    }
    CU_ASSERT_STRING_EQUAL(text, answer);
}

static void ask(int fd, const char *line, const char *answer) {
    CU_ASSERT_EQUAL(send(fd, line, strlen(line), MSG_NOSIGNAL), (ssize_t)strlen(line));
    expect(fd, answer);
}

static int open_manager(void) {
    peer_has_manager = false;
    unsetenv("PMI_FD");
    CU_ASSERT_EQUAL(symmem_kit_pmi_open(&host, &exchange, 0, 2), SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(getenv("PMI_RANK"), "0");
    CU_ASSERT_STRING_EQUAL(getenv("PMI_SIZE"), "2");
    const int fd = atoi(getenv("PMI_FD"));
    symmem_kit_pmi_started();
    CU_ASSERT_PTR_NULL(getenv("PMI_FD"));
    return fd;
}

TEST("protocol") {
    const int first = open_manager(), second = connect_second();
    ask(first, "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    ask(first, "cmd=get_maxes\n", "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=1024\n");
    ask(first, "cmd=get_universe_size\n", "cmd=universe_size size=2\n");
    ask(first, "cmd=put kvsname=symmem key=a value=x=1\n", "cmd=put_result rc=0 msg=success\n");
    ask(second, "cmd=put kvsname=symmem key=a value=2\n", "cmd=put_result rc=-1 msg=refused\n");
    ask(first, "cmd=barrier_in\n", "");
    ask(second, "cmd=barrier_in\n", "cmd=barrier_out\n");
    expect(first, "cmd=barrier_out\n");
    /* In pieces, and two at a time. */
    ask(second, "cmd=get kvsname=symm", "");
    ask(second, "em key=a\ncmd=get kvsname=symmem key=b\n",
        "cmd=get_result rc=0 msg=success value=x=1\n"
        "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    ask(first, "cmd=finalize\n", "cmd=finalize_ack\n");
    ask(second, "cmd=finalize\n", "cmd=finalize_ack\n");
    symmem_kit_pmi_end();
    close(first);
    close(second);
}

/* A line that is none, or has no end, ends the connection and nothing else. */
TEST("nonsense") {
    char much[8192];
    const int first = open_manager(), second = connect_second();
    memset(much, 'x', sizeof much);
    ask(first, "no command\n", "");
    (void)send(second, much, sizeof much, MSG_NOSIGNAL | MSG_DONTWAIT);
    symmem_kit_pmi_end();
    close(first);
    close(second);
    const int again = open_manager();
    ask(again, "cmd=get_appnum\n", "cmd=appnum appnum=0\n");
    close(again);
    close(connect_second());
    symmem_kit_pmi_end();
}

/* A launcher's is left alone, also where only another rank has it. */
TEST("launched") {
    peer_has_manager = true;
    CU_ASSERT_EQUAL(symmem_kit_pmi_open(&host, &exchange, 0, 2), SYMMEM_OK);
    CU_ASSERT_PTR_NULL(getenv("PMI_FD"));
    setenv("PMI_FD", "77", 1);
    CU_ASSERT_EQUAL(symmem_kit_pmi_open(&host, &exchange, 0, 2), SYMMEM_OK);
    symmem_kit_pmi_started();
    CU_ASSERT_STRING_EQUAL(getenv("PMI_FD"), "77");
    unsetenv("PMI_FD");
}
