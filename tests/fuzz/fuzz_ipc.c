/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages at a session's socket, from peers that know the secret and from strangers, with any
 * number of descriptors. Received descriptors are open, the lengths are bounded, the deadline is
 * kept, and what was not handed out is closed in the end.
 */
#include "fuzz.h"
#include "bootstrap/bootstrap.h"

#define STEP_MS 2u
#define PATIENCE_MS 8000u /* for a machine that has other things to do */
#define MESSAGE_MAX 512
#define FDS_MAX 253 /* the kernel's limit for one message */

typedef struct world {
    sm_ipc *own;   /* that of the rank under test */
    sm_ipc *model; /* gets one honest message, to see how it looks on the wire */
    sm_ipc *peer;
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint32_t address_bytes;
    size_t deliverable; /* messages of the protocol's length that were sent and not received */
    int spare;          /* the descriptor that messages carry */
} world;

static sm_ipc_tag any_tag(fuzz_input *in) {
    sm_ipc_tag tag;
    uint8_t form = fuzz_u8(in);
    memset(&tag, 0, sizeof(tag));
    memset(tag.nonce, 0x5a, sizeof(tag.nonce));
    tag.group = 77;
    tag.sequence = form % 4;
    tag.source = (int32_t)(form / 4 % 4);
    tag.kind = 1 + (form / 16 % 2);
    if ((form & 0x80) != 0)
        fuzz_spoil(in, &tag, sizeof(tag));
    return tag;
}

static void open_world(world *self) {
    FUZZ_CHECK(sm_ipc_create(NULL, NULL, &self->own) == SYMMEM_OK);
    FUZZ_CHECK(sm_ipc_create(NULL, NULL, &self->model) == SYMMEM_OK);
    FUZZ_CHECK(sm_ipc_create(NULL, NULL, &self->peer) == SYMMEM_OK);
    sm_ipc_address(self->own, self->address, &self->address_bytes);
    self->deliverable = 0;
    self->spare = open("/dev/null", O_RDWR | O_CLOEXEC);
    FUZZ_CHECK(self->spare >= 0);
}

static void close_world(world *self) {
    sm_ipc_destroy(self->own);
    sm_ipc_destroy(self->model);
    sm_ipc_destroy(self->peer);
    close(self->spare);
}

/* --- sending ------------------------------------------------------------------------ */

static int many(const world *self, fuzz_input *in, int *fds, int count) {
    uint8_t holes = fuzz_u8(in);
    for (int i = 0; i < count; i++)
        fds[i] = holes != 0 && i % holes == 1 ? -1 : self->spare;
    return count;
}

static void send_honest(world *self, fuzz_input *in) {
    int fds[SM_IPC_MAX_FDS];
    sm_ipc_tag tag = any_tag(in);
    uint8_t form = fuzz_u8(in);
    int count = many(self, in, fds, form == 0xff ? SM_IPC_MAX_FDS : form % 8);
    symmem_status status =
        sm_ipc_send(self->peer, self->address, self->address_bytes, &tag, fds, count, STEP_MS);
    if (status != SYMMEM_OK)
        fuzz_check_failure(status, 1);
    self->deliverable += status == SYMMEM_OK ? 1 : 0;
}

/* One honest message as the kernel carries it. */
static size_t wire_form(const world *self, fuzz_input *in, unsigned char *message) {
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint32_t address_bytes;
    sm_ipc_tag tag = any_tag(in);
    sm_ipc_address(self->model, address, &address_bytes);
    FUZZ_CHECK(sm_ipc_send(self->peer, address, address_bytes, &tag, NULL, 0, 0) == SYMMEM_OK);
    int connection = accept4(sm_ipc_descriptor(self->model), NULL, NULL, SOCK_CLOEXEC);
    ssize_t got = recv(connection, message, MESSAGE_MAX, 0);
    close(connection);
    FUZZ_CHECK(got > 0 && got < MESSAGE_MAX);
    return (size_t)got;
}

