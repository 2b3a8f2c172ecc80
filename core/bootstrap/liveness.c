/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether the processes of a world still run. A pidfd holds each process: no later process of the
 * same number can be mistaken for it, and it reports the end once the kernel has finished it. A
 * process is opened by number if both see the same numbers, clock and kernel, and otherwise through
 * its own life socket (life.c). That socket is also tried now and then: if it is closed and the
 * process is not ending, the process runs another program.
 */
#include "bootstrap/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448 /* Linux 5.15 */
#endif

/* Time between two tries of one socket. It grows with the number of sockets. */
#define LOOK_NS 200000000u
#define LOOK_A_RANK_NS 10000000u
#define LOOK_MOST_NS 1500000000u
/* Sockets of processes with pidfds that are tried after one glance. These tries find only processes
 * that run another program, and must not keep the caller long from its next glance. */
#define LOOKS_A_GLANCE 16
/* A kernel closes a socket before its process has ended. If no pidfd tells of the process, its
 * drivers' clean-up is given this long. */
#define CLOSED_NS 10000000000u

/* The processes of one system call, whose arguments are on the stack. */
#define GLANCE_PROCESSES 64

/* Limit of a look into the store by a call that must not wait. */
#define STORE_MS 20u
typedef struct watched {
    sm_identity identity;
    int pidfd; /* -1: not opened yet or not possible */
    bool known, gone;
    bool answered;      /* its socket has answered */
    uint64_t look_ns;   /* when to try its socket again */
    uint64_t closed_ns; /* since when its socket is closed; 0: it is not */
} watched;

struct sm_liveness {
    pthread_mutex_t mutex;
    sm_identity self;
    int32_t world_size;
    bool numbers_are_ours; /* /proc shows this process's own numbers */
    int32_t looks_left;    /* see LOOKS_A_GLANCE */
    int spare;             /* closed for a moment if a descriptor is needed and none is left */
    uint64_t *kernels;     /* boot ids that processes on this kernel see */
    int32_t kernel_count;
    symmem_store *store; /* NULL: no store to read */
    const char *world_prefix;
    watched ranks[];
};

symmem_status sm_liveness_create(int32_t world_size, sm_liveness **liveness_p) {
    sm_identity self;
    symmem_status status = sm_identity_self(&self);
    if (status != SYMMEM_OK)
        return status;
    sm_liveness *liveness =
        calloc(1, sizeof(*liveness) + (size_t)world_size * sizeof(liveness->ranks[0]));
    if (liveness != NULL)
        liveness->kernels = calloc((size_t)world_size, sizeof(liveness->kernels[0]));
    if (liveness == NULL || liveness->kernels == NULL) {
        free(liveness);
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "init", "liveness", "no memory for %d ranks",
                       world_size);
    }
    liveness->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    liveness->self = self;
    liveness->world_size = world_size;
    liveness->numbers_are_ours = sm_process_numbers_are_ours();
    liveness->spare = open("/dev/null", O_RDONLY | O_CLOEXEC); /* -1 is as good as can be */
    for (int32_t rank = 0; rank < world_size; rank++)
        liveness->ranks[rank].pidfd = -1;
    *liveness_p = liveness;
    return SYMMEM_OK;
}

void sm_liveness_read(sm_liveness *liveness, symmem_store *store, const char *world_prefix) {
    pthread_mutex_lock(&liveness->mutex);
    liveness->store = store;
    liveness->world_prefix = world_prefix;
    pthread_mutex_unlock(&liveness->mutex);
}

/* The machine's time: processes do not follow a context's clock. */
static uint64_t machine_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void forget(watched *rank) {
    if (rank->pidfd >= 0)
        close(rank->pidfd);
    rank->pidfd = -1;
}

void sm_liveness_destroy(sm_liveness *liveness) {
    if (liveness == NULL)
        return;
    for (int32_t rank = 0; rank < liveness->world_size; rank++)
        forget(&liveness->ranks[rank]);
    if (liveness->spare >= 0)
        close(liveness->spare);
    pthread_mutex_destroy(&liveness->mutex);
    free(liveness->kernels);
    free(liveness);
}

