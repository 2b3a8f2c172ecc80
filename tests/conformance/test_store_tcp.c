/* SPDX-License-Identifier: BSD-3-Clause */
/* The store that rank 0 serves over TCP: who gets in, what comes of bad company, and its end. */
#include <dirent.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "resources.h"
#include "tcp_help.h"

#define LIMIT_MS 10000u
#define SHORT_MS 300u
#define PORT_SLOT 0

/* Rank 0's choice, known to all. */
static const char *common_address(struct tk *t, char text[ADDRESS_BYTES]) {
    tcp_require(t); /* on every rank */
    if (t->rank == 0)
        tk_share_u64(t, PORT_SLOT, tcp_free_port(t));
    tk_out_of_band_barrier(t);
    return tcp_address(text, (uint16_t)tk_read_u64(t, 0, PORT_SLOT), "common");
}

static bool blames_rank_0(void) {
    const symmem_error_record record = last_record();
    return record.failed_rank == 0 && record.missing_count == 1 &&
           symmem_error_is_missing(&record, 0);
}

/* --- a world ---------------------------------------------------------------------------------- */

TK_TEST(store_tcp, world_meets, "SM-STORE-01,SM-STORE-03,SM-STORE-04,SM-STORE-15,SM-STORE-20") {
    char address[ADDRESS_BYTES], key[32];
    symmem_store *store = NULL;
    int64_t sum = 0;
    common_address(t, address);
    if (t->rank == 0)
        tk_sleep_ms(100); /* the others are there before */
    TK_REQUIRE_OK(t, symmem_store_open(address, t->rank, t->world_size, LIMIT_MS, &store));
    snprintf(key, sizeof key, "of/%d", t->rank);
    TK_OK(t, symmem_store_set(store, key, &t->rank, sizeof t->rank, LIMIT_MS));
    for (int32_t rank = 0; rank < t->world_size; rank++) {
        int32_t value = -1;
        size_t bytes = 0;
        snprintf(key, sizeof key, "of/%d", rank);
        TK_OK(t, symmem_store_wait(store, key, LIMIT_MS));
        TK_OK(t, symmem_store_get(store, key, &value, sizeof value, &bytes, LIMIT_MS));
        TK_EQ_INT(t, rank, value);
    }
    for (int i = 0; i < 50; i++)
        TK_OK(t, symmem_store_add(store, "sum", 1, &sum, LIMIT_MS));
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_store_add(store, "sum", 0, &sum, LIMIT_MS));
    TK_EQ_INT(t, 50 * t->world_size, sum);
    tk_out_of_band_barrier(t);
    symmem_store_close(store);
}

TK_TEST(store_tcp, serves_a_context, "SM-STORE-14,SM-STORE-20", .flags = TK_NO_CONTEXT) {
    char address[ADDRESS_BYTES];
    symmem_store *store = NULL;
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_context_options options = tk_options(t);
    int32_t *ranks = tk_scratch(t, (size_t)t->world_size * sizeof(*ranks));
    common_address(t, address);
    for (int round = 0; round < 3; round++) { /* one world after the other, at one address */
        TK_REQUIRE_OK(t, symmem_store_open(address, t->rank, t->world_size, LIMIT_MS, &store));
        options.store = store;
        TK_REQUIRE_OK(t, symmem_init(&options, &context));
        TK_OK(t, symmem_group_create(context, "tcp", NULL, 0, NULL, &group));
        TK_OK(t, symmem_group_all_gather(group, &t->rank, sizeof(t->rank), ranks, LIMIT_MS));
        for (int32_t rank = 0; rank < t->world_size; rank++)
            TK_EQ_INT(t, rank, ranks[rank]);
        symmem_context_free(context); /* rank 0 may be first: no rank waits for it */
        symmem_store_close(store);
    }
}

