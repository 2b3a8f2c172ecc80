/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client of a TCP store. Each call has a connection for itself while it lasts. The connection is
 * kept for later calls, so that a rank that has run out of descriptors can still tell its peers.
 * The server answers a wait when the key is there: the client does not ask again.
 *
 * A connection on which a deadline cut a message is closed: the place where the next message begins
 * is not known. One on which only the answer to a wait is outstanding is kept: the next request
 * takes the wait back, and an answer that crosses it is known by its id.
 */
#include "store/store_tcp.h"
#include "base/fork.h"
#include "store/store.h"
#include "store/store_tcp_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEPT 16
#define PAUSE_FIRST_NS 5000000u
#define PAUSE_LAST_NS 100000000u
#define TRY_NS 3000000000ull /* for an address, if there are others */
#define TOGETHER_BYTES 1024u /* values up to this size travel with their header */
#define SILENT_NS 50000000u  /* a server without an answer for that time is not only slow */
#define TRIES 4              /* to connect to a server that ends connections at once */

typedef struct tcp_store {
    sm_tcp_place place;
    sm_tcp_hello hello;
    sm_tcp_server *server; /* NULL: another rank's */
    sm_fork_lock lock;
    int kept[KEPT];
    int kept_count;
    uint32_t made_in; /* the connections are of that process */
    void (*closed)(void);
    _Atomic uint32_t last_id;
    _Atomic bool is_silent; /* the server has not answered for SILENT_NS, nor since */
} tcp_store;

typedef struct request {
    sm_tcp_kind kind;
    const char *operation;
    const char *key;
    const void *value;
    size_t bytes;
    int64_t number;
    uint64_t deadline_ns;
    void *out; /* for the value of the answer */
    size_t capacity;
    char text[SM_TCP_TEXT_MAX + 1]; /* of a failure */
    uint64_t start_ns;
} request;

/* --- failures --------------------------------------------------------------------------------- */

/* The rank that serves is the world's first. */
static symmem_status blame_server(void) {
    return sm_error_missing(0);
}

static symmem_status fail_lost(const tcp_store *store, const char *operation, int error) {
    (void)sm_fail_errno(error, operation, SM_STORE_SERVER_STAGE,
                        "rank 0, which serves the store at %s, has ended it", store->place.name);
    symmem_error_record record;
    (void)sm_error_get(&record);
    record.status = SYMMEM_PEER_LOST;
    (void)sm_error_raise(&record);
    return blame_server();
}

/* The server's thread has ended early: the cause is in this process. */
static symmem_status fail_server(const char *operation, int error) {
    (void)sm_fail_errno(error, operation, SM_STORE_SERVER_STAGE,
                        "the store's server has ended: this process has closed its descriptors");
    return blame_server();
}

/* A wait ends by its limit if nothing is wrong. A short limit may be a busy machine's, unless the
 * server has been silent before. Relaxed: a hint from one call to the next. */
static symmem_status fail_silent(tcp_store *store, const request *asked) {
    const bool is_long = sm_tcp_now_ns() - asked->start_ns >= SILENT_NS;
    if (asked->kind != SM_TCP_WAIT && is_long)
        atomic_store_explicit(&store->is_silent, true, memory_order_relaxed);
    if (asked->kind == SM_TCP_WAIT ||
        !atomic_load_explicit(&store->is_silent, memory_order_relaxed))
        return sm_store_expired(asked->operation, asked->key);
    (void)sm_fail(SYMMEM_TIMEOUT, asked->operation, SM_STORE_SERVER_STAGE,
                  "rank 0, which serves the store at %s, did not answer in time",
                  store->place.name);
    return blame_server();
}

static bool says_lost(int error) {
    static const int errors[] = {ECONNRESET, ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH};
    bool found = false;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        found |= error == errors[i];
    return found;
}

static symmem_status fail_socket(tcp_store *store, const request *asked, int error) {
    const int of_server = sm_tcp_server_error(store->server);
    if (of_server != 0)
        return fail_server(asked->operation, of_server);
    /* Without the deadline's end it is the kernel that has given the connection up. */
    if (error == ETIMEDOUT && sm_tcp_expired(asked->deadline_ns))
        return fail_silent(store, asked);
    if (says_lost(error))
        return fail_lost(store, asked->operation, error);
    return sm_fail_errno(error, asked->operation, "", "cannot ask the store at %s",
                         store->place.name);
}

