/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose the other end of a connection is, and failures to make and take connections, to ask for it
 * and to look at its message. */
#include "ipc_pair.h"
#include "unit.h"
#include "last_record.h"

#include <sys/socket.h>
#include <sys/syscall.h>

static uid_t claimed_uid;                                    /* 0: the true one */
static int asks_fail, looks_fail, takes_fail, connects_fail; /* so many of the next calls */
static int error_of_looks = ENOMEM, error_of_takes;
static ssize_t most_seen; /* of a message's beginning; 0: all */

/* A look at a message, which may fail for a lack of the kernel's. */
ssize_t recv(int fd, void *data, size_t bytes, int flags) {
    if (looks_fail > 0 && looks_fail-- > 0) {
        errno = error_of_looks;
        return -1;
    }
    if (most_seen != 0)
        bytes = (size_t)most_seen;
    return (ssize_t)syscall(SYS_recvfrom, fd, data, bytes, flags, NULL, NULL);
}

int accept4(int fd, struct sockaddr *address, socklen_t *bytes_p, int flags) {
    if (takes_fail > 0 && takes_fail-- > 0) {
        errno = error_of_takes;
        return -1;
    }
    return (int)syscall(SYS_accept4, fd, address, bytes_p, flags);
}

int connect(int fd, const struct sockaddr *address, socklen_t bytes) {
    if (connects_fail > 0 && connects_fail-- > 0) {
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_connect, fd, address, bytes);
}

/* The kernel's word, and a stranger's in its place. */
int getsockopt(int fd, int level, int name, void *value, socklen_t *bytes_p) {
    if (name == SO_PEERCRED && asks_fail > 0 && asks_fail-- > 0) {
        errno = ENOBUFS;
        return -1;
    }
    if (syscall(SYS_getsockopt, fd, level, name, value, bytes_p) != 0)
        return -1;
    if (name == SO_PEERCRED && claimed_uid != 0)
        ((struct ucred *)value)->uid = claimed_uid;
    return 0;
}

/* Descriptors go only to this user's socket and come only from this user's, whatever the names. */
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
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "not the peer's socket"));
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

/* What this process's own system calls fail for is no failure of the peer's. */
TEST("whose socket cannot be told") {
    int before = open_fds(), file = open("/dev/null", O_RDWR | O_CLOEXEC);
    sm_ipc *a = NULL, *b = NULL;
    sm_ipc_tag tag = tag_for(5, 3);
    int got[SM_IPC_MAX_FDS], count = 0;
    int32_t source = -1;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    asks_fail = 2;
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_SYSTEM);
    CU_ASSERT_EQUAL(last_record().system_errno, ENOBUFS);
    CU_ASSERT(!got_one(b, &tag));
    asks_fail = 1; /* it passes */
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    asks_fail = 2;
    CU_ASSERT_EQUAL(sm_ipc_recv(b, &tag, &source, got, &count, 30), SYMMEM_SYSTEM);
    CU_ASSERT_EQUAL(last_record().system_errno, ENOBUFS);
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    asks_fail = 1;
    CU_ASSERT(got_one(b, &tag));
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
    close(file);
    CU_ASSERT_EQUAL(open_fds(), before);
}

TEST("a message that cannot be looked at") {
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
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    looks_fail = 2;
    CU_ASSERT(got_one(b, &tag)); /* it can be taken all the same */
    CU_ASSERT(sm_ipc_send_note(a, address, bytes, &tag, note));
    looks_fail = 2;
    CU_ASSERT(!sm_ipc_notes_of(b, NULL)->any);
    CU_ASSERT(sm_ipc_notes_of(b, NULL)->any); /* at the next look */
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
    close(file);
    CU_ASSERT_EQUAL(open_fds(), before);
}

/* A lack that passes is waited out, and a spare descriptor is given up for it. The connection waits
 * meanwhile. */