static bool is_rank(const sm_liveness *liveness, int32_t rank) {
    return rank >= 0 && rank < liveness->world_size;
}

void sm_liveness_learn(sm_liveness *liveness, int32_t rank, const sm_identity *identity) {
    if (!is_rank(liveness, rank))
        return;
    watched *entry = &liveness->ranks[rank];
    pthread_mutex_lock(&liveness->mutex);
    if (!entry->known || memcmp(&entry->identity, identity, sizeof(*identity)) != 0) {
        forget(entry);
        *entry = (watched){.identity = *identity, .pidfd = -1, .known = true};
    }
    pthread_mutex_unlock(&liveness->mutex);
}

bool sm_liveness_knows(sm_liveness *liveness, int32_t rank) {
    if (!is_rank(liveness, rank))
        return false;
    pthread_mutex_lock(&liveness->mutex);
    bool known = liveness->ranks[rank].known;
    pthread_mutex_unlock(&liveness->mutex);
    return known;
}

/* --- what can be seen of a process ---------------------------------------------------------- */

static bool same(uint64_t one, uint64_t other) {
    return one != 0 && one == other;
}

/* Whether the process is on this kernel. A kernel can have several boot ids, for containers, but no
 * two kernels have one in common. */
static bool on_this_kernel(const sm_liveness *liveness, const sm_identity *identity) {
    bool found = same(liveness->self.boot_id, identity->boot_id);
    for (int32_t i = 0; i < liveness->kernel_count && !found; i++)
        found = same(liveness->kernels[i], identity->boot_id);
    return found;
}

static void note_kernel(sm_liveness *liveness, const sm_identity *identity) {
    if (identity->boot_id != 0 && !on_this_kernel(liveness, identity) &&
        liveness->kernel_count < liveness->world_size)
        liveness->kernels[liveness->kernel_count++] = identity->boot_id;
}

/* Whether the process has the same number in this process's namespace. */
static bool has_our_number(const sm_liveness *liveness, const sm_identity *identity) {
    return identity->pid > 0 && same(liveness->self.boot_id, identity->boot_id) &&
           same(liveness->self.pid_namespace, identity->pid_namespace);
}

/* Whether what /proc says about it can be compared. */
static bool is_in_proc(const sm_liveness *liveness, const sm_identity *identity) {
    return has_our_number(liveness, identity) && liveness->numbers_are_ours &&
           identity->start_time != 0 && liveness->self.time_namespace == identity->time_namespace;
}

/* Whether the process's abstract name is visible here. */
static bool shows_name(const sm_liveness *liveness, const sm_identity *identity) {
    return same(liveness->self.net_namespace, identity->net_namespace);
}