static symmem_status fail_protocol(const tcp_store *store, const char *operation,
                                   const char *what) {
    return sm_fail(SYMMEM_CORRUPT, operation, "", "what answers at %s is no store of symmem: %s",
                   store->place.name, what);
}

/* --- messages --------------------------------------------------------------------------------- */

/* 0 or an errno. */
static int send_request(int fd, const request *asked, uint32_t id) {
    uint8_t bytes[SM_TCP_HEADER_BYTES + SYMMEM_STORE_KEY_MAX + TOGETHER_BYTES];
    const size_t key_bytes = asked->key == NULL ? 0 : strlen(asked->key);
    const bool together = asked->bytes <= TOGETHER_BYTES;
    size_t count = SM_TCP_HEADER_BYTES + key_bytes, done = 0;
    const sm_tcp_header header = {.kind = asked->kind,
                                  .id = id,
                                  .key_bytes = (uint32_t)key_bytes,
                                  .value_bytes = (uint32_t)asked->bytes,
                                  .number = asked->number};
    sm_tcp_write_header(&header, bytes);
    if (key_bytes != 0)
        memcpy(bytes + SM_TCP_HEADER_BYTES, asked->key, key_bytes);
    if (together && asked->bytes != 0) {
        memcpy(bytes + count, asked->value, asked->bytes);
        count += asked->bytes;
    }
    int error = sm_tcp_send(fd, bytes, count, asked->deadline_ns, &done);
    done = 0;
    if (error == 0 && !together)
        error = sm_tcp_send(fd, asked->value, asked->bytes, asked->deadline_ns, &done);
    return error;
}

/* Drops the value of an answer that the caller no longer waits for. */
static int skip(int fd, size_t count, uint64_t deadline_ns) {
    uint8_t bytes[4096];
    int error = 0;
    while (count != 0 && error == 0) {
        const size_t part = count < sizeof(bytes) ? count : sizeof(bytes);
        size_t done = 0;
        error = sm_tcp_receive(fd, bytes, part, deadline_ns, &done);
        count -= part;
    }
    return error;
}

/* NULL, or why such an answer cannot be. Only a get has a capacity. */
static const char *check_reply(const request *asked, const sm_tcp_header *reply) {
    const bool is_get = asked->kind == SM_TCP_GET;
    if (reply->status == SYMMEM_OK && reply->value_bytes > asked->capacity)
        return "a value larger than was asked for";
    if (reply->status == SYMMEM_OK && is_get && reply->number != reply->value_bytes)
        return "a value of another size than it says";
    if (reply->status == SYMMEM_OUT_OF_RANGE &&
        (reply->number <= (int64_t)asked->capacity || reply->number > SYMMEM_STORE_VALUE_MAX))
        return "a size that no value has";
    return NULL;
}

/* Behind the header. As `converse`. */
static int receive_value(int fd, request *asked, const sm_tcp_header *reply, const char **wrong_p,
                         bool *between_p) {
    size_t done = 0;
    *wrong_p = check_reply(asked, reply);
    if (*wrong_p != NULL)
        return 0;
    void *to = reply->status == SYMMEM_OK ? asked->out : asked->text;
    const int error = sm_tcp_receive(fd, to, reply->value_bytes, asked->deadline_ns, &done);
    *between_p = error == 0;
    return error;
}

static int receive_reply(int fd, request *asked, uint32_t id, sm_tcp_header *reply_p,
                         const char **wrong_p, bool *between_p) {
    for (;;) {
        uint8_t bytes[SM_TCP_HEADER_BYTES];
        size_t done = 0;
        int error = sm_tcp_receive(fd, bytes, sizeof(bytes), asked->deadline_ns, &done);
        *between_p = error == ETIMEDOUT && done == 0;
        if (error != 0)
            return error;
        *wrong_p = sm_tcp_read_header(bytes, true, reply_p);
        if (*wrong_p != NULL)
            return 0;
        if (reply_p->id == id)
            return receive_value(fd, asked, reply_p, wrong_p, between_p);
        error = skip(fd, reply_p->value_bytes, asked->deadline_ns);
        if (error != 0)
            return error;
        *between_p = sm_tcp_expired(asked->deadline_ns);
        if (*between_p)
            return ETIMEDOUT; /* a server may send such answers without end */
    }
}

