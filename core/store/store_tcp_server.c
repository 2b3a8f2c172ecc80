/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread that serves a TCP store: it takes connections, reads requests, and sends answers as
 * far as each socket takes them. store_tcp_answer.c has what a request does.
 *
 * It never waits for one client: a client that sends half a message, or reads no answers, only
 * keeps its own connection. A stranger, which has not said in time which world it belongs to, loses
 * its connection, and earlier if strangers take descriptors that the ranks need.
 */
#include "store/store_tcp_answer.h"
#include "base/fork.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define EVENTS 64
#define STRANGERS_MAX 128u
#define STRANGERS_SHARE 8u /* and at most that part of the process's descriptors */
#define PAUSE_NS 50000000u /* without descriptors, until the next try to take a connection */
#define LOOK_MS 1000       /* the thread looks at its descriptors at least that often */
/* What a world takes beside a connection for each rank: the sockets that listen, epoll's and
 * eventfd's descriptor, and the other end of rank 0's own connection. */
#define OWN_FDS 4

struct sm_tcp_server {
    sm_node node; /* among all of the process's */
    sm_tcp_world world;
    uint32_t strangers_max;
    int listener, events, wake;
    ino_t listener_inode;
    uint64_t accept_again_ns; /* 0: connections are taken */
    uint64_t end_ns;          /* 0: not asked to end */
    _Atomic uint64_t end_asked_ns;
    atomic_int error; /* the thread has ended by itself */
    pthread_t thread;
    uint32_t made_in;
};

/* Held by each server while it works, and by who forks. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static sm_node all = {&all, &all};

/* --- connections ------------------------------------------------------------------------------ */

/* Of sockets; 0 of anything else. */
static ino_t inode_of(int fd) {
    struct stat about = {.st_mode = 0};
    (void)fstat(fd, &about);
    return S_ISSOCK(about.st_mode) ? about.st_ino : 0;
}

/* Unless this process has closed it already and given its number to another file. */
static void close_socket(int fd, ino_t inode) {
    if (inode_of(fd) == inode)
        close(fd);
}

static void listen_for(const sm_tcp_server *server, sm_tcp_peer *peer, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = peer};
    (void)epoll_ctl(server->events, EPOLL_CTL_MOD, peer->fd, &event);
}

/* Its memory goes after the batch of events, in which it may stand once more. */
static void drop(sm_tcp_server *server, sm_tcp_peer *peer) {
    close_socket(peer->fd, peer->inode); /* -1 in a child of fork */
    peer->fd = -1;
    peer->waits = false;
    server->world.strangers -= peer->rank < 0;
    server->world.members -= peer->rank >= 0;
    sm_list_remove(&peer->node);
    sm_list_add(&server->world.dropped, &peer->node);
}

static void free_dropped(sm_tcp_server *server) {
    while (!sm_list_empty(&server->world.dropped)) {
        sm_tcp_peer *peer = SM_CONTAINER(server->world.dropped.next, sm_tcp_peer, node);
        sm_list_remove(&peer->node);
        free(peer->body);
        sm_tcp_peer_sent(peer);
        free(peer);
    }
}

static void drop_all(sm_tcp_server *server, bool only_strangers) {
    for (sm_node *node = server->world.peers.next, *next; node != &server->world.peers;
         node = next) {
        sm_tcp_peer *peer = SM_CONTAINER(node, sm_tcp_peer, node);
        next = node->next;
        if (!only_strangers || peer->rank < 0)
            drop(server, peer);
    }
}

/* This process has closed a descriptor that is the server's: it may have given its number to any
 * other file. [SM-STORE-26] */
static void give_up(sm_tcp_server *server, int error) {
    /* pairs with: sm_tcp_server_error */
    atomic_store_explicit(&server->error, error, memory_order_release);
}

/* After a send or recv on its socket. */
static void fail_peer(sm_tcp_server *server, sm_tcp_peer *peer, int error) {
    if (error == EBADF || error == ENOTSOCK)
        give_up(server, error);
    drop(server, peer);
}

