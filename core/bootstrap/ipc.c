/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between sessions, for descriptors. The kernel vouches for the user at the other end of a
 * connection, and a secret nonce for its membership. A message without the nonce is dropped and its
 * descriptors are closed.
 */
#include "bootstrap/ipc_socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_MAGIC 0x4d534d53u /* "SMSM" */
#define KERNEL_MAX_FDS 253        /* SCM_MAX_FD: the most that any sender may send */
#define NOTE_MAGIC 0x544f4e53u    /* "SNOT": a note follows the message */
#define KEPT_MAX 1024

_Static_assert(sizeof(struct sockaddr_un) <= SM_IPC_ADDRESS_MAX, "an address fits");

typedef struct message {
    uint32_t magic;
    uint32_t count;
    sm_ipc_tag tag;
    uint8_t present[(SM_IPC_MAX_FDS + 7) / 8]; /* bit i: entry i is a descriptor, not -1 */
} message;

/* An authentic message that no call has asked for yet. */
typedef struct kept {
    struct kept *next;
    message message;
    int fds[SM_IPC_MAX_FDS]; /* expanded, with -1 entries */
    bool is_lost;            /* no room for all of them; they are closed */
    size_t sent, taken;
} kept;

struct sm_ipc {
    sm_ipc_socket socket;
    kept *first; /* in order of arrival */
    int32_t kept_count;
    sm_ipc_notes notes;
};

/* --- life --------------------------------------------------------------------------- */

symmem_status sm_ipc_create(const char *directory, const char *name, sm_ipc **ipc_p) {
    sm_ipc *ipc = calloc(1, sizeof(*ipc));
    if (ipc == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "socket", "create", "no memory for a socket");
    symmem_status status = sm_ipc_socket_open(&ipc->socket, directory, name);
    if (status != SYMMEM_OK) {
        sm_ipc_destroy(ipc);
        return status;
    }
    *ipc_p = ipc;
    return SYMMEM_OK;
}

static void close_all(const int *fds, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void drop(sm_ipc *ipc, kept **link_p) {
    kept *entry = *link_p;
    *link_p = entry->next;
    ipc->kept_count--;
    close_all(entry->fds, entry->message.count);
    free(entry);
}

void sm_ipc_shut(sm_ipc *ipc) {
    while (ipc->first != NULL)
        drop(ipc, &ipc->first);
    sm_ipc_socket_shut(&ipc->socket);
}

void sm_ipc_destroy(sm_ipc *ipc) {
    if (ipc == NULL)
        return;
    while (ipc->first != NULL)
        drop(ipc, &ipc->first);
    sm_ipc_socket_close(&ipc->socket);
    free(ipc);
}

void sm_ipc_address(const sm_ipc *ipc, uint8_t address[SM_IPC_ADDRESS_MAX], uint32_t *bytes_p) {
    memset(address, 0, SM_IPC_ADDRESS_MAX);
    memcpy(address, &ipc->socket.address, ipc->socket.address_bytes);
    *bytes_p = (uint32_t)ipc->socket.address_bytes;
}

int sm_ipc_descriptor(const sm_ipc *ipc) {
    return ipc->socket.fd;
}

/* --- sending ------------------------------------------------------------------------ */

typedef union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(KERNEL_MAX_FDS * sizeof(int))];
} control;

static void put_descriptors(struct msghdr *header, control *ancillary, const int *fds,
                            size_t count) {
    if (count == 0)
        return;
    const size_t bytes = count * sizeof(fds[0]);
    memset(ancillary, 0, sizeof(*ancillary));
    ancillary->align.cmsg_level = SOL_SOCKET;
    ancillary->align.cmsg_type = SCM_RIGHTS;
    /* The member's type differs between C libraries. */
    ancillary->align.cmsg_len = (__typeof__(ancillary->align.cmsg_len))CMSG_LEN(bytes);
    memcpy(ancillary->bytes + CMSG_LEN((size_t)0), fds, bytes);
    header->msg_control = ancillary->bytes;
    header->msg_controllen = (__typeof__(header->msg_controllen))CMSG_SPACE(bytes);
}

