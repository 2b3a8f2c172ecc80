/* SPDX-License-Identifier: BSD-3-Clause */
/* The sockets that carry descriptors: messages, strangers, limits, paths. */
#include "session_ranks.h"
#include "unit.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

static sm_ipc_tag tag_for(uint64_t sequence, int32_t source) {
    sm_ipc_tag tag;
    memset(&tag, 0, sizeof(tag));
    memset(tag.nonce, 7, sizeof(tag.nonce));
    tag.group = 42;
    tag.sequence = sequence;
    tag.source = source;
    tag.kind = 1;
    return tag;
}

static symmem_status send_to(sm_ipc *from, sm_ipc *to, const sm_ipc_tag *tag, const int *fds,
                             int count) {
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint32_t bytes;
    sm_ipc_address(to, address, &bytes);
    return sm_ipc_send(from, address, bytes, tag, fds, count, 50);
}

/* --- whose the other end is ----------------------------------------------------------------- */

static uid_t claimed_uid; /* 0: the true one */

/* The kernel's word, and a stranger's in its place. */
int getsockopt(int fd, int level, int name, void *value, socklen_t *bytes_p) {
    if (syscall(SYS_getsockopt, fd, level, name, value, bytes_p) != 0)
        return -1;
    if (name == SO_PEERCRED && claimed_uid != 0)
        ((struct ucred *)value)->uid = claimed_uid;
    return 0;
}

static bool got_one(sm_ipc *ipc, const sm_ipc_tag *want) {
    int got[SM_IPC_MAX_FDS], count = 0;
    int32_t source = -1;
    if (sm_ipc_recv(ipc, want, &source, got, &count, 30) != SYMMEM_OK)
        return false;
    for (int i = 0; i < count; i++)
        close(got[i]);
    return count == 1;
}

/* Whatever its name: descriptors go to this user's socket alone, and come from this user's alone.
 */
TEST("another user's socket") {
    int before = open_fds(), file = open("/dev/null", O_RDWR | O_CLOEXEC);
    sm_ipc *a = NULL, *b = NULL;
    sm_ipc_tag tag = tag_for(5, 3);
    const uint8_t note[SM_IPC_NOTE_BYTES] = {1};
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint32_t bytes;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    sm_ipc_address(b, address, &bytes);
    sm_ipc_expect_notes(b, tag.nonce);
    claimed_uid = geteuid() + 54321;
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_PERMISSION);
    CU_ASSERT_PTR_NOT_NULL(strstr(sm_record()->message, "not the peer's socket"));
    CU_ASSERT(!sm_ipc_send_note(a, address, bytes, &tag, note));
    claimed_uid = 0;
    CU_ASSERT(!got_one(b, &tag));
    CU_ASSERT(!sm_ipc_notes_of(b, NULL)->any);

    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    claimed_uid = geteuid() + 54321;
    CU_ASSERT(!got_one(b, &tag));
    claimed_uid = 0;
    CU_ASSERT(!got_one(b, &tag)); /* closed, not kept */
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    CU_ASSERT(got_one(b, &tag));
    CU_ASSERT(sm_ipc_send_note(a, address, bytes, &tag, note));
    CU_ASSERT(sm_ipc_notes_of(b, NULL)->any);
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
    close(file);
    CU_ASSERT_EQUAL(open_fds(), before);
}

/* A sender that was stopped after it had connected holds nobody up, and one that ended neither. */
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

static bool same_file(int a, int b) {
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
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
    CU_ASSERT_EQUAL(sm_record()->system_errno, EBADF);

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

    /* Not even our form: a stranger's message with as many descriptors as the kernel takes. */
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
    CU_ASSERT(sm_record()->expected == 2 && sm_record()->actual < 2);
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
    CU_ASSERT_EQUAL(sm_record()->expected, sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
    CU_ASSERT_EQUAL(sm_ipc_create(NULL, "symmem-test-taken", &a), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_ipc_create(NULL, "symmem-test-taken", &b), SYMMEM_EXISTS);
    sm_ipc_destroy(a);
    CU_ASSERT_EQUAL(open_fds(), before);
    rmdir(path);
}