static void flush(sm_tcp_server *server, sm_tcp_peer *peer) {
    if (peer->out == NULL)
        return;
    const ssize_t sent = send(peer->fd, peer->out + peer->out_done,
                              peer->out_bytes - peer->out_done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) {
        fail_peer(server, peer, errno);
        return;
    }
    peer->out_done += sent > 0 ? (size_t)sent : 0;
    if (peer->out_done < peer->out_bytes) {
        listen_for(server, peer, EPOLLOUT);
        peer->is_stuck = true;
        return;
    }
    sm_tcp_peer_sent(peer);
    if (peer->refused)
        drop(server, peer);
    else if (peer->is_stuck)
        listen_for(server, peer, EPOLLIN);
    peer->is_stuck = false;
}

/* Sends the answers that a request has made: to the client that asked, and to those that waited. */
static void flush_all(sm_tcp_server *server) {
    for (sm_node *node = server->world.peers.next, *next; node != &server->world.peers;
         node = next) {
        sm_tcp_peer *peer = SM_CONTAINER(node, sm_tcp_peer, node);
        next = node->next;
        if (!peer->is_stuck)
            flush(server, peer);
    }
}

/* Of `count` bytes. False: not all of them are there yet, or the connection is dropped. */
static bool fill(sm_tcp_server *server, sm_tcp_peer *peer, uint8_t *bytes, size_t count,
                 size_t *got_p) {
    if (*got_p == count)
        return true;
    const ssize_t got = recv(peer->fd, bytes + *got_p, count - *got_p, MSG_DONTWAIT);
    if (got > 0)
        *got_p += (size_t)got;
    else if (got == 0 || errno != EAGAIN)
        fail_peer(server, peer, got == 0 ? 0 : errno);
    return peer->fd >= 0 && *got_p == count;
}

static bool read_request(sm_tcp_server *server, sm_tcp_peer *peer) {
    const bool is_new = peer->head_got < sizeof(peer->head);
    if (!fill(server, peer, peer->head, sizeof(peer->head), &peer->head_got))
        return false;
    if (is_new && !sm_tcp_peer_begin(peer)) {
        drop(server, peer);
        return false;
    }
    return fill(server, peer, peer->body, peer->header.key_bytes + peer->header.value_bytes,
                &peer->body_got);
}

static void serve_peer(sm_tcp_server *server, sm_tcp_peer *peer) {
    if (peer->fd < 0)
        return; /* dropped for an earlier event of the batch */
    if (peer->is_stuck) {
        flush(server, peer);
        return;
    }
    if (!read_request(server, peer))
        return;
    sm_tcp_answer(&server->world, peer);
    peer->head_got = peer->body_got = 0;
    flush_all(server);
}

/* --- taking connections ----------------------------------------------------------------------- */

static void set_accepting(sm_tcp_server *server, bool accepts) {
    struct epoll_event event = {.events = accepts ? EPOLLIN : 0, .data.ptr = &server->listener};
    (void)epoll_ctl(server->events, EPOLL_CTL_MOD, server->listener, &event);
    server->accept_again_ns = accepts ? 0 : sm_tcp_now_ns() + PAUSE_NS;
}

/* The list is in the order of arrival. Only with a stranger in it. */
static void drop_oldest_stranger(sm_tcp_server *server) {
    sm_node *node = server->world.peers.next;
    while (SM_CONTAINER(node, sm_tcp_peer, node)->rank >= 0)
        node = node->next;
    drop(server, SM_CONTAINER(node, sm_tcp_peer, node));
}

/* The connection that comes waits in the socket until there is room for it. */
static void fail_accept(sm_tcp_server *server, int error) {
    if (error == EAGAIN)
        return;
    if (error == EBADF || error == ENOTSOCK)
        give_up(server, error);
    else if (server->world.strangers != 0)
        drop_oldest_stranger(server);
    else
        set_accepting(server, false);
}

static void take_connection(sm_tcp_server *server) {
    if (server->world.strangers == server->strangers_max)
        drop_oldest_stranger(server);
    const int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        fail_accept(server, errno);
        return;
    }
    sm_tcp_peer *peer = calloc(1, sizeof(*peer));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    if (peer == NULL || epoll_ctl(server->events, EPOLL_CTL_ADD, fd, &event) != 0) {
        close(fd);
        free(peer);
        return;
    }
    sm_tcp_tune(fd);
    peer->fd = fd;
    peer->inode = inode_of(fd);
    peer->rank = -1;
    peer->hello_by_ns = sm_tcp_deadline_ns(SM_TCP_HELLO_MS);
    server->world.strangers++;
    sm_list_add(&server->world.peers, &peer->node);
}