/* A request and its answer: 0 or an errno. *wrong_p: what is wrong with the answer, or NULL.
 * *between_p: the connection can be used again, for no message is cut. */
static int converse(int fd, request *asked, uint32_t id, sm_tcp_header *reply_p,
                    const char **wrong_p, bool *between_p) {
    *wrong_p = NULL;
    *between_p = false;
    const int error = send_request(fd, asked, id);
    return error != 0 ? error : receive_reply(fd, asked, id, reply_p, wrong_p, between_p);
}

/* --- connections ------------------------------------------------------------------------------ */

static symmem_status greet(const tcp_store *store, int fd, uint64_t deadline_ns) {
    uint8_t hello[SM_TCP_HELLO_BYTES];
    request asked = {.kind = SM_TCP_HELLO,
                     .operation = "store_open",
                     .key = NULL,
                     .value = hello,
                     .bytes = sizeof(hello),
                     .deadline_ns = deadline_ns};
    sm_tcp_header reply;
    const char *wrong;
    bool between;
    sm_tcp_write_hello(&store->hello, hello);
    const int error = converse(fd, &asked, 0, &reply, &wrong, &between);
    if (error == ETIMEDOUT)
        return sm_fail(SYMMEM_TIMEOUT, "store_open", "hello",
                       "%s takes a connection, but says nothing", store->place.name);
    if (error != 0)
        return sm_fail_errno(error, "store_open", "hello", "%s closes the connection",
                             store->place.name);
    if (wrong != NULL)
        return fail_protocol(store, "store_open", wrong);
    if (reply.status != SYMMEM_OK)
        return sm_fail(reply.status, "store_open", "hello", "%s at %s", asked.text,
                       store->place.name);
    if (reply.number != sm_tcp_proof(store->hello.nonce))
        return sm_fail(SYMMEM_AUTH, "store_open", "hello", "the store at %s is another job's",
                       store->place.name);
    return SYMMEM_OK;
}

static symmem_status connect_at(const tcp_store *store, const sm_tcp_address *address,
                                uint64_t deadline_ns, int *fd_p) {
    const int error = sm_tcp_connect(address, deadline_ns, fd_p);
    if (error != 0)
        return sm_fail_errno(error, "store_open", "connect", "no rank serves the store at %s",
                             store->place.name);
    const symmem_status status = greet(store, *fd_p, deadline_ns);
    if (status != SYMMEM_OK)
        close(*fd_p);
    return status;
}

/* One try at each address. SYSTEM with an errno: no server is there yet. The store of another job
 * at one address is no reason to leave out the others: a loopback address is one of every host. */
static symmem_status connect_once(const tcp_store *store, uint64_t deadline_ns, int *fd_p) {
    symmem_status status = SYMMEM_SYSTEM;
    symmem_error_record of_another = {.status = SYMMEM_OK};
    for (int32_t i = 0; i < store->place.count; i++) {
        const uint64_t until_ns = store->place.count == 1
                                      ? deadline_ns
                                      : sm_tcp_earlier(sm_tcp_now_ns() + TRY_NS, deadline_ns);
        status = connect_at(store, &store->place.addresses[i], until_ns, fd_p);
        if (status == SYMMEM_OK)
            return status;
        if (status == SYMMEM_AUTH)
            (void)sm_error_get(&of_another);
    }
    return of_another.status != SYMMEM_OK ? sm_error_raise(&of_another) : status;
}

/* *error_p: why not, for which another try may still make up. */
static symmem_status try_once(const tcp_store *store, uint64_t deadline_ns, int *fd_p,
                              symmem_error_record *error_p) {
    SM_ATTEMPT(connecting);
    const symmem_status status = connect_once(store, deadline_ns, fd_p);
    if (status != SYMMEM_OK)
        (void)sm_error_get(error_p);
    return status;
}