TK_TEST(store_tcp, rank_0_waits_for_the_others, "SM-STORE-20", .min_ranks = 2, .max_ranks = 2) {
    char address[ADDRESS_BYTES], value[8];
    symmem_store *store = NULL;
    size_t bytes = 0;
    common_address(t, address);
    TK_REQUIRE_OK(t, symmem_store_open(address, t->rank, 2, LIMIT_MS, &store));
    if (t->rank == 0)
        TK_OK(t, symmem_store_set(store, "last", "words", 6, LIMIT_MS));
    tk_out_of_band_barrier(t);
    if (t->rank == 1) {
        tk_sleep_ms(200);
        TK_OK(t, symmem_store_get(store, "last", value, sizeof value, &bytes, LIMIT_MS));
        TK_EQ_STR(t, "words", value);
        tk_share_u64(t, 1, tk_now_ms());
    }
    symmem_store_close(store);
    const uint64_t closed_ms = tk_now_ms();
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        TK_CHECK(t, closed_ms >= tk_read_u64(t, 1, 1));
        TK_TOOK(t, 2000, tk_read_u64(t, 1, 1), closed_ms);
    }
}

/* --- waiting ---------------------------------------------------------------------------------- */

#define MOST_THREADS 256

struct threads {
    int ids[MOST_THREADS];
    size_t count;
};

static void list_threads(struct tk *t, struct threads *all) {
    DIR *directory = opendir("/proc/self/task");
    const struct dirent *entry;
    all->count = 0;
    TK_REQUIRE(t, directory != NULL);
    while ((entry = readdir(directory)) != NULL && all->count < MOST_THREADS)
        if (entry->d_name[0] != '.')
            all->ids[all->count++] = atoi(entry->d_name);
    closedir(directory);
}

static bool has_thread(const struct threads *all, int id) {
    for (size_t i = 0; i < all->count; i++)
        if (all->ids[i] == id)
            return true;
    return false;
}

/* How often a thread has gone to sleep; 0 if it has ended. */
static uint64_t sleeps_of(int id) {
    char path[64], line[128];
    unsigned long long sleeps = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", id);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        (void)sscanf(line, "voluntary_ctxt_switches: %llu", &sleeps);
    if (file != NULL)
        fclose(file);
    return sleeps;
}

/* This thread's and those of the threads that were not there before. A backend's have nothing to do
 * with the store. */
static uint64_t sleeps_since(struct tk *t, const struct threads *before) {
    struct threads now;
    uint64_t sleeps = sleeps_of((int)syscall(SYS_gettid));
    list_threads(t, &now);
    for (size_t i = 0; i < now.count; i++)
        if (!has_thread(before, now.ids[i]))
            sleeps += sleeps_of(now.ids[i]);
    return sleeps;
}

TK_TEST(store_tcp, waiting_is_not_asking, "SM-STORE-19", .max_ranks = 1,
        .flags = TK_NO_CONTEXT | TK_PROCESS_ONLY) {
    char address[ADDRESS_BYTES];
    symmem_store *store = NULL;
    struct threads others;
    tcp_address(address, tcp_free_port(t), "w");
    list_threads(t, &others);
    TK_REQUIRE_OK(t, symmem_store_open(address, 0, 1, LIMIT_MS, &store));
    const uint64_t before = sleeps_since(t, &others);
    TK_FAILS(t, TIMEOUT, symmem_store_wait(store, "never", 500));
    TK_BELOW(t, 20, sleeps_since(t, &others) - before);
    symmem_store_close(store);
}

/* --- connections that fail -------------------------------------------------------------------- */

TK_TEST(store_tcp, nobody_serves, "SM-STORE-15,SM-ERROR-04", .max_ranks = 1) {
    char address[ADDRESS_BYTES];
    symmem_store *const untouched = (symmem_store *)(void *)t;
    symmem_store *store = untouched;
    uint16_t port = 0;
    uint64_t begin_ms = tk_now_ms();
    tcp_address(address, tcp_free_port(t), "w");
    TK_FAILS(t, TIMEOUT, symmem_store_open(address, 1, 2, SHORT_MS, &store));
    TK_CHECK(t, blames_rank_0());
    TK_WITHIN(t, SHORT_MS + 1000, begin_ms);
    /* A server that listens and sends nothing. */
    const int listener = tcp_socket(t, &port);
    TK_REQUIRE(t, listen(listener, 4) == 0);
    begin_ms = tk_now_ms();
    TK_FAILS(t, TIMEOUT,
             symmem_store_open(tcp_address(address, port, "w"), 1, 2, SHORT_MS, &store));
    TK_CHECK(t, blames_rank_0());
    TK_WITHIN(t, SHORT_MS + 1000, begin_ms);
    close(listener);
    TK_EQ_PTR(t, untouched, store);
}

