/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of this host, and sockets that know nothing of stores. */
#ifndef SYMMEM_CONFORMANCE_TCP_HELP_H
#define SYMMEM_CONFORMANCE_TCP_HELP_H

#include <arpa/inet.h>
#include <netinet/in.h>

#include "case_help.h"

#define ADDRESS_BYTES 96

static inline int tcp_bind(struct tk *t, uint16_t *port_p) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TK_REQUIRE(t, fd >= 0 && bind(fd, (struct sockaddr *)&address, bytes) == 0 &&
                      getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    *port_p = ntohs(address.sin_port);
    return fd;
}

/* Not so in a network namespace whose loopback interface is down. */
static inline bool tcp_is_possible(struct tk *t) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint16_t port = 0;
    const int listener = tcp_bind(t, &port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_port = htons(port);
    const bool reached = listen(listener, 1) == 0 && fd >= 0 &&
                         connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    close(listener);
    return reached;
}

/* Leaves the case, unresolved, where that is not so. */
static inline void tcp_require(struct tk *t) {
    if (tcp_is_possible(t))
        return;
    tk_unresolved(t, "127.0.0.1 cannot be reached: the loopback interface is down");
    tk_leave(t);
}

/* A socket of this host that is bound to a port of the system's choice. */
static inline int tcp_socket(struct tk *t, uint16_t *port_p) {
    tcp_require(t);
    return tcp_bind(t, port_p);
}

/* One that no process uses now. */
static inline uint16_t tcp_free_port(struct tk *t) {
    uint16_t port = 0;
    close(tcp_socket(t, &port));
    return port;
}

static inline int tcp_connect(struct tk *t, uint16_t port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TK_REQUIRE(t, fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static inline const char *tcp_address(char text[ADDRESS_BYTES], uint16_t port, const char *word) {
    snprintf(text, ADDRESS_BYTES, "tcp://127.0.0.1:%u/%s", (unsigned)port, word);
    return text;
}

#endif
