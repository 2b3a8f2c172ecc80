/* SPDX-License-Identifier: BSD-3-Clause */
#include "pmi.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "collective.h"
#include "wait.h"

#define LINE 4096 /* of the protocol, a command each */
#define NAME_BYTES 32
#define KEY_BYTES 64
#define VALUE_BYTES 1024
#define MOST_PAIRS 65536 /* of all ranks together */
#define TURN_MS 100
#define NS_PER_MS UINT64_C(1000000)
#define LEAVE_MS 2000

/* --- the table of keys ------------------------------------------------------------------------ */

typedef struct pair {
    struct pair *next;
    char key[KEY_BYTES], value[VALUE_BYTES];
} pair;

typedef struct client {
    int fd;
    bool left; /* its descriptor stays, so that none goes while the program runs */
    size_t held;
    char line[LINE];
} client;

static struct {
    char name[NAME_BYTES];
    int listener, ranks, joined, left, waiting;
    client *clients;
    pair *pairs;
    int pair_count;
    atomic_bool serving, stop;
} server = {.listener = -1};

static const pair *find_pair(const char *key) {
    const pair *one = server.pairs;
    while (one != NULL && strcmp(one->key, key) != 0)
        one = one->next;
    return one;
}

static bool add_pair(const char *key, const char *value) {
    pair *made =
        server.pair_count < MOST_PAIRS && find_pair(key) == NULL ? malloc(sizeof *made) : NULL;
    if (made == NULL)
        return false;
    snprintf(made->key, sizeof made->key, "%s", key);
    snprintf(made->value, sizeof made->value, "%s", value);
    made->next = server.pairs;
    server.pairs = made;
    server.pair_count++;
    return true;
}

/* --- the protocol: lines of NAME=VALUE with blanks between them ------------------------------- */

/* False: there is none of that name, or it is too long. */
static bool field(const char *line, const char *name, char *value, size_t capacity) {
    const size_t length = strlen(name);
    for (const char *at = line; *at != '\0'; at += strspn(at, " ")) {
        const size_t whole = strcspn(at, " ");
        if (whole > length && strncmp(at, name, length) == 0 && at[length] == '=') {
            if (whole - length > capacity)
                return false;
            snprintf(value, capacity, "%.*s", (int)(whole - length - 1), at + length + 1);
            return true;
        }
        at += whole;
    }
    return false;
}

static void leave(client *self) {
    self->left = true;
    server.left++;
}

