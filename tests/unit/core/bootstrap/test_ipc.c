/* SPDX-License-Identifier: BSD-3-Clause */
/* The sockets that carry descriptors: messages, strangers, failing calls, limits, paths. */
#include "ipc_pair.h"
#include "unit.h"
#include "last_record.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

/* A sender that stopped after it had connected delays no receiver, nor does one that ended then. */
TEST("a connection without a message") {
    int before = open_fds(), file = open("/dev/null", O_RDWR | O_CLOEXEC);
    sm_ipc *a = NULL, *b = NULL;
    sm_ipc_tag tag = tag_for(5, 3);
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint32_t bytes;
    struct sockaddr_un to;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    sm_ipc_address(b, address, &bytes);
    memcpy(&to, address, bytes);
    int stopped[6];
    for (int i = 0; i < 6; i++) {
        stopped[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        CU_ASSERT_EQUAL_FATAL(connect(stopped[i], (const struct sockaddr *)&to, bytes), 0);
    }
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    CU_ASSERT(got_one(b, &tag));
    CU_ASSERT(!got_one(b, &tag));
    for (int i = 0; i < 6; i++)
        close(stopped[i]);
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    CU_ASSERT(got_one(b, &tag));
    CU_ASSERT_EQUAL(open_fds(), before + 5); /* two each, and the file */
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
    close(file);
    CU_ASSERT_EQUAL(open_fds(), before);
}

/* The one descriptor that is put by takes the first of two connections; the second one waits. */
TEST("no descriptor for a connection") {
    int before = open_fds(), file = open("/dev/null", O_RDWR | O_CLOEXEC), got[SM_IPC_MAX_FDS],
        count;
    int32_t source;
    sm_ipc *a = NULL, *b = NULL;
    sm_ipc_tag tag = tag_for(5, 3);
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint32_t bytes;
    struct sockaddr_un to;
    struct rlimit old, tight;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    sm_ipc_address(b, address, &bytes);
    memcpy(&to, address, bytes);
    int stopped = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL_FATAL(connect(stopped, (const struct sockaddr *)&to, bytes), 0);
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    getrlimit(RLIMIT_NOFILE, &old);
    int next = dup(0);
    close(next);
    tight = old;
    tight.rlim_cur = (rlim_t)next;
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &tight), 0);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &tag, &source, got, &count, 100), SYMMEM_LIMIT);
    setrlimit(RLIMIT_NOFILE, &old);
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "RLIMIT_NOFILE"));
    CU_ASSERT(last_record().expected == 1 && last_record().actual == 0);
    CU_ASSERT(got_one(b, &tag));
    close(stopped);
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
    close(file);
    CU_ASSERT_EQUAL(open_fds(), before);
}