TEST("a connection that cannot be taken") {
    static const struct {
        int error, times;
        symmem_status status;
    } rows[] = {{EINTR, 1, SYMMEM_OK},     {ECONNABORTED, 1, SYMMEM_OK}, {EMFILE, 1, SYMMEM_OK},
                {ENFILE, 1, SYMMEM_OK},    {EMFILE, 2, SYMMEM_LIMIT},    {ENFILE, 2, SYMMEM_LIMIT},
                {EPROTO, 1, SYMMEM_SYSTEM}};
    const int before = open_fds(), file = open("/dev/null", O_RDWR | O_CLOEXEC);
    const sm_ipc_tag tag = tag_for(5, 3);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        sm_ipc *a = NULL, *b = NULL;
        int got[SM_IPC_MAX_FDS], count = 0;
        int32_t source = -1;
        CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
        CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
        connects_fail = 1; /* interrupted */
        CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
        CU_ASSERT_EQUAL(connects_fail, 0);
        error_of_takes = rows[i].error;
        takes_fail = rows[i].times;
        symmem_status status = sm_ipc_recv(b, &tag, &source, got, &count, 1000);
        CU_ASSERT_EQUAL(takes_fail, 0);
        CU_ASSERT_EQUAL(status, rows[i].status);
        if (status == SYMMEM_OK) {
            CU_ASSERT_EQUAL_FATAL(count, 1);
            close(got[0]);
        } else {
            CU_ASSERT_EQUAL(last_record().system_errno, rows[i].error);
            CU_ASSERT(got_one(b, &tag));
        }
        sm_ipc_destroy(a);
        sm_ipc_destroy(b);
    }
    close(file);
    CU_ASSERT_EQUAL(open_fds(), before);
}

/* One that was reset has none, one that was interrupted may. */
TEST("a look that is cut short") {
    const int before = open_fds(), file = open("/dev/null", O_RDWR | O_CLOEXEC);
    const sm_ipc_tag tag = tag_for(5, 3);
    const uint8_t note[SM_IPC_NOTE_BYTES] = {1};
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint32_t bytes;
    sm_ipc *a = NULL, *b = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &b), SYMMEM_OK);
    sm_ipc_address(b, address, &bytes);
    sm_ipc_expect_notes(b, tag.nonce);
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    error_of_looks = EINTR;
    looks_fail = 1;
    CU_ASSERT(got_one(b, &tag));
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    error_of_looks = ECONNRESET;
    looks_fail = 1;
    CU_ASSERT(!got_one(b, &tag));
    CU_ASSERT_EQUAL(send_to(a, b, &tag, &file, 1), SYMMEM_OK);
    CU_ASSERT(got_one(b, &tag));
    CU_ASSERT(sm_ipc_send_note(a, address, bytes, &tag, note));
    most_seen = 2; /* too little to tell a note by */
    CU_ASSERT(!sm_ipc_notes_of(b, NULL)->any);
    most_seen = 0;
    CU_ASSERT(sm_ipc_notes_of(b, NULL)->any);
    error_of_looks = ENOMEM;
    sm_ipc_destroy(a);
    sm_ipc_destroy(b);
    close(file);
    CU_ASSERT_EQUAL(open_fds(), before);
}

/* A file that a stream's socket has taken is this user's, and not the peer's all the same. */
TEST("a file of another kind of socket") {
    char folder[] = "/tmp/symm-kind-XXXXXX";
    struct sockaddr_un there = {.sun_family = AF_UNIX};
    const sm_ipc_tag tag = tag_for(5, 3);
    sm_ipc *a = NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(there.sun_path, sizeof(there.sun_path), "%s/s", folder);
    const int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL_FATAL(bind(other, (const struct sockaddr *)&there, sizeof(there)), 0);
    CU_ASSERT_EQUAL_FATAL(listen(other, 1), 0);
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(NULL, NULL, &a), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_ipc_send(a, (const uint8_t *)&there, sizeof(there), &tag, NULL, 0, 50),
                    SYMMEM_PERMISSION);
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "/s is not the peer's socket: mode"));
    sm_ipc_destroy(a);
    close(other);
    CU_ASSERT_EQUAL(unlink(there.sun_path), 0);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}
