/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP store against clients and servers that do not keep to the protocol. */
#include "store_files.h"

#include "store/store_choose.h"
#include "store/store_tcp.h"
#include "store/store_tcp_answer.h"
#include "store/store_torch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#define LIMIT_MS 5000u

static uint64_t limit(void) {
    return sm_tcp_deadline_ns(LIMIT_MS);
}

/* --- one server of a world, and raw connections to it ------------------------------------------
 */

static sm_tcp_place place;
static symmem_store *server;

static void begin_server(void) {
    int listener = -1;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &place, &listener), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_store_open_tcp(&place, listener, 0, 1, limit(), NULL, &server),
                          SYMMEM_OK);
}

static int connect_raw(void) {
    int fd = -1;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_connect(&place.addresses[0], limit(), &fd), 0);
    return fd;
}

static void send_raw(int fd, const void *bytes, size_t count) {
    size_t done = 0;
    CU_ASSERT_EQUAL(sm_tcp_send(fd, bytes, count, limit(), &done), 0);
}

static void send_header(int fd, sm_tcp_header header) {
    uint8_t bytes[SM_TCP_HEADER_BYTES];
    sm_tcp_write_header(&header, bytes);
    send_raw(fd, bytes, sizeof(bytes));
}

static void send_hello(int fd, const uint8_t *nonce, int32_t rank, uint32_t turn) {
    uint8_t bytes[SM_TCP_HELLO_BYTES];
    sm_tcp_hello hello = {.rank = rank, .turn = turn};
    memcpy(hello.nonce, nonce, sizeof(hello.nonce));
    sm_tcp_write_hello(&hello, bytes);
    send_header(fd, (sm_tcp_header){.kind = SM_TCP_HELLO, .value_bytes = sizeof(bytes)});
    send_raw(fd, bytes, sizeof(bytes));
}

/* The status of the next reply, its id and number; 1: the connection ended instead. */
static int read_reply(int fd, sm_tcp_header *reply_p) {
    uint8_t bytes[SM_TCP_HEADER_BYTES], value[4096];
    size_t done = 0;
    const int error = sm_tcp_receive(fd, bytes, sizeof(bytes), limit(), &done);
    CU_ASSERT(error != ETIMEDOUT);
    if (error != 0)
        return 1;
    CU_ASSERT_PTR_NULL_FATAL(sm_tcp_read_header(bytes, true, reply_p));
    done = 0;
    CU_ASSERT_FATAL(reply_p->value_bytes <= sizeof(value));
    CU_ASSERT_EQUAL(sm_tcp_receive(fd, value, reply_p->value_bytes, limit(), &done), 0);
    return (int)reply_p->status;
}

static int member(void) {
    sm_tcp_header reply;
    const int fd = connect_raw();
    send_hello(fd, place.nonce, 1, 1);
    CU_ASSERT_EQUAL(read_reply(fd, &reply), SYMMEM_OK);
    CU_ASSERT_EQUAL(reply.number, sm_tcp_proof(place.nonce));
    return fd;
}

static bool ends(int fd) {
    sm_tcp_header reply;
    const bool has_ended = read_reply(fd, &reply) == 1;
    close(fd);
    return has_ended;
}

static void expect_service(void) {
    int64_t sum = 0;
    CU_ASSERT_EQUAL(symmem_store_add(server, "service", 1, &sum, 1000), SYMMEM_OK);
}