TK_TEST(store_tcp, worlds_are_apart, "SM-STORE-16,SM-ERROR-04", .max_ranks = 1) {
    char address[ADDRESS_BYTES], value[8];
    symmem_store *store = NULL, *other = NULL;
    const uint16_t port = tcp_free_port(t);
    size_t bytes = 0;
    TK_REQUIRE_OK(t, symmem_store_open(tcp_address(address, port, "one"), 0, 2, LIMIT_MS, &store));
    TK_OK(t, symmem_store_set(store, "key", "mine", 5, LIMIT_MS));
    tcp_address(address, port, "two");
    TK_FAILS(t, BUSY, symmem_store_open(address, 0, 2, LIMIT_MS, &other));
    const uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, AUTH, symmem_store_open(address, 1, 2, LIMIT_MS, &other));
    TK_WITHIN(t, 1000, begin_ms);
    TK_EQ_PTR(t, NULL, other);
    TK_OK(t, symmem_store_get(store, "key", value, sizeof value, &bytes, LIMIT_MS));
    TK_EQ_STR(t, "mine", value);
    symmem_store_close(store);
}

TK_TEST(store_tcp, addresses_are_checked, "SM-STORE-23,SM-STORE-21,SM-ERROR-04",
        TK_OWN_ENVIRONMENT) {
    static const char *const wrong[] = {"",
                                        "tcp",
                                        "tcp://",
                                        "tcp://:1",
                                        "tcp://host",
                                        "tcp://host:",
                                        "tcp://host:0",
                                        "tcp://host:65536",
                                        "tcp://host:1x",
                                        "tcp://host:-1",
                                        "tcp://[::1",
                                        "tcp://[]:1",
                                        "pmix:x",
                                        "torchrun:1",
                                        "http://host:1"};
    static const char *const launched[] = {"PMIX_NAMESPACE", "TORCHELASTIC_USE_AGENT_STORE"};
    symmem_store *const untouched = (symmem_store *)(void *)t;
    symmem_store *store = untouched;
    TK_REQ(t, "SM-STORE-23");
    for (size_t i = 0; i < LENGTH(wrong); i++)
        TK_FAILS(t, INVALID_ARGUMENT, symmem_store_open(wrong[i], 1, 2, SHORT_MS, &store));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_store_open("tcp://localhost:9", 2, 2, SHORT_MS, &store));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_store_open("tcp://localhost:9", -1, 2, SHORT_MS, &store));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_store_open("file:", 0, 2, SHORT_MS, &store));
    TK_REQ(t, "SM-STORE-21");
    for (size_t i = 0; i < LENGTH(launched); i++)
        unsetenv(launched[i]);
    TK_FAILS(t, UNSUPPORTED, symmem_store_open("pmix:", 0, 2, LIMIT_MS, &store));
    TK_FAILS(t, UNSUPPORTED, symmem_store_open("torchrun:", 0, 2, LIMIT_MS, &store));
    TK_EQ_PTR(t, untouched, store);
}

TK_TEST(store_tcp, variables_of_torchrun_are_checked, "SM-STORE-27", TK_OWN_ENVIRONMENT) {
    static const struct {
        const char *host, *port, *name;
    } wrong[] = {{"127.0.0.1", "0", "MASTER_PORT"},
                 {"127.0.0.1", "65536", "MASTER_PORT"},
                 {"127.0.0.1", "29500x", "MASTER_PORT"},
                 {"127.0.0.1", "", "MASTER_PORT"},
                 {"", "29500", "MASTER_ADDR"}};
    symmem_store *store = NULL;
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        setenv("MASTER_ADDR", wrong[i].host, 1);
        setenv("MASTER_PORT", wrong[i].port, 1);
        TK_FAILS(t, INVALID_ARGUMENT, symmem_store_open("torchrun:", 1, 2, LIMIT_MS, &store));
        TK_SAYS(t, wrong[i].name);
    }
}