/* --- time ------------------------------------------------------------------------------------- */

/* In ms from now on, rounded up: when something is to be done, or the next look. A thread in
 * epoll_wait does not notice that its descriptors are closed. */
static int next_time(const sm_tcp_server *server) {
    const uint64_t now_ns = sm_tcp_now_ns();
    uint64_t at_ns = sm_tcp_earlier(now_ns + LOOK_MS * 1000000ull, server->accept_again_ns);
    at_ns = sm_tcp_earlier(at_ns, server->end_ns);
    for (sm_node *node = server->world.peers.next;
         server->world.strangers != 0 && node != &server->world.peers; node = node->next)
        if (SM_CONTAINER(node, sm_tcp_peer, node)->rank < 0)
            at_ns = sm_tcp_earlier(at_ns, SM_CONTAINER(node, sm_tcp_peer, node)->hello_by_ns);
    return at_ns <= now_ns ? 0 : (int)((at_ns - now_ns + 999999) / 1000000);
}

static void look_at_time(sm_tcp_server *server) {
    const uint64_t now_ns = sm_tcp_now_ns();
    if (sm_tcp_expired(server->accept_again_ns))
        set_accepting(server, true);
    for (sm_node *node = server->world.peers.next, *next;
         server->world.strangers != 0 && node != &server->world.peers; node = next) {
        sm_tcp_peer *peer = SM_CONTAINER(node, sm_tcp_peer, node);
        next = node->next;
        if (peer->rank < 0 && now_ns >= peer->hello_by_ns)
            drop(server, peer);
    }
}

static void stop_listening(sm_tcp_server *server) {
    close_socket(server->listener, server->listener_inode);
    server->listener = -1;
}

/* Whether the thread is done. */
static bool look_at_end(sm_tcp_server *server) {
    /* pairs with: sm_tcp_server_stop */
    const uint64_t asked_ns = atomic_load_explicit(&server->end_asked_ns, memory_order_acquire);
    if (asked_ns != 0 && server->end_ns == 0) {
        uint64_t count;
        (void)!read(server->wake, &count, sizeof(count));
        server->end_ns = asked_ns;
        server->accept_again_ns = 0;
        stop_listening(server);
        drop_all(server, true);
    }
    return (server->end_ns != 0 && server->world.members == 0) || sm_tcp_expired(server->end_ns);
}

/* --- the thread ------------------------------------------------------------------------------- */

static void handle(sm_tcp_server *server, const struct epoll_event *event) {
    if (event->data.ptr == &server->listener)
        take_connection(server);
    else if (event->data.ptr != &server->wake)
        serve_peer(server, event->data.ptr);
}

static void end_service(sm_tcp_server *server) {
    drop_all(server, false);
    stop_listening(server);
}

static void *serve(void *arg) {
    sm_tcp_server *server = arg;
    struct epoll_event events[EVENTS];
    bool done = false;
    while (!done) {
        const int count = epoll_wait(server->events, events, EVENTS, next_time(server));
        const int error = errno;
        (void)pthread_mutex_lock(&all_lock);
        if (count < 0 && error != EINTR)
            give_up(server, error);
        for (int i = 0; i < count; i++)
            handle(server, &events[i]);
        look_at_time(server);
        done = look_at_end(server) || sm_tcp_server_error(server) != 0;
        if (done)
            end_service(server);
        free_dropped(server);
        (void)pthread_mutex_unlock(&all_lock);
    }
    return NULL;
}

/* After an error the two may be other files' by now. */
static void close_fds(sm_tcp_server *server) {
    stop_listening(server);
    if (sm_tcp_server_error(server) == 0) {
        close(server->events);
        close(server->wake);
    }
    server->events = server->wake = -1;
}

static void destroy_server(sm_tcp_server *server) {
    drop_all(server, false);
    free_dropped(server);
    close_fds(server);
    symmem_store_close(server->world.values);
    free(server);
}

static bool watch(const sm_tcp_server *server, const int *fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = (void *)(uintptr_t)fd};
    return epoll_ctl(server->events, EPOLL_CTL_ADD, *fd, &event) == 0;
}

