/* SPDX-License-Identifier: BSD-3-Clause */
/* The store of torchrun's agent: as it is, as it must not be, and with calls that fail. */
#include "../bootstrap/session_ranks.h"
#include "tcp_world.h"

#include "store/store_torch.h"
#include "last_record.h"

/* --- an agent that answers with any bytes ----------------------------------------------------- */

typedef struct agent {
    int listener;
    const char *answer; /* to the first query; NULL: it closes the connection */
    size_t bytes;
    bool is_honest; /* it keeps what is set, and answers waits and gets with it */
} agent;

static char kept[SM_TCP_PLACE_BYTES];
static uint64_t kept_bytes;

static bool take(int fd, void *bytes, size_t count) {
    size_t done = 0;
    return sm_tcp_receive(fd, bytes, count, limit(), &done) == 0;
}

/* A text, which is cut to what there is room for. */
static bool take_text(int fd, char *text, uint64_t *bytes_p) {
    char rest;
    if (!take(fd, bytes_p, sizeof(*bytes_p)))
        return false;
    for (uint64_t i = 0; i < *bytes_p; i++)
        if (!take(fd, i < SM_TCP_PLACE_BYTES ? &text[i] : &rest, 1))
            return false;
    return true;
}

static void answer_honestly(int fd) {
    char key[SM_TCP_PLACE_BYTES];
    uint8_t query;
    uint64_t bytes;
    while (take(fd, &query, 1)) {
        if (query == 0) { /* validate */
            uint32_t magic = 0;
            CU_ASSERT(take(fd, &magic, sizeof(magic)) && magic == 0x3c85f7ce);
        } else if (query == 1) { /* set */
            CU_ASSERT(take_text(fd, key, &bytes) && take_text(fd, kept, &kept_bytes));
        } else if (query == 6) { /* wait */
            CU_ASSERT(take(fd, &bytes, sizeof(bytes)) && bytes == 1 && take_text(fd, key, &bytes));
            AWAIT(3000, kept_bytes != 0);
            send_raw(fd, "", 1);
        } else { /* get */
            CU_ASSERT(query == 3 && take_text(fd, key, &bytes));
            send_raw(fd, &kept_bytes, sizeof(kept_bytes));
            send_raw(fd, kept, kept_bytes);
        }
    }
}

static void *answer_as_agent(void *arg) {
    const agent *self = arg;
    uint8_t byte;
    const int fd = accept_from(self->listener);
    if (self->is_honest) {
        answer_honestly(fd);
    } else {
        (void)take(fd, &byte, 1);
        if (self->answer != NULL)
            send_raw(fd, self->answer, self->bytes);
        if (self->answer != NULL)
            AWAIT(3000, __real_recv(fd, &byte, 1, MSG_DONTWAIT) == 0);
    }
    close(fd);
    return NULL;
}

static void begin_agent(agent *self, pthread_t *thread_p) {
    char port[8];
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &place, &self->listener), SYMMEM_OK);
    (void)snprintf(port, sizeof(port), "%u",
                   (unsigned)ntohs(((struct sockaddr_in *)&place.addresses[0].address)->sin_port));
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    CU_ASSERT_EQUAL_FATAL(pthread_create(thread_p, NULL, answer_as_agent, self), 0);
}

static void end_agent(const agent *self, pthread_t thread) {
    pthread_join(thread, NULL);
    close(self->listener);
}

TEST("an agent that lies") {
    static const struct {
        const char *answer;
        size_t bytes;
        symmem_status look_up, publish;
    } cases[] = {{"\1", 1, SYMMEM_CORRUPT, SYMMEM_CORRUPT},
                 {"", 0, SYMMEM_TIMEOUT, SYMMEM_TIMEOUT},
                 {NULL, 0, SYMMEM_SYSTEM, SYMMEM_SYSTEM},
                 {"\0\0\0\0", 4, SYMMEM_TIMEOUT, SYMMEM_OK},
                 {"\0\xff\xff\xff\xff\0\0\0\0", 9, SYMMEM_CORRUPT, SYMMEM_OK},
                 {"\0\0\0\0\0\0\0\0\0", 9, SYMMEM_CORRUPT, SYMMEM_OK},
                 {"\0\4\0\0\0\0\0\0\0abcd", 13, SYMMEM_OK, SYMMEM_OK},
                 {"\0\4\0\0\0\0\0\0\0abc", 12, SYMMEM_TIMEOUT, SYMMEM_OK}};
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        agent self = {.answer = cases[i / 2].answer, .bytes = cases[i / 2].bytes};
        char text[64];
        pthread_t thread;
        symmem_status status;
        const symmem_status expected = i % 2 == 0 ? cases[i / 2].look_up : cases[i / 2].publish;
        begin_agent(&self, &thread);
        const uint64_t until_ns = expected == SYMMEM_TIMEOUT ? sm_tcp_deadline_ns(200) : limit();
        if (i % 2 == 0)
            status = sm_torch_look_up("key", text, sizeof(text), until_ns);
        else
            status = sm_torch_publish("key", "place", until_ns);
        CU_ASSERT_EQUAL(status, expected);
        end_agent(&self, thread);
    }
    agent self = {.answer = NULL};
    pthread_t thread;
    begin_agent(&self, &thread);
    arm((fault){.call = "send", .error = EPIPE});
    CU_ASSERT_EQUAL(sm_torch_publish("key", "place", limit()), SYMMEM_SYSTEM);
    CU_ASSERT_TRUE(disarm());
    end_agent(&self, thread);
}

