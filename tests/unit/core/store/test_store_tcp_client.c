/* SPDX-License-Identifier: BSD-3-Clause */
/* The client of a TCP store: servers that do not keep to the protocol, errors of its connections,
 * several calls at once, opening. */
#include "store_files.h"
#include "tcp_world.h"
#include "last_record.h"

#define TOO_LONG_FOR_ONE 2000 /* bytes of a value that does not travel with its header */

/* --- servers that lie ------------------------------------------------------------------------- */

/* Welcomes one client, then answers its next request with these bytes; or the hello. */
typedef struct liar {
    int listener;
    const uint8_t *answer;
    size_t bytes;
    bool hangs_up, at_hello;
} liar;

static void *lie(void *arg) {
    const liar *self = arg;
    uint8_t bytes[256], reply[SM_TCP_HEADER_BYTES];
    size_t done = 0;
    const int fd = accept_from(self->listener);
    (void)sm_tcp_receive(fd, bytes, SM_TCP_HEADER_BYTES + SM_TCP_HELLO_BYTES, limit(), &done);
    const sm_tcp_header welcome = {.kind = SM_TCP_REPLY, .number = sm_tcp_proof(place.nonce)};
    sm_tcp_write_header(&welcome, reply);
    done = 0;
    if (!self->at_hello) {
        send_raw(fd, reply, sizeof(reply));
        (void)sm_tcp_receive(fd, bytes, SM_TCP_HEADER_BYTES + 1, limit(), &done);
    }
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
    CU_ASSERT_EQUAL_FATAL(open_at(&place, -1, &store), SYMMEM_OK);
    const uint64_t start_ns = sm_now_ns();
    const symmem_status status =
        symmem_store_get(store, "k", value, sizeof(value), &count, timeout_ms);
    CU_ASSERT(sm_now_ns() - start_ns < 3000000000ull);
    CU_ASSERT_EQUAL(last_record().status, status);
    CU_ASSERT(count == 77);
    close(self.listener);
    symmem_store_close(store);
    pthread_join(thread, NULL);
    return status;
}

static symmem_status open_at_liar(const void *answer, size_t bytes) {
    liar self = {.answer = answer, .bytes = bytes, .at_hello = true};
    symmem_store *store = NULL;
    pthread_t thread;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &place, &self.listener), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, lie, &self), 0);
    const symmem_status status = open_at(&place, -1, &store);
    close(self.listener);
    pthread_join(thread, NULL);
    return status;
}

static symmem_status get_answered(sm_tcp_header header, const char *value) {
    uint8_t bytes[SM_TCP_HEADER_BYTES + 64];
    sm_tcp_write_header(&header, bytes);
    memcpy(bytes + SM_TCP_HEADER_BYTES, value, strlen(value));
    return get_from_liar(bytes, SM_TCP_HEADER_BYTES + strlen(value), false, 2000);
}