symmem_status sm_ipc_send(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                          const sm_ipc_tag *tag, const int *fds, int count, uint32_t step_ms) {
    if (count < 0 || count > SM_IPC_MAX_FDS)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "socket", "send", "%d descriptors", count);
    message out;
    memset(&out, 0, sizeof(out)); /* padding must not leak what was on the stack */
    out.magic = MESSAGE_MAGIC;
    out.count = (uint32_t)count;
    out.tag = *tag;
    int present[SM_IPC_MAX_FDS];
    size_t present_count = 0;
    for (int i = 0; i < count; i++) {
        if (fds[i] < 0)
            continue;
        out.present[i / 8] = (uint8_t)(out.present[i / 8] | 1u << (i % 8));
        present[present_count++] = fds[i];
    }
    struct iovec body = {.iov_base = &out, .iov_len = sizeof(out)};
    struct msghdr header = {.msg_iov = &body, .msg_iovlen = 1};
    control ancillary;
    put_descriptors(&header, &ancillary, present, present_count);
    symmem_status status =
        sm_ipc_socket_send(&ipc->socket, address, address_bytes, &header, sm_deadline_ns(step_ms));
    if (status == SYMMEM_OK)
        sm_clock_changed();
    return status;
}

/* --- receiving ---------------------------------------------------------------------- */

/* The content of one message. */
typedef struct arrival {
    message message;
    uint8_t note[SM_IPC_NOTE_BYTES];
    size_t bytes;
    int fds[KERNEL_MAX_FDS];
    size_t fd_count;
    bool cut; /* the kernel could not pass all descriptors */
} arrival;

static void take_entry(arrival *in, int type, const char *data, size_t bytes) {
    if (type == SCM_RIGHTS) {
        in->fd_count = bytes / sizeof(in->fds[0]);
        memcpy(in->fds, data, in->fd_count * sizeof(in->fds[0]));
    }
}

/* Reads the entries by their offsets. CMSG_NXTHDR mixes signs in some C libraries and does not
 * compile cleanly everywhere. The kernel wrote the entries, so they fit. */
static void take_control(arrival *in, const control *ancillary, size_t filled_bytes) {
    const size_t header_bytes = CMSG_LEN((size_t)0);
    size_t at = 0;
    while (at + header_bytes <= filled_bytes) {
        struct cmsghdr entry;
        memcpy(&entry, ancillary->bytes + at, sizeof(entry));
        const size_t entry_bytes = (size_t)entry.cmsg_len;
        if (entry_bytes < header_bytes || entry_bytes > filled_bytes - at)
            return;
        if (entry.cmsg_level == SOL_SOCKET)
            take_entry(in, entry.cmsg_type, ancillary->bytes + at + header_bytes,
                       entry_bytes - header_bytes);
        at += CMSG_SPACE(entry_bytes - header_bytes);
    }
}

/* Takes the next message. If `magic` is not 0 it begins with that. TIMEOUT, without a record:
 * none. */
static symmem_status take(sm_ipc *ipc, uint32_t magic, arrival *in) {
    int connection = -1;
    control ancillary;
    struct iovec body[] = {{.iov_base = &in->message, .iov_len = sizeof(in->message)},
                           {.iov_base = in->note, .iov_len = sizeof(in->note)}};
    struct msghdr header = {.msg_iov = body,
                            .msg_iovlen = 2,
                            .msg_control = ancillary.bytes,
                            .msg_controllen = sizeof(ancillary.bytes)};
    in->fd_count = 0;
    symmem_status status = sm_ipc_socket_next(&ipc->socket, magic, &connection);
    if (status != SYMMEM_OK)
        return status;
    ssize_t got;
    do
        got = recvmsg(connection, &header, MSG_CMSG_CLOEXEC | MSG_TRUNC);
    while (got < 0 && errno == EINTR);
    const int error = errno;
    if (got < 0) {
        sm_ipc_socket_put_back(&ipc->socket, connection);
        return sm_fail_errno(error, "socket", "receive", "cannot receive");
    }
    sm_ipc_socket_done(&ipc->socket, connection);
    in->bytes = (size_t)got; /* the message's own size, which shows a longer one */
    in->cut = (header.msg_flags & MSG_CTRUNC) != 0;
    take_control(in, &ancillary, (size_t)header.msg_controllen);
    return SYMMEM_OK;
}

