/* SPDX-License-Identifier: BSD-3-Clause */
/* Who a process is, and whether that very process still runs. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t namespace_of(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 ? about.st_ino : 0;
}

uint64_t sm_boot_id(void) {
    char text[64];
    return sm_read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text))
               ? sm_hash(text, strcspn(text, "\n"), SM_HASH_SEED)
               : 0;
}

symmem_status sm_identity_self(sm_identity *identity_p) {
    sm_identity identity;
    memset(&identity, 0, sizeof(identity)); /* travels as bytes, padding included */
    identity.boot_id = sm_boot_id();        /* without it, host names are compared instead */
    identity.pid_namespace = namespace_of("/proc/self/ns/pid");
    identity.net_namespace = namespace_of("/proc/self/ns/net");
    identity.mount_namespace = namespace_of("/proc/self/ns/mnt");
    identity.pid = (int32_t)getpid();
    sm_process state;
    if (!sm_process_read(identity.pid, &state))
        return sm_fail(SYMMEM_SYSTEM, "identity", "", "cannot read the process's start time");
    identity.start_time = state.start_time;
    if (gethostname(identity.host, sizeof(identity.host)) != 0 && errno != ENAMETOOLONG)
        return sm_fail_errno(errno, "identity", "", "cannot read the host name");
    identity.host[sizeof(identity.host) - 1] = '\0';
    *identity_p = identity;
    return SYMMEM_OK;
}

bool sm_identity_same_host(const sm_identity *a, const sm_identity *b) {
    if (a->boot_id != 0 && b->boot_id != 0)
        return a->boot_id == b->boot_id;
    return strncmp(a->host, b->host, sizeof(a->host)) == 0; /* one of them could not be read */
}

bool sm_identity_same_process(const sm_identity *a, const sm_identity *b) {
    return sm_identity_same_host(a, b) && a->pid_namespace == b->pid_namespace &&
           a->pid == b->pid && a->start_time == b->start_time;
}

void sm_identity_key(const char *world_prefix, int32_t rank, char *key, size_t capacity) {
    snprintf(key, capacity, "%s/id/%d", world_prefix, rank);
}

typedef struct watched {
    sm_identity identity;
    int pidfd; /* -1: not opened yet or not possible */
    bool known;
    bool watchable; /* same kernel and pid namespace as we */
    bool gone;
} watched;

struct sm_liveness {
    pthread_mutex_t mutex;
    sm_identity self;
    int32_t world_size;
    int spare; /* given up for a moment to read /proc when no descriptor is left */
    watched ranks[];
};

symmem_status sm_liveness_create(int32_t world_size, sm_liveness **liveness_p) {
    sm_identity self;
    symmem_status status = sm_identity_self(&self);
    if (status != SYMMEM_OK)
        return status;
    sm_liveness *liveness =
        calloc(1, sizeof(*liveness) + (size_t)world_size * sizeof(liveness->ranks[0]));
    if (liveness == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "init", "liveness", "no memory for %d ranks",
                       world_size);
    liveness->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    liveness->self = self;
    liveness->world_size = world_size;
    liveness->spare = open("/dev/null", O_RDONLY | O_CLOEXEC); /* -1 is as good as can be */
    for (int32_t rank = 0; rank < world_size; rank++)
        liveness->ranks[rank].pidfd = -1;
    *liveness_p = liveness;
    return SYMMEM_OK;
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
    free(liveness);
}

static bool is_watchable(const sm_identity *self, const sm_identity *identity) {
    return identity->pid > 0 && self->boot_id != 0 && self->boot_id == identity->boot_id &&
           self->pid_namespace != 0 && self->pid_namespace == identity->pid_namespace &&
           !sm_identity_same_process(self, identity);
}

void sm_liveness_learn(sm_liveness *liveness, int32_t rank, const sm_identity *identity) {
    if (rank < 0 || rank >= liveness->world_size)
        return;
    watched *entry = &liveness->ranks[rank];
    pthread_mutex_lock(&liveness->mutex);
    if (!entry->known || memcmp(&entry->identity, identity, sizeof(*identity)) != 0) {
        forget(entry);
        entry->identity = *identity;
        entry->known = true;
        entry->gone = false;
        entry->watchable = is_watchable(&liveness->self, identity);
    }
    pthread_mutex_unlock(&liveness->mutex);
}

bool sm_liveness_knows(sm_liveness *liveness, int32_t rank) {
    if (rank < 0 || rank >= liveness->world_size)
        return false;
    pthread_mutex_lock(&liveness->mutex);
    bool known = liveness->ranks[rank].known;
    pthread_mutex_unlock(&liveness->mutex);
    return known;
}

static bool pidfd_ended(int pidfd) {
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

/* Without a pidfd: is this the process, and has it not ended? */
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

static bool ended(sm_liveness *liveness, watched *entry) {
    if (entry->pidfd >= 0)
        return pidfd_ended(entry->pidfd);
    int pidfd = (int)syscall(SYS_pidfd_open, entry->identity.pid, 0); /* close-on-exec always */
    if (pidfd < 0)
        return errno == ESRCH || ended_without_pidfd(liveness, &entry->identity);
    /* The number may belong to a later process: look only now that the descriptor holds it. */
    sm_process state;
    if (sm_process_read(entry->identity.pid, &state) &&
        state.start_time != entry->identity.start_time) {
        close(pidfd);
        return true;
    }
    entry->pidfd = pidfd;
    return pidfd_ended(pidfd);
}

/* The mutex is held. */
static bool is_gone(sm_liveness *liveness, watched *entry) {
    if (entry->known && entry->watchable && !entry->gone && ended(liveness, entry)) {
        entry->gone = true;
        forget(entry);
    }
    return entry->gone;
}

symmem_peer_state sm_liveness_ask(sm_liveness *liveness, int32_t rank) {
    if (rank < 0 || rank >= liveness->world_size)
        return SYMMEM_PEER_ALIVE;
    pthread_mutex_lock(&liveness->mutex);
    bool gone = is_gone(liveness, &liveness->ranks[rank]);
    pthread_mutex_unlock(&liveness->mutex);
    return gone ? SYMMEM_PEER_GONE : SYMMEM_PEER_ALIVE;
}

/* The one that is known may be a successor, and while another group reads what is in the store yet
 * even one of before. */
symmem_peer_state sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                     const sm_identity *identity) {
    if (rank < 0 || rank >= liveness->world_size)
        return SYMMEM_PEER_ALIVE;
    watched *entry = &liveness->ranks[rank];
    pthread_mutex_lock(&liveness->mutex);
    bool is_known = entry->known && memcmp(&entry->identity, identity, sizeof(*identity)) == 0;
    bool gone = is_known ? is_gone(liveness, entry)
                         : is_watchable(&liveness->self, identity) &&
                               ended_without_pidfd(liveness, identity);
    pthread_mutex_unlock(&liveness->mutex);
    return gone ? SYMMEM_PEER_GONE : SYMMEM_PEER_ALIVE;
}

bool sm_liveness_is_ending(const sm_liveness *liveness, const sm_identity *identity) {
    return is_watchable(&liveness->self, identity) &&
           sm_process_is_ending(identity->pid, identity->start_time);
}