TEST("where no agent can be asked") {
    static const struct {
        const char *host, *port;
        fault fault;
        symmem_status status;
    } cases[] = {{"127.0.0.1", "0", {.skips = 99}, SYMMEM_INVALID_ARGUMENT},
                 {"127.0.0.1", "65536", {.skips = 99}, SYMMEM_INVALID_ARGUMENT},
                 {"127.0.0.1", "1x", {.skips = 99}, SYMMEM_INVALID_ARGUMENT},
                 {"", "1", {.skips = 99}, SYMMEM_INVALID_ARGUMENT},
                 {"127.0.0.1", "1", {.call = "socket", .error = EMFILE}, SYMMEM_LIMIT},
                 {"a.name", "1", {.call = "malloc", .skips = 99}, SYMMEM_NOT_FOUND},
                 {"127.0.0.1", "1", {.call = "connect", .error = ECONNREFUSED}, SYMMEM_SYSTEM}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[8];
        setenv("MASTER_ADDR", cases[i].host, 1);
        setenv("MASTER_PORT", cases[i].port, 1);
        arm(cases[i].fault);
        EXPECT_FAIL(sm_torch_look_up("key", text, sizeof(text), limit()), cases[i].status,
                    "store_open");
        arm(cases[i].fault);
        EXPECT_FAIL(sm_torch_publish("key", "place", limit()), cases[i].status, "store_open");
        (void)disarm();
    }
}

/* --- the variables ---------------------------------------------------------------------------- */

TEST("whether all ranks are on this host") {
    static const struct {
        const char *local;
        bool is_local;
    } cases[] = {{NULL, false}, {"", false}, {"4", true}, {"2", false}, {"4x", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].local == NULL)
            unsetenv("LOCAL_WORLD_SIZE");
        else
            setenv("LOCAL_WORLD_SIZE", cases[i].local, 1);
        CU_ASSERT_EQUAL(sm_torch_is_local(4), cases[i].is_local);
    }
}

/* --- opening ---------------------------------------------------------------------------------- */

TEST("both ranks of a world") {
    symmem_store *stores[2] = {NULL, NULL};
    int64_t sum = 0;
    setenv("TORCHELASTIC_RUN_ID", "job", 1);
    setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    kept_bytes = 0;
    for (int32_t rank = 0; rank < 2; rank++) {
        agent self = {.is_honest = true};
        pthread_t thread;
        begin_agent(&self, &thread);
        CU_ASSERT_EQUAL(symmem_store_open("torchrun:", rank, 2, LIMIT_MS, &stores[rank]),
                        SYMMEM_OK);
        end_agent(&self, thread);
        CU_ASSERT_EQUAL_FATAL(symmem_store_add(stores[rank], "n", 1, &sum, LIMIT_MS), SYMMEM_OK);
    }
    CU_ASSERT_EQUAL(sum, 2);
    symmem_store_close(stores[1]);
    symmem_store_close(stores[0]);
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("TORCHELASTIC_RESTART_COUNT");
}

TEST("a world that cannot be opened") {
    static const struct {
        int32_t rank;
        const char *answer;
        size_t bytes;
        symmem_status status;
    } cases[] = {{0, NULL, 0, SYMMEM_SYSTEM},
                 {1, "", 0, SYMMEM_TIMEOUT},
                 {1, "\0\4\0\0\0\0\0\0\0abcd", 13, SYMMEM_CORRUPT}};
    symmem_store *store = NULL;
    const int fds = open_fds();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        agent self = {.answer = cases[i].answer, .bytes = cases[i].bytes};
        pthread_t thread;
        begin_agent(&self, &thread);
        const uint32_t limit_ms = cases[i].status == SYMMEM_TIMEOUT ? 200 : LIMIT_MS;
        EXPECT_FAIL(symmem_store_open("torchrun:", cases[i].rank, 2, limit_ms, &store),
                    cases[i].status, "store_open");
        if (cases[i].status == SYMMEM_TIMEOUT)
            CU_ASSERT(last_record().failed_rank == 0 && last_record().missing[0] == 1);
        end_agent(&self, thread);
    }
    arm((fault){.call = "socket", .error = EMFILE});
    EXPECT_FAIL(symmem_store_open("torchrun:", 0, 2, 300, &store), SYMMEM_LIMIT, "store_open");
    CU_ASSERT_TRUE(disarm());
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
    EXPECT_FAIL(symmem_store_open("torchrun:", 0, 2, 300, &store), SYMMEM_UNSUPPORTED,
                "store_open");
    CU_ASSERT_EQUAL(open_fds(), fds);
}