TEST("answers that cannot be") {
    const sm_tcp_header right = {.kind = SM_TCP_REPLY, .id = 1};
    sm_tcp_header wrong[9] = {right, right, right, right, right, right, right, right, right};
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
    wrong[7] = wrong[8] = wrong[6];
    wrong[7].number = -1;
    wrong[8].number = SYMMEM_STORE_VALUE_MAX + 1;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CU_ASSERT_EQUAL(get_answered(wrong[i], ""), SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(
        get_from_liar("HTTP/1.1 200 OK\r\nServer: that is another\r\n", 42, false, 2000),
        SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(get_from_liar("", 0, false, 200), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(get_from_liar("SMST", 4, false, 200), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(get_from_liar("", 0, true, 2000), SYMMEM_PEER_LOST);
    CU_ASSERT_EQUAL(get_from_liar("SMST", 4, true, 2000), SYMMEM_PEER_LOST);
    CU_ASSERT_EQUAL(last_record().failed_rank, 0);
}

/* It crossed the end of the wait that it is for, and may be longer than what is read at once. */
TEST("an answer that comes too late") {
    static uint8_t bytes[2 * SM_TCP_HEADER_BYTES + 5000];
    static const uint32_t sizes[] = {0, 3, 5000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const sm_tcp_header late = {.kind = SM_TCP_REPLY, .value_bytes = sizes[i], .number = 3};
        const sm_tcp_header own = {.kind = SM_TCP_REPLY, .id = 1, .status = SYMMEM_NOT_FOUND};
        const size_t total = 2 * SM_TCP_HEADER_BYTES + sizes[i];
        sm_tcp_write_header(&late, bytes);
        sm_tcp_write_header(&own, bytes + SM_TCP_HEADER_BYTES + sizes[i]);
        CU_ASSERT_EQUAL(get_from_liar(bytes, total, false, 2000), SYMMEM_NOT_FOUND);
        if (sizes[i] != 0) /* and is cut */
            CU_ASSERT_EQUAL(get_from_liar(bytes, SM_TCP_HEADER_BYTES + 2, true, 2000),
                            SYMMEM_PEER_LOST);
    }
}

TEST("a failure has the server's text") {
    const char *text = "no memory there";
    const sm_tcp_header header = {.kind = SM_TCP_REPLY,
                                  .id = 1,
                                  .status = SYMMEM_OUT_OF_MEMORY,
                                  .value_bytes = (uint32_t)strlen(text)};
    CU_ASSERT_EQUAL(get_answered(header, text), SYMMEM_OUT_OF_MEMORY);
    CU_ASSERT_STRING_EQUAL(last_record().message, text);
}

/* --- servers that never come to an end -------------------------------------------------------- */

/* Until then the thread receives answers to requests that it has not made. */
static _Thread_local uint64_t flooded_until_ns;
static _Thread_local size_t flooded; /* bytes */
static _Thread_local bool flood_is_over;

static ssize_t flood(void *bytes, size_t count) {
    const sm_tcp_header other = {.kind = SM_TCP_REPLY, .id = 0x7fffffff};
    uint8_t header[SM_TCP_HEADER_BYTES];
    flood_is_over = sm_tcp_now_ns() >= flooded_until_ns;
    if (flood_is_over) {
        errno = ECONNRESET;
        return -1;
    }
    sm_tcp_write_header(&other, header);
    for (size_t i = 0; i < count; i++)
        ((uint8_t *)bytes)[i] = header[flooded++ % sizeof(header)];
    return (ssize_t)count;
}

TEST("answers without end") {
    symmem_store *own = serve(&place), *store = NULL;
    char value[4];
    size_t count;
    CU_ASSERT_EQUAL_FATAL(open_at(&place, -1, &store), SYMMEM_OK);
    flooded_until_ns = sm_tcp_deadline_ns(8000);
    received = flood;
    EXPECT_FAIL(symmem_store_get(store, "k", value, sizeof(value), &count, 300), SYMMEM_TIMEOUT,
                "store_get");
    CU_ASSERT_FALSE(flood_is_over);
    received = NULL;
    symmem_store_close(store);
    symmem_store_close(own);
}

/* --- several addresses ------------------------------------------------------------------------ */

/* Rank 0's loopback address is another machine's, too, where its port may be another job's. */
TEST("another job at the first address") {
    sm_tcp_place others, own, both;
    symmem_store *of_others = serve(&others), *of_own = serve(&own), *store = NULL;
    both = own;
    both.count = 2;
    both.addresses[0] = others.addresses[0];
    both.addresses[1] = own.addresses[0];
    CU_ASSERT_EQUAL(open_at(&both, -1, &store), SYMMEM_OK);
    symmem_store_close(store);
    /* Without a server at the other one it is said at once, and not waited for. */
    symmem_store_close(of_own);
    EXPECT_FAIL(open_at(&both, -1, &store), SYMMEM_AUTH, "store_open");
    symmem_store_close(of_others);
}

/* --- what the kernel says of a connection ----------------------------------------------------- */

TEST("errors of a connection") {
    static const struct {
        const char *call;
        int error;
        uint32_t timeout_ms;
        symmem_status status;
    } cases[] = {{"recv", ECONNRESET, LIMIT_MS, SYMMEM_PEER_LOST},
                 {"recv", ETIMEDOUT, LIMIT_MS, SYMMEM_PEER_LOST}, /* the host has vanished */
                 {"recv", ETIMEDOUT, 0, SYMMEM_PEER_LOST},
                 {"recv", EHOSTUNREACH, LIMIT_MS, SYMMEM_PEER_LOST},
                 {"recv", ENETUNREACH, LIMIT_MS, SYMMEM_PEER_LOST},
                 {"recv", ENOMEM, LIMIT_MS, SYMMEM_OUT_OF_MEMORY},
                 {"send", EPIPE, LIMIT_MS, SYMMEM_PEER_LOST},
                 {"send", EAGAIN, LIMIT_MS, SYMMEM_OK},
                 {"recv", EAGAIN, LIMIT_MS, SYMMEM_OK},
                 {"recv", EAGAIN, 0, SYMMEM_OK}};
    static const struct {
        int error;
        symmem_status status;
    } waits[] = {{EINTR, SYMMEM_TIMEOUT}, {ENOMEM, SYMMEM_OUT_OF_MEMORY}};
    static const char value[TOO_LONG_FOR_ONE];
    symmem_store *client = NULL;
    begin_server();
    CU_ASSERT_EQUAL_FATAL(open_at(&place, -1, &client), SYMMEM_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t sum = 0;
        CU_ASSERT_EQUAL(symmem_store_add(client, "n", 1, &sum, LIMIT_MS), SYMMEM_OK);
        arm((fault){.call = cases[i].call, .error = cases[i].error});
        CU_ASSERT_EQUAL(symmem_store_set(client, "k", value, sizeof(value), cases[i].timeout_ms),
                        cases[i].status);
        CU_ASSERT_TRUE(disarm());
        CU_ASSERT_EQUAL(last_record().status, cases[i].status);
        if (cases[i].status == SYMMEM_PEER_LOST)
            CU_ASSERT_EQUAL(last_record().failed_rank, 0);
        symmem_clear_error();
    }
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        arm((fault){.call = "ppoll", .error = waits[i].error});
        EXPECT_FAIL(symmem_store_wait(client, "absent", 100), waits[i].status, "store_wait");
        CU_ASSERT_TRUE(disarm());
    }
    symmem_store_close(client);
    end_server();
}

static void *wait_long(void *arg) {
    CU_ASSERT_EQUAL(symmem_store_wait(arg, "late", LIMIT_MS), SYMMEM_OK);
    return NULL;
}

/* More calls at once than connections are kept. */
TEST("many calls at once") {
    enum { CALLS = 20 };
    pthread_t threads[CALLS];
    symmem_store *client = NULL;
    begin_server();
    CU_ASSERT_EQUAL_FATAL(open_at(&place, -1, &client), SYMMEM_OK);
    const int fds = open_fds();
    for (int i = 0; i < CALLS; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, wait_long, client), 0);
    AWAIT(4000, open_fds() >= fds + 2 * (CALLS - 1));
    CU_ASSERT_EQUAL(symmem_store_set(server, "late", "", 0, LIMIT_MS), SYMMEM_OK);
    for (int i = 0; i < CALLS; i++)
        pthread_join(threads[i], NULL);
    AWAIT(4000, open_fds() == fds + 2 * 15);
    CU_ASSERT_EQUAL(open_fds(), fds + 2 * 15); /* sixteen stay */
    symmem_store_close(client);
    end_server();
}

/* While another thread's wait has the connection that is kept. */
TEST("a further connection") {
    static const struct {
        const char *call;
        int error;
        symmem_status status;
    } cases[] = {{"recv", ECONNRESET, SYMMEM_NOT_FOUND}, /* ended for a newer one: made again */
                 {"connect", ECONNREFUSED, SYMMEM_PEER_LOST},
                 {"connect", EINTR, SYMMEM_SYSTEM},
                 {"socket", EMFILE, SYMMEM_LIMIT}};
    pthread_t thread;
    symmem_store *client = NULL;
    size_t bytes;
    begin_server();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CU_ASSERT_EQUAL_FATAL(open_at(&place, -1, &client), SYMMEM_OK);
        arm((fault){.call = "send", .error = EAGAIN, .others = true}); /* does no harm */
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, wait_long, client), 0);
        AWAIT(4000, has_struck());
        CU_ASSERT_TRUE(disarm());
        arm((fault){.call = cases[i].call, .error = cases[i].error});
        EXPECT_FAIL(symmem_store_get(client, "k", NULL, 0, &bytes, LIMIT_MS), cases[i].status,
                    "store_get");
        CU_ASSERT_TRUE(disarm());
        CU_ASSERT_EQUAL(symmem_store_set(server, "late", "", 0, LIMIT_MS), SYMMEM_OK);
        pthread_join(thread, NULL);
        CU_ASSERT_EQUAL(symmem_store_remove(server, "late", LIMIT_MS), SYMMEM_OK);
        symmem_store_close(client);
    }
    end_server();
}