TK_TEST(store_tcp, environment_names_it, "SM-STORE-14,SM-STORE-23", TK_OWN_ENVIRONMENT) {
    static const char *const others[] = {"PMIX_NAMESPACE", "PMIX_RANK", "SYMMEM_STORE",
                                         "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"};
    symmem_context_options options = tk_options(t);
    symmem_context *context = NULL;
    char text[64];
    const uint16_t port = tcp_free_port(t);
    for (size_t i = 0; i < LENGTH(others); i++)
        unsetenv(others[i]);
    options.store = NULL;
    options.rank = 0;
    options.world_size = 2;
    snprintf(text, sizeof text, "%u", (unsigned)port - 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", text, 1);
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    close(tcp_connect(t, port)); /* it serves there */
    symmem_context_free(context);
    setenv("MASTER_PORT", "many", 1);
    TK_FAILS(t, INVALID_ARGUMENT, symmem_init(&options, &context));
    setenv("SYMMEM_STORE", "tcp:somewhere", 1);
    TK_FAILS(t, INVALID_ARGUMENT, symmem_init(&options, &context));
    setenv("SYMMEM_STORE", tcp_address((char[ADDRESS_BYTES]){0}, port, "named"), 1);
    TK_REQUIRE_OK(t, symmem_init(&options, &context)); /* whatever else there is */
    symmem_context_free(context);
}

/* --- bad company ------------------------------------------------------------------------------ */

static bool is_closed_in(int fd, int ms) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&ready, 1, ms) == 1 && read(fd, &byte, 1) <= 0;
}

TK_TEST(store_tcp, strangers_cost_nothing, "SM-STORE-17", .max_ranks = 1) {
    char address[ADDRESS_BYTES], junk[4096];
    symmem_store *store = NULL, *client = NULL;
    const uint16_t port = tcp_free_port(t);
    int silent[140];
    int64_t sum = 0;
    memset(junk, 'G', sizeof junk);
    tcp_address(address, port, "w");
    TK_REQUIRE_OK(t, symmem_store_open(address, 0, 2, LIMIT_MS, &store));
    for (size_t i = 0; i < LENGTH(silent); i++)
        silent[i] = tcp_connect(t, port);
    const int rude = tcp_connect(t, port), slow = tcp_connect(t, port);
    TK_CHECK(t, send(rude, junk, sizeof junk, MSG_NOSIGNAL) > 0);
    TK_CHECK(t, send(slow, "S", 1, MSG_NOSIGNAL) == 1);
    TK_CHECK(t, is_closed_in(rude, 5000));
    const uint64_t begin_ms = tk_now_ms();
    TK_OK(t, symmem_store_open(address, 1, 2, LIMIT_MS, &client));
    for (int i = 0; i < 10; i++)
        TK_OK(t, symmem_store_add(i % 2 == 0 ? store : client, "n", 1, &sum, LIMIT_MS));
    TK_EQ_INT(t, 10, sum);
    TK_WITHIN(t, 1000, begin_ms);
    TK_CHECK(t, is_closed_in(silent[0], 100)); /* there were too many of them */
    TK_CHECK(t, is_closed_in(slow, 5000) && is_closed_in(silent[LENGTH(silent) - 1], 5000));
    for (size_t i = 0; i < LENGTH(silent); i++)
        close(silent[i]);
    close(rude);
    close(slow);
    symmem_store_close(client);
    symmem_store_close(store);
}

struct liar {
    int listener;
    const char *says;
    size_t bytes;
};

static void *lie(void *arg) {
    const struct liar *self = arg;
    const int fd = accept(self->listener, NULL, NULL);
    char hello[64];
    (void)!recv(fd, hello, sizeof hello, 0);
    (void)!send(fd, self->says, self->bytes, MSG_NOSIGNAL);
    (void)is_closed_in(fd, 5000);
    close(fd);
    return NULL;
}

TK_TEST(store_tcp, what_answers_is_no_store, "SM-STORE-17,SM-ERROR-04", .max_ranks = 1) {
    static const char *const answers[] = {
        "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3 and much more of it\r\n",
    };
    for (size_t i = 0; i < LENGTH(answers); i++) {
        char address[ADDRESS_BYTES];
        symmem_store *store = NULL;
        struct liar liar = {.says = answers[i], .bytes = strlen(answers[i])};
        pthread_t thread;
        uint16_t port = 0;
        liar.listener = tcp_socket(t, &port);
        TK_REQUIRE(t, listen(liar.listener, 4) == 0);
        TK_REQUIRE(t, pthread_create(&thread, NULL, lie, &liar) == 0);
        const uint64_t begin_ms = tk_now_ms();
        TK_FAILS(t, CORRUPT,
                 symmem_store_open(tcp_address(address, port, "w"), 1, 2, LIMIT_MS, &store));
        TK_WITHIN(t, 1000, begin_ms);
        pthread_join(thread, NULL);
        close(liar.listener);
    }
}