static bool same_file(int a, int b) {
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

/* --- what the kernel says, if not the truth --------------------------------------------------- */

static int send_error; /* once */
static bool spoils_magic, is_cut_short;
static void (*falsify)(struct msghdr *header); /* what came, if not NULL */

ssize_t __real_sendmsg(int fd, const struct msghdr *header, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *header, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *header, int flags) {
    struct msghdr sent = *header;
    errno = send_error;
    send_error = 0;
    if (errno != 0)
        return -1;
    if (spoils_magic)
        *(char *)sent.msg_iov[0].iov_base ^= 1;
    if (is_cut_short)
        sent.msg_iovlen = 1;
    return __real_sendmsg(fd, &sent, flags);
}

static int receive_error; /* of the next call */

ssize_t __real_recvmsg(int fd, struct msghdr *header, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *header, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *header, int flags) {
    errno = receive_error;
    receive_error = 0;
    if (errno != 0)
        return -1;
    ssize_t got = __real_recvmsg(fd, header, flags);
    if (got >= 0 && falsify != NULL)
        falsify(header);
    return got;
}

TEST("sending that fails") {
    static const struct {
        int error;
        symmem_status status;
    } rows[] = {
        {ECONNREFUSED, SYMMEM_PEER_LOST}, {ENOTCONN, SYMMEM_PEER_LOST}, {EPIPE, SYMMEM_PEER_LOST},
        {ECONNRESET, SYMMEM_PEER_LOST},   {EAGAIN, SYMMEM_OK},          {ENOBUFS, SYMMEM_OK},
        {ETOOMANYREFS, SYMMEM_OK},        {EINTR, SYMMEM_OK},           {EIO, SYMMEM_SYSTEM},
        {EACCES, SYMMEM_PERMISSION}};
    sm_ipc *a = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    const sm_ipc_tag tag = tag_for(5, 3);
    uint8_t address[SM_IPC_ADDRESS_MAX], note[SM_IPC_NOTE_BYTES] = "";
    uint32_t bytes;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        send_error = rows[i].error;
        CU_ASSERT_EQUAL(send_to(a, a, &tag, NULL, 0), rows[i].status);
    }
    sm_ipc_address(a, address, &bytes);
    send_error = ECONNREFUSED;
    CU_ASSERT_FALSE(sm_ipc_send_note(a, address, bytes, &tag, note));
    /* Bytes that cannot be an address, and an address that no socket has. */
    const uint32_t large = sizeof(struct sockaddr_un) + 1;
    CU_ASSERT_EQUAL(sm_ipc_send(a, address, large, &tag, NULL, 0, 50), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_FALSE(sm_ipc_send_note(a, address, large, &tag, note));
    CU_ASSERT_EQUAL(sm_ipc_send(a, address, bytes, &tag, NULL, -1, 50), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(sm_ipc_send(a, address, 2, &tag, NULL, 0, 50), SYMMEM_SYSTEM);
    CU_ASSERT_EQUAL(last_record().system_errno, EINVAL);
    sm_ipc_destroy(a);
}

/* The messages arrive at the next calls, in their order. */
TEST("receiving that fails") {
    const int before = open_fds(), file = open("/dev/null", O_RDWR | O_CLOEXEC);
    int got[SM_IPC_MAX_FDS], count;
    int32_t source;
    sm_ipc *a = NULL, *b = NULL;
    sm_ipc_tag tag = tag_for(5, 3);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    tag.sequence++;
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    tag.sequence--;
    receive_error = EIO;
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &tag, &source, got, &count, 100), SYMMEM_SYSTEM);
    CU_ASSERT_EQUAL(last_record().system_errno, EIO);
    CU_ASSERT(got_one(b, &tag));
    tag.sequence++;
    receive_error = EIO;
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &tag, &source, got, &count, 100), SYMMEM_SYSTEM);
    CU_ASSERT(got_one(b, &tag));
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
    close(file);
    CU_ASSERT_EQUAL(open_fds(), before);
}

static int false_ends; /* of the next looks at messages */

ssize_t __real_recv(int fd, void *data, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t bytes, int flags) {
    return false_ends > 0 && false_ends-- ? 0 : __real_recv(fd, data, bytes, flags);
}

/* The kernel may tell a connection's end though a message waits: if the sender sends it and closes
 * between the kernel's look at the messages and its look at the connection. */
TEST("an end before the message") {
    const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    sm_ipc *a = NULL, *b = NULL;
    const sm_ipc_tag tag = tag_for(5, 3);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    false_ends = 1;
    CU_ASSERT(got_one(b, &tag));
    CU_ASSERT_EQUAL(false_ends, 0);
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
    close(file);
}

/* Another group's, a rank that cannot be; what is no note, with a descriptor, or is one by its
 * first word alone. */
TEST("notes") {
    sm_ipc *a = NULL, *b = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    sm_ipc_tag right = tag_for(5, 3), rows[3] = {right, right, right};
    uint8_t address[SM_IPC_ADDRESS_MAX], note[SM_IPC_NOTE_BYTES] = "why";
    uint32_t bytes;
    int got[SM_IPC_MAX_FDS], count, file = sm_ipc_descriptor(a), before = open_fds();
    int32_t source;
    rows[0].nonce[3]++;
    rows[1].source = -1;
    rows[2].source = SYMMEM_MAX_WORLD_SIZE;
    sm_ipc_address(b, address, &bytes);
    sm_ipc_expect_notes(b, right.nonce);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_TRUE(sm_ipc_send_note(a, address, bytes, &rows[i], note));
    CU_ASSERT_FALSE(sm_ipc_notes_of(b, NULL)->any);
    is_cut_short = true;
    CU_ASSERT_TRUE(sm_ipc_send_note(a, address, bytes, &right, note));
    is_cut_short = false;
    CU_ASSERT_FALSE(sm_ipc_notes_of(b, NULL)->any);
    spoils_magic = true;
    CU_ASSERT_TRUE(sm_ipc_send_note(a, address, bytes, &right, note));
    spoils_magic = false;
    CU_ASSERT_FALSE(sm_ipc_notes_of(b, NULL)->any);
    CU_ASSERT_FALSE(sm_ipc_notes_of(b, &rows[0])->any); /* which takes it away */
    CU_ASSERT_EQUAL(send_to(a, b, &right, &file, 1), SYMMEM_OK);
    CU_ASSERT_FALSE(sm_ipc_notes_of(b, NULL)->any);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &right, &source, got, &count, 50), SYMMEM_OK); /* it is kept */
    close(got[0]);
    CU_ASSERT_EQUAL(open_fds(), before);
    CU_ASSERT_TRUE(sm_ipc_send_note(a, address, bytes, &right, note));
    CU_ASSERT(sm_ipc_notes_of(b, NULL)->any && sm_ipc_notes_of(b, NULL)->first == 3);
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
}

