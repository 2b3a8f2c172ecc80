/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and addresses of TCP stores. */
#include "store/store_tcp_address.h"
#include "store/deadline_call.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 1024
#define HOST_MAX 255

static symmem_status invalid(const char *text) {
    return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_open", "address",
                   "'%.100s' is no host:port of a TCP store", text);
}

/* --- resolving -------------------------------------------------------------------------------- */

/* A resolver may wait for its servers without a limit. */
typedef struct look_up {
    sm_deadline_call call;
    char host[HOST_MAX + 1];
    char port[8];
    int error;
    struct addrinfo *found;
} look_up;

static void run_look_up(sm_deadline_call *call) {
    look_up *self = SM_CONTAINER(call, look_up, call);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    self->error = getaddrinfo(self->host, self->port, &hints, &self->found);
}

static void destroy_look_up(sm_deadline_call *call) {
    look_up *self = SM_CONTAINER(call, look_up, call);
    if (self->found != NULL)
        freeaddrinfo(self->found);
    free(self);
}

static void take_addresses(const struct addrinfo *found, sm_tcp_place *place) {
    place->count = 0;
    for (; found != NULL && place->count < SM_TCP_ADDRESSES_MAX; found = found->ai_next) {
        sm_tcp_address *address = &place->addresses[place->count];
        if (found->ai_addrlen > sizeof(address->address))
            continue;
        memcpy(&address->address, found->ai_addr, found->ai_addrlen);
        address->bytes = found->ai_addrlen;
        place->count++;
    }
}

static symmem_status look_up_name(const char *host, uint16_t port, uint64_t deadline_ns,
                                  sm_tcp_place *place) {
    look_up *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "store_open", "address", "no memory for a name");
    self->call.run = run_look_up;
    self->call.destroy = destroy_look_up;
    sm_copy_text(self->host, sizeof(self->host), host);
    (void)snprintf(self->port, sizeof(self->port), "%u", (unsigned)port);
    if (!sm_deadline_call_run(&self->call, deadline_ns))
        return errno == ETIMEDOUT ? sm_fail(SYMMEM_TIMEOUT, "store_open", "address",
                                            "the address of %.100s was not found in time", host)
                                  : sm_fail_errno(errno, "store_open", "address", "no thread");
    const int error = self->error;
    take_addresses(self->found, place);
    sm_deadline_call_release(&self->call);
    if (error != 0 || place->count == 0)
        return sm_fail(SYMMEM_NOT_FOUND, "store_open", "address", "no host %.100s: %s", host,
                       error != 0 ? gai_strerror(error) : "it has no address");
    return SYMMEM_OK;
}

/* An address of digits needs no resolver. */
static bool is_number(const char *host, uint16_t port, sm_tcp_place *place) {
    struct sockaddr_in six_or_four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    sm_tcp_address *address = &place->addresses[0];
    place->count = 1;
    if (inet_pton(AF_INET, host, &six_or_four.sin_addr) == 1) {
        memcpy(&address->address, &six_or_four, sizeof(six_or_four));
        address->bytes = sizeof(six_or_four);
        return true;
    }
    memcpy(&address->address, &six, sizeof(six));
    address->bytes = sizeof(six);
    return inet_pton(AF_INET6, host, &((struct sockaddr_in6 *)&address->address)->sin6_addr) == 1;
}

symmem_status sm_tcp_place_resolve(const char *host, uint16_t port, uint64_t deadline_ns,
                                   sm_tcp_place *place_p) {
    const bool has_colon = strchr(host, ':') != NULL;
    (void)snprintf(place_p->name, sizeof(place_p->name), has_colon ? "[%.100s]:%u" : "%.100s:%u",
                   host, (unsigned)port);
    return is_number(host, port, place_p) ? SYMMEM_OK
                                          : look_up_name(host, port, deadline_ns, place_p);
}

/* What the launchers say of the job. All ranks of one have the same. */
static uint64_t hash_job(uint64_t seed) {
    static const char *const variables[] = {"SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID",
                                            "TORCHELASTIC_RESTART_COUNT", "PMIX_NAMESPACE"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *value = secure_getenv(variables[i]);
        if (value != NULL)
            seed = sm_hash(value, strlen(value) + 1, seed + i);
    }
    return seed;
}

static void make_nonce(const char *word, uint8_t nonce[SM_TCP_NONCE_BYTES]) {
    uint64_t halves[2] = {SM_HASH_SEED, SM_HASH_SEED ^ 0x73796d6d656dull};
    for (size_t i = 0; i < 2; i++)
        halves[i] = word != NULL ? sm_hash(word, strlen(word), halves[i]) : hash_job(halves[i]);
    memcpy(nonce, halves, sizeof(halves));
}

