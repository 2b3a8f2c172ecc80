/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of TCP stores and their texts, names and interfaces, sockets, headers of messages. */
#include "../bootstrap/session_ranks.h"
#include "tcp_world.h"
#include "last_record.h"

#include <arpa/inet.h>
#include <net/if.h>

/* --- places ----------------------------------------------------------------------------------- */

TEST("places as text") {
    static const char *const wrong[] = {
        "",
        "symmem1",
        "symmem1 00",
        "symmem1 00112233445566778899aabbccddeeff",
        "symmem1 00112233445566778899aabbccddeeff 1",
        "symmem1 00112233445566778899aabbccddeeff 0 127.0.0.1",
        "symmem1 00112233445566778899aabbccddeeff 65536 127.0.0.1",
        "symmem1 00112233445566778899aabbccddeeff 1 127.0.0",
        "symmem1 00112233445566778899aabbccddeefg 1 127.0.0.1",
        "symmem1 00112233445566778899aabbccddeef 1 127.0.0.1",
        "symmem2 00112233445566778899aabbccddeeff 1 127.0.0.1",
    };
    sm_tcp_place made, read;
    char text[SM_TCP_PLACE_BYTES];
    int listener = -1;
    CU_ASSERT_EQUAL(sm_tcp_listen_anywhere(false, &made, &listener), SYMMEM_OK);
    close(listener);
    sm_tcp_place_write(&made, text);
    CU_ASSERT_EQUAL(sm_tcp_place_read(text, &read), SYMMEM_OK);
    CU_ASSERT(read.count == made.count && memcmp(read.nonce, made.nonce, sizeof(read.nonce)) == 0);
    CU_ASSERT(memcmp(read.addresses, made.addresses, sizeof(read.addresses[0])) == 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        EXPECT_FAIL(sm_tcp_place_read(wrong[i], &read), SYMMEM_CORRUPT, "store_open");
    CU_ASSERT_EQUAL(sm_tcp_place_read("symmem1 00112233445566778899aabbccddeeff 1 1.1.1.1 1.1.1.2 "
                                      "1.1.1.3 1.1.1.4 1.1.1.5 1.1.1.6 1.1.1.7 1.1.1.8 1.1.1.9",
                                      &read),
                    SYMMEM_OK);
    CU_ASSERT_EQUAL(read.count, SM_TCP_ADDRESSES_MAX);
}

TEST("what is no host and port") {
    static const char *const wrong[] = {
        "",      "host",    "host:",  ":1",      "host:0",  "[:1",        "[]:1",   "[::1:5",
        "a:b:5", "[a]b]:5", "host:x", "host:1x", "host:+1", "host:65536", "[::1]5", "host:/1"};
    char text[300];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        EXPECT_FAIL(sm_tcp_place_parse(wrong[i], limit(), &place), SYMMEM_INVALID_ARGUMENT,
                    "store_open");
    memset(text, 'h', sizeof(text));
    memcpy(text + 256, ":1", 3);
    EXPECT_FAIL(sm_tcp_place_parse(text, limit(), &place), SYMMEM_INVALID_ARGUMENT, "store_open");
}

TEST("words and jobs are apart") {
    sm_tcp_place one, other;
    unsetenv("SLURM_JOB_ID");
    CU_ASSERT_EQUAL(sm_tcp_place_parse("127.0.0.1:5/a", limit(), &one), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_tcp_place_parse("127.0.0.1:5/b", limit(), &other), SYMMEM_OK);
    CU_ASSERT_FALSE(sm_tcp_same_nonce(one.nonce, other.nonce));
    CU_ASSERT_EQUAL(sm_tcp_place_parse("[::1]:5", limit(), &one), SYMMEM_OK);
    setenv("SLURM_JOB_ID", "12", 1);
    CU_ASSERT_EQUAL(sm_tcp_place_parse("localhost:5", limit(), &other), SYMMEM_OK);
    CU_ASSERT_FALSE(sm_tcp_same_nonce(one.nonce, other.nonce));
    unsetenv("SLURM_JOB_ID");
}

/* --- messages and deadlines ------------------------------------------------------------------- */

TEST("headers and hellos of any bytes") {
    static const struct {
        sm_tcp_header header;
        bool from_server;
        size_t at; /* of a changed byte */
        bool is_right;
    } cases[] = {{{.kind = SM_TCP_GET, .key_bytes = 1}, false, 8, true}, /* any id will do */
                 {{.kind = SM_TCP_GET, .key_bytes = 1}, false, 0, false},
                 {{.kind = SM_TCP_GET, .key_bytes = 1}, false, 4, false},
                 {{.kind = SM_TCP_GET, .key_bytes = 1}, false, 20, false},
                 {{.kind = SM_TCP_HELLO, .value_bytes = SM_TCP_HELLO_BYTES}, false, 8, true},
                 {{.kind = SM_TCP_HELLO, .value_bytes = 5}, false, 8, false},
                 {{.kind = SM_TCP_REPLY}, true, 8, true},
                 {{.kind = SM_TCP_REPLY, .key_bytes = 1}, true, 8, false},
                 {{.kind = SM_TCP_GET}, true, 8, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[SM_TCP_HEADER_BYTES];
        sm_tcp_header read;
        sm_tcp_write_header(&cases[i].header, bytes);
        bytes[cases[i].at] ^= 0x10;
        CU_ASSERT((sm_tcp_read_header(bytes, cases[i].from_server, &read) == NULL) ==
                  cases[i].is_right);
    }
    static const size_t fields[] = {16, 28}; /* the magic number, what must be zero */
    for (size_t i = 0; i < 2; i++) {
        uint8_t bytes[SM_TCP_HELLO_BYTES];
        sm_tcp_hello hello = {.rank = 3, .incarnation = 4};
        sm_tcp_write_hello(&hello, bytes);
        CU_ASSERT_PTR_NULL(sm_tcp_read_hello(bytes, &hello));
        bytes[fields[i]] ^= 1;
        CU_ASSERT_PTR_NOT_NULL(sm_tcp_read_hello(bytes, &hello));
    }
}

TEST("deadlines, of which 0 is none") {
    static const uint64_t cases[][3] = {{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {5, 6, 5}, {6, 5, 5}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CU_ASSERT_EQUAL(sm_tcp_earlier(cases[i][0], cases[i][1]), cases[i][2]);
    CU_ASSERT_EQUAL(sm_tcp_deadline_ns(0), 0);
    CU_ASSERT(!sm_tcp_expired(0) && sm_tcp_expired(1) && !sm_tcp_expired(limit()));
    CU_ASSERT_EQUAL(sm_tcp_ready(-1, 0, 1), ETIMEDOUT);
}

/* --- names and interfaces, as the C library tells them ---------------------------------------- */

typedef struct name_server {
    int count, error;
    unsigned late_ms;
    socklen_t bytes; /* of each address */
} name_server;

static name_server names;
static bool names_are_faked;
static _Atomic size_t look_ups; /* that have ended */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found_p);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found_p);
static int look_up(const char *port, const struct addrinfo *hints, struct addrinfo **found_p) {
    usleep(names.late_ms * 1000);
    *found_p = NULL;
    if (names.error != 0)
        return names.error;
    if (names.count == 0)
        return 0;
    /* A chain of one address, which is the C library's to free. */
    const int error = __real_getaddrinfo("127.0.0.1", port, hints, found_p);
    for (struct addrinfo *last = *found_p; error == 0 && names.count > 1; names.count--) {
        if (__real_getaddrinfo("127.0.0.2", port, hints, &last->ai_next) != 0)
            return EAI_MEMORY;
        last = last->ai_next;
        last->ai_addrlen = names.bytes;
    }
    return error;
}

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found_p) {
    if (!names_are_faked)
        return __real_getaddrinfo(host, port, hints, found_p);
    const int error = look_up(port, hints, found_p);
    atomic_fetch_add(&look_ups, 1);
    return error;
}

TEST("what a resolver finds") {
    enum { SOCKADDR = sizeof(struct sockaddr_in) };
    static const struct {
        name_server names;
        uint32_t timeout_ms;
        symmem_status status;
        int32_t count;
    } cases[] = {{{1, 0, 0, SOCKADDR}, LIMIT_MS, SYMMEM_OK, 1},
                 {{1, 0, 0, SOCKADDR}, 0, SYMMEM_OK, 1},
                 {{12, 0, 0, SOCKADDR}, LIMIT_MS, SYMMEM_OK, SM_TCP_ADDRESSES_MAX},
                 {{3, 0, 0, 4096}, LIMIT_MS, SYMMEM_OK, 1}, /* larger than any that is known */
                 {{0, 0, 0, SOCKADDR}, LIMIT_MS, SYMMEM_NOT_FOUND, 0},
                 {{0, EAI_NONAME, 0, 0}, LIMIT_MS, SYMMEM_NOT_FOUND, 0},
                 {{1, 0, 400, SOCKADDR}, 50, SYMMEM_TIMEOUT, 0}};
    names_are_faked = true;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        names = cases[i].names;
        const uint64_t until_ns = sm_tcp_deadline_ns(cases[i].timeout_ms);
        CU_ASSERT_EQUAL(sm_tcp_place_parse("a.name:80", until_ns, &place), cases[i].status);
        if (cases[i].status == SYMMEM_OK)
            CU_ASSERT_EQUAL(place.count, cases[i].count);
    }
    const uint64_t end_ns = limit();
    while (atomic_load(&look_ups) < sizeof(cases) / sizeof(cases[0]) && !sm_expired(end_ns))
        usleep(1000); /* the late one */
    names = (name_server){.count = 1};
    for (int nth = 0; nth < 3; nth++) { /* no memory, no condition, no thread */
        arm((fault){.error = EAGAIN, .skips = nth});
        CU_ASSERT(sm_tcp_place_parse("a.name:80", limit(), &place) != SYMMEM_OK);
        CU_ASSERT_TRUE(disarm());
        CU_ASSERT_STRING_EQUAL(last_record().operation, "store_open");
    }
    names_are_faked = false;
}

