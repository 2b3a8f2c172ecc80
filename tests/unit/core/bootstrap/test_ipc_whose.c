/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose the other end of a connection is, and failures to ask for it and to look at its message. */
#include "ipc_pair.h"
#include "unit.h"
#include "last_record.h"

#include <sys/socket.h>
#include <sys/syscall.h>

static uid_t claimed_uid; /* 0: the true one */
static int asks_fail, looks_fail;

/* A look at a message, which may fail for a lack of the kernel's. */
ssize_t recv(int fd, void *data, size_t bytes, int flags) {
    if (looks_fail > 0 && looks_fail-- > 0) {
        errno = ENOMEM;
        return -1;
    }
    return (ssize_t)syscall(SYS_recvfrom, fd, data, bytes, flags, NULL, NULL);
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