/* Tries the socket, if necessary after closing the spare descriptor. */
static void look(sm_liveness *liveness, watched *entry, bool wants_process,
                 sm_life_answer *answer) {
    sm_identity asked = entry->identity;
    /* The name tells all, and to look for a file that has been removed takes the kernel's lock of
     * the directory. */
    if (shows_name(liveness, &asked))
        asked.life_file[0] = '\0';
    sm_life_ask(&asked, wants_process, answer);
    if (answer->lacks_descriptor && liveness->spare >= 0) {
        close(liveness->spare);
        if (answer->pidfd >= 0)
            close(answer->pidfd);
        sm_life_ask(&asked, wants_process, answer);
        liveness->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    if (answer->by_name != SM_LIFE_LIVES && answer->by_file != SM_LIFE_LIVES)
        return;
    entry->answered = true;
    entry->closed_ns = 0;
    note_kernel(liveness, &entry->identity);
}

/* The process's socket refuses connections. An absent file proves nothing: it may have been
 * removed, or be hidden from this process. */
static bool is_closed(const sm_liveness *liveness, const watched *entry,
                      const sm_life_answer *answer) {
    const sm_identity *identity = &entry->identity;
    if (!entry->answered && !on_this_kernel(liveness, identity))
        return false;
    if (answer->by_file == SM_LIFE_REFUSED || answer->by_file == SM_LIFE_FOREIGN)
        return true;
    return (answer->by_name == SM_LIFE_REFUSED || answer->by_name == SM_LIFE_FOREIGN) &&
           shows_name(liveness, identity);
}

static uint64_t look_interval_ns(const sm_liveness *liveness) {
    const uint64_t ns = (uint64_t)liveness->world_size * LOOK_A_RANK_NS;
    return ns < LOOK_NS ? LOOK_NS : ns > LOOK_MOST_NS ? LOOK_MOST_NS : ns;
}

/* --- whether it has ended ------------------------------------------------------------------- */

static bool pidfd_ended(int pidfd) {
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

/* Tells by /proc, without a pidfd, whether the process has ended. */
static bool ended_by_proc(const sm_identity *identity) {
    sm_process state;
    if (!sm_process_read(identity->pid, &state))
        /* /proc may hide other users' processes; the null signal sees them all the same. */
        return kill(identity->pid, 0) != 0 && errno == ESRCH;
    if (state.start_time != identity->start_time)
        return true;
    /* A zombie with threads is a process whose first thread ended early. */
    return (state.state == 'Z' || state.state == 'X') && state.thread_count <= 1;
}

static bool ended_without_pidfd(sm_liveness *liveness, const sm_identity *identity) {
    if (liveness->spare >= 0)
        close(liveness->spare);
    bool result = ended_by_proc(identity);
    liveness->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return result;
}

/* Opens the process by number at the first look. */
static bool ended_by_number(sm_liveness *liveness, watched *entry) {
    const sm_identity *identity = &entry->identity;
    int pidfd = (int)syscall(SYS_pidfd_open, identity->pid, 0); /* close-on-exec always */
    if (pidfd < 0)
        return errno == ESRCH || ended_without_pidfd(liveness, identity);
    /* The number may belong to a later process: look only now that the descriptor holds it. */
    sm_process state;
    if (sm_process_read(identity->pid, &state) && state.start_time != identity->start_time) {
        close(pidfd);
        return true;
    }
    entry->pidfd = pidfd;
    return pidfd_ended(pidfd);
}

/* Whether a context that is not seen any more left its identity in the store. A context that ends
 * in good order removes it first. */
static bool is_left_in_store(const sm_liveness *liveness, int32_t rank, const watched *entry) {
    if (liveness->store == NULL)
        return true;
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_member found;
    size_t bytes = 0;
    SM_ATTEMPT(look);
    sm_identity_key(liveness->world_prefix, rank, key, sizeof(key));
    symmem_status status =
        symmem_store_get(liveness->store, key, &found, sizeof(found), &bytes, STORE_MS);
    if (status != SYMMEM_OK || (bytes != sizeof(found) && bytes != sizeof(found.identity)))
        return false; /* the next call looks again */
    /* Without a pidfd, a successor's identity in the key also proves that the process has gone. */
    return entry->pidfd < 0 ||
           memcmp(&found.identity, &entry->identity, sizeof(found.identity)) == 0;
}

/* --- without its file ------------------------------------------------------------------------ */

void sm_liveness_ended_key(const char *world_prefix, int32_t rank, char *key, size_t capacity) {
    (void)snprintf(key, capacity, "%s/dead/%d", world_prefix, rank);
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* A process that removed the file has left the identity of the file's owner in the store. */
static bool is_marked_ended(const sm_liveness *liveness, int32_t rank, const watched *entry,
                            const sm_life_answer *answer) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    uint8_t life[SM_LIFE_ID_BYTES];
    size_t bytes = 0;
    if (liveness->store == NULL || entry->identity.life_file[0] == '\0' ||
        answer->by_name == SM_LIFE_LIVES || answer->by_file != SM_LIFE_UNKNOWN)
        return false;
    SM_ATTEMPT(look);
    sm_liveness_ended_key(liveness->world_prefix, rank, key, sizeof(key));
    symmem_status status =
        symmem_store_get(liveness->store, key, life, sizeof(life), &bytes, STORE_MS);
    return status == SYMMEM_OK && bytes == sizeof(life) &&
           memcmp(life, entry->identity.life, sizeof(life)) == 0;
}

/* Marks the rank's process as ended if the store has it with that file. */
static bool mark_ended(const sm_liveness *liveness, int32_t rank, const char *file_name) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_member found;
    size_t bytes = 0;
    sm_identity_key(liveness->world_prefix, rank, key, sizeof(key));
    if (symmem_store_get(liveness->store, key, &found, sizeof(found), &bytes, STORE_MS) !=
            SYMMEM_OK ||
        (bytes != sizeof(found) && bytes != sizeof(found.identity)))
        return false;
    found.identity.life_file[sizeof(found.identity.life_file) - 1] = '\0';
    sm_liveness_ended_key(liveness->world_prefix, rank, key, sizeof(key));
    return strcmp(base_of(found.identity.life_file), file_name) == 0 &&
           symmem_store_set(liveness->store, key, found.identity.life, sizeof(found.identity.life),
                            STORE_MS) == SYMMEM_OK;
}

bool sm_liveness_mark_ended(sm_liveness *liveness, int32_t rank, const char *file_name) {
    if (liveness == NULL || rank < 0)
        return false;
    SM_ATTEMPT(marking);
    pthread_mutex_lock(&liveness->mutex);
    const bool is_done = liveness->store != NULL && mark_ended(liveness, rank, file_name);
    pthread_mutex_unlock(&liveness->mutex);
    return is_done;
}

bool sm_liveness_needs_no_file(sm_liveness *liveness, int32_t rank, const char *file_name) {
    if (liveness == NULL || !is_rank(liveness, rank))
        return false;
    pthread_mutex_lock(&liveness->mutex);
    const watched *owner = &liveness->ranks[rank];
    bool is_so = owner->known && strcmp(base_of(owner->identity.life_file), file_name) == 0;
    for (int32_t other = 0; other < liveness->world_size && is_so; other++) {
        const watched *peer = &liveness->ranks[other];
        is_so = peer->known && same(peer->identity.net_namespace, owner->identity.net_namespace);
    }
    pthread_mutex_unlock(&liveness->mutex);
    return is_so;
}

enum memory { MEMORY_UNKNOWN, MEMORY_THERE, MEMORY_GONE };

/* The kernel releases the memory of an ending process before its sockets, and a process that starts
 * another program has new memory by then. This call releases the memory of a process that is being
 * killed. It reports, from any namespace, whether there was any. */
static enum memory memory_of(int pidfd) {
    if (pidfd < 0)
        return MEMORY_UNKNOWN;
    if (syscall(SYS_process_mrelease, pidfd, 0) == 0 || errno == ESRCH)
        return MEMORY_GONE;
    return errno == EINVAL ? MEMORY_THERE : MEMORY_UNKNOWN;
}

/* The process's socket is closed. If it is visible here it is ending, or runs another program. */
static bool closed_is_ended(const sm_liveness *liveness, int32_t rank, const watched *entry,
                            uint64_t now_ns) {
    if (!is_left_in_store(liveness, rank, entry))
        return false;
    if (entry->pidfd < 0 && !is_in_proc(liveness, &entry->identity))
        return true; /* nothing else tells of its end */
    sm_process state;
    switch (memory_of(entry->pidfd)) {
    case MEMORY_THERE:
        return true;
    case MEMORY_GONE:
        return false;
    default: /* A process that began to end before its socket was closed would be seen ending. */
        return (is_in_proc(liveness, &entry->identity) &&
                sm_process_read(entry->identity.pid, &state) && !state.is_exiting) ||
               now_ns - entry->closed_ns >= CLOSED_NS;
    }
}

static bool ended_by_socket(sm_liveness *liveness, int32_t rank, watched *entry, bool is_seen) {
    sm_life_answer answer;
    const uint64_t now_ns = machine_ns();
    if (!entry->identity.listens || now_ns < entry->look_ns)
        return false;
    if (is_seen && entry->pidfd >= 0 && liveness->looks_left-- <= 0)
        return false;
    /* Time has passed since the glance if this thread was kept from a processor. */
    if (is_seen && entry->pidfd >= 0 && pidfd_ended(entry->pidfd))
        return true;
    entry->look_ns = now_ns + look_interval_ns(liveness);
    look(liveness, entry, entry->pidfd < 0 && !is_in_proc(liveness, &entry->identity), &answer);
    if (answer.pidfd >= 0) {
        entry->pidfd = answer.pidfd;
        return pidfd_ended(entry->pidfd);
    }
    if (is_marked_ended(liveness, rank, entry, &answer))
        return true;
    if (!is_closed(liveness, entry, &answer)) {
        entry->closed_ns = 0;
        return false;
    }
    if (entry->closed_ns == 0)
        entry->closed_ns = now_ns;
    return closed_is_ended(liveness, rank, entry, now_ns);
}

static bool ended(sm_liveness *liveness, int32_t rank, watched *entry, bool is_seen) {
    if (entry->pidfd >= 0) {
        if (!is_seen && pidfd_ended(entry->pidfd))
            return true;
    } else if (is_in_proc(liveness, &entry->identity)) {
        if (ended_by_number(liveness, entry))
            return true;
    } else if (has_our_number(liveness, &entry->identity) && kill(entry->identity.pid, 0) != 0 &&
               errno == ESRCH) {
        return true;
    }
    return ended_by_socket(liveness, rank, entry, is_seen);
}

/* The mutex is held. `is_seen`: a pidfd, if there is one, was polled just now. */
static bool is_gone(sm_liveness *liveness, int32_t rank, watched *entry, bool is_seen) {
    if (entry->known && !entry->gone &&
        !sm_identity_same_process(&liveness->self, &entry->identity) &&
        ended(liveness, rank, entry, is_seen)) {
        entry->gone = true;
        forget(entry);
    }
    return entry->gone;
}

static symmem_peer_state known_state(sm_liveness *liveness, int32_t rank, bool is_seen) {
    if (!is_rank(liveness, rank))
        return SYMMEM_PEER_ALIVE;
    pthread_mutex_lock(&liveness->mutex);
    bool gone = is_gone(liveness, rank, &liveness->ranks[rank], is_seen);
    pthread_mutex_unlock(&liveness->mutex);
    return gone ? SYMMEM_PEER_GONE : SYMMEM_PEER_ALIVE;
}

symmem_peer_state sm_liveness_ask(sm_liveness *liveness, int32_t rank) {
    return known_state(liveness, rank, false);
}

symmem_peer_state sm_liveness_seen(sm_liveness *liveness, int32_t rank) {
    return known_state(liveness, rank, true);
}

/* Whether a process has gone that has no entry, because another one is known in its place. The look
 * leaves no pidfd open. */
static bool is_gone_now(sm_liveness *liveness, int32_t rank, const sm_identity *identity) {
    watched entry = {.identity = *identity, .pidfd = -1, .known = true};
    bool gone = is_gone(liveness, rank, &entry, false);
    forget(&entry);
    return gone;
}

/* The known process may be a successor. It may also be an earlier one, while another group still
 * reads an old entry of the store. */
static symmem_peer_state state_of(sm_liveness *liveness, int32_t rank, const sm_identity *identity,
                                  bool is_seen) {
    if (!is_rank(liveness, rank))
        return SYMMEM_PEER_ALIVE;
    watched *entry = &liveness->ranks[rank];
    pthread_mutex_lock(&liveness->mutex);
    bool is_known = entry->known && memcmp(&entry->identity, identity, sizeof(*identity)) == 0;
    bool gone = is_known ? is_gone(liveness, rank, entry, is_seen)
                         : !sm_identity_same_process(&liveness->self, identity) &&
                               is_gone_now(liveness, rank, identity);
    pthread_mutex_unlock(&liveness->mutex);
    return gone ? SYMMEM_PEER_GONE : SYMMEM_PEER_ALIVE;
}

symmem_peer_state sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                     const sm_identity *identity) {
    return state_of(liveness, rank, identity, false);
}