static bool is_present(const message *in, uint32_t entry) {
    return ((unsigned)in->present[entry / 8] >> (entry % 8) & 1u) != 0;
}

static size_t present_count(const message *in) {
    size_t count = 0;
    for (uint32_t i = 0; i < in->count; i++)
        count += is_present(in, i) ? 1 : 0;
    return count;
}

/* Compares all bytes, so that the time taken does not tell where a guess went wrong. */
static bool same_nonce(const uint8_t a[16], const uint8_t b[16]) {
    unsigned difference = 0;
    for (size_t i = 0; i < 16; i++)
        difference |= (unsigned)(a[i] ^ b[i]);
    return difference == 0;
}

static bool authentic(const arrival *in, const sm_ipc_tag *want) {
    return in->bytes == sizeof(in->message) && in->message.magic == MESSAGE_MAGIC &&
           in->message.count <= SM_IPC_MAX_FDS && same_nonce(in->message.tag.nonce, want->nonce) &&
           in->message.tag.group == want->group;
}

static bool matches(const sm_ipc_tag *tag, const sm_ipc_tag *want) {
    return tag->kind == want->kind && tag->sequence == want->sequence &&
           (want->source == -1 || tag->source == want->source);
}

/* Whether the message is left over from an exchange that was given up. */
static bool outdated(const sm_ipc_tag *tag, const sm_ipc_tag *want) {
    return tag->kind == want->kind && tag->sequence < want->sequence &&
           (want->source == -1 || tag->source == want->source);
}

static void expand(const message *in, const int *received, int *fds) {
    size_t next = 0;
    for (uint32_t i = 0; i < in->count; i++)
        fds[i] = is_present(in, i) ? received[next++] : -1;
}

static void deliver(const message *in, const int *expanded, int32_t *source_p, int *fds_p,
                    int *count_p) {
    memcpy(fds_p, expanded, in->count * sizeof(int));
    *count_p = (int)in->count;
    *source_p = in->tag.source;
}

/* Reports a message whose descriptors were lost for lack of room to the call that waits for it. */
static symmem_status fail_lost_fds(int32_t source, size_t sent, size_t taken) {
    sm_fail(SYMMEM_LIMIT, "socket", "receive",
            "of %zu descriptors that rank %d sent only %zu could be taken", sent, source, taken);
    sm_explain_errno(EMFILE);
    return sm_error_sizes(sent, taken);
}

/* Delivers a message that was kept. Answers TIMEOUT without a record if there is none. */
static symmem_status deliver_kept(sm_ipc *ipc, const sm_ipc_tag *want, int32_t *source_p,
                                  int *fds_p, int *count_p) {
    for (kept **link_p = &ipc->first; *link_p != NULL;) {
        kept *entry = *link_p;
        if (matches(&entry->message.tag, want) && entry->is_lost) {
            const size_t sent = entry->sent, taken = entry->taken;
            *source_p = entry->message.tag.source;
            drop(ipc, link_p);
            return fail_lost_fds(*source_p, sent, taken);
        }
        if (matches(&entry->message.tag, want)) {
            deliver(&entry->message, entry->fds, source_p, fds_p, count_p);
            entry->message.count = 0; /* the descriptors are the caller's now */
            drop(ipc, link_p);
            return SYMMEM_OK;
        }
        if (outdated(&entry->message.tag, want))
            drop(ipc, link_p);
        else
            link_p = &entry->next;
    }
    return SYMMEM_TIMEOUT;
}