/* Tries until the deadline. What answers and is no store of this job ends it at once. */
static symmem_status connect_first(tcp_store *store, uint64_t deadline_ns, int *fd_p) {
    uint64_t pause_ns = PAUSE_FIRST_NS;
    for (;;) {
        symmem_error_record error;
        const symmem_status status = try_once(store, deadline_ns, fd_p, &error);
        if (status == SYMMEM_OK)
            return status;
        if (status != SYMMEM_SYSTEM && status != SYMMEM_BUSY && status != SYMMEM_TIMEOUT) {
            (void)sm_error_raise(&error);
            return status;
        }
        const uint64_t now_ns = sm_tcp_now_ns();
        if (deadline_ns != 0 && now_ns + pause_ns >= deadline_ns) {
            (void)sm_fail(SYMMEM_TIMEOUT, "store_open", SM_STORE_SERVER_STAGE, "%.199s",
                          error.message);
            return blame_server();
        }
        (void)sm_tcp_ready(-1, 0, now_ns + pause_ns);
        pause_ns = pause_ns * 2 < PAUSE_LAST_NS ? pause_ns * 2 : PAUSE_LAST_NS;
    }
}

/* A child of fork has the parent's connections, too, and must leave them alone. */
static void forget_parents(tcp_store *store) {
    if (!sm_fork_is_parents(store->made_in))
        return;
    while (store->kept_count > 0)
        close(store->kept[--store->kept_count]);
    store->made_in = sm_fork_generation();
}

static symmem_status take(tcp_store *store, const request *asked, int *fd_p) {
    (void)pthread_mutex_lock(&store->lock.mutex);
    forget_parents(store);
    *fd_p = store->kept_count > 0 ? store->kept[--store->kept_count] : -1;
    (void)pthread_mutex_unlock(&store->lock.mutex);
    if (*fd_p >= 0)
        return SYMMEM_OK;
    symmem_error_record error;
    symmem_status status;
    int tries = 0;
    do /* A server that is short of descriptors may end a connection for a newer one. [SM-STORE-24]
        */
        status = try_once(store, asked->deadline_ns, fd_p, &error);
    while (status == SYMMEM_SYSTEM && error.system_errno == ECONNRESET && ++tries < TRIES);
    if (status == SYMMEM_OK)
        return status;
    if (status == SYMMEM_SYSTEM)
        return fail_socket(store, asked, error.system_errno);
    if (status == SYMMEM_TIMEOUT && sm_tcp_expired(asked->deadline_ns))
        return fail_silent(store, asked);
    (void)sm_error_raise(&error);
    return status;
}

static void give_back(tcp_store *store, int fd) {
    (void)pthread_mutex_lock(&store->lock.mutex);
    const bool kept = store->kept_count < KEPT;
    if (kept)
        store->kept[store->kept_count++] = fd;
    (void)pthread_mutex_unlock(&store->lock.mutex);
    if (!kept)
        close(fd);
}

/* --- the calls -------------------------------------------------------------------------------- */

static symmem_status fail_reply(const request *asked, const sm_tcp_header *reply) {
    if (reply->status == SYMMEM_NOT_FOUND)
        return sm_fail(reply->status, asked->operation, "", "no key %.200s", asked->key);
    if (reply->status == SYMMEM_OUT_OF_RANGE)
        return sm_fail(reply->status, asked->operation, "", "the value is larger than %zu bytes",
                       asked->capacity);
    return sm_fail(reply->status, asked->operation, "", "%s", asked->text);
}

static symmem_status ask(tcp_store *store, request *asked, sm_tcp_header *reply_p) {
    int fd = -1;
    bool between;
    const char *wrong;
    asked->start_ns = sm_tcp_now_ns();
    symmem_status status = take(store, asked, &fd);
    if (status != SYMMEM_OK)
        return status;
    const uint32_t id = atomic_fetch_add_explicit(&store->last_id, 1, memory_order_relaxed) + 1;
    const int error = converse(fd, asked, id, reply_p, &wrong, &between);
    if (between)
        give_back(store, fd);
    else
        close(fd);
    if (error != 0)
        return fail_socket(store, asked, error);
    atomic_store_explicit(&store->is_silent, false, memory_order_relaxed);
    if (wrong != NULL)
        return fail_protocol(store, asked->operation, wrong);
    return reply_p->status == SYMMEM_OK ? SYMMEM_OK : fail_reply(asked, reply_p);
}

static symmem_status tcp_set(void *self, const char *key, const void *value, size_t bytes,
                             uint32_t timeout_ms) {
    sm_tcp_header reply;
    request asked = {.kind = SM_TCP_SET,
                     .operation = "store_set",
                     .key = key,
                     .value = value,
                     .bytes = bytes,
                     .deadline_ns = sm_tcp_deadline_ns(timeout_ms)};
    const symmem_status status = ask(self, &asked, &reply);
    sm_clock_changed();
    return status;
}

