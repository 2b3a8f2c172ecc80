/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One datagram socket a session, for descriptors. Datagrams keep their borders and need no
 * connections; the kernel vouches for the sender's user, a secret nonce for its membership. What
 * does not carry both is dropped, and its descriptors closed.
 */
#include "base/rights.h"
#include "bootstrap/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MESSAGE_MAGIC 0x4d534d53u /* "SMSM" */
#define KERNEL_MAX_FDS 253        /* SCM_MAX_FD: what a stranger may send */
#define NOTE_MAGIC 0x544f4e53u    /* "SNOT": a message with a note behind it */
#define KEPT_MAX 1024
#define RETRY_FIRST_NS 50000u
#define RETRY_LAST_NS 2000000u

_Static_assert(sizeof(struct sockaddr_un) <= SM_IPC_ADDRESS_MAX, "an address fits");

typedef struct message {
    uint32_t magic;
    uint32_t count;
    sm_ipc_tag tag;
    uint8_t present[(SM_IPC_MAX_FDS + 7) / 8]; /* bit i: entry i is a descriptor, not -1 */
} message;

/* An authentic message that was not asked for yet. */
typedef struct kept {
    struct kept *next;
    message message;
    int fds[SM_IPC_MAX_FDS]; /* expanded, with -1 entries */
    bool is_lost;            /* there was no room for all of them, and they are closed */
    size_t sent, taken;
} kept;

struct sm_ipc {
    int fd;
    struct sm_ipc *next; /* of all that are open */
    socklen_t address_bytes;
    struct sockaddr_un address;
    bool unlink_path;
    kept *first; /* in order of arrival */
    int32_t kept_count;
    sm_ipc_notes notes;
};

/* --- the sockets of this process, for its forks ------------------------------------- */

static pthread_mutex_t open_sockets_lock = PTHREAD_MUTEX_INITIALIZER;
static sm_ipc *open_sockets;

void sm_ipc_lock_all(void) {
    (void)pthread_mutex_lock(&open_sockets_lock);
}

void sm_ipc_unlock_all(void) {
    (void)pthread_mutex_unlock(&open_sockets_lock);
}

void sm_ipc_forget_all(void) {
    for (; open_sockets != NULL; open_sockets = open_sockets->next) {
        close(open_sockets->fd);
        open_sockets->fd = -1;
    }
}

static void close_socket(sm_ipc *ipc) {
    sm_ipc_lock_all();
    sm_ipc **place = &open_sockets;
    while (*place != NULL && *place != ipc)
        place = &(*place)->next;
    if (*place != NULL)
        *place = ipc->next;
    if (ipc->fd >= 0)
        close(ipc->fd);
    sm_ipc_unlock_all();
}

/* --- life --------------------------------------------------------------------------- */

static void random_name(const uint8_t random[16], char name[48]) {
    sm_ipc_prefix(name);
    size_t used = strlen(name);
    for (size_t i = 0; i < 12; i++)
        used += (size_t)snprintf(name + used, 48 - used, "%02x", random[i]);
}

static symmem_status make_address(sm_ipc *ipc, const char *directory, const char *name) {
    struct sockaddr_un *address = &ipc->address;
    address->sun_family = AF_UNIX;
    size_t offset = directory == NULL ? 1 : strlen(directory) + 1; /* of the name in sun_path */
    size_t bytes = offset + strlen(name);
    if (bytes >= sizeof(address->sun_path)) {
        const char *path = directory == NULL ? name : directory;
        sm_fail(SYMMEM_PATH_TOO_LONG, "socket", "address",
                "a socket's path has at most %zu bytes, with its name this would have %zu: %.60s%s",
                sizeof(address->sun_path) - 1, bytes, path, strlen(path) > 60 ? "..." : "");
        sm_record()->expected = sizeof(address->sun_path) - 1;
        sm_record()->actual = bytes;
        return SYMMEM_PATH_TOO_LONG;
    }
    if (directory != NULL) {
        memcpy(address->sun_path, directory, offset - 1);
        address->sun_path[offset - 1] = '/';
    }
    memcpy(address->sun_path + offset, name, bytes - offset);
    /* An abstract name ends with its length, a path with its zero. */
    bytes += directory == NULL ? 0 : 1;
    ipc->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    return SYMMEM_OK;
}