symmem_status sm_tcp_place_parse(const char *text, uint64_t deadline_ns, sm_tcp_place *place_p) {
    char host[HOST_MAX + 1];
    const char *word = strchr(text, '/');
    const char *end = word != NULL ? word : text + strlen(text);
    const char *colon = end;
    while (colon > text && *colon != ':')
        colon--;
    const bool has_brackets = text[0] == '[' && colon > text + 1 && colon[-1] == ']';
    const size_t bytes = (size_t)(colon - text) - (has_brackets ? 2 : 0);
    if (*colon != ':' || colon == text || bytes == 0 || bytes > HOST_MAX)
        return invalid(text);
    memcpy(host, text + (has_brackets ? 1 : 0), bytes);
    host[bytes] = '\0';
    if (strpbrk(host, "[]") != NULL || (!has_brackets && strchr(host, ':') != NULL))
        return invalid(text);
    char *after;
    errno = 0;
    const unsigned long port = strtoul(colon + 1, &after, 10);
    if (colon[1] < '0' || colon[1] > '9' || after != end || port == 0 || port > 65535)
        return invalid(text);
    make_nonce(word == NULL ? NULL : word + 1, place_p->nonce);
    return sm_tcp_place_resolve(host, (uint16_t)port, deadline_ns, place_p);
}

/* --- listening -------------------------------------------------------------------------------- */

/* -1 with an errno. */
static int listen_at(const sm_tcp_address *address) {
    const int yes = 1;
    const int fd =
        socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    /* The connections of the program before may still be fading away. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, (const struct sockaddr *)&address->address, address->bytes) == 0 &&
        listen(fd, BACKLOG) == 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static uint16_t *port_of(sm_tcp_address *address) {
    return address->address.ss_family == AF_INET
               ? &((struct sockaddr_in *)&address->address)->sin_port
               : &((struct sockaddr_in6 *)&address->address)->sin6_port;
}

static sm_tcp_address wildcard(int family, uint16_t network_port) {
    sm_tcp_address any = {.bytes = family == AF_INET ? sizeof(struct sockaddr_in)
                                                     : sizeof(struct sockaddr_in6)};
    any.address.ss_family = (sa_family_t)family;
    *port_of(&any) = network_port;
    return any;
}

symmem_status sm_tcp_listen(const sm_tcp_place *place, int *fd_p) {
    bool in_use = false;
    for (int32_t i = 0; i < place->count; i++) {
        sm_tcp_address address = place->addresses[i];
        *fd_p = listen_at(&address);
        if (*fd_p < 0 && errno == EADDRNOTAVAIL) {
            /* The name's address may be one that is forwarded to this host. */
            address = wildcard(address.address.ss_family, *port_of(&address));
            *fd_p = listen_at(&address);
        }
        if (*fd_p >= 0)
            return SYMMEM_OK;
        in_use |= errno == EADDRINUSE;
    }
    if (in_use)
        return sm_fail(SYMMEM_BUSY, "store_open", "server",
                       "rank 0 serves the store, but another program has %s", place->name);
    return sm_fail_errno(errno, "store_open", "server", "rank 0 cannot serve at %s", place->name);
}

static void add_own_addresses(sm_tcp_place *place, uint16_t network_port) {
    struct ifaddrs *first = NULL;
    if (getifaddrs(&first) != 0)
        return;
    for (struct ifaddrs *one = first; one != NULL && place->count < SM_TCP_ADDRESSES_MAX;
         one = one->ifa_next) {
        const int family = one->ifa_addr != NULL ? one->ifa_addr->sa_family : AF_UNSPEC;
        if (family != AF_INET || (one->ifa_flags & IFF_UP) == 0 ||
            (one->ifa_flags & IFF_LOOPBACK) != 0)
            continue;
        sm_tcp_address *address = &place->addresses[place->count++];
        *address = wildcard(AF_INET, network_port);
        memcpy(&address->address, one->ifa_addr, sizeof(struct sockaddr_in));
        *port_of(address) = network_port;
    }
    freeifaddrs(first);
}