static struct ifaddrs interfaces[12];
static bool interfaces_are_faked, interfaces_fail;

int __real_getifaddrs(struct ifaddrs **first_p);
int __wrap_getifaddrs(struct ifaddrs **first_p);
int __wrap_getifaddrs(struct ifaddrs **first_p) {
    if (!interfaces_are_faked)
        return __real_getifaddrs(first_p);
    *first_p = interfaces_fail ? NULL : interfaces;
    return interfaces_fail ? -1 : 0;
}
void __real_freeifaddrs(struct ifaddrs *first);
void __wrap_freeifaddrs(struct ifaddrs *first);
void __wrap_freeifaddrs(struct ifaddrs *first) {
    if (first != interfaces)
        __real_freeifaddrs(first);
}

static int32_t addresses_of_this_host(void) {
    int listener = -1;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(false, &place, &listener), SYMMEM_OK);
    close(listener);
    return place.count;
}

TEST("which of a host's interfaces are told") {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000001)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    enum { LEFT_OUT = 4, ALL = 12 };
    for (int i = 0; i < ALL; i++) {
        interfaces[i].ifa_next = i + 1 < ALL ? &interfaces[i + 1] : NULL;
        interfaces[i].ifa_flags = IFF_UP;
        interfaces[i].ifa_addr = (struct sockaddr *)&four;
    }
    interfaces[0].ifa_addr = NULL;
    interfaces[1].ifa_addr = (struct sockaddr *)&six;
    interfaces[2].ifa_flags = 0;
    interfaces[3].ifa_flags = IFF_UP | IFF_LOOPBACK;
    interfaces_are_faked = true;
    CU_ASSERT_EQUAL(addresses_of_this_host(), SM_TCP_ADDRESSES_MAX);
    interfaces[LEFT_OUT].ifa_next = NULL;
    CU_ASSERT_EQUAL(addresses_of_this_host(), 2); /* loopback, and the only one that will do */
    const struct sockaddr_in *told = (struct sockaddr_in *)&place.addresses[1].address;
    CU_ASSERT(told->sin_addr.s_addr == four.sin_addr.s_addr && told->sin_port != 0);
    interfaces_fail = true;
    CU_ASSERT_EQUAL(addresses_of_this_host(), 1);
    interfaces_are_faked = false;
}