static void send_bytes(const world *self, const unsigned char *message, size_t bytes,
                       size_t fd_count) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    struct iovec body = {.iov_len = bytes};
    struct sockaddr_un to;
    memcpy(&body.iov_base, &message, sizeof(message));
    memcpy(&to, self->address, self->address_bytes);
    struct msghdr header = {.msg_iov = &body, .msg_iovlen = 1};
    if (fd_count > 0) {
        memset(&control, 0, sizeof(control));
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        for (size_t i = 0; i < fd_count; i++)
            memcpy(control.bytes + CMSG_LEN(i * sizeof(int)), &self->spare, sizeof(int));
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    }
    int raw = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    FUZZ_CHECK(raw >= 0);
    if (connect(raw, (const struct sockaddr *)&to, self->address_bytes) == 0)
        (void)!sendmsg(raw, &header, MSG_NOSIGNAL); /* a full queue is fine, too */
    close(raw);
}

static void send_spoiled(world *self, fuzz_input *in) {
    unsigned char message[MESSAGE_MAX] = {0};
    size_t bytes = wire_form(self, in, message);
    const size_t right_bytes = bytes;
    uint8_t form = fuzz_u8(in);
    if ((form & 3) == 0)
        bytes = fuzz_u16(in) % MESSAGE_MAX;
    if ((form & 3) == 1)
        fuzz_take(in, message, bytes);
    if ((form & 2) != 0)
        fuzz_spoil(in, message, bytes);
    /* Number of entries and their marks agree more often than chance would have it. */
    size_t fd_count = form / 4 % 8 == 7 ? fuzz_u8(in) % (FDS_MAX + 1) : form / 4 % 8;
    send_bytes(self, message, bytes, fd_count);
    self->deliverable += bytes == right_bytes ? 1 : 0;
}

/* --- receiving ------------------------------------------------------------------------ */

static void receive(world *self, fuzz_input *in) {
    struct {
        int fds[SM_IPC_MAX_FDS];
        int guard;
    } place;
    sm_ipc_tag want = any_tag(in);
    int32_t source = -7;
    int count = -7;
    if ((fuzz_u8(in) & 1) != 0)
        want.source = -1;
    memset(&place, 0x7e, sizeof(place));
    symmem_clear_error();
    uint64_t start_ms = fuzz_now_ms();
    symmem_status status = sm_ipc_recv(self->own, &want, &source, place.fds, &count, STEP_MS);
    FUZZ_CHECK(fuzz_now_ms() - start_ms < PATIENCE_MS);
    FUZZ_CHECK(place.guard == 0x7e7e7e7e);
    if (status != SYMMEM_OK) {
        FUZZ_CHECK(status == SYMMEM_TIMEOUT || status == SYMMEM_LIMIT);
        fuzz_check_failure(status, 1);
        FUZZ_CHECK(count == -7 && place.fds[0] == 0x7e7e7e7e);
        return;
    }
    FUZZ_CHECK(self->deliverable-- > 0);
    FUZZ_CHECK(count >= 0 && count <= SM_IPC_MAX_FDS);
    FUZZ_CHECK(want.source == -1 || source == want.source);
    for (int i = 0; i < count; i++) {
        if (place.fds[i] == -1)
            continue;
        FUZZ_CHECK(fcntl(place.fds[i], F_GETFD) == FD_CLOEXEC);
        close(place.fds[i]);
    }
    for (int i = count; i < SM_IPC_MAX_FDS; i++)
        FUZZ_CHECK(place.fds[i] == 0x7e7e7e7e);
}

void fuzz_one(fuzz_input *in) {
    world self;
    open_world(&self);
    for (uint32_t steps = 1 + fuzz_below(in, 10); steps > 0; steps--) {
        uint8_t form = fuzz_u8(in);
        if (form % 4 == 0)
            send_honest(&self, in);
        else if (form % 4 == 1)
            send_spoiled(&self, in);
        else
            receive(&self, in);
    }
    close_world(&self);
}
