/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors between the ranks of a session: one rank's calls, its peers' messages out of the
 * input, sent before the call so that nothing has to be waited for. A call gives open descriptors
 * or none at all, and keeps none.
 */
#include "bootstrap/session_fds.h"
#include "evil_store.h"

#include <poll.h>

#define WORLD_MAX 128
#define COUNT_MAX 4
#define LIMIT_MS 2u
#define PATIENCE_MS 8000u

enum { KIND_GATHER = 1, KIND_SPREAD = 2, KIND_BROADCAST = 3, KIND_SINGLE = 4 };

typedef struct world {
    evil_store evil;
    sm_session session;
    sm_identity identity;
    sm_join joins[WORLD_MAX];
    uint64_t sent[WORLD_MAX], received[WORLD_MAX];
    int32_t hosts[WORLD_MAX]; /* all on one */
    int32_t global_ranks[WORLD_MAX];
    sm_ipc *peer;
    int spare; /* the end to write to of a pipe */
    int other_end;
    int32_t size, rank;
} world;

static void fill_joins(world *self) {
    for (int32_t rank = 0; rank < self->size; rank++) {
        sm_join *join = &self->joins[rank];
        join->identity = self->identity;
        self->global_ranks[rank] = rank;
        sm_ipc_address(rank == self->rank ? self->session.ipc : self->peer, join->address,
                       &join->address_bytes);
    }
}

static void open_pipe(world *self) {
    int ends[2];
    FUZZ_CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    self->other_end = ends[0];
    self->spare = ends[1];
}

/* Copies in flight keep the pipe open, too. */
static void close_pipe(world *self) {
    struct pollfd end = {.fd = self->other_end, .events = POLLIN};
    close(self->spare);
    FUZZ_CHECK(poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0);
    close(self->other_end);
}

static void open_world(world *self, fuzz_input *in) {
    static const int32_t sizes[] = {2, 3, 4, WORLD_MAX};
    sm_session *session = &self->session;
    memset(self, 0, sizeof(*self));
    self->size = sizes[fuzz_below(in, 4)];
    self->rank = fuzz_u8(in) % self->size;
    open_pipe(self);
    session->id = 77;
    session->joins = self->joins;
    session->hosts = self->hosts;
    session->sent = self->sent;
    session->received = self->received;
    session->config = (sm_session_config){
        .store = evil_store_open(&self->evil, in, self->rank, self->size),
        .prefix = "g/fuzz",
        .world_prefix = "w",
        .group_name = "fuzz",
        .rank = self->rank,
        .world_size = self->size,
        .global_ranks = self->global_ranks,
        .identity = &self->identity,
    };
    memset(session->secret, 0x5a, sizeof(session->secret));
    FUZZ_CHECK(sm_identity_self(&self->identity) == SYMMEM_OK);
    FUZZ_CHECK(sm_liveness_create(self->size, &session->config.liveness) == SYMMEM_OK);
    FUZZ_CHECK(sm_ipc_create(NULL, NULL, &session->ipc) == SYMMEM_OK);
    FUZZ_CHECK(sm_ipc_create(NULL, NULL, &self->peer) == SYMMEM_OK);
    fill_joins(self);
}

static void close_world(world *self) {
    sm_session_drop_own_fds(&self->session);
    sm_ipc_destroy(self->session.ipc);
    sm_ipc_destroy(self->session.shut_ipc);
    sm_ipc_destroy(self->peer);
    sm_liveness_destroy(self->session.config.liveness);
    evil_store_close(&self->evil, self->session.config.store);
    close_pipe(self);
}

/* The peers' messages wait together for the call that reads them. Spoiled ones can have more
 * descriptors than a user may have in flight, and other processes of the user count as well
 * [SM-EXCHANGE-20]. */
static bool is_in_flight_limit(symmem_status status) {
    symmem_error_record record;
    symmem_last_error(&record);
    return status == SYMMEM_LIMIT && record.system_errno == ETOOMANYREFS;
}