static symmem_status open_socket(sm_ipc *ipc, bool path) {
    sm_ipc_lock_all();
    ipc->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = errno;
    if (ipc->fd >= 0) {
        ipc->next = open_sockets;
        open_sockets = ipc;
    }
    sm_ipc_unlock_all();
    if (ipc->fd < 0)
        return sm_fail_errno(error, "socket", "create", "cannot make a socket");
    int on = 1;
    if (setsockopt(ipc->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0)
        return sm_fail_errno(errno, "socket", "create", "cannot ask for credentials");
    /* The socket's mode becomes the file's: it never exists with a wider one. */
    if (fchmod(ipc->fd, 0600) != 0)
        return sm_fail_errno(errno, "socket", "create", "cannot restrict the socket");
    if (bind(ipc->fd, (const struct sockaddr *)&ipc->address, ipc->address_bytes) == 0) {
        ipc->unlink_path = path;
        /* But for what the umask takes. */
        error = path ? sm_rights_give_at(AT_FDCWD, ipc->address.sun_path, 0600) : 0;
        return error == 0
                   ? SYMMEM_OK
                   : sm_fail_errno(error, "socket", "bind", "cannot permit the socket's use");
    }
    if (errno == EADDRINUSE)
        return sm_fail(SYMMEM_EXISTS, "socket", "bind", "the socket's name is taken");
    return sm_fail_errno(errno, "socket", "bind", "cannot bind the socket");
}

symmem_status sm_ipc_create(const char *directory, const char *name, sm_ipc **ipc_p) {
    uint8_t random[16];
    char own_name[48];
    symmem_status status = sm_random(random, sizeof(random));
    if (status != SYMMEM_OK)
        return status;
    random_name(random, own_name);
    sm_ipc *ipc = calloc(1, sizeof(*ipc));
    if (ipc == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "socket", "create", "no memory for a socket");
    ipc->fd = -1;
    status = make_address(ipc, directory, name == NULL ? own_name : name);
    if (status == SYMMEM_OK)
        status = open_socket(ipc, directory != NULL);
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

void sm_ipc_destroy(sm_ipc *ipc) {
    if (ipc == NULL)
        return;
    while (ipc->first != NULL)
        drop(ipc, &ipc->first);
    if (ipc->unlink_path)
        unlink(ipc->address.sun_path);
    close_socket(ipc);
    free(ipc);
}

void sm_ipc_address(const sm_ipc *ipc, uint8_t address[SM_IPC_ADDRESS_MAX], uint32_t *bytes_p) {
    memset(address, 0, SM_IPC_ADDRESS_MAX);
    memcpy(address, &ipc->address, ipc->address_bytes);
    *bytes_p = (uint32_t)ipc->address_bytes;
}

int sm_ipc_descriptor(const sm_ipc *ipc) {
    return ipc->fd;
}

/* --- sending ------------------------------------------------------------------------ */

typedef union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(KERNEL_MAX_FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
} control;

static void put_descriptors(struct msghdr *header, control *ancillary, const int *fds,
                            size_t count) {
    if (count == 0)
        return;
    const size_t bytes = count * sizeof(fds[0]);
    memset(ancillary, 0, sizeof(*ancillary));
    ancillary->align.cmsg_level = SOL_SOCKET;
    ancillary->align.cmsg_type = SCM_RIGHTS;
    /* Of another type with each C library. */
    ancillary->align.cmsg_len = (__typeof__(ancillary->align.cmsg_len))CMSG_LEN(bytes);
    memcpy(ancillary->bytes + CMSG_LEN((size_t)0), fds, bytes);
    header->msg_control = ancillary->bytes;
    header->msg_controllen = (__typeof__(header->msg_controllen))CMSG_SPACE(bytes);
}

/* In a directory that others write to, somebody else's socket may have taken the place of one that
 * is gone. Who gets descriptors has the memory. */
static symmem_status check_receiver(const struct sockaddr_un *to, uint32_t bytes) {
    char path[sizeof(to->sun_path) + 1] = "";
    const size_t offset = offsetof(struct sockaddr_un, sun_path);
    if (bytes <= offset || to->sun_path[0] == '\0')
        return SYMMEM_OK; /* an abstract name has no owner */
    memcpy(path, to->sun_path, bytes - offset);
    struct stat about;
    if (lstat(path, &about) != 0)
        return SYMMEM_OK; /* sending says it */
    if (!S_ISSOCK(about.st_mode) || (about.st_uid != geteuid() && about.st_uid != 0))
        return sm_fail(SYMMEM_PERMISSION, "socket", "send",
                       "%.100s is not the peer's socket: mode %06o, user %u", path,
                       (unsigned)about.st_mode, (unsigned)about.st_uid);
    return SYMMEM_OK;
}

symmem_status sm_ipc_send(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                          const sm_ipc_tag *tag, const int *fds, int count, uint32_t step_ms) {
    if (count < 0 || count > SM_IPC_MAX_FDS || address_bytes > sizeof(struct sockaddr_un))
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
    struct sockaddr_un to;
    memcpy(&to, address, address_bytes);
    symmem_status status = check_receiver(&to, address_bytes);
    if (status != SYMMEM_OK)
        return status;
    struct iovec body = {.iov_base = &out, .iov_len = sizeof(out)};
    struct msghdr header = {
        .msg_name = &to, .msg_namelen = address_bytes, .msg_iov = &body, .msg_iovlen = 1};
    control ancillary;
    put_descriptors(&header, &ancillary, present, present_count);
    uint64_t deadline_ns = sm_deadline_ns(step_ms);
    /* A full queue of another socket cannot be polled for: sleep and try again. ETOOMANYREFS is
     * too many descriptors in flight, which passes as receivers take theirs. */
    for (uint64_t sleep_ns = RETRY_FIRST_NS; sendmsg(ipc->fd, &header, MSG_NOSIGNAL) < 0;) {
        const int error = errno;
        /* The last two come from a socket that is just being closed. */
        if (error == ECONNREFUSED || error == ENOENT || error == EPIPE || error == ECONNRESET)
            return sm_fail(SYMMEM_PEER_LOST, "socket", "send", "the peer's socket is gone");
        if (error != EAGAIN && error != ENOBUFS && error != ETOOMANYREFS && error != EINTR)
            return sm_fail_errno(error, "socket", "send", "cannot send descriptors");
        if (sm_expired(deadline_ns))
            return error == ETOOMANYREFS
                       ? sm_fail_errno(error, "socket", "send", "cannot send descriptors")
                       : sm_fail(SYMMEM_TIMEOUT, "socket", "send", "the peer's queue stays full");
        sm_sleep_ns(sleep_ns);
        sleep_ns = sleep_ns * 2 < RETRY_LAST_NS ? sleep_ns * 2 : RETRY_LAST_NS;
    }
    sm_clock_changed();
    return SYMMEM_OK;
}

/* --- receiving ---------------------------------------------------------------------- */

/* What came with one datagram. */
typedef struct arrival {
    message message;
    uint8_t note[SM_IPC_NOTE_BYTES];
    size_t bytes;
    int fds[KERNEL_MAX_FDS];
    size_t fd_count;
    uid_t uid;
    bool has_uid;
    bool cut; /* the kernel could not give us all descriptors */
} arrival;

static void take_entry(arrival *in, int type, const char *data, size_t bytes) {
    if (type == SCM_RIGHTS) {
        in->fd_count = bytes / sizeof(in->fds[0]);
        memcpy(in->fds, data, in->fd_count * sizeof(in->fds[0]));
    } else if (type == SCM_CREDENTIALS && bytes >= sizeof(struct ucred)) {
        struct ucred sender;
        memcpy(&sender, data, sizeof(sender));
        in->uid = sender.uid;
        in->has_uid = true;
    }
}

/* By offsets: CMSG_NXTHDR mixes signs in some C libraries and does not compile cleanly everywhere.
 * The kernel wrote the entries, so they fit. */
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

/* One datagram off the socket. TIMEOUT, without a record: nothing there. */
static symmem_status take(sm_ipc *ipc, arrival *in) {
    control ancillary;
    struct iovec body[] = {{.iov_base = &in->message, .iov_len = sizeof(in->message)},
                           {.iov_base = in->note, .iov_len = sizeof(in->note)}};
    struct msghdr header = {.msg_iov = body,
                            .msg_iovlen = 2,
                            .msg_control = ancillary.bytes,
                            .msg_controllen = sizeof(ancillary.bytes)};
    in->fd_count = 0;
    in->has_uid = false;
    ssize_t got = recvmsg(ipc->fd, &header, MSG_CMSG_CLOEXEC | MSG_TRUNC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return SYMMEM_TIMEOUT;
    if (got < 0)
        return sm_fail_errno(errno, "socket", "receive", "cannot receive");
    in->bytes = (size_t)got; /* the datagram's own size: a longer one shows */
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

/* Compared in full: the time taken tells nothing about where a guess went wrong. */
static bool same_nonce(const uint8_t a[16], const uint8_t b[16]) {
    unsigned difference = 0;
    for (size_t i = 0; i < 16; i++)
        difference |= (unsigned)(a[i] ^ b[i]);
    return difference == 0;
}

static bool from_this_user(const arrival *in) {
    return in->has_uid && (in->uid == geteuid() || in->uid == 0);
}

static bool authentic(const arrival *in, const sm_ipc_tag *want) {
    return in->bytes == sizeof(in->message) && in->message.magic == MESSAGE_MAGIC &&
           in->message.count <= SM_IPC_MAX_FDS && from_this_user(in) &&
           same_nonce(in->message.tag.nonce, want->nonce) && in->message.tag.group == want->group;
}

static bool matches(const sm_ipc_tag *tag, const sm_ipc_tag *want) {
    return tag->kind == want->kind && tag->sequence == want->sequence &&
           (want->source == -1 || tag->source == want->source);
}

/* Left over from an exchange that was given up. */
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

/* There was no room for its descriptors, which are gone; who waits for it has to know. */
static symmem_status fail_lost(int32_t source, size_t sent, size_t taken) {
    sm_fail(SYMMEM_LIMIT, "socket", "receive",
            "of %zu descriptors that rank %d sent only %zu could be taken", sent, source, taken);
    sm_explain_errno(EMFILE);
    sm_record()->expected = sent;
    sm_record()->actual = taken;
    return SYMMEM_LIMIT;
}

/* TIMEOUT without a record: it is not there. */
static symmem_status deliver_kept(sm_ipc *ipc, const sm_ipc_tag *want, int32_t *source_p,
                                  int *fds_p, int *count_p) {
    for (kept **link_p = &ipc->first; *link_p != NULL;) {
        kept *entry = *link_p;
        if (matches(&entry->message.tag, want) && entry->is_lost) {
            const size_t sent = entry->sent, taken = entry->taken;
            *source_p = entry->message.tag.source;
            drop(ipc, link_p);
            return fail_lost(*source_p, sent, taken);
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

/* NULL: a record. */
static kept *enlist(sm_ipc *ipc, const message *in) {
    kept *entry = ipc->kept_count < KEPT_MAX ? calloc(1, sizeof(*entry)) : NULL;
    if (entry == NULL) {
        sm_fail(SYMMEM_LIMIT, "socket", "receive", "too many descriptors nobody asked for");
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
    kept *entry = enlist(ipc, in);
    if (entry == NULL) {
        close_all(expanded, in->count);
        return SYMMEM_LIMIT;
    }
    memcpy(entry->fds, expanded, in->count * sizeof(int));
    return SYMMEM_OK;
}

/* That it came, for who will ask for it. */
static symmem_status keep_lost(sm_ipc *ipc, const message *in, size_t sent, size_t taken) {
    kept *entry = enlist(ipc, in);
    if (entry == NULL)
        return SYMMEM_LIMIT;
    entry->message.count = 0;
    entry->is_lost = true;
    entry->sent = sent;
    entry->taken = taken;
    return SYMMEM_OK;
}

/* The first one of each kind counts, and which peers sent one. */
static bool take_note(sm_ipc *ipc, const arrival *in) {
    sm_ipc_notes *notes = &ipc->notes;
    const int32_t source = in->message.tag.source;
    if (in->bytes != sizeof(in->message) + sizeof(in->note) || in->message.magic != NOTE_MAGIC)
        return false;
    if (!from_this_user(in) || !same_nonce(in->message.tag.nonce, notes->nonce) || source < 0 ||
        source >= SYMMEM_MAX_WORLD_SIZE)
        return true;
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
        return fail_lost(*source_p, expected, in->fd_count);
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
        status = take(ipc, &in);
        bool nothing = status == SYMMEM_TIMEOUT;
        if (status == SYMMEM_OK)
            status = sort(ipc, &in, want, source_p, fds_p, count_p);
        if (status != SYMMEM_TIMEOUT)
            return status;
        uint32_t wait_ms = sm_remaining_ms(deadline_ns, 1000);
        if (wait_ms == 0)
            return sm_fail(SYMMEM_TIMEOUT, "socket", "receive", "no descriptors came");
        if (nothing && sm_poll(ipc->fd, wait_ms) < 0 && errno != EINTR)
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
    struct sockaddr_un to;
    if (address_bytes > sizeof(to))
        return false;
    memcpy(&to, address, address_bytes);
    struct iovec body[] = {{.iov_base = &out, .iov_len = sizeof(out)},
                           {.iov_base = copy, .iov_len = sizeof(copy)}};
    const struct msghdr header = {
        .msg_name = &to, .msg_namelen = address_bytes, .msg_iov = body, .msg_iovlen = 2};
    const bool sent = sendmsg(ipc->fd, &header, MSG_NOSIGNAL) >= 0;
    sm_clock_changed();
    return sent;
}

void sm_ipc_expect_notes(sm_ipc *ipc, const uint8_t nonce[16]) {
    memset(&ipc->notes, 0, sizeof(ipc->notes));
    memcpy(ipc->notes.nonce, nonce, sizeof(ipc->notes.nonce));
}

/* Messages with descriptors stay where they are: whose they are may not be known yet. */
static bool next_is_note(const sm_ipc *ipc) {
    uint32_t magic = 0;
    return recv(ipc->fd, &magic, sizeof(magic), MSG_PEEK) == (ssize_t)sizeof(magic) &&
           magic == NOTE_MAGIC;
}

const sm_ipc_notes *sm_ipc_notes_of(sm_ipc *ipc, const sm_ipc_tag *members) {
    const symmem_error_record record = *sm_record();
    while (members != NULL || next_is_note(ipc)) {
        arrival in;
        int32_t source;
        int fds[SM_IPC_MAX_FDS], count;
        if (take(ipc, &in) != SYMMEM_OK)
            break;
        if (members != NULL)
            (void)sort(ipc, &in, members, &source, fds, &count); /* none matches: kept or dropped */
        else if (take_note(ipc, &in))
            close_all(in.fds, in.fd_count);
    }
    *sm_record() = record;
    return &ipc->notes;
}