static int resets;

static ssize_t reset(void *bytes, size_t count) {
    (void)bytes;
    (void)count;
    resets++;
    errno = ECONNRESET;
    return -1;
}

TEST("a server that ends every connection is lost") {
    symmem_store *client = NULL;
    size_t bytes;
    begin_server();
    CU_ASSERT_EQUAL_FATAL(open_at(&place, -1, &client), SYMMEM_OK);
    received = reset;
    for (int i = 0; i < 2; i++) /* on the connection that is kept, then on new ones */
        EXPECT_FAIL(symmem_store_get(client, "k", NULL, 0, &bytes, LIMIT_MS), SYMMEM_PEER_LOST,
                    "store_get");
    received = NULL;
    CU_ASSERT_EQUAL(resets, 1 + 4);
    symmem_store_close(client);
    end_server();
}

/* --- opening ---------------------------------------------------------------------------------- */

static void *open_later(void *arg) {
    int listener = -1;
    usleep(100000);
    CU_ASSERT_EQUAL(sm_tcp_listen(arg, &listener), SYMMEM_OK);
    CU_ASSERT_EQUAL(open_at(arg, listener, &server), SYMMEM_OK);
    return NULL;
}

TEST("without a limit rank 0 may be late") {
    sm_tcp_opening opening = {.place = &place, .listener = -1, .rank = 1, .incarnation = 1};
    symmem_store *client = NULL;
    pthread_t thread;
    int listener = -1;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &place, &listener), SYMMEM_OK);
    close(listener);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, open_later, &place), 0);
    CU_ASSERT_EQUAL(sm_store_open_tcp(&opening, &client), SYMMEM_OK);
    pthread_join(thread, NULL);
    symmem_store_close(client);
    /* The next world's server is awaited, while the one before is there. */
    opening.incarnation = 2;
    opening.deadline_ns = sm_tcp_deadline_ns(100);
    EXPECT_FAIL(sm_store_open_tcp(&opening, &client), SYMMEM_TIMEOUT, "store_open");
    CU_ASSERT_EQUAL(last_record().failed_rank, 0);
    end_server();
    opening.deadline_ns = sm_tcp_deadline_ns(100);
    EXPECT_FAIL(sm_store_open_tcp(&opening, &client), SYMMEM_TIMEOUT, "store_open");
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "no rank serves"));
}

