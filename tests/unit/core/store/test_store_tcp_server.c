/* SPDX-License-Identifier: BSD-3-Clause */
/* The server of a TCP store: clients that do not keep to the protocol, its end, its threads. */
#include "store_files.h"
#include "tcp_world.h"

#include "store/deadline_call.h"

#include <dirent.h>
#include <netinet/tcp.h>

/* --- requests --------------------------------------------------------------------------------- */

TEST("a hello is first, and right") {
    static const uint8_t none[SM_TCP_NONCE_BYTES];
    sm_tcp_header reply;
    begin_server();
    int fd = connect_raw();
    send_header(fd, (sm_tcp_header){.kind = SM_TCP_REMOVE, .key_bytes = 1});
    CU_ASSERT_TRUE(ends(fd));
    const struct {
        const uint8_t *nonce;
        int32_t rank;
        uint32_t incarnation;
        symmem_status status;
    } hellos[] = {
        {none, 1, 1, SYMMEM_AUTH},
        {place.nonce, -1, 1, SYMMEM_CORRUPT},
        {place.nonce, SYMMEM_MAX_WORLD_SIZE, 1, SYMMEM_CORRUPT},
        {place.nonce, 1, 2, SYMMEM_BUSY},
    };
    for (size_t i = 0; i < sizeof(hellos) / sizeof(hellos[0]); i++) {
        fd = connect_raw();
        send_hello(fd, hellos[i].nonce, hellos[i].rank, hellos[i].incarnation);
        CU_ASSERT_EQUAL(read_reply(fd, &reply), (int)hellos[i].status);
        CU_ASSERT_TRUE(ends(fd));
    }
    fd = member();
    send_hello(fd, place.nonce, 1, 1); /* once is enough */
    CU_ASSERT_TRUE(ends(fd));
    end_server();
}

TEST("what is no request") {
    static const sm_tcp_header wrong[] = {
        {.kind = SM_TCP_REPLY},
        {.kind = SM_TCP_KINDS, .key_bytes = 1},
        {.kind = (sm_tcp_kind)0, .key_bytes = 1},
        {.kind = SM_TCP_GET},
        {.kind = SM_TCP_GET, .key_bytes = SYMMEM_STORE_KEY_MAX + 1},
        {.kind = SM_TCP_GET, .key_bytes = 1, .value_bytes = 1},
        {.kind = SM_TCP_SET, .key_bytes = 1, .value_bytes = SYMMEM_STORE_VALUE_MAX + 1},
        {.kind = SM_TCP_SET, .key_bytes = 1, .value_bytes = UINT32_MAX},
    };
    begin_server();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const int fd = member();
        send_header(fd, wrong[i]);
        CU_ASSERT_TRUE(ends(fd));
        expect_service();
    }
    for (size_t at = 0; at < 5; at++) { /* magic and version */
        uint8_t bytes[SM_TCP_HEADER_BYTES];
        const sm_tcp_header header = {.kind = SM_TCP_GET, .key_bytes = 1};
        const int fd = member();
        sm_tcp_write_header(&header, bytes);
        bytes[at] ^= 0x40;
        send_raw(fd, bytes, sizeof(bytes));
        CU_ASSERT_TRUE(ends(fd));
    }
    end_server();
}

TEST("keys and sizes are checked by the server") {
    static const struct {
        sm_tcp_kind kind;
        const char *key;
        uint32_t bytes;
        int64_t number;
        symmem_status status;
    } cases[] = {{SM_TCP_ADD, "a b", 3, 1, SYMMEM_INVALID_ARGUMENT},
                 {SM_TCP_ADD, "a\0b", 3, 1, SYMMEM_INVALID_ARGUMENT},
                 {SM_TCP_WAIT, "a b", 3, 0, SYMMEM_INVALID_ARGUMENT},
                 {SM_TCP_GET, "\xff", 1, 0, SYMMEM_INVALID_ARGUMENT},
                 {SM_TCP_GET, "service", 7, -1, SYMMEM_OUT_OF_RANGE},
                 {SM_TCP_GET, "service", 7, 7, SYMMEM_OUT_OF_RANGE},
                 {SM_TCP_GET, "service", 7, 8, SYMMEM_OK}};
    sm_tcp_header reply;
    begin_server();
    expect_service();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int fd = member();
        send_header(fd, (sm_tcp_header){.kind = cases[i].kind,
                                        .key_bytes = cases[i].bytes,
                                        .number = cases[i].number,
                                        .id = 7});
        send_raw(fd, cases[i].key, cases[i].bytes);
        CU_ASSERT_EQUAL(read_reply(fd, &reply), (int)cases[i].status);
        CU_ASSERT_EQUAL(reply.id, 7);
        close(fd);
    }
    end_server();
}