symmem_peer_state sm_liveness_seen_of(sm_liveness *liveness, int32_t rank,
                                      const sm_identity *identity) {
    return state_of(liveness, rank, identity, true);
}

symmem_peer_state sm_liveness_glanced_of(sm_liveness *liveness, int32_t rank,
                                         const sm_identity *identity) {
    if (!is_rank(liveness, rank))
        return SYMMEM_PEER_ALIVE;
    const watched *entry = &liveness->ranks[rank];
    pthread_mutex_lock(&liveness->mutex);
    const bool is_held =
        entry->pidfd >= 0 && memcmp(&entry->identity, identity, sizeof(*identity)) == 0;
    pthread_mutex_unlock(&liveness->mutex);
    return is_held ? SYMMEM_PEER_ALIVE : state_of(liveness, rank, identity, true);
}

/* The mutex is held. */
static void note_ends(sm_liveness *liveness, const struct pollfd *held, const int32_t *ranks,
                      nfds_t count) {
    for (nfds_t i = 0; i < count; i++) {
        if (held[i].revents == 0)
            continue;
        liveness->ranks[ranks[i]].gone = true;
        forget(&liveness->ranks[ranks[i]]);
    }
}

bool sm_liveness_is_known_gone(sm_liveness *liveness, int32_t rank, const sm_identity *identity) {
    if (!is_rank(liveness, rank))
        return false;
    const watched *entry = &liveness->ranks[rank];
    pthread_mutex_lock(&liveness->mutex);
    const bool is_known = entry->gone && (identity == NULL || memcmp(&entry->identity, identity,
                                                                     sizeof(*identity)) == 0);
    pthread_mutex_unlock(&liveness->mutex);
    return is_known;
}

