/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of this host, and sockets that know nothing of stores. */
#ifndef SYMMEM_CONFORMANCE_TCP_HELP_H
#define SYMMEM_CONFORMANCE_TCP_HELP_H

#include <arpa/inet.h>
#include <netinet/in.h>

#include "case_help.h"

#define ADDRESS_BYTES 96

/* A socket of this host that is bound to a port of the system's choice. */
static inline int tcp_socket(struct tk *t, uint16_t *port_p) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TK_REQUIRE(t, fd >= 0 && bind(fd, (struct sockaddr *)&address, bytes) == 0 &&
                      getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    *port_p = ntohs(address.sin_port);
    return fd;
}

/* One that nobody uses now. */
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