/* Cut in the middle, and sent byte by byte: others do not notice. */
TEST("slow and cut messages") {
    uint8_t bytes[SM_TCP_HEADER_BYTES + 3];
    const sm_tcp_header header = {.kind = SM_TCP_SET, .key_bytes = 1, .value_bytes = 2, .id = 9};
    sm_tcp_header reply;
    char value[4];
    size_t count = 0;
    begin_server();
    sm_tcp_write_header(&header, bytes);
    memcpy(bytes + SM_TCP_HEADER_BYTES, "kvw", 3);
    const int slow = member(), cut = member();
    for (size_t i = 0; i < sizeof(bytes); i++) {
        send_raw(slow, bytes + i, 1);
        expect_service();
    }
    CU_ASSERT_EQUAL(read_reply(slow, &reply), SYMMEM_OK);
    CU_ASSERT_EQUAL(reply.id, 9);
    CU_ASSERT_EQUAL(symmem_store_get(server, "k", value, 4, &count, LIMIT_MS), SYMMEM_OK);
    CU_ASSERT(count == 2 && memcmp(value, "vw", 2) == 0);
    send_raw(cut, bytes, sizeof(bytes) - 1);
    close(cut);
    close(slow);
    end_server();
}

/* Answers that are not read: the server keeps one, and takes no more requests from there. */
TEST("a client that reads late") {
    static char value[SYMMEM_STORE_VALUE_MAX];
    uint8_t bytes[SM_TCP_HEADER_BYTES + 1];
    const sm_tcp_header header = {.kind = SM_TCP_GET, .key_bytes = 1, .number = sizeof(value)};
    begin_server();
    CU_ASSERT_EQUAL(symmem_store_set(server, "k", value, sizeof(value), LIMIT_MS), SYMMEM_OK);
    sm_tcp_write_header(&header, bytes);
    bytes[SM_TCP_HEADER_BYTES] = 'k';
    const int fd = member();
    for (int i = 0; i < 64; i++)
        send_raw(fd, bytes, sizeof(bytes));
    for (int i = 0; i < 20; i++)
        expect_service();
    for (int i = 0; i < 64; i++) {
        size_t done = 0;
        CU_ASSERT_EQUAL_FATAL(sm_tcp_receive(fd, bytes, SM_TCP_HEADER_BYTES, limit(), &done), 0);
        done = 0;
        CU_ASSERT_EQUAL_FATAL(sm_tcp_receive(fd, value, sizeof(value), limit(), &done), 0);
    }
    close(fd);
    end_server();
}

TEST("a request takes a wait back") {
    sm_tcp_header reply;
    begin_server();
    const int fd = member();
    send_header(fd, (sm_tcp_header){.kind = SM_TCP_WAIT, .key_bytes = 1, .id = 1});
    send_raw(fd, "w", 1);
    send_header(fd, (sm_tcp_header){.kind = SM_TCP_REMOVE, .key_bytes = 1, .id = 2});
    send_raw(fd, "x", 1);
    CU_ASSERT_EQUAL(read_reply(fd, &reply), SYMMEM_OK);
    CU_ASSERT_EQUAL(reply.id, 2);
    CU_ASSERT_EQUAL(symmem_store_set(server, "w", "", 0, LIMIT_MS), SYMMEM_OK);
    send_header(fd, (sm_tcp_header){.kind = SM_TCP_REMOVE, .key_bytes = 1, .id = 3});
    send_raw(fd, "x", 1);
    CU_ASSERT_EQUAL(read_reply(fd, &reply), SYMMEM_OK);
    CU_ASSERT_EQUAL(reply.id, 3);
    close(fd);
    end_server();
}

/* --- the end ---------------------------------------------------------------------------------- */

TEST("the server ends in time, whatever its clients do") {
    sm_tcp_server *alone = NULL;
    sm_tcp_opening opening = {.place = &place, .world_size = 2, .incarnation = 1};
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &place, &opening.listener), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_tcp_server_start(&opening, &alone), SYMMEM_OK);
    const int fd = member(), stranger = connect_raw();
    usleep(20000);
    const uint64_t begin_ns = sm_now_ns();
    sm_tcp_server_stop(alone, 150);
    const uint64_t took_ns = sm_now_ns() - begin_ns;
    CU_ASSERT(took_ns >= 150000000 && took_ns < 5000000000ull);
    CU_ASSERT_TRUE(ends(fd));
    CU_ASSERT_TRUE(ends(stranger));
}

static void close_in_child(void) {
    symmem_store_close(server);
}