static symmem_status tcp_get(void *self, const char *key, void *value, size_t capacity,
                             size_t *bytes_p, uint32_t timeout_ms) {
    sm_tcp_header reply = {.number = 0};
    const size_t room = capacity < SYMMEM_STORE_VALUE_MAX ? capacity : SYMMEM_STORE_VALUE_MAX;
    request asked = {.kind = SM_TCP_GET,
                     .operation = "store_get",
                     .key = key,
                     .number = (int64_t)room,
                     .deadline_ns = sm_tcp_deadline_ns(timeout_ms),
                     .out = value,
                     .capacity = room};
    const symmem_status status = ask(self, &asked, &reply);
    if (status == SYMMEM_OK || status == SYMMEM_OUT_OF_RANGE)
        *bytes_p = (size_t)reply.number;
    return status;
}

static symmem_status tcp_wait(void *self, const char *key, uint32_t timeout_ms) {
    sm_tcp_header reply;
    request asked = {.kind = SM_TCP_WAIT,
                     .operation = "store_wait",
                     .key = key,
                     .deadline_ns = sm_tcp_deadline_ns(timeout_ms)};
    return ask(self, &asked, &reply);
}

static symmem_status tcp_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                             uint32_t timeout_ms) {
    sm_tcp_header reply;
    request asked = {.kind = SM_TCP_ADD,
                     .operation = "store_add",
                     .key = key,
                     .number = delta,
                     .deadline_ns = sm_tcp_deadline_ns(timeout_ms)};
    const symmem_status status = ask(self, &asked, &reply);
    if (status == SYMMEM_OK)
        *value_p = reply.number;
    sm_clock_changed();
    return status;
}

static symmem_status tcp_remove(void *self, const char *key, uint32_t timeout_ms) {
    sm_tcp_header reply;
    request asked = {.kind = SM_TCP_REMOVE,
                     .operation = "store_remove",
                     .key = key,
                     .deadline_ns = sm_tcp_deadline_ns(timeout_ms)};
    return ask(self, &asked, &reply);
}

static void tcp_close(void *self) {
    tcp_store *store = self;
    forget_parents(store);
    while (store->kept_count > 0) {
        const int fd = store->kept[--store->kept_count];
        (void)shutdown(fd, SHUT_RDWR); /* a child of fork may still have it */
        close(fd);
    }
    sm_tcp_server_stop(store->server, SM_TCP_LAST_MS);
    sm_fork_lock_close(&store->lock);
    if (store->closed != NULL)
        store->closed();
    free(store);
}

static const symmem_store_ops tcp_ops = {
    .size = sizeof(tcp_ops),
    .set = tcp_set,
    .get = tcp_get,
    .wait = tcp_wait,
    .add = tcp_add,
    .remove = tcp_remove,
    .close = tcp_close,
};

static symmem_status open_client(tcp_store *store, uint64_t deadline_ns, symmem_store **store_p) {
    int fd = -1;
    symmem_status status = connect_first(store, deadline_ns, &fd);
    if (status != SYMMEM_OK)
        return status;
    store->kept[store->kept_count++] = fd;
    return sm_store_wrap(&tcp_ops, store, true, store_p);
}

symmem_status sm_store_open_tcp(const sm_tcp_opening *opening, symmem_store **store_p) {
    const sm_tcp_place *place = opening->place;
    tcp_store *store = calloc(1, sizeof(*store));
    if (store == NULL) {
        close(opening->listener);
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "store_open", "", "no memory for the store");
    }
    store->place = *place;
    store->hello.rank = opening->rank;
    store->hello.incarnation = opening->incarnation;
    memcpy(store->hello.nonce, place->nonce, SM_TCP_NONCE_BYTES);
    (void)sm_fork_lock_open(&store->lock, false); /* which fails for a condition only */
    store->made_in = sm_fork_generation();
    symmem_status status = SYMMEM_OK;
    if (opening->listener >= 0)
        status = sm_tcp_server_start(opening, &store->server);
    if (status == SYMMEM_OK)
        status = open_client(store, opening->deadline_ns, store_p);
    if (status != SYMMEM_OK) {
        SM_ATTEMPT(closing);
        tcp_close(store);
        return status;
    }
    store->closed = opening->closed;
    return status;
}