static uint32_t magic_of_notes;

static void learn_magic(struct msghdr *header) {
    memcpy(&magic_of_notes, header->msg_iov[0].iov_base, sizeof(magic_of_notes));
}

/* A stranger's message that begins like a note, with a descriptor: SM-EXCHANGE-13. */
TEST("a descriptor with what begins like a note") {
    sm_ipc *a = NULL, *b = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    sm_ipc_tag tag = tag_for(5, 3);
    uint8_t address[SM_IPC_ADDRESS_MAX], note[SM_IPC_NOTE_BYTES] = "why";
    struct sockaddr_un to;
    uint32_t bytes;
    int file = sm_ipc_descriptor(a), before = open_fds();
    sm_ipc_address(b, address, &bytes);
    memcpy(&to, address, bytes);
    falsify = learn_magic;
    CU_ASSERT_TRUE(sm_ipc_send_note(a, address, bytes, &tag, note));
    (void)sm_ipc_notes_of(b, NULL);
    falsify = NULL;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.align = {.cmsg_len = CMSG_LEN(sizeof(int)),
                           .cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.align), &file, sizeof(file));
    struct iovec body = {.iov_base = &magic_of_notes, .iov_len = sizeof(magic_of_notes)};
    const struct msghdr header = {.msg_iov = &body,
                                  .msg_iovlen = 1,
                                  .msg_control = control.bytes,
                                  .msg_controllen = sizeof(control.bytes)};
    int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL(connect(connection, (const struct sockaddr *)&to, bytes), 0);
    CU_ASSERT(sendmsg(connection, &header, 0) > 0);
    CU_ASSERT_FALSE(sm_ipc_notes_of(b, NULL)->any);
    close(connection);
    CU_ASSERT_EQUAL(open_fds(), before);
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
}

TEST("messages") {
    int before = open_fds();
    sm_ipc *a = NULL, *b = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    CU_ASSERT((fcntl(sm_ipc_descriptor(a), F_GETFD) & FD_CLOEXEC) != 0);
    int file = memfd_create("x", MFD_CLOEXEC);
    CU_ASSERT_FATAL(file >= 0);
    int fds[4] = {-1, file, -1, file}, got[SM_IPC_MAX_FDS], count = 0;
    int32_t source = -1;
    sm_ipc_tag tag = tag_for(5, 3), want = tag_for(5, -1);

    CU_ASSERT_EQUAL(sm_ipc_recv(b, &want, &source, got, &count, 20), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(send_to(a, b, &tag, fds, 4), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &want, &source, got, &count, 100), SYMMEM_OK);
    CU_ASSERT(source == 3 && count == 4 && got[0] == -1 && got[2] == -1);
    CU_ASSERT(same_file(got[1], file) && same_file(got[3], file) && got[1] != file);
    CU_ASSERT((fcntl(got[1], F_GETFD) & FD_CLOEXEC) != 0);
    close(got[1]);
    close(got[3]);

    /* An empty one, and one as large as they get. */
    int many[SM_IPC_MAX_FDS];
    for (int i = 0; i < SM_IPC_MAX_FDS; i++)
        many[i] = file;
    CU_ASSERT_EQUAL(send_to(a, b, &tag, NULL, 0), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &want, &source, got, &count, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(count, 0);
    CU_ASSERT_EQUAL(send_to(a, b, &tag, many, SM_IPC_MAX_FDS), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &want, &source, got, &count, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(count, SM_IPC_MAX_FDS);
    for (int i = 0; i < count; i++)
        CU_ASSERT(got[i] >= 0 && close(got[i]) == 0);
    CU_ASSERT_EQUAL(send_to(a, b, &tag, many, SM_IPC_MAX_FDS + 1), SYMMEM_INVALID_ARGUMENT);

    /* A bad descriptor is the sender's error. */
    int bad = 9999;
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &bad, 1), SYMMEM_SYSTEM);
    CU_ASSERT_EQUAL(last_record().system_errno, EBADF);

    /* A full queue, then a socket that is gone. */
    symmem_status status = SYMMEM_OK;
    for (int i = 0; i < 10000 && status == SYMMEM_OK; i++)
        status = send_to(a, b, &tag, &file, 1);
    CU_ASSERT_EQUAL(status, SYMMEM_TIMEOUT);
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint32_t bytes;
    sm_ipc_address(b, address, &bytes);
    sm_ipc_destroy(b);
    CU_ASSERT_EQUAL(sm_ipc_send(a, address, bytes, &tag, &file, 1, 50), SYMMEM_PEER_LOST);
    sm_ipc_destroy(a);
    sm_ipc_destroy(NULL);
    close(file);
    CU_ASSERT_EQUAL(open_fds(), before);
}