/* One message as an honest peer would send it now, then spoiled. */
static void send_message(world *self, fuzz_input *in, uint32_t kind, int32_t source,
                         uint64_t sequence, size_t count) {
    const sm_join *to = &self->joins[self->rank];
    int fds[SM_IPC_MAX_FDS];
    sm_ipc_tag tag;
    uint8_t form = fuzz_u8(in);
    if (form == 1)
        return;
    memset(&tag, 0, sizeof(tag));
    memcpy(tag.nonce, self->session.secret, sizeof(tag.nonce));
    tag.group = self->session.id;
    tag.sequence = sequence;
    tag.source = source;
    tag.kind = kind;
    if ((form & 2) != 0)
        fuzz_spoil(in, &tag, sizeof(tag));
    if ((form & 4) != 0)
        count = fuzz_u8(in);
    if (count > SM_IPC_MAX_FDS)
        count = SM_IPC_MAX_FDS;
    for (size_t i = 0; i < count; i++)
        fds[i] = (form & 8) != 0 && i % 3 == 1 ? -1 : self->spare;
    symmem_status status =
        sm_ipc_send(self->peer, to->address, to->address_bytes, &tag, fds, (int)count, 1);
    FUZZ_CHECK(status == SYMMEM_OK || status == SYMMEM_TIMEOUT || status == SYMMEM_PEER_LOST ||
               is_in_flight_limit(status));
}

static void check_result(world *self, symmem_status status, int *fds, size_t count) {
    if (status != SYMMEM_OK)
        fuzz_check_failure(status, self->size);
    for (size_t i = 0; i < count; i++) {
        FUZZ_CHECK(fds[i] >= -1);
        FUZZ_CHECK(status == SYMMEM_OK || fds[i] == -1);
        if (fds[i] < 0)
            continue;
        FUZZ_CHECK(fcntl(fds[i], F_GETFD) == FD_CLOEXEC);
        close(fds[i]);
    }
}

static void all_gather(world *self, fuzz_input *in) {
    int count = 1 + (int)fuzz_below(in, COUNT_MAX);
    size_t total = (size_t)self->size * (size_t)count;
    int own[COUNT_MAX] = {self->spare, -1, self->spare, self->spare};
    int *fds = malloc(total * sizeof(*fds));
    FUZZ_CHECK(fds != NULL);
    uint64_t sequence = self->session.fd_sequence;
    /* A queue takes only so many before one is read. */
    if (self->rank == 0)
        for (int32_t rank = 1; rank < self->size && rank < 8; rank++)
            send_message(self, in, KIND_GATHER, rank, sequence, (size_t)count);
    else
        for (size_t start = 0; start < total; start += SM_IPC_MAX_FDS)
            send_message(self, in, KIND_SPREAD, 0, sequence++,
                         total - start < SM_IPC_MAX_FDS ? total - start : SM_IPC_MAX_FDS);
    symmem_status status = sm_session_all_gather_fds(&self->session, "all_gather_fds", own, count,
                                                     fds, sm_deadline_ns(LIMIT_MS));
    check_result(self, status, fds, total);
    free(fds);
}

static void broadcast(world *self, fuzz_input *in) {
    int32_t root = fuzz_u8(in) % self->size;
    int fd = -7;
    if (root != self->rank)
        send_message(self, in, KIND_BROADCAST, root, self->session.fd_sequence, 1);
    symmem_status status = sm_session_broadcast_fd(&self->session, "broadcast_fds", root,
                                                   self->spare, &fd, sm_deadline_ns(LIMIT_MS));
    check_result(self, status, &fd, 1);
}

static void pairwise(world *self, fuzz_input *in) {
    int32_t peer = (int32_t)(int8_t)fuzz_u8(in);
    int fd = -1;
    if ((fuzz_u8(in) & 1) != 0) {
        symmem_status status =
            sm_session_send_fd(&self->session, peer, self->spare, sm_deadline_ns(LIMIT_MS));
        if (status != SYMMEM_OK)
            fuzz_check_failure(status, self->size);
        return;
    }
    if (peer >= 0 && peer < self->size)
        send_message(self, in, KIND_SINGLE, peer, self->received[peer], 1);
    symmem_status status = sm_session_recv_fd(&self->session, peer, &fd, sm_deadline_ns(LIMIT_MS));
    check_result(self, status, &fd, 1);
}

void fuzz_one(fuzz_input *in) {
    static world self;
    open_world(&self, in);
    for (uint32_t steps = 1 + fuzz_below(in, 4); steps > 0 && self.session.id != 0; steps--) {
        uint64_t start_ms = fuzz_now_ms();
        symmem_clear_error();
        switch (fuzz_u8(in) % 3) {
        case 0:
            all_gather(&self, in);
            break;
        case 1:
            broadcast(&self, in);
            break;
        default:
            pairwise(&self, in);
            break;
        }
        FUZZ_CHECK(fuzz_now_ms() - start_ms < PATIENCE_MS);
    }
    close_world(&self);
}