/* --- listening and connecting ----------------------------------------------------------------- */

TEST("where rank 0 listens") {
    static const struct {
        const char *address;
        fault fault;
        symmem_status status;
    } cases[] = {{"127.0.0.1:%u", {.call = NULL, .skips = 99}, SYMMEM_OK},
                 {"192.0.2.1:%u", {.call = NULL, .skips = 99}, SYMMEM_OK}, /* forwarded to us */
                 {"127.0.0.1:%u", {.call = "bind", .error = EADDRNOTAVAIL}, SYMMEM_OK},
                 {"127.0.0.1:%u", {.call = "bind", .error = EACCES}, SYMMEM_PERMISSION},
                 {"127.0.0.1:%u", {.call = "bind", .error = EADDRINUSE}, SYMMEM_BUSY},
                 {"127.0.0.1:%u", {.call = "listen", .error = EADDRINUSE}, SYMMEM_BUSY},
                 {"127.0.0.1:%u", {.call = "socket", .error = EMFILE}, SYMMEM_LIMIT},
                 {"[::1]:%u", {.call = "socket", .error = EAFNOSUPPORT}, SYMMEM_SYSTEM}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[64];
        int listener = -1;
        CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &place, &listener), SYMMEM_OK);
        const uint16_t port = ntohs(((struct sockaddr_in *)&place.addresses[0].address)->sin_port);
        close(listener);
        (void)snprintf(text, sizeof(text), cases[i].address, (unsigned)port);
        CU_ASSERT_EQUAL_FATAL(sm_tcp_place_parse(text, limit(), &place), SYMMEM_OK);
        const int fds = open_fds();
        arm(cases[i].fault);
        CU_ASSERT_EQUAL(sm_tcp_listen(&place, &listener), cases[i].status);
        (void)disarm();
        if (cases[i].status == SYMMEM_OK)
            close(listener);
        CU_ASSERT_EQUAL(open_fds(), fds);
    }
}

