/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A session's socket listens, and each message comes over its own connection. A name does not tell
 * which process answers to it: another process can take the name of a rank that died, and can
 * replace a file at any moment. A connection stays with the socket to which it was made, and the
 * kernel tells both sides the owner of the other end before anything is sent.
 *
 * A message waits in its connection until the receiver takes it, even if the sender ends.
 */
#include "bootstrap/ipc_socket.h"
#include "bootstrap/ipc_whose.h"
#include "base/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG 1024 /* older kernels allow 128 only */
#define RETRY_FIRST_NS 50000u
#define RETRY_LAST_NS 2000000u
#define LONGEST_NAME 48

/* --- the sockets of this process, for its forks ------------------------------------- */

/* Also guards the descriptors of open sockets: a number that is in one is open. */
static pthread_mutex_t open_sockets_lock = PTHREAD_MUTEX_INITIALIZER;
static sm_ipc_socket *open_sockets;

void sm_ipc_lock_all(void) {
    (void)pthread_mutex_lock(&open_sockets_lock);
}

void sm_ipc_unlock_all(void) {
    (void)pthread_mutex_unlock(&open_sockets_lock);
}

static void close_one(int *fd_p) {
    if (*fd_p >= 0)
        close(*fd_p);
    *fd_p = -1;
}

static void close_descriptors(sm_ipc_socket *own) {
    close_one(&own->fd);
    close_one(&own->spare);
    while (own->waiting_count > 0)
        close(own->waiting[--own->waiting_count]);
}

void sm_ipc_forget_all(void) {
    for (; open_sockets != NULL; open_sockets = open_sockets->next) {
        open_sockets->is_listed = false;
        close_descriptors(open_sockets);
    }
}

static void enlist(sm_ipc_socket *own) {
    own->next = open_sockets;
    own->before = NULL;
    if (own->next != NULL)
        own->next->before = own;
    open_sockets = own;
    own->is_listed = true;
}

static void delist(sm_ipc_socket *own) {
    if (!own->is_listed)
        return;
    if (own->next != NULL)
        own->next->before = own->before;
    *(own->before == NULL ? &open_sockets : &own->before->next) = own->next;
    own->is_listed = false;
}