TEST("a child of fork closes its parent's store") {
    begin_server();
    const int fd = member();
    CU_ASSERT_EQUAL(reap(start(close_in_child)), 0);
    close(fd);
    end_server();
}

/* Two events of one batch: the first one's answer finds out that the other client has gone. */
TEST("a client that goes while its wait is answered") {
    const struct linger at_once = {.l_onoff = 1};
    sm_tcp_header reply;
    begin_server();
    const int setter = member(), waiter = member();
    send_header(waiter, (sm_tcp_header){.kind = SM_TCP_WAIT, .key_bytes = 1, .id = 1});
    send_raw(waiter, "w", 1);
    expect_service();
    sm_tcp_server_lock_all(); /* the thread stops before its next batch */
    const int stranger = connect_raw();
    usleep(50000);
    send_header(setter, (sm_tcp_header){.kind = SM_TCP_SET, .key_bytes = 1, .id = 2});
    send_raw(setter, "w", 1);
    usleep(20000);
    CU_ASSERT_EQUAL(setsockopt(waiter, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    close(waiter);
    usleep(20000);
    sm_tcp_server_unlock_all();
    CU_ASSERT_EQUAL(read_reply(setter, &reply), SYMMEM_OK);
    close(stranger);
    close(setter);
    end_server();
}

/* As far as one host can show it. */
TEST("both ends notice a host that has vanished") {
    int connected = 0;
    begin_server();
    const int own = member();
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_storage peer;
        socklen_t bytes = sizeof(peer), four = sizeof(int);
        int idle = 0, interval = 0, vanished = 0;
        if (getpeername(fd, (struct sockaddr *)&peer, &bytes) != 0 || peer.ss_family != AF_INET)
            continue;
        CU_ASSERT_EQUAL(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &four), 0);
        CU_ASSERT_EQUAL(getsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, &four), 0);
        CU_ASSERT_EQUAL(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &vanished, &four), 0);
        CU_ASSERT(idle + 2 * interval <= 15 && vanished == 15000);
        connected++;
    }
    CU_ASSERT_EQUAL(connected, 4); /* both ends of two connections */
    close(own);
    end_server();
}

/* --- signals ---------------------------------------------------------------------------------- */

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

typedef struct threads {
    int count;
    int ids[64];
    uint64_t blocked; /* by any that is not known */
} threads;

static uint64_t blocked_by(int id) {
    char name[64], line[200];
    uint64_t blocked = 0;
    snprintf(name, sizeof(name), "/proc/self/task/%d/status", id);
    FILE *file = fopen(name, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "SigBlk:", 7) == 0)
            blocked = strtoull(line + 7, NULL, 16);
    if (file != NULL)
        fclose(file);
    return blocked;
}

/* A sanitizer has threads of its own, which are known. */
static threads look_at_threads(const threads *known) {
    threads found = {.count = 0};
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;
    while (tasks != NULL && (entry = readdir(tasks)) != NULL && found.count < 64) {
        const int id = atoi(entry->d_name);
        bool is_known = id == 0;
        for (int i = 0; i < known->count; i++)
            is_known = is_known || known->ids[i] == id;
        if (id != 0)
            found.ids[found.count++] = id;
        if (!is_known)
            found.blocked |= blocked_by(id);
    }
    if (tasks != NULL)
        closedir(tasks);
    return found;
}

static void expect_mask(uint64_t blocked) {
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        CU_ASSERT((blocked >> (faults[i] - 1) & 1) == 0);
    CU_ASSERT((blocked >> (SIGUSR2 - 1) & 1) != 0 && (blocked >> (SIGTERM - 1) & 1) != 0);
}

typedef struct asking {
    sm_deadline_call call;
    uint64_t blocked;
} asking;

static void ask_mask(sm_deadline_call *call) {
    sigset_t mask;
    uint64_t blocked = 0;
    CU_ASSERT(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    for (int signal = 1; signal < 32; signal++)
        blocked |= (uint64_t)(sigismember(&mask, signal) == 1) << (signal - 1);
    ((asking *)call)->blocked = blocked;
}

static void keep(sm_deadline_call *call) {
    (void)call;
}

TEST("threads take no signals but those of their faults") {
    const threads before = look_at_threads(&(threads){.count = 0});
    symmem_store *store = serve(&place);
    const threads now = look_at_threads(&before);
    CU_ASSERT(now.count == before.count + 1);
    expect_mask(now.blocked);
    symmem_store_close(store);
    asking asked = {.call = {.run = ask_mask, .destroy = keep}};
    CU_ASSERT_TRUE(sm_deadline_call_run(&asked.call, limit()));
    expect_mask(asked.blocked);
    sm_deadline_call_release(&asked.call);
    AWAIT(5000, look_at_threads(&before).count == before.count);
}