/* The address of the whole interface in IPv6 has its port at the same place. */
TEST("an IPv6 address that is forwarded to this host") {
    int listener = -1;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_place_parse("[2001:db8::1]:1", limit(), &place), SYMMEM_OK);
    ((struct sockaddr_in6 *)&place.addresses[0].address)->sin6_port = 0; /* any */
    const symmem_status status = sm_tcp_listen(&place, &listener);
    CU_ASSERT(status == SYMMEM_OK || status == SYMMEM_SYSTEM); /* there may be no IPv6 */
    if (status == SYMMEM_OK)
        close(listener);
}

/* A connection from a port to itself, which the kernel makes if that is what it is asked for. */
TEST("a connection to itself is none") {
    struct sockaddr_in *address = (struct sockaddr_in *)&place.addresses[0].address;
    int listener = -1, fd = -1;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &place, &listener), SYMMEM_OK);
    close(listener);
    binds_to_target = true;
    CU_ASSERT_EQUAL(sm_tcp_connect(&place.addresses[0], limit(), &fd), ECONNREFUSED);
    binds_to_target = false;
    CU_ASSERT(address->sin_port != 0 && fd == -1);
    /* Nor is one for which waiting fails. */
    arm((fault){.call = "ppoll", .error = EBADF});
    CU_ASSERT(sm_tcp_connect(&place.addresses[0], limit(), &fd) != 0);
    (void)disarm();
}