/* --- the end of the serving process ----------------------------------------------------------- */

/* Serves as rank 0 until the process is killed. With `forks` it leaves a child behind, which ends
 * when the other end of `stay` is closed in all processes. */
static void serve(const char *address, bool forks, const int ready[2], const int stay[2]) {
    symmem_store *store = NULL;
    char byte;
    alarm(20);
    close(stay[1]);
    if (symmem_store_open(address, 0, 2, LIMIT_MS, &store) != SYMMEM_OK)
        _exit(1);
    const pid_t child = forks ? fork() : 1;
    if (child == 0) {
        alarm(20);
        (void)!read(stay[0], &byte, 1);
        _exit(0);
    }
    if (child < 0 || write(ready[1], "r", 1) != 1)
        _exit(1);
    close(ready[1]);
    for (;;)
        pause();
}

/* *gone_p: has its end when the child, too, has ended. */
static pid_t start_server(struct tk *t, const char *address, bool forks, int stay[2], int *gone_p) {
    int ready[2];
    char byte = 0;
    TK_REQUIRE(t, pipe(ready) == 0 && pipe(stay) == 0);
    const pid_t pid = fork();
    TK_REQUIRE(t, pid >= 0);
    if (pid == 0)
        serve(address, forks, ready, stay);
    struct pollfd said = {.fd = ready[0], .events = POLLIN};
    close(ready[1]);
    TK_CHECK(t, poll(&said, 1, 10000) == 1 && read(ready[0], &byte, 1) == 1);
    *gone_p = ready[0];
    close(stay[0]);
    return pid;
}

struct waiter {
    symmem_store *store;
    symmem_status status;
    bool blames;
    uint64_t ended_ms;
};

static void *wait_for_never(void *arg) {
    struct waiter *self = arg;
    self->status = symmem_store_wait(self->store, "never", LIMIT_MS);
    self->blames = blames_rank_0();
    self->ended_ms = tk_now_ms();
    return NULL;
}

static void lose_server(struct tk *t, bool forks) {
    char address[ADDRESS_BYTES], byte;
    struct waiter waiter = {.store = NULL};
    symmem_store *again = NULL;
    pthread_t thread;
    size_t bytes = 0;
    tcp_address(address, tcp_free_port(t), "w");
    int stay[2], gone = -1;
    const pid_t pid = start_server(t, address, forks, stay, &gone);
    TK_REQUIRE_OK(t, symmem_store_open(address, 1, 2, LIMIT_MS, &waiter.store));
    TK_REQUIRE(t, pthread_create(&thread, NULL, wait_for_never, &waiter) == 0);
    tk_sleep_ms(50);
    const uint64_t begin_ms = tk_now_ms();
    TK_CHECK(t, kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    pthread_join(thread, NULL);
    TK_STATUS(t, SYMMEM_PEER_LOST, waiter.status);
    TK_CHECK(t, waiter.blames);
    TK_TOOK(t, 1000, begin_ms, waiter.ended_ms);
    TK_FAILS(t, PEER_LOST, symmem_store_get(waiter.store, "k", &byte, 1, &bytes, LIMIT_MS));
    TK_CHECK(t, blames_rank_0());
    TK_FAILS(t, PEER_LOST, symmem_store_set(waiter.store, "k", "", 0, LIMIT_MS));
    TK_WITHIN(t, 1000, begin_ms);
    symmem_store_close(waiter.store);
    if (TK_OK(t, symmem_store_open(address, 0, 2, LIMIT_MS, &again))) /* the port is free */
        symmem_store_close(again);
    close(stay[1]);
    TK_CHECK(t, is_closed_in(gone, 5000));
    close(gone);
    tk_sleep_ms(20); /* its descriptors go a moment before itself */
}

TK_TEST(store_tcp, server_is_killed, "SM-STORE-18", .max_ranks = 1,
        .flags = TK_NO_CONTEXT | TK_PROCESS_ONLY) {
    lose_server(t, false);
}

TK_TEST(store_tcp, server_leaves_a_child, "SM-STORE-22", .max_ranks = 1,
        .flags = TK_NO_CONTEXT | TK_PROCESS_ONLY) {
    lose_server(t, true);
}

/* --- a serving rank that is stopped ----------------------------------------------------------- */

static bool signal_rank_0(struct tk *t, int number) {
    const int32_t pid = tk_process_id(t, 0);
    return TK_CHECK(t, pid > 1) && TK_CHECK(t, kill(pid, number) == 0);
}

/* A stop begins when the threads take the signal, each in its own time. */
static bool is_stopped(int32_t pid) {
    char path[64], line[512];
    bool all = true;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", (int)pid, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        const char *state =
            file != NULL && fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL;
        all = all && (state == NULL || state[2] == 'T');
        if (file != NULL)
            fclose(file);
    }
    if (directory != NULL)
        closedir(directory);
    return directory != NULL && all;
}