TEST("foreign datagrams") {
    int before = open_fds();
    sm_ipc *a = NULL, *b = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    int file = memfd_create("x", MFD_CLOEXEC), ready = open_fds();
    CU_ASSERT_EQUAL(ready, before + 5);
    int got[SM_IPC_MAX_FDS], count = 0;
    int32_t source = -1;
    sm_ipc_tag want = tag_for(5, -1);

    sm_ipc_tag wrong = tag_for(5, 1);
    wrong.nonce[15] ^= 1;
    CU_ASSERT_EQUAL(send_to(a, b, &wrong, &file, 1), SYMMEM_OK);
    wrong = tag_for(5, 1);
    wrong.group++;
    CU_ASSERT_EQUAL(send_to(a, b, &wrong, &file, 1), SYMMEM_OK);
    wrong = tag_for(4, 1); /* of an exchange given up */
    CU_ASSERT_EQUAL(send_to(a, b, &wrong, &file, 1), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &want, &source, got, &count, 30), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(open_fds(), ready);

    /* A message in another format, from a sender outside the session, with as many descriptors as
     * the kernel takes. */
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint32_t bytes;
    sm_ipc_address(b, address, &bytes);
    struct sockaddr_un to;
    memcpy(&to, address, bytes);
    char text[600] = "hello";
    int many[253];
    for (int i = 0; i < 253; i++)
        many[i] = file;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(many))];
    } control;
    memset(&control, 0, sizeof(control));
    struct iovec body = {.iov_base = text, .iov_len = sizeof(text)};
    struct msghdr header = {.msg_iov = &body,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(sizeof(many));
    memcpy(CMSG_DATA(first), many, sizeof(many));
    int stranger = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL_FATAL(connect(stranger, (const struct sockaddr *)&to, bytes), 0);
    CU_ASSERT(sendmsg(stranger, &header, 0) > 0);
    close(stranger);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &want, &source, got, &count, 30), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(open_fds(), ready);

    /* A later sequence, another kind: kept for when they are asked for. */
    sm_ipc_tag later = tag_for(7, 1), kind = tag_for(0, 1), now = tag_for(5, 1);
    kind.kind = 2;
    CU_ASSERT_EQUAL(send_to(a, b, &later, &file, 1), SYMMEM_OK);
    CU_ASSERT_EQUAL(send_to(a, b, &kind, &file, 1), SYMMEM_OK);
    CU_ASSERT_EQUAL(send_to(a, b, &now, &file, 1), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &want, &source, got, &count, 100), SYMMEM_OK);
    close(got[0]);
    CU_ASSERT_EQUAL(open_fds(), ready + 2);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &kind, &source, got, &count, 30), SYMMEM_OK);
    close(got[0]);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &later, &source, got, &count, 30), SYMMEM_OK);
    close(got[0]);
    CU_ASSERT_EQUAL(open_fds(), ready);
    /* Kept, but outdated in the end: dropped when a later one is asked for, or with the socket. */
    CU_ASSERT_EQUAL(send_to(a, b, &later, &file, 1), SYMMEM_OK);
    CU_ASSERT_EQUAL(send_to(a, b, &kind, &file, 1), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &want, &source, got, &count, 30), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(open_fds(), ready + 2);
    want.sequence = 8;
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &want, &source, got, &count, 30), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(open_fds(), ready + 1);
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
    close(file);
    CU_ASSERT_EQUAL(open_fds(), before);
}