void sm_liveness_glance(sm_liveness *liveness) {
    struct pollfd held[GLANCE_PROCESSES];
    int32_t ranks[GLANCE_PROCESSES];
    nfds_t count = 0;
    pthread_mutex_lock(&liveness->mutex);
    liveness->looks_left = LOOKS_A_GLANCE;
    for (int32_t rank = 0; rank < liveness->world_size; rank++) {
        const int pidfd = liveness->ranks[rank].pidfd;
        if (pidfd >= 0) {
            held[count] = (struct pollfd){.fd = pidfd, .events = POLLIN};
            ranks[count++] = rank;
        }
        const bool asks = count == GLANCE_PROCESSES || rank == liveness->world_size - 1;
        if (asks && count > 0 && poll(held, count, 0) > 0)
            note_ends(liveness, held, ranks, count);
        count = asks ? 0 : count;
    }
    pthread_mutex_unlock(&liveness->mutex);
}

bool sm_liveness_is_ending(sm_liveness *liveness, const sm_identity *identity) {
    if (sm_identity_same_process(&liveness->self, identity))
        return false;
    if (is_in_proc(liveness, identity))
        return sm_process_is_ending(identity->pid, identity->start_time);
    if (!identity->listens)
        return false;
    bool is_ending = false;
    pthread_mutex_lock(&liveness->mutex);
    for (int32_t rank = 0; rank < liveness->world_size && !is_ending; rank++) {
        watched *entry = &liveness->ranks[rank];
        sm_life_answer answer;
        if (!entry->known || memcmp(&entry->identity, identity, sizeof(*identity)) != 0)
            continue;
        look(liveness, entry, false, &answer);
        is_ending = is_closed(liveness, entry, &answer) && is_left_in_store(liveness, rank, entry);
    }
    pthread_mutex_unlock(&liveness->mutex);
    return is_ending;
}

bool sm_liveness_sees(sm_liveness *liveness, int32_t rank) {
    if (liveness == NULL || !is_rank(liveness, rank))
        return false;
    watched *entry = &liveness->ranks[rank];
    pthread_mutex_lock(&liveness->mutex);
    bool gone = is_gone(liveness, rank, entry, false);
    bool sees = gone || entry->pidfd >= 0 || entry->answered ||
                sm_identity_same_process(&liveness->self, &entry->identity) ||
                is_in_proc(liveness, &entry->identity);
    pthread_mutex_unlock(&liveness->mutex);
    return sees;
}

bool sm_liveness_is_near(sm_liveness *liveness, const sm_identity *identity) {
    if (!identity->listens)
        return false;
    sm_life_answer answer;
    watched entry = {.identity = *identity, .pidfd = -1};
    pthread_mutex_lock(&liveness->mutex);
    bool is_near = on_this_kernel(liveness, identity);
    if (!is_near) {
        look(liveness, &entry, false, &answer);
        is_near = entry.answered;
    }
    pthread_mutex_unlock(&liveness->mutex);
    return is_near;
}
