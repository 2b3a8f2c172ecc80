/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread that serves a TCP store: it takes connections, reads requests, and sends answers as
 * far as each socket takes them. What a request does is store_tcp_answer.c's.
 *
 * It waits for nobody: a client that sends half a message, or reads no answers, only keeps its own
 * connection, and one that has not said in time which world it is of loses it.
 */
#include "store/store_tcp_answer.h"
#include "base/fork.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 64
#define STRANGERS_MAX 128u
#define PAUSE_NS 50000000u /* without descriptors, until the next try to take a connection */

struct sm_tcp_server {
    sm_node node; /* among all of the process's */
    sm_tcp_world world;
    int listener, events, wake;
    uint64_t accept_again_ns; /* 0: connections are taken */
    uint64_t end_ns;          /* 0: not asked to end */
    _Atomic uint64_t end_asked_ns;
    pthread_t thread;
    uint32_t made_in;
};

/* Held by each server while it works, and by who forks. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static sm_node all = {&all, &all};

/* --- connections ------------------------------------------------------------------------------
 */

static void listen_for(const sm_tcp_server *server, sm_tcp_peer *peer, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = peer};
    (void)epoll_ctl(server->events, EPOLL_CTL_MOD, peer->fd, &event);
}

/* Its memory goes after the batch of events, in which it may stand once more. */
static void drop(sm_tcp_server *server, sm_tcp_peer *peer) {
    if (peer->fd >= 0)
        close(peer->fd);
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

static void flush(sm_tcp_server *server, sm_tcp_peer *peer) {
    if (peer->out == NULL)
        return;
    const ssize_t sent = send(peer->fd, peer->out + peer->out_done,
                              peer->out_bytes - peer->out_done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        drop(server, peer);
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

/* All who have an answer now: the one who asked, and those who waited for what it set. */
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
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        drop(server, peer);
    else if (got > 0)
        *got_p += (size_t)got;
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

static void serve_peer(sm_tcp_server *server, sm_tcp_peer *peer, uint32_t events) {
    if (peer->fd < 0)
        return;
    if (peer->is_stuck) {
        flush(server, peer);
        return;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0 || !read_request(server, peer))
        return;
    sm_tcp_answer(&server->world, peer);
    peer->head_got = peer->body_got = 0;
    flush_all(server);
}

/* --- taking connections -----------------------------------------------------------------------
 */

static void set_accepting(sm_tcp_server *server, bool accepts) {
    struct epoll_event event = {.events = accepts ? EPOLLIN : 0, .data.ptr = &server->listener};
    (void)epoll_ctl(server->events, EPOLL_CTL_MOD, server->listener, &event);
    server->accept_again_ns = accepts ? 0 : sm_tcp_now_ns() + PAUSE_NS;
}

static void drop_oldest_stranger(sm_tcp_server *server) {
    sm_node *node = server->world.peers.next;
    while (SM_CONTAINER(node, sm_tcp_peer, node)->rank >= 0)
        node = node->next;
    drop(server, SM_CONTAINER(node, sm_tcp_peer, node));
}

static void take_connection(sm_tcp_server *server) {
    const int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            set_accepting(server, false);
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
    peer->rank = -1;
    peer->hello_by_ns = sm_tcp_deadline_ns(SM_TCP_HELLO_MS);
    if (server->world.strangers == STRANGERS_MAX)
        drop_oldest_stranger(server);
    server->world.strangers++;
    sm_list_add(&server->world.peers, &peer->node);
}

/* --- time --------------------------------------------------------------------------------------
 */

static uint64_t earlier(uint64_t one_ns, uint64_t other_ns) {
    return one_ns == 0 || (other_ns != 0 && other_ns < one_ns) ? other_ns : one_ns;
}

/* In ms from now on, rounded up; -1: nothing is to be done at any time. */
static int next_time(const sm_tcp_server *server) {
    uint64_t at_ns = earlier(server->accept_again_ns, server->end_ns);
    for (sm_node *node = server->world.peers.next;
         server->world.strangers != 0 && node != &server->world.peers; node = node->next)
        if (SM_CONTAINER(node, sm_tcp_peer, node)->rank < 0)
            at_ns = earlier(at_ns, SM_CONTAINER(node, sm_tcp_peer, node)->hello_by_ns);
    const uint64_t now_ns = sm_tcp_now_ns();
    if (at_ns == 0)
        return -1;
    return at_ns <= now_ns ? 0 : (int)((at_ns - now_ns + 999999) / 1000000);
}

static void look_at_time(sm_tcp_server *server) {
    const uint64_t now_ns = sm_tcp_now_ns();
    if (server->accept_again_ns != 0 && now_ns >= server->accept_again_ns)
        set_accepting(server, true);
    for (sm_node *node = server->world.peers.next, *next;
         server->world.strangers != 0 && node != &server->world.peers; node = next) {
        sm_tcp_peer *peer = SM_CONTAINER(node, sm_tcp_peer, node);
        next = node->next;
        if (peer->rank < 0 && now_ns >= peer->hello_by_ns)
            drop(server, peer);
    }
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
        close(server->listener);
        server->listener = -1;
        drop_all(server, true);
    }
    return server->end_ns != 0 && (server->world.members == 0 || sm_tcp_now_ns() >= server->end_ns);
}

/* --- the thread --------------------------------------------------------------------------------
 */

static void handle(sm_tcp_server *server, const struct epoll_event *event) {
    if (event->data.ptr == &server->listener)
        take_connection(server);
    else if (event->data.ptr != &server->wake)
        serve_peer(server, event->data.ptr, event->events);
}

static void *serve(void *arg) {
    sm_tcp_server *server = arg;
    struct epoll_event events[EVENTS];
    bool done = false;
    while (!done) {
        const int count = epoll_wait(server->events, events, EVENTS, next_time(server));
        (void)pthread_mutex_lock(&all_lock);
        for (int i = 0; i < count; i++)
            handle(server, &events[i]);
        look_at_time(server);
        done = look_at_end(server);
        free_dropped(server);
        (void)pthread_mutex_unlock(&all_lock);
    }
    return NULL;
}

static void close_fds(sm_tcp_server *server) {
    int *const fds[] = {&server->listener, &server->events, &server->wake};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

static void destroy(sm_tcp_server *server) {
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

static int start_thread(sm_tcp_server *server) {
    (void)pthread_mutex_lock(&all_lock);
    const int error = sm_thread_create(&server->thread, serve, server);
    if (error == 0)
        sm_list_add(&all, &server->node);
    (void)pthread_mutex_unlock(&all_lock);
    return error;
}

symmem_status sm_tcp_server_start(int listener, const uint8_t nonce[SM_TCP_NONCE_BYTES],
                                  uint32_t turn, sm_tcp_server **server_p) {
    sm_tcp_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        close(listener);
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "store_open", "server", "no memory for the server");
    }
    server->listener = listener;
    memcpy(server->world.nonce, nonce, SM_TCP_NONCE_BYTES);
    server->world.turn = turn;
    sm_list_init(&server->world.peers);
    sm_list_init(&server->world.dropped);
    server->made_in = sm_fork_generation();
    server->events = epoll_create1(EPOLL_CLOEXEC);
    server->wake = server->events < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = server->wake < 0 ? errno : 0;
    symmem_status status = SYMMEM_OK;
    if (error == 0)
        status = symmem_store_open_memory(&server->world.values);
    if (status == SYMMEM_OK && error == 0 &&
        (!watch(server, &server->listener) || !watch(server, &server->wake)))
        error = errno;
    else if (status == SYMMEM_OK && error == 0)
        error = start_thread(server);
    if (error != 0)
        status = sm_fail_errno(error, "store_open", "server", "cannot start the server");
    if (status != SYMMEM_OK) {
        destroy(server);
        return status;
    }
    *server_p = server;
    return SYMMEM_OK;
}

void sm_tcp_server_stop(sm_tcp_server *server, uint32_t limit_ms) {
    if (server == NULL)
        return;
    if (!sm_fork_is_parents(server->made_in)) {
        const uint64_t one = 1;
        /* pairs with: look_at_end */
        atomic_store_explicit(&server->end_asked_ns, sm_tcp_now_ns() + limit_ms * 1000000ull,
                              memory_order_release);
        (void)!write(server->wake, &one, sizeof(one));
        (void)pthread_join(server->thread, NULL);
    }
    (void)pthread_mutex_lock(&all_lock);
    sm_list_remove(&server->node);
    (void)pthread_mutex_unlock(&all_lock);
    destroy(server);
}

/* --- fork --------------------------------------------------------------------------------------
 */

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
            if (peer->fd >= 0)
                close(peer->fd);
            peer->fd = -1;
        }
    }
}