static int new_socket(void) {
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Returns the spare descriptor, or -1 if there is none, and puts `fd` in its place. */
static int exchange_spare(sm_ipc_socket *own, int fd) {
    sm_ipc_lock_all();
    const int spare = own->spare;
    own->spare = fd;
    sm_ipc_unlock_all();
    return spare;
}

static void free_spare(sm_ipc_socket *own) {
    int spare = exchange_spare(own, -1);
    close_one(&spare);
}

static void renew_spare(sm_ipc_socket *own) {
    int spare = exchange_spare(own, new_socket());
    close_one(&spare);
}

/* --- life --------------------------------------------------------------------------- */

/* Makes a name that ends with the socket's own number, see ipc_whose.c. */
static symmem_status random_name(int fd, char name[LONGEST_NAME]) {
    uint8_t random[8];
    struct stat about;
    symmem_status status = sm_random(random, sizeof(random));
    if (status != SYMMEM_OK)
        return status;
    if (fstat(fd, &about) != 0)
        return sm_fail_errno(errno, "socket", "create", "cannot look at the socket");
    sm_ipc_prefix(name);
    size_t used = strlen(name);
    for (size_t i = 0; i < sizeof(random); i++)
        used += (size_t)snprintf(name + used, LONGEST_NAME - used, "%02x", random[i]);
    (void)snprintf(name + used, LONGEST_NAME - used, "%08x", (unsigned)about.st_ino);
    return status;
}

static symmem_status make_address(sm_ipc_socket *own, const char *directory, const char *name) {
    struct sockaddr_un *address = &own->address;
    address->sun_family = AF_UNIX;
    size_t offset = directory == NULL ? 1 : strlen(directory) + 1; /* of the name in sun_path */
    size_t bytes = offset + strlen(name);
    if (bytes >= sizeof(address->sun_path)) {
        const char *path = directory == NULL ? name : directory;
        sm_fail(SYMMEM_PATH_TOO_LONG, "socket", "address",
                "a socket's path has at most %zu bytes, with its name this would have %zu: %.60s%s",
                sizeof(address->sun_path) - 1, bytes, path, strlen(path) > 60 ? "..." : "");
        return sm_error_sizes(sizeof(address->sun_path) - 1, bytes);
    }
    if (directory != NULL) {
        memcpy(address->sun_path, directory, offset - 1);
        address->sun_path[offset - 1] = '/';
    }
    memcpy(address->sun_path + offset, name, bytes - offset);
    /* An abstract name ends with its length, a path with its zero. */
    bytes += directory == NULL ? 0 : 1;
    own->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    return SYMMEM_OK;
}

static symmem_status make_sockets(sm_ipc_socket *own) {
    sm_ipc_lock_all();
    own->fd = new_socket();
    own->spare = own->fd < 0 ? -1 : new_socket();
    int error = errno;
    if (own->spare >= 0)
        enlist(own);
    else
        close_one(&own->fd);
    sm_ipc_unlock_all();
    if (own->fd < 0)
        return sm_fail_errno(error, "socket", "create", "cannot make a socket");
    return SYMMEM_OK;
}

static symmem_status bind_socket(sm_ipc_socket *own, bool path) {
    /* The socket's mode becomes the file's: it never exists with a wider one. */
    if (fchmod(own->fd, 0600) != 0)
        return sm_fail_errno(errno, "socket", "create", "cannot restrict the socket");
    if (bind(own->fd, (const struct sockaddr *)&own->address, own->address_bytes) != 0) {
        if (errno == EADDRINUSE)
            return sm_fail(SYMMEM_EXISTS, "socket", "bind", "the socket's name is taken");
        return sm_fail_errno(errno, "socket", "bind", "cannot bind the socket");
    }
    own->unlink_path = path;
    /* The umask may have taken rights from the file. */
    const int error = path ? sm_rights_give_at(AT_FDCWD, own->address.sun_path, 0600) : 0;
    if (error != 0)
        return sm_fail_errno(error, "socket", "bind", "cannot permit the socket's use");
    if (listen(own->fd, BACKLOG) != 0)
        return sm_fail_errno(errno, "socket", "listen", "cannot listen at the socket");
    return SYMMEM_OK;
}

symmem_status sm_ipc_socket_open(sm_ipc_socket *own, const char *directory, const char *name) {
    char own_name[LONGEST_NAME];
    *own = (sm_ipc_socket){.fd = -1, .spare = -1};
    symmem_status status = make_sockets(own);
    if (status == SYMMEM_OK)
        status = random_name(own->fd, own_name);
    if (status == SYMMEM_OK)
        status = make_address(own, directory, name == NULL ? own_name : name);
    return status == SYMMEM_OK ? bind_socket(own, directory != NULL) : status;
}

void sm_ipc_socket_close(sm_ipc_socket *own) {
    if (own->unlink_path)
        unlink(own->address.sun_path);
    sm_ipc_socket_shut(own);
}

void sm_ipc_socket_shut(sm_ipc_socket *own) {
    sm_ipc_lock_all();
    delist(own);
    close_descriptors(own);
    sm_ipc_unlock_all();
    free(own->waiting);
    own->waiting = NULL;
}

/* --- sending ------------------------------------------------------------------------ */

static symmem_status fail_not_peers(const char *path, const struct stat *file) {
    return sm_fail(SYMMEM_PERMISSION, "socket", "send",
                   "%.100s is not the peer's socket: mode %06o, user %u", path,
                   (unsigned)file->st_mode, (unsigned)file->st_uid);
}

/* Reports why there is no connection. */
static symmem_status fail_connect(const struct sockaddr_un *to, uint32_t bytes, int error) {
    char path[sizeof(to->sun_path) + 1];
    struct stat file;
    sm_ipc_path_of(to, bytes, path);
    if (path[0] != '\0' && lstat(path, &file) == 0 &&
        (!S_ISSOCK(file.st_mode) || !sm_ipc_is_own_user(file.st_uid) || error == EPROTOTYPE))
        return fail_not_peers(path, &file);
    if (error == EPROTOTYPE)
        return sm_fail(SYMMEM_PERMISSION, "socket", "send",
                       "@%.60s is not the peer's socket: of another kind", to->sun_path + 1);
    if (error == ECONNREFUSED || error == ENOENT)
        return sm_fail(SYMMEM_PEER_LOST, "socket", "send", "the peer's socket is gone");
    return sm_fail_errno(error, "socket", "send", "cannot connect to the peer's socket");
}

/* Checks the receiver's user before a message is sent, because descriptors give access to
 * memory. */
static symmem_status check_receiver(int connection, const struct sockaddr_un *to, uint32_t bytes) {
    struct ucred holder;
    char path[sizeof(to->sun_path) + 1];
    const int error = sm_ipc_ask_user(connection, &holder);
    if (error != 0)
        return sm_fail_errno(error, "socket", "send", "cannot ask whose the peer's socket is");
    if (sm_ipc_is_socket_of_user(&holder, to, bytes))
        return SYMMEM_OK;
    sm_ipc_path_of(to, bytes, path);
    return sm_fail(SYMMEM_PERMISSION, "socket", "send",
                   "%s%.100s is not the peer's socket: that of process %d, user %u",
                   path[0] == '\0' ? "@" : "", path[0] == '\0' ? path + 1 : path, (int)holder.pid,
                   (unsigned)holder.uid);
}

/* Sleeps a little longer each time. False: the time is up. */
static bool pause_before_retry(uint64_t *sleep_ns, uint64_t deadline_ns) {
    if (sm_expired(deadline_ns))
        return false;
    sm_sleep_ns(*sleep_ns);
    *sleep_ns = *sleep_ns * 2 < RETRY_LAST_NS ? *sleep_ns * 2 : RETRY_LAST_NS;
    return true;
}

static symmem_status fail_full(void) {
    return sm_fail(SYMMEM_TIMEOUT, "socket", "send", "the peer's queue stays full");
}

static symmem_status connect_to(int connection, const uint8_t *address, uint32_t bytes,
                                uint64_t deadline_ns) {
    struct sockaddr_un to;
    uint64_t sleep_ns = RETRY_FIRST_NS;
    memset(&to, 0, sizeof(to));
    memcpy(&to, address, bytes);
    while (connect(connection, (const struct sockaddr *)&to, bytes) != 0) {
        /* A full queue of another socket cannot be polled for. */
        if (errno != EAGAIN && errno != EINTR)
            return fail_connect(&to, bytes, errno);
        if (!pause_before_retry(&sleep_ns, deadline_ns))
            return fail_full();
    }
    return check_receiver(connection, &to, bytes);
}

static symmem_status send_over(int connection, const struct msghdr *message, uint64_t deadline_ns) {
    uint64_t sleep_ns = RETRY_FIRST_NS;
    while (sendmsg(connection, message, MSG_NOSIGNAL) < 0) {
        const int error = errno;
        /* The other process is closing its socket. */
        if (error == ECONNREFUSED || error == EPIPE || error == ECONNRESET || error == ENOTCONN)
            return sm_fail(SYMMEM_PEER_LOST, "socket", "send", "the peer's socket is gone");
        /* ETOOMANYREFS: too many descriptors in flight, which passes as receivers take theirs. */
        if (error != EAGAIN && error != ENOBUFS && error != ETOOMANYREFS && error != EINTR)
            return sm_fail_errno(error, "socket", "send", "cannot send descriptors");
        if (!pause_before_retry(&sleep_ns, deadline_ns))
            return error == ETOOMANYREFS
                       ? sm_fail_errno(error, "socket", "send", "cannot send descriptors")
                       : fail_full();
    }
    return SYMMEM_OK;
}

symmem_status sm_ipc_socket_send(sm_ipc_socket *own, const uint8_t *address, uint32_t address_bytes,
                                 const struct msghdr *message, uint64_t deadline_ns) {
    if (address_bytes > sizeof(struct sockaddr_un))
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "socket", "send", "an address that is too long");
    int connection = exchange_spare(own, -1);
    if (connection < 0)
        connection = new_socket();
    if (connection < 0)
        return sm_fail_errno(errno, "socket", "send", "cannot make a socket");
    symmem_status status = connect_to(connection, address, address_bytes, deadline_ns);
    if (status == SYMMEM_OK)
        status = send_over(connection, message, deadline_ns);
    close(connection);
    renew_spare(own);
    return status;
}