/* Returns NULL with a record if there is no memory. */
static kept *add_kept(sm_ipc *ipc, const message *in) {
    kept *entry = ipc->kept_count < KEPT_MAX ? calloc(1, sizeof(*entry)) : NULL;
    if (entry == NULL) {
        sm_fail(SYMMEM_LIMIT, "socket", "receive", "too many descriptors that were not asked for");
        return NULL;
    }
    entry->message = *in;
    kept **link_p = &ipc->first;
    while (*link_p != NULL)
        link_p = &(*link_p)->next;
    *link_p = entry;
    ipc->kept_count++;
    return entry;
}

static symmem_status keep(sm_ipc *ipc, const message *in, const int *expanded) {
    kept *entry = add_kept(ipc, in);
    if (entry == NULL) {
        close_all(expanded, in->count);
        return SYMMEM_LIMIT;
    }
    memcpy(entry->fds, expanded, in->count * sizeof(int));
    return SYMMEM_OK;
}

/* Notes for a later call that the message came without its descriptors. */
static symmem_status keep_lost(sm_ipc *ipc, const message *in, size_t sent, size_t taken) {
    kept *entry = add_kept(ipc, in);
    if (entry == NULL)
        return SYMMEM_LIMIT;
    entry->message.count = 0;
    entry->is_lost = true;
    entry->sent = sent;
    entry->taken = taken;
    return SYMMEM_OK;
}

/* Keeps the first note of each kind, and the ranks that sent one. */
static bool take_note(sm_ipc *ipc, const arrival *in) {
    sm_ipc_notes *notes = &ipc->notes;
    const int32_t source = in->message.tag.source;
    if (in->bytes != sizeof(in->message) + sizeof(in->note) || in->message.magic != NOTE_MAGIC)
        return false;
    if (!same_nonce(in->message.tag.nonce, notes->nonce) || source < 0 ||
        source >= SYMMEM_MAX_WORLD_SIZE)
        return true;
    if (in->message.tag.kind == SM_IPC_REMARK) {
        notes->is_remarked = true;
        notes->remarked_by = source;
        memcpy(notes->remark, in->note, sizeof(in->note));
        return true;
    }
    if (in->message.tag.kind == SM_IPC_CONTRADICTS) {
        if (!notes->is_contradicted)
            memcpy(notes->contradiction, in->note, sizeof(in->note));
        notes->is_contradicted = true;
        return true;
    }
    notes->sources[source / 64] |= 1ull << (source % 64);
    if (notes->any)
        return true;
    notes->any = true;
    notes->first = source;
    memcpy(notes->bytes, in->note, sizeof(in->note));
    return true;
}

/* Delivers, keeps or drops one arrival. TIMEOUT without a record: not the wanted one. */
static symmem_status sort(sm_ipc *ipc, const arrival *in, const sm_ipc_tag *want, int32_t *source_p,
                          int *fds_p, int *count_p) {
    if (take_note(ipc, in)) {
        close_all(in->fds, in->fd_count);
        return SYMMEM_TIMEOUT;
    }
    if (!authentic(in, want) || outdated(&in->message.tag, want)) {
        close_all(in->fds, in->fd_count);
        return SYMMEM_TIMEOUT;
    }
    size_t expected = present_count(&in->message);
    if (in->cut || in->fd_count != expected) {
        close_all(in->fds, in->fd_count);
        if (!matches(&in->message.tag, want)) {
            symmem_status status = keep_lost(ipc, &in->message, expected, in->fd_count);
            return status == SYMMEM_OK ? SYMMEM_TIMEOUT : status;
        }
        *source_p = in->message.tag.source;
        return fail_lost_fds(*source_p, expected, in->fd_count);
    }
    int expanded[SM_IPC_MAX_FDS];
    expand(&in->message, in->fds, expanded);
    if (matches(&in->message.tag, want)) {
        deliver(&in->message, expanded, source_p, fds_p, count_p);
        return SYMMEM_OK;
    }
    symmem_status status = keep(ipc, &in->message, expanded);
    return status == SYMMEM_OK ? SYMMEM_TIMEOUT : status;
}