static bool say(const client *self, const char *text) {
    const size_t bytes = strlen(text);
    return send(self->fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

static bool put(const client *self, const char *line) {
    char key[KEY_BYTES], value[VALUE_BYTES];
    const bool good = field(line, "key", key, sizeof key) &&
                      field(line, "value", value, sizeof value) && add_pair(key, value);
    return say(self,
               good ? "cmd=put_result rc=0 msg=success\n" : "cmd=put_result rc=-1 msg=refused\n");
}

static bool get(const client *self, const char *line) {
    char key[KEY_BYTES], text[VALUE_BYTES + 64];
    const pair *found = field(line, "key", key, sizeof key) ? find_pair(key) : NULL;
    if (found == NULL)
        return say(self, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    snprintf(text, sizeof text, "cmd=get_result rc=0 msg=success value=%s\n", found->value);
    return say(self, text);
}

static bool enter_barrier(void) {
    bool good = true;
    if (++server.waiting < server.ranks)
        return true;
    server.waiting = 0;
    for (int i = 0; i < server.joined; i++)
        if (!server.clients[i].left)
            good = say(&server.clients[i], "cmd=barrier_out\n") && good;
    return good;
}

static bool tell_universe(const client *self) {
    char text[64];
    snprintf(text, sizeof text, "cmd=universe_size size=%d\n", server.ranks);
    return say(self, text);
}

/* An engine may name what it shares by this: no other job of the host has it. */
static bool tell_name(const client *self) {
    char text[96];
    snprintf(text, sizeof text, "cmd=my_kvsname kvsname=%s\n", server.name);
    return say(self, text);
}

/* False: the connection is of no more use. */
static bool answer(const client *self, const char *line) {
    static const char *const fixed[][2] = {
        {"init", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
        {"get_maxes", "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=1024\n"},
        {"get_appnum", "cmd=appnum appnum=0\n"},
    };
    char command[32];
    if (!field(line, "cmd", command, sizeof command))
        return false;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (strcmp(command, fixed[i][0]) == 0)
            return say(self, fixed[i][1]);
    if (strcmp(command, "put") == 0)
        return put(self, line);
    if (strcmp(command, "get") == 0)
        return get(self, line);
    if (strcmp(command, "barrier_in") == 0)
        return enter_barrier();
    if (strcmp(command, "get_universe_size") == 0)
        return tell_universe(self);
    if (strcmp(command, "get_my_kvsname") == 0)
        return tell_name(self);
    if (strcmp(command, "finalize") == 0)
        (void)say(self, "cmd=finalize_ack\n");
    return false;
}

/* --- the thread ------------------------------------------------------------------------------- */

static void take_client(void) {
    struct ucred who;
    socklen_t bytes = sizeof who;
    const int fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0 || who.uid != geteuid()) {
        close(fd);
        return;
    }
    server.clients[server.joined++] = (client){.fd = fd};
    if (server.joined == server.ranks) {
        close(server.listener);
        server.listener = -1;
    }
}

static void read_client(client *self) {
    const ssize_t got =
        recv(self->fd, self->line + self->held, LINE - 1 - self->held, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    bool good = got > 0;
    self->held += good ? (size_t)got : 0;
    self->line[self->held] = '\0';
    for (char *end; good && (end = memchr(self->line, '\n', self->held)) != NULL;) {
        *end = '\0';
        good = answer(self, self->line);
        self->held -= (size_t)(end + 1 - self->line);
        memmove(self->line, end + 1, self->held + 1);
    }
    if (!good || self->held == LINE - 1)
        leave(self);
}

static void forget(void) {
    for (int i = 0; i < server.joined; i++)
        close(server.clients[i].fd);
    if (server.listener >= 0)
        close(server.listener);
    while (server.pairs != NULL) {
        pair *next = server.pairs->next;
        free(server.pairs);
        server.pairs = next;
    }
    free(server.clients);
}

static void *serve(void *polled_v) {
    struct pollfd *polled = polled_v;
    while (!atomic_load(&server.stop) && server.left < server.ranks) {
        const int count = server.joined;
        for (int i = 0; i < count; i++)
            polled[i] = (struct pollfd){.fd = server.clients[i].left ? -1 : server.clients[i].fd,
                                        .events = POLLIN};
        polled[count] = (struct pollfd){.fd = server.listener, .events = POLLIN};
        if (poll(polled, (nfds_t)count + 1, TURN_MS) <= 0)
            continue;
        for (int i = 0; i < count; i++)
            if (polled[i].revents != 0)
                read_client(&server.clients[i]);
        if (polled[count].revents != 0)
            take_client();
    }
    forget();
    free(polled);
    atomic_store(&server.serving, false);
    return NULL;
}

static int start_thread(struct pollfd *polled) {
    sigset_t all, old;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int error = pthread_create(&thread, NULL, serve, polled);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0)
        pthread_detach(thread);
    return error;
}

/* --- ranks ------------------------------------------------------------------------------------ */

static const char *const names[] = {"PMI_FD", "PMI_RANK", "PMI_SIZE"};
static bool is_set;

/* Of each rank; rank 0's place counts. */
typedef struct offer {
    char name[NAME_BYTES]; /* of the socket, abstract */
    int64_t has_manager;
} offer;

static socklen_t address_of(const char *name, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const size_t bytes = strlen(name);
    memcpy(address->sun_path + 1, name, bytes);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
}

/* Again after a start that failed. */
static void reset(int32_t ranks) {
    atomic_store(&server.stop, true);
    while (atomic_load(&server.serving))
        symmem_kit_pause(1000);
    server.listener = -1;
    server.ranks = ranks;
    server.joined = server.left = server.waiting = server.pair_count = 0;
    server.clients = calloc((size_t)ranks, sizeof *server.clients);
    atomic_store(&server.stop, false);
}

static int open_listener(void) {
    struct sockaddr_un address;
    const socklen_t bytes = address_of(server.name, &address);
    server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return server.listener >= 0 && bind(server.listener, (void *)&address, bytes) == 0 &&
                   listen(server.listener, server.ranks) == 0
               ? 0
               : errno;
}

/* 0 or an errno. */
static int begin(int32_t ranks) {
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return errno;
    reset(ranks);
    snprintf(server.name, sizeof server.name, "symmem-pmi-%016llx", (unsigned long long)number);
    struct pollfd *polled = calloc((size_t)ranks + 1, sizeof *polled);
    int error = server.clients == NULL || polled == NULL ? ENOMEM : open_listener();
    atomic_store(&server.serving, error == 0);
    if (error == 0)
        error = start_thread(polled);
    if (error != 0) {
        forget();
        free(polled);
        atomic_store(&server.serving, false);
    }
    return error;
}

/* 0 or an errno. */
static int reach(const char *name, int32_t rank, int32_t ranks) {
    struct sockaddr_un address;
    char text[3][16];
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const socklen_t bytes = address_of(name, &address);
    if (fd < 0 || connect(fd, (void *)&address, bytes) != 0) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    snprintf(text[0], sizeof *text, "%d", fd);
    snprintf(text[1], sizeof *text, "%d", (int)rank);
    snprintf(text[2], sizeof *text, "%d", (int)ranks);
    is_set = true;
    for (int i = 0; i < 3; i++)
        setenv(names[i], text[i], 1);
    return 0;
}

static symmem_status fail(const symmem_host *host, int error) {
    return error == 0 ? SYMMEM_OK
                      : host->fail(host, SYMMEM_SYSTEM, error, "join",
                                   "a process manager for the engine: %s", strerror(error));
}

static symmem_status connect_all(const symmem_host *host, const symmem_exchange *exchange,
                                 const offer *all, int32_t rank, int32_t ranks) {
    for (int32_t r = 0; r < ranks; r++)
        if (all[r].has_manager != 0) {
            atomic_store(&server.stop, true);
            return SYMMEM_OK;
        }
    symmem_status status =
        exchange->agree(exchange, fail(host, reach(all[0].name, rank, ranks)), "pmi.connect");
    if (status != SYMMEM_OK) {
        atomic_store(&server.stop, true);
        symmem_kit_pmi_started();
    }
    return status;
}

symmem_status symmem_kit_pmi_open(const symmem_host *host, const symmem_exchange *exchange,
                                  int32_t rank, int32_t ranks) {
    symmem_kit_pmi_started(); /* of a try that did not come to the engine's start */
    offer own = {.has_manager = getenv("PMI_FD") != NULL || getenv("PMI_PORT") != NULL ||
                                getenv("PMIX_RANK") != NULL};
    void *all = NULL;
    int error = rank == 0 && own.has_manager == 0 ? begin(ranks) : 0;
    memcpy(own.name, server.name, sizeof own.name);
    symmem_status status = exchange->agree(exchange, fail(host, error), "pmi.serve");
    if (status == SYMMEM_OK)
        status = symmem_kit_gather(host, exchange, &own, sizeof own, "pmi.name", &all);
    if (status == SYMMEM_OK)
        status = connect_all(host, exchange, all, rank, ranks);
    else
        atomic_store(&server.stop, true);
    free(all);
    return status;
}

void symmem_kit_pmi_started(void) {
    for (int i = 0; is_set && i < 3; i++)
        unsetenv(names[i]);
    is_set = false;
}

void symmem_kit_pmi_end(void) {
    const uint64_t end_ns = symmem_kit_now_ns() + LEAVE_MS * NS_PER_MS;
    for (unsigned turns = 0; atomic_load(&server.serving) && symmem_kit_now_ns() < end_ns; turns++)
        symmem_kit_pause(turns);
}