/* --- receiving ---------------------------------------------------------------------- */

static bool make_room(sm_ipc_socket *own) {
    if (own->waiting_count < own->waiting_room)
        return true;
    const int32_t room = own->waiting_room == 0 ? 4 : 2 * own->waiting_room;
    sm_ipc_lock_all();
    int *waiting = realloc(own->waiting, (size_t)room * sizeof(waiting[0]));
    if (waiting != NULL) {
        own->waiting = waiting;
        own->waiting_room = room;
    }
    sm_ipc_unlock_all();
    return waiting != NULL;
}

/* Takes a connection out of the list and leaves it open. */
static int take_out(sm_ipc_socket *own, int32_t at) {
    sm_ipc_lock_all();
    const int connection = own->waiting[at];
    own->waiting_count--;
    memmove(own->waiting + at, own->waiting + at + 1,
            (size_t)(own->waiting_count - at) * sizeof(own->waiting[0]));
    sm_ipc_unlock_all();
    return connection;
}

/* Reports that a connection cannot be accepted. It stays, and a later call accepts it. */
static symmem_status cannot_take(int error) {
    symmem_status status = sm_fail_errno(error, "socket", "receive", "cannot take a connection");
    if (status == SYMMEM_LIMIT) {
        (void)sm_error_sizes(1, 0); /* descriptor */
    }
    return status;
}