TEST("what answers the hello") {
    static const struct {
        symmem_status status;
        int64_t proof;
        const char *text;
        symmem_status result;
    } cases[] = {{SYMMEM_OK, 1, "", SYMMEM_AUTH},
                 {SYMMEM_OK, 0, "unasked", SYMMEM_CORRUPT},
                 {SYMMEM_PERMISSION, 0, "not you", SYMMEM_PERMISSION}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[SM_TCP_HEADER_BYTES + 16];
        const size_t text_bytes = strlen(cases[i].text);
        const sm_tcp_header header = {.kind = SM_TCP_REPLY,
                                      .status = cases[i].status,
                                      .value_bytes = (uint32_t)text_bytes,
                                      .number = cases[i].proof};
        sm_tcp_write_header(&header, bytes);
        memcpy(bytes + SM_TCP_HEADER_BYTES, cases[i].text, text_bytes);
        EXPECT_FAIL(open_at_liar(bytes, SM_TCP_HEADER_BYTES + text_bytes), cases[i].result,
                    "store_open");
        CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, i == 1 ? "asked" : cases[i].text));
    }
}

static symmem_store *inherited;

static void use_inherited(void) {
    int64_t sum;
    if (symmem_store_add(inherited, "n", 1, &sum, LIMIT_MS) != SYMMEM_OK)
        exit(1);
}

TEST("a child of fork uses its parent's store") {
    begin_server();
    CU_ASSERT_EQUAL_FATAL(open_at(&place, -1, &inherited), SYMMEM_OK);
    CU_ASSERT_EQUAL(reap(start(use_inherited)), 0);
    use_inherited(); /* its connection is as it was */
    symmem_store_close(inherited);
    end_server();
}