TEST("too many kept") {
    sm_ipc *a = NULL, *b = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    sm_ipc_tag want = tag_for(5, -1), later = tag_for(9, 1);
    int got[SM_IPC_MAX_FDS], count;
    int32_t source;
    symmem_status status = SYMMEM_TIMEOUT;
    for (int i = 0; i < 2000 && status == SYMMEM_TIMEOUT; i++) {
        int none = -1;
        CU_ASSERT_EQUAL_FATAL(send_to(a, b, &later, &none, 1), SYMMEM_OK);
        status = sm_ipc_recv(b, &want, &source, got, &count, 1);
    }
    CU_ASSERT_EQUAL(status, SYMMEM_LIMIT);
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
}

TEST("no descriptors left") {
    sm_ipc *a = NULL, *b = NULL, *c = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    sm_ipc_tag tag = tag_for(1, 0);
    int pair[2] = {sm_ipc_descriptor(a), sm_ipc_descriptor(a)}, got[SM_IPC_MAX_FDS], count;
    int32_t source;
    CU_ASSERT_EQUAL(send_to(a, b, &tag, pair, 2), SYMMEM_OK);
    int before = open_fds();
    struct rlimit old, tight;
    getrlimit(RLIMIT_NOFILE, &old);
    int next = dup(0);
    close(next);
    tight = old;
    tight.rlim_cur = (rlim_t)next + 1; /* one more fits */
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &tight), 0);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &tag, &source, got, &count, 100), SYMMEM_LIMIT);
    CU_ASSERT(last_record().expected == 2 && last_record().actual < 2);
    tight.rlim_cur = (rlim_t)next;
    setrlimit(RLIMIT_NOFILE, &tight);
    CU_ASSERT_EQUAL(sm_ipc_create(NULL, NULL, &c), SYMMEM_LIMIT);
    setrlimit(RLIMIT_NOFILE, &old);
    CU_ASSERT_EQUAL(open_fds(), before);
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
}

TEST("paths") {
    char path[] = "/tmp/symmem-ipc-XXXXXX", name[300];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
    int before = open_fds();
    sm_ipc *a = NULL, *b = NULL;
    mode_t mask = umask(0);
    CU_ASSERT_EQUAL(sm_ipc_create(path, "sock", &a), SYMMEM_OK);
    umask(mask);
    snprintf(name, sizeof(name), "%s/sock", path);
    struct stat about;
    CU_ASSERT_EQUAL(stat(name, &about), 0);
    CU_ASSERT_EQUAL(about.st_mode & 0777, 0600);
    CU_ASSERT_EQUAL(sm_ipc_create(path, "sock", &b), SYMMEM_EXISTS);
    CU_ASSERT_EQUAL(stat(name, &about), 0); /* someone else's file stays */
    CU_ASSERT_EQUAL(sm_ipc_create(path, NULL, &b), SYMMEM_OK);
    int got[SM_IPC_MAX_FDS], count, file = sm_ipc_descriptor(a);
    int32_t source;
    sm_ipc_tag tag = tag_for(1, 0);
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &tag, &source, got, &count, 100), SYMMEM_OK);
    close(got[0]);
    sm_ipc_destroy(b);
    sm_ipc_destroy(a);
    CU_ASSERT_EQUAL(count_files(path, '\0'), 0);
    CU_ASSERT_EQUAL(sm_ipc_create("/nonexistent/dir", NULL, &a), SYMMEM_SYSTEM);
    memset(name, 'x', 200);
    name[0] = '/';
    name[200] = '\0';
    CU_ASSERT_EQUAL(sm_ipc_create(name, NULL, &a), SYMMEM_PATH_TOO_LONG);
    CU_ASSERT_EQUAL(last_record().expected, sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
    CU_ASSERT_EQUAL(sm_ipc_create(NULL, "symmem-test-taken", &a), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_ipc_create(NULL, "symmem-test-taken", &b), SYMMEM_EXISTS);
    sm_ipc_destroy(a);
    CU_ASSERT_EQUAL(open_fds(), before);
    rmdir(path);
}