symmem_status sm_tcp_listen_anywhere(bool is_local, sm_tcp_place *place_p, int *fd_p) {
    sm_tcp_address address = wildcard(AF_INET, 0), loopback = address;
    ((struct sockaddr_in *)&loopback.address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    symmem_status status = sm_random(place_p->nonce, SM_TCP_NONCE_BYTES);
    if (status != SYMMEM_OK)
        return status;
    const int fd = listen_at(is_local ? &loopback : &address);
    if (fd < 0)
        return sm_fail_errno(errno, "store_open", "server", "rank 0 cannot serve the store");
    (void)getsockname(fd, (struct sockaddr *)&address.address, &address.bytes);
    *port_of(&loopback) = *port_of(&address);
    place_p->count = 1;
    place_p->addresses[0] = loopback; /* for those on this host */
    if (!is_local)
        add_own_addresses(place_p, *port_of(&address));
    (void)snprintf(place_p->name, sizeof(place_p->name), "port %u of rank 0's host",
                   (unsigned)ntohs(*port_of(&address)));
    *fd_p = fd;
    return SYMMEM_OK;
}

/* --- a place as text: "symmem1 NONCE PORT ADDRESS ..." ---------------------------------------- */

void sm_tcp_place_write(const sm_tcp_place *place, char text[SM_TCP_PLACE_BYTES]) {
    sm_tcp_place copy = *place;
    int used = snprintf(text, SM_TCP_PLACE_BYTES, "symmem1 ");
    for (size_t i = 0; i < SM_TCP_NONCE_BYTES; i++)
        used += snprintf(text + used, SM_TCP_PLACE_BYTES - (size_t)used, "%02x", place->nonce[i]);
    used += snprintf(text + used, SM_TCP_PLACE_BYTES - (size_t)used, " %u",
                     (unsigned)ntohs(*port_of(&copy.addresses[0])));
    for (int32_t i = 0; i < place->count; i++) {
        char address[INET_ADDRSTRLEN] = "";
        (void)inet_ntop(AF_INET, &((struct sockaddr_in *)&copy.addresses[i].address)->sin_addr,
                        address, sizeof(address));
        used += snprintf(text + used, SM_TCP_PLACE_BYTES - (size_t)used, " %s", address);
    }
}

static bool read_nonce(const char *text, uint8_t nonce[SM_TCP_NONCE_BYTES]) {
    const size_t digits = 2 * SM_TCP_NONCE_BYTES;
    if (strlen(text) != digits || strspn(text, "0123456789abcdef") != digits)
        return false;
    for (size_t i = 0; i < SM_TCP_NONCE_BYTES; i++) {
        const char pair[] = {text[2 * i], text[2 * i + 1], '\0'};
        nonce[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return true;
}

symmem_status sm_tcp_place_read(const char *text, sm_tcp_place *place_p) {
    char copy[SM_TCP_PLACE_BYTES], *rest = copy;
    memset(place_p, 0, sizeof(*place_p));
    sm_copy_text(copy, sizeof(copy), text);
    const char *magic = strsep(&rest, " ");
    const char *nonce = strsep(&rest, " ");
    const char *port_text = strsep(&rest, " ");
    const int port = port_text != NULL ? atoi(port_text) : 0;
    bool is_right = strcmp(magic, "symmem1") == 0 && port > 0 && port <= 65535 &&
                    read_nonce(nonce, place_p->nonce);
    for (const char *host = strsep(&rest, " ");
         is_right && host != NULL && place_p->count < SM_TCP_ADDRESSES_MAX;
         host = strsep(&rest, " ")) {
        sm_tcp_address *address = &place_p->addresses[place_p->count++];
        *address = wildcard(AF_INET, htons((uint16_t)port));
        is_right =
            inet_pton(AF_INET, host, &((struct sockaddr_in *)&address->address)->sin_addr) == 1;
    }
    if (!is_right || place_p->count == 0)
        return sm_fail(SYMMEM_CORRUPT, "store_open", "address",
                       "what stands in place of the store's address is none: %.60s", text);
    (void)snprintf(place_p->name, sizeof(place_p->name), "port %d of rank 0's host", port);
    return SYMMEM_OK;
}

/* --- connecting ------------------------------------------------------------------------------- */

static int finish_connecting(int fd, uint64_t deadline_ns) {
    int error = 0;
    socklen_t bytes = sizeof(error);
    const int waited = sm_tcp_ready(fd, POLLOUT, deadline_ns);
    if (waited == 0)
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    return waited == 0 ? error : waited;
}

/* A connection to a free local port may be given that very port, and be one with itself. */
static bool is_own_end(int fd) {
    struct sockaddr_storage here, there;
    socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
    memset(&here, 0, sizeof(here));
    memset(&there, 0, sizeof(there));
    (void)getsockname(fd, (struct sockaddr *)&here, &here_bytes);
    (void)getpeername(fd, (struct sockaddr *)&there, &there_bytes); /* fails if it has ended */
    return memcmp(&here, &there, sizeof(here)) == 0;
}

int sm_tcp_connect(const sm_tcp_address *address, uint64_t deadline_ns, int *fd_p) {
    const int fd =
        socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    errno = 0;
    (void)connect(fd, (const struct sockaddr *)&address->address, address->bytes);
    int error = errno == EINPROGRESS ? finish_connecting(fd, deadline_ns) : errno;
    if (error == 0 && is_own_end(fd))
        error = ECONNREFUSED;
    if (error != 0) {
        close(fd);
        return error;
    }
    sm_tcp_tune(fd);
    *fd_p = fd;
    return 0;
}