symmem_status sm_ipc_recv(sm_ipc *ipc, const sm_ipc_tag *want, int32_t *source_p, int *fds_p,
                          int *count_p, uint32_t step_ms) {
    symmem_status status = deliver_kept(ipc, want, source_p, fds_p, count_p);
    if (status != SYMMEM_TIMEOUT)
        return status;
    uint64_t deadline_ns = sm_deadline_ns(step_ms);
    for (;;) {
        arrival in;
        status = take(ipc, 0, &in);
        bool nothing = status == SYMMEM_TIMEOUT;
        if (status == SYMMEM_OK)
            status = sort(ipc, &in, want, source_p, fds_p, count_p);
        if (status != SYMMEM_TIMEOUT)
            return status;
        uint32_t wait_ms = sm_remaining_ms(deadline_ns, 1000);
        if (wait_ms == 0)
            return sm_fail(SYMMEM_TIMEOUT, "socket", "receive", "no descriptors came");
        if (nothing && sm_ipc_socket_wait(&ipc->socket, wait_ms) < 0 && errno != EINTR)
            return sm_fail_errno(errno, "socket", "receive", "cannot wait for the socket");
    }
}

/* --- notes -------------------------------------------------------------------------- */

bool sm_ipc_send_note(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                      const sm_ipc_tag *tag, const uint8_t note[SM_IPC_NOTE_BYTES]) {
    message out;
    memset(&out, 0, sizeof(out));
    out.magic = NOTE_MAGIC;
    out.tag = *tag;
    uint8_t copy[SM_IPC_NOTE_BYTES];
    memcpy(copy, note, sizeof(copy));
    struct iovec body[] = {{.iov_base = &out, .iov_len = sizeof(out)},
                           {.iov_base = copy, .iov_len = sizeof(copy)}};
    const struct msghdr header = {.msg_iov = body, .msg_iovlen = 2};
    SM_ATTEMPT(sending);
    const bool sent =
        sm_ipc_socket_send(&ipc->socket, address, address_bytes, &header, sm_now_ns()) == SYMMEM_OK;
    sm_clock_changed();
    return sent;
}

void sm_ipc_forget_remark(sm_ipc *ipc) {
    ipc->notes.is_remarked = false;
}

void sm_ipc_expect_notes(sm_ipc *ipc, const uint8_t nonce[16]) {
    memset(&ipc->notes, 0, sizeof(ipc->notes));
    memcpy(ipc->notes.nonce, nonce, sizeof(ipc->notes.nonce));
}

const sm_ipc_notes *sm_ipc_notes_heard(const sm_ipc *ipc) {
    return &ipc->notes;
}

const sm_ipc_notes *sm_ipc_notes_of(sm_ipc *ipc, const sm_ipc_tag *members) {
    SM_ATTEMPT(look);
    /* Messages with descriptors stay in the socket: their group may not be known yet. */
    const uint32_t magic = members == NULL ? NOTE_MAGIC : 0;
    for (;;) {
        arrival in;
        int32_t source;
        int fds[SM_IPC_MAX_FDS], count;
        if (take(ipc, magic, &in) != SYMMEM_OK)
            break;
        if (members != NULL)
            (void)sort(ipc, &in, members, &source, fds, &count); /* none matches: kept or dropped */
        else {
            (void)take_note(ipc, &in); /* or only begins like a note */
            close_all(in.fds, in.fd_count);
        }
    }
    return &ipc->notes;
}