static bool stop_rank_0(struct tk *t) {
    if (!signal_rank_0(t, SIGSTOP))
        return false;
    for (int i = 0; i < 2000 && !is_stopped(tk_process_id(t, 0)); i++)
        tk_sleep_ms(1);
    return TK_CHECK(t, is_stopped(tk_process_id(t, 0)));
}

/* While rank 0 is stopped: no check from here on may end the case. `member`: of the group, which
 * has met or not. */
static void wait_in(struct tk *t, symmem_group *group, bool member) {
    const uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, TIMEOUT, symmem_group_barrier(group, SHORT_MS));
    TK_WITHIN(t, SHORT_MS + 1000, begin_ms);
    const symmem_error_record record = last_record();
    TK_SAYS(t, "rank 0, which serves the store");
    TK_CHECK(t, member ? blames_rank_0() : record.failed_rank < 0 && record.missing_count == 0);
}

static void ask_the_stopped(struct tk *t, symmem_store *store, symmem_context *context,
                            symmem_group *const groups[4]) {
    char byte;
    size_t bytes;
    uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, TIMEOUT, symmem_store_set(store, "k", "v", 1, SHORT_MS));
    TK_CHECK(t, blames_rank_0());
    TK_WITHIN(t, SHORT_MS + 1000, begin_ms);
    begin_ms = tk_now_ms();
    TK_FAILS(t, TIMEOUT, symmem_store_get(store, "k", &byte, 1, &bytes, SHORT_MS));
    TK_CHECK(t, blames_rank_0());
    TK_WITHIN(t, SHORT_MS + 1000, begin_ms);
    for (int i = 0; i < 4; i++) {
        tk_checkpoint(t, "group %d", i);
        wait_in(t, groups[i], i < 2);
    }
    begin_ms = tk_now_ms();
    TK_OK(t, symmem_finalize(context));
    TK_WITHIN(t, 3000, begin_ms);
}

TK_TEST(store_tcp, serving_rank_is_stopped, "SM-STORE-28,SM-STORE-29,SM-CONTEXT-07", .min_ranks = 3,
        .max_ranks = 3, .flags = TK_NO_CONTEXT | TK_PROCESS_ONLY, .timeout_s = 60) {
    static const int32_t others[] = {1, 2};
    char address[ADDRESS_BYTES], value[8];
    symmem_store *store = NULL;
    symmem_context *context = NULL;
    symmem_group *groups[4] = {NULL}; /* of the world, and without rank 0; each met, and new */
    symmem_context_options options = tk_options(t);
    size_t bytes = 0;
    common_address(t, address);
    TK_REQUIRE_OK(t, symmem_store_open(address, t->rank, 3, LIMIT_MS, &store));
    options.store = store;
    options.default_timeout_ms = 0;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    for (int i = 0; i < (t->rank == 0 ? 2 : 4); i++) {
        char name[8];
        snprintf(name, sizeof name, "g%d", i);
        TK_OK(t, symmem_group_create(context, name, i < 2 ? NULL : others, i < 2 ? 0 : 2, NULL,
                                     &groups[i]));
        if (i % 2 == 0)
            TK_OK(t, symmem_group_barrier(groups[i], LIMIT_MS));
    }
    tk_out_of_band_barrier(t);
    if (t->rank == 1) {
        if (stop_rank_0(t))
            ask_the_stopped(t, store, context, groups);
        (void)signal_rank_0(t, SIGCONT);
    }
    tk_out_of_band_barrier(t);
    if (t->rank == 1) {
        TK_OK(t, symmem_store_set(store, "again", "there", 6, LIMIT_MS));
        TK_OK(t, symmem_store_get(store, "again", value, sizeof value, &bytes, LIMIT_MS));
    }
    symmem_context_free(context);
    symmem_store_close(store);
}