/* Accepts this user's next connection into the list. TIMEOUT without a record: there is none. */
static symmem_status take_connection(sm_ipc_socket *own) {
    struct ucred other;
    if (!make_room(own))
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "socket", "receive", "no memory for a connection");
    for (;;) {
        int connection = accept4(own->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (connection < 0 && (errno == EMFILE || errno == ENFILE) && own->spare >= 0) {
            free_spare(own);
            continue;
        }
        if (connection < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
            return SYMMEM_TIMEOUT;
        if (connection < 0)
            return cannot_take(errno);
        const int error = sm_ipc_ask_user(connection, &other);
        if (error != 0) {
            close(connection);
            return sm_fail_errno(error, "socket", "receive", "cannot ask who has connected");
        }
        if (sm_ipc_is_own_user(other.uid)) {
            sm_ipc_lock_all();
            own->waiting[own->waiting_count++] = connection;
            sm_ipc_unlock_all();
            return SYMMEM_OK;
        }
        close(connection);
    }
}

static bool is_without_message(int error) {
    return error == EAGAIN || error == EINTR || error == ECONNRESET;
}

/* Looks at a message's beginning. A lack of the kernel's that passes is waited out once. The kernel
 * looks for a message first, and then for the connection's end: both may come in between, so only
 * the second look proves that the connection ended without a message. */
static ssize_t peek(int connection, uint32_t *first_p) {
    ssize_t got = recv(connection, first_p, sizeof(*first_p), MSG_PEEK);
    if (got == 0 || (got < 0 && !is_without_message(errno)))
        got = recv(connection, first_p, sizeof(*first_p), MSG_PEEK);
    return got;
}

/* Whether a message waits that begins with `magic`. Closes a connection that ended without a
 * message. One that cannot be looked at stays, but who takes all messages gets it, and with it the
 * failure. */
static bool has_message(sm_ipc_socket *own, int32_t at, uint32_t magic) {
    uint32_t first = 0;
    const ssize_t got = peek(own->waiting[at], &first);
    if (got < 0 && errno != ECONNRESET)
        return magic == 0 && !is_without_message(errno);
    if (got <= 0)
        close(take_out(own, at));
    return got > 0 && (magic == 0 || (got == (ssize_t)sizeof(first) && first == magic));
}

symmem_status sm_ipc_socket_next(sm_ipc_socket *own, uint32_t magic, int *connection_p) {
    for (int32_t at = 0;;) {
        if (at == own->waiting_count) {
            symmem_status status = take_connection(own);
            if (status != SYMMEM_OK)
                return status;
        }
        const int32_t count = own->waiting_count;
        if (has_message(own, at, magic)) {
            *connection_p = take_out(own, at);
            free_spare(own); /* the message may need its descriptor's place */
            return SYMMEM_OK;
        }
        at += own->waiting_count == count ? 1 : 0;
    }
}

void sm_ipc_socket_done(sm_ipc_socket *own, int connection) {
    close(connection);
    renew_spare(own);
}

void sm_ipc_socket_put_back(sm_ipc_socket *own, int connection) {
    sm_ipc_lock_all();
    memmove(own->waiting + 1, own->waiting, (size_t)own->waiting_count * sizeof(own->waiting[0]));
    own->waiting[0] = connection; /* there is room, for it was taken out of there */
    own->waiting_count++;
    sm_ipc_unlock_all();
    renew_spare(own);
}

/* Senders send at once, so a connection without a message is rare and is soon looked at again. */
int sm_ipc_socket_wait(const sm_ipc_socket *own, uint32_t ms) {
    return sm_poll(own->fd, own->waiting_count > 0 && ms > 1 ? 1 : ms);
}