/* Descriptors below the socket's number were taken when it was made. [SM-STORE-25] */
static symmem_status check_limit(sm_tcp_server *server, int32_t world_size) {
    const uint64_t used = (uint64_t)server->listener, needed = (uint64_t)world_size + OWN_FDS;
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    const uint64_t share = limit.rlim_cur / STRANGERS_SHARE;
    server->strangers_max = share < 1 ? 1 : share < STRANGERS_MAX ? (uint32_t)share : STRANGERS_MAX;
    if (used + needed <= limit.rlim_cur)
        return SYMMEM_OK;
    (void)sm_fail_errno(EMFILE, "store_open", "server",
                        "rank 0 serves %d ranks, which takes %llu descriptors beside the %llu that "
                        "it has",
                        world_size, (unsigned long long)needed, (unsigned long long)used);
    return sm_error_sizes(used + needed, limit.rlim_cur);
}

static symmem_status open_fds(sm_tcp_server *server) {
    if ((server->events = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
        (server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0 ||
        !watch(server, &server->listener) || !watch(server, &server->wake))
        return sm_fail_errno(errno, "store_open", "server", "cannot start the server");
    return SYMMEM_OK;
}

static symmem_status start_thread(sm_tcp_server *server) {
    (void)pthread_mutex_lock(&all_lock);
    const int error = sm_thread_create(&server->thread, serve, server);
    if (error == 0)
        sm_list_add(&all, &server->node);
    (void)pthread_mutex_unlock(&all_lock);
    return error == 0 ? SYMMEM_OK
                      : sm_fail_errno(error, "store_open", "server", "cannot start the server");
}

symmem_status sm_tcp_server_start(const sm_tcp_opening *opening, sm_tcp_server **server_p) {
    sm_tcp_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        close(opening->listener);
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "store_open", "server", "no memory for the server");
    }
    server->listener = opening->listener;
    server->listener_inode = inode_of(opening->listener);
    server->events = server->wake = -1;
    memcpy(server->world.nonce, opening->place->nonce, SM_TCP_NONCE_BYTES);
    server->world.incarnation = opening->incarnation;
    sm_list_init(&server->world.peers);
    sm_list_init(&server->world.dropped);
    server->made_in = sm_fork_generation();
    symmem_status status = check_limit(server, opening->world_size);
    if (status == SYMMEM_OK)
        status = open_fds(server);
    if (status == SYMMEM_OK)
        status = symmem_store_open_memory(&server->world.values);
    if (status == SYMMEM_OK)
        status = start_thread(server);
    if (status == SYMMEM_OK)
        *server_p = server;
    else
        destroy_server(server);
    return status;
}

int sm_tcp_server_error(const sm_tcp_server *server) {
    /* pairs with: give_up */
    return server == NULL ? 0 : atomic_load_explicit(&server->error, memory_order_acquire);
}

void sm_tcp_server_stop(sm_tcp_server *server, uint32_t limit_ms) {
    if (server == NULL)
        return;
    if (!sm_fork_is_parents(server->made_in)) {
        const uint64_t one = 1;
        /* pairs with: look_at_end */
        atomic_store_explicit(&server->end_asked_ns, sm_tcp_now_ns() + limit_ms * 1000000ull,
                              memory_order_release);
        if (sm_tcp_server_error(server) == 0)
            (void)!write(server->wake, &one, sizeof(one));
        (void)pthread_join(server->thread, NULL);
    }
    (void)pthread_mutex_lock(&all_lock);
    sm_list_remove(&server->node);
    (void)pthread_mutex_unlock(&all_lock);
    destroy_server(server);
}

/* --- fork ------------------------------------------------------------------------------------- */

void sm_tcp_server_lock_all(void) {
    (void)pthread_mutex_lock(&all_lock);
}

void sm_tcp_server_unlock_all(void) {
    (void)pthread_mutex_unlock(&all_lock);
}

void sm_tcp_server_forget_all(void) {
    for (sm_node *node = all.next; node != &all; node = node->next) {
        sm_tcp_server *server = SM_CONTAINER(node, sm_tcp_server, node);
        close_fds(server);
        for (sm_node *at = server->world.peers.next; at != &server->world.peers; at = at->next) {
            sm_tcp_peer *peer = SM_CONTAINER(at, sm_tcp_peer, node);
            close(peer->fd);
            peer->fd = -1;
        }
    }
}