static void end_server(void) {
    expect_service();
    symmem_store_close(server);
    server = NULL;
}

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
        uint32_t turn;
        symmem_status status;
    } hellos[] = {
        {none, 1, 1, SYMMEM_AUTH},
        {place.nonce, -1, 1, SYMMEM_CORRUPT},
        {place.nonce, SYMMEM_MAX_WORLD_SIZE, 1, SYMMEM_CORRUPT},
        {place.nonce, 1, 2, SYMMEM_BUSY},
    };
    for (size_t i = 0; i < sizeof(hellos) / sizeof(hellos[0]); i++) {
        fd = connect_raw();
        send_hello(fd, hellos[i].nonce, hellos[i].rank, hellos[i].turn);
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

TEST("keys are checked by the server") {
    static const char *const keys[] = {"a b", "a\0b", "\xff"};
    sm_tcp_header reply;
    begin_server();
    for (size_t i = 0; i < 3; i++) {
        const uint32_t bytes = i == 2 ? 1 : 3;
        const int fd = member();
        send_header(fd, (sm_tcp_header){.kind = SM_TCP_ADD, .key_bytes = bytes, .id = 7});
        send_raw(fd, keys[i], bytes);
        CU_ASSERT_EQUAL(read_reply(fd, &reply), SYMMEM_INVALID_ARGUMENT);
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

/* Answers that nobody reads: the server keeps one, and takes no more requests from there. */
TEST("a client that does not read") {
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

/* Listeners do not block. */
static int accept_from(int listener) {
    CU_ASSERT_EQUAL(sm_tcp_ready(listener, POLLIN, limit()), 0);
    return accept(listener, NULL, NULL);
}

/* --- servers that lie --------------------------------------------------------------------------
 */

/* Welcomes one client, then answers its next request with these bytes. */
typedef struct liar {
    int listener;
    const uint8_t *answer;
    size_t bytes;
    bool hangs_up, repeats_id;
} liar;

static void *lie(void *arg) {
    const liar *self = arg;
    uint8_t bytes[256], reply[SM_TCP_HEADER_BYTES];
    size_t done = 0;
    const int fd = accept_from(self->listener);
    (void)sm_tcp_receive(fd, bytes, SM_TCP_HEADER_BYTES + SM_TCP_HELLO_BYTES, limit(), &done);
    const sm_tcp_header welcome = {.kind = SM_TCP_REPLY, .number = sm_tcp_proof(place.nonce)};
    sm_tcp_write_header(&welcome, reply);
    send_raw(fd, reply, sizeof(reply));
    done = 0;
    (void)sm_tcp_receive(fd, bytes, SM_TCP_HEADER_BYTES + 1, limit(), &done);
    if (self->bytes != 0)
        send_raw(fd, self->answer, self->bytes);
    if (self->hangs_up)
        shutdown(fd, SHUT_RDWR);
    done = 0;
    (void)sm_tcp_receive(fd, bytes, 1, limit(), &done); /* until the client goes */
    close(fd);
    return NULL;
}

/* What comes of a get when that is the answer. */
static symmem_status get_from_liar(const void *answer, size_t bytes, bool hangs_up,
                                   uint32_t timeout_ms) {
    liar self = {.answer = answer, .bytes = bytes, .hangs_up = hangs_up};
    symmem_store *store = NULL;
    pthread_t thread;
    char value[4] = "...";
    size_t count = 77;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &place, &self.listener), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, lie, &self), 0);
    CU_ASSERT_EQUAL_FATAL(sm_store_open_tcp(&place, -1, 1, 1, limit(), NULL, &store), SYMMEM_OK);
    const uint64_t start_ns = sm_now_ns();
    const symmem_status status =
        symmem_store_get(store, "k", value, sizeof(value), &count, timeout_ms);
    CU_ASSERT(sm_now_ns() - start_ns < 3000000000ull);
    CU_ASSERT_EQUAL(sm_record()->status, status);
    CU_ASSERT(count == 77);
    close(self.listener);
    symmem_store_close(store);
    pthread_join(thread, NULL);
    return status;
}

static symmem_status get_answered(sm_tcp_header header, const char *value) {
    uint8_t bytes[SM_TCP_HEADER_BYTES + 64];
    sm_tcp_write_header(&header, bytes);
    memcpy(bytes + SM_TCP_HEADER_BYTES, value, strlen(value));
    return get_from_liar(bytes, SM_TCP_HEADER_BYTES + strlen(value), false, 400);
}

TEST("answers that cannot be") {
    const sm_tcp_header right = {.kind = SM_TCP_REPLY, .id = 1};
    sm_tcp_header wrong[7] = {right, right, right, right, right, right, right};
    wrong[0].number = 5;
    wrong[0].value_bytes = 5; /* more than there is room for */
    wrong[1].value_bytes = 2;
    wrong[1].number = 3;
    wrong[2].status = (symmem_status)-300;
    wrong[3].kind = SM_TCP_GET;
    wrong[3].key_bytes = 1;
    wrong[4].value_bytes = UINT32_MAX;
    wrong[5].status = SYMMEM_SYSTEM;
    wrong[5].value_bytes = SM_TCP_TEXT_MAX + 1;
    wrong[6].status = SYMMEM_OUT_OF_RANGE;
    wrong[6].number = 3; /* there is room for that */
    for (size_t i = 0; i < 7; i++)
        CU_ASSERT_EQUAL(get_answered(wrong[i], ""), SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(get_from_liar("HTTP/1.1 200 OK\r\nServer: that is another\r\n", 42, false, 400),
                    SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(get_from_liar("", 0, false, 200), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(get_from_liar("SMST", 4, false, 200), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(get_from_liar("", 0, true, 2000), SYMMEM_PEER_LOST);
    CU_ASSERT_EQUAL(get_from_liar("SMST", 4, true, 2000), SYMMEM_PEER_LOST);
    CU_ASSERT_EQUAL(sm_record()->failed_rank, 0);
}

/* It crossed the end of the wait that it is for. */
TEST("an answer that comes too late") {
    uint8_t bytes[2 * SM_TCP_HEADER_BYTES + 3];
    const sm_tcp_header late = {.kind = SM_TCP_REPLY, .value_bytes = 3, .number = 3};
    const sm_tcp_header own = {.kind = SM_TCP_REPLY, .id = 1, .status = SYMMEM_NOT_FOUND};
    sm_tcp_write_header(&late, bytes);
    memcpy(bytes + SM_TCP_HEADER_BYTES, "old", 3);
    sm_tcp_write_header(&own, bytes + SM_TCP_HEADER_BYTES + 3);
    CU_ASSERT_EQUAL(get_from_liar(bytes, sizeof(bytes), false, 2000), SYMMEM_NOT_FOUND);
}

TEST("a failure has the server's text") {
    const char *text = "no memory there";
    const sm_tcp_header header = {.kind = SM_TCP_REPLY,
                                  .id = 1,
                                  .status = SYMMEM_OUT_OF_MEMORY,
                                  .value_bytes = (uint32_t)strlen(text)};
    CU_ASSERT_EQUAL(get_answered(header, text), SYMMEM_OUT_OF_MEMORY);
    CU_ASSERT_STRING_EQUAL(sm_record()->message, text);
}

/* --- places ------------------------------------------------------------------------------------
 */

TEST("places as text") {
    static const char *const wrong[] = {
        "",
        "symmem1",
        "symmem1 00",
        "symmem1 00112233445566778899aabbccddeeff",
        "symmem1 00112233445566778899aabbccddeeff 1",
        "symmem1 00112233445566778899aabbccddeeff 0 127.0.0.1",
        "symmem1 00112233445566778899aabbccddeeff 65536 127.0.0.1",
        "symmem1 00112233445566778899aabbccddeeff 1 127.0.0",
        "symmem1 00112233445566778899aabbccddeefg 1 127.0.0.1",
        "symmem1 00112233445566778899aabbccddeef 1 127.0.0.1",
        "symmem2 00112233445566778899aabbccddeeff 1 127.0.0.1",
    };
    sm_tcp_place made, read;
    char text[SM_TCP_PLACE_BYTES];
    int listener = -1;
    CU_ASSERT_EQUAL(sm_tcp_listen_anywhere(false, &made, &listener), SYMMEM_OK);
    close(listener);
    sm_tcp_place_write(&made, text);
    CU_ASSERT_EQUAL(sm_tcp_place_read(text, &read), SYMMEM_OK);
    CU_ASSERT(read.count == made.count && memcmp(read.nonce, made.nonce, sizeof(read.nonce)) == 0);
    CU_ASSERT(memcmp(read.addresses, made.addresses, sizeof(read.addresses[0])) == 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        EXPECT_FAIL(sm_tcp_place_read(wrong[i], &read), SYMMEM_CORRUPT, "store_open");
}

TEST("words and jobs are apart") {
    sm_tcp_place one, other;
    unsetenv("SLURM_JOB_ID");
    CU_ASSERT_EQUAL(sm_tcp_place_parse("127.0.0.1:5/a", limit(), &one), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_tcp_place_parse("127.0.0.1:5/b", limit(), &other), SYMMEM_OK);
    CU_ASSERT_FALSE(sm_tcp_same_nonce(one.nonce, other.nonce));
    CU_ASSERT_EQUAL(sm_tcp_place_parse("[::1]:5", limit(), &one), SYMMEM_OK);
    setenv("SLURM_JOB_ID", "12", 1);
    CU_ASSERT_EQUAL(sm_tcp_place_parse("localhost:5", limit(), &other), SYMMEM_OK);
    CU_ASSERT_FALSE(sm_tcp_same_nonce(one.nonce, other.nonce));
    unsetenv("SLURM_JOB_ID");
}

/* --- which store -------------------------------------------------------------------------------
 */

static const char *chosen(void) {
    static char text[SM_STORE_TEXT_BYTES];
    const char *why = NULL;
    CU_ASSERT_EQUAL(sm_store_choose(2, text, &why), SYMMEM_OK);
    CU_ASSERT_PTR_NOT_NULL(why);
    return text;
}

TEST("what names the store") {
    static const char *const all[] = {
        "SYMMEM_STORE",        "MASTER_ADDR",    "MASTER_PORT",    "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SYMMEM_LAUNCHER"};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        unsetenv(all[i]);
    CU_ASSERT_STRING_EQUAL(chosen(), "");
    setenv("MASTER_ADDR", "host", 1);
    CU_ASSERT_STRING_EQUAL(chosen(), "");
    setenv("MASTER_PORT", "29500", 1);
    CU_ASSERT_STRING_EQUAL(chosen(), "tcp://host:29501");
    setenv("MASTER_PORT", "65535", 1);
    setenv("MASTER_ADDR", "::1", 1);
    CU_ASSERT_STRING_EQUAL(chosen(), "tcp://[::1]:65534");
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    CU_ASSERT_STRING_EQUAL(chosen(), "torchrun:");
    setenv("SYMMEM_STORE", "file:/somewhere", 1);
    CU_ASSERT_STRING_EQUAL(chosen(), "file:/somewhere");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        unsetenv(all[i]);
}

/* --- an agent that is none of torchrun's -------------------------------------------------------
 */

typedef struct agent {
    int listener;
    const char *answer;
    size_t bytes;
} agent;

static void *answer_as_agent(void *arg) {
    const agent *self = arg;
    uint8_t byte;
    size_t done = 0;
    const int fd = accept_from(self->listener);
    (void)sm_tcp_receive(fd, &byte, 1, limit(), &done);
    send_raw(fd, self->answer, self->bytes);
    AWAIT(3000, recv(fd, &byte, 1, MSG_DONTWAIT) == 0);
    close(fd);
    return NULL;
}

static symmem_status ask_agent(const char *answer, size_t bytes) {
    agent self = {.answer = answer, .bytes = bytes};
    char port[8], text[64];
    pthread_t thread;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &place, &self.listener), SYMMEM_OK);
    (void)snprintf(port, sizeof(port), "%u",
                   (unsigned)ntohs(((struct sockaddr_in *)&place.addresses[0].address)->sin_port));
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, answer_as_agent, &self), 0);
    const symmem_status status =
        sm_torch_look_up("key", text, sizeof(text), sm_tcp_deadline_ns(300));
    pthread_join(thread, NULL);
    close(self.listener);
    return status;
}

TEST("an agent that lies") {
    CU_ASSERT_EQUAL(ask_agent("\1", 1), SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(ask_agent("", 0), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(ask_agent("\0\0\0\0", 4), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(ask_agent("\0\xff\xff\xff\xff\0\0\0\0", 9), SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(ask_agent("\0\0\0\0\0\0\0\0\0", 9), SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(ask_agent("\0\4\0\0\0\0\0\0\0abcd", 13), SYMMEM_OK);
    setenv("MASTER_PORT", "0", 1);
    char text[8];
    EXPECT_FAIL(sm_torch_look_up("key", text, sizeof(text), limit()), SYMMEM_INVALID_ARGUMENT,
                "store_open");
}
