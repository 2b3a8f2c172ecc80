/* SPDX-License-Identifier: BSD-3-Clause */
#include "quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collective.h"
#include "wait.h"

#define LOOK_NS UINT64_C(20000000) /* between two questions whether the peers live */

struct symmem_kit_traffic {
    int32_t ranks;
    struct {
        _Atomic uint64_t put, flushed; /* so often; so much of it is at its place */
        _Atomic uint64_t pending;      /* whose end the engine tells, by progress */
        int pidfd;                     /* of its process; 0: not watched */
        _Atomic bool gone;             /* the rank has ended, and what is under way ends never */
    } to[];
};

/* What a flush that was given up goes on with. Both the flush and who asked for it use it. */
typedef struct flush {
    atomic_int users;
    symmem_kit_flush_fn flush;
    void *engine;
    int count, error;
    uint64_t *numbers; /* of what was put, behind the ranks */
    int32_t ranks[];
} flush;

size_t symmem_kit_traffic_bytes(int32_t ranks) {
    return sizeof(symmem_kit_traffic) + (size_t)ranks * sizeof(((symmem_kit_traffic *)NULL)->to[0]);
}

symmem_kit_traffic *symmem_kit_traffic_new(int32_t ranks) {
    symmem_kit_traffic *made = calloc(1, symmem_kit_traffic_bytes(ranks));
    if (made != NULL)
        made->ranks = ranks;
    return made;
}

void symmem_kit_traffic_watch(symmem_kit_traffic *traffic, int32_t rank, int pidfd) {
    traffic->to[rank].pidfd = pidfd;
}

void symmem_kit_traffic_unwatch(symmem_kit_traffic *traffic) {
    for (int32_t r = 0; traffic != NULL && r < traffic->ranks; r++) {
        if (traffic->to[r].pidfd > 0)
            close(traffic->to[r].pidfd);
        traffic->to[r].pidfd = 0;
    }
}

void symmem_kit_traffic_free(symmem_kit_traffic *traffic) {
    symmem_kit_traffic_unwatch(traffic);
    free(traffic);
}

/* Where a rank's process is, if that can be told: its number means something in one PID namespace
 * of one running system. */
typedef struct process {
    int64_t pid;
    uint64_t namespace_number;
    char boot[40];
} process;

static void describe_self(process *own) {
    struct stat info;
    memset(own, 0, sizeof(*own));
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, own->boot, sizeof(own->boot) - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0 || stat("/proc/self/ns/pid", &info) != 0)
        return;
    own->namespace_number = info.st_ino;
    own->pid = getpid();
}

symmem_status symmem_kit_traffic_open(const symmem_host *host, const symmem_exchange *exchange,
                                      symmem_kit_traffic **traffic_p) {
    process own;
    void *all_v = NULL;
    describe_self(&own);
    symmem_kit_traffic *given = *traffic_p;
    symmem_status status = SYMMEM_OK;
    if (given != NULL) {
        memset(given, 0, symmem_kit_traffic_bytes(exchange->world_size));
        given->ranks = exchange->world_size;
    } else if ((*traffic_p = symmem_kit_traffic_new(exchange->world_size)) == NULL) {
        status = host->fail(host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "join", "no memory");
    }
    status = exchange->agree(exchange, status, "kit.traffic");
    if (status == SYMMEM_OK)
        status = symmem_kit_gather(host, exchange, &own, sizeof(own), "kit.processes", &all_v);
    const process *all = all_v;
    for (int32_t r = 0; status == SYMMEM_OK && r < exchange->world_size; r++)
        if (own.pid != 0 && all[r].pid > 0 && all[r].pid != own.pid &&
            all[r].namespace_number == own.namespace_number &&
            memcmp(all[r].boot, own.boot, sizeof(own.boot)) == 0) {
            const int fd = (int)syscall(SYS_pidfd_open, (pid_t)all[r].pid, 0); /* close-on-exec */
            if (fd > 0)
                symmem_kit_traffic_watch(*traffic_p, r, fd);
        }
    free(all_v);
    if (status == SYMMEM_OK)
        return status;
    symmem_kit_traffic_unwatch(*traffic_p);
    if (given == NULL)
        free(*traffic_p);
    *traffic_p = given;
    return status;
}

void symmem_kit_traffic_put(symmem_kit_traffic *traffic, int32_t rank) {
    atomic_fetch_add_explicit(&traffic->to[rank].put, 1, memory_order_relaxed);
}

void symmem_kit_traffic_begin(symmem_kit_traffic *traffic, int32_t rank) {
    atomic_fetch_add_explicit(&traffic->to[rank].pending, 1, memory_order_relaxed);
}

void symmem_kit_traffic_end(symmem_kit_traffic *traffic, int32_t rank) {
    /* release; pairs with: symmem_kit_traffic_has_pending */
    atomic_fetch_sub_explicit(&traffic->to[rank].pending, 1, memory_order_release);
}

static bool is_gone(const symmem_kit_traffic *traffic, int32_t rank) {
    return atomic_load_explicit(&traffic->to[rank].gone, memory_order_relaxed);
}

bool symmem_kit_traffic_has_lost(const symmem_kit_traffic *traffic) {
    for (int32_t r = 0; traffic != NULL && r < traffic->ranks; r++)
        if (is_gone(traffic, r))
            return true;
    return false;
}

static bool has_ended(const symmem_kit_traffic *traffic, int32_t rank) {
    struct pollfd watched = {.fd = traffic->to[rank].pidfd, .events = POLLIN};
    return watched.fd > 0 && poll(&watched, 1, 0) > 0;
}

bool symmem_kit_traffic_sees_end(const symmem_kit_traffic *traffic) {
    for (int32_t r = 0; traffic != NULL && r < traffic->ranks; r++)
        if (has_ended(traffic, r))
            return true;
    return false;
}

static void drop(flush *one) {
    if (atomic_fetch_sub_explicit(&one->users, 1, memory_order_acq_rel) == 1)
        free(one);
}

static void flush_task(void *flush_v) {
    flush *one = flush_v;
    one->error = one->flush(one->engine, one->ranks, one->count);
    drop(one);
}

static uint64_t under_way(const symmem_kit_traffic *traffic, int32_t rank) {
    const uint64_t put = atomic_load_explicit(&traffic->to[rank].put, memory_order_relaxed);
    /* acquire; pairs with: take */
    const bool there =
        atomic_load_explicit(&traffic->to[rank].flushed, memory_order_acquire) >= put;
    return there || is_gone(traffic, rank) ? 0 : put;
}

bool symmem_kit_traffic_has_pending(const symmem_kit_traffic *traffic) {
    for (int32_t r = 0; traffic != NULL && r < traffic->ranks; r++)
        if (atomic_load_explicit(&traffic->to[r].pending, memory_order_acquire) != 0 &&
            !is_gone(traffic, r))
            return true;
    return false;
}

static bool is_quiet(const symmem_kit_traffic *traffic) {
    for (int32_t r = 0; r < traffic->ranks; r++)
        if (under_way(traffic, r) != 0)
            return false;
    return true;
}

/* Of what is under way to ranks that live; NULL without memory. */
static flush *collect(const symmem_kit_quiet *quiet, const symmem_kit_traffic *traffic) {
    const size_t ranks = (size_t)traffic->ranks, all = (ranks * sizeof(int32_t) + 7) / 8 * 8;
    flush *made = calloc(1, sizeof(*made) + all + ranks * sizeof(uint64_t));
    if (made == NULL)
        return NULL;
    atomic_init(&made->users, 2);
    made->flush = quiet->flush;
    made->engine = quiet->engine;
    made->numbers = (uint64_t *)(void *)((char *)made + sizeof(*made) + all);
    for (int32_t r = 0; r < traffic->ranks; r++) {
        const uint64_t number = under_way(traffic, r);
        if (number != 0) {
            made->numbers[made->count] = number;
            made->ranks[made->count++] = r;
        }
    }
    return made;
}

static void take(symmem_kit_traffic *traffic, const flush *one) {
    for (int i = 0; i < one->count; i++) {
        _Atomic uint64_t *flushed = &traffic->to[one->ranks[i]].flushed;
        uint64_t old = atomic_load_explicit(flushed, memory_order_relaxed);
        /* release; pairs with: under_way. Another thread's later flush may have been first. */
        while (old < one->numbers[i] &&
               !atomic_compare_exchange_weak_explicit(flushed, &old, one->numbers[i],
                                                      memory_order_release, memory_order_relaxed))
            continue;
    }
}

typedef struct look {
    const symmem_kit_quiet *quiet;
    symmem_kit_traffic *traffic;
    const symmem_host *host;
    const symmem_peers *peers;
    uint64_t next_ns;
    bool was_poisoned; /* when it began: the core wants it all the same */
    bool poisoned, lost;
} look;

/* Whether a peer is found to have ended that was not known to. */
static bool note_ends(look *at) {
    bool new = false;
    for (int32_t r = 0; r < at->traffic->ranks; r++) {
        if (is_gone(at->traffic, r) || !has_ended(at->traffic, r))
            continue;
        atomic_store_explicit(&at->traffic->to[r].gone, true, memory_order_relaxed);
        new = true;
    }
    if (at->peers == NULL)
        return new;
    for (int32_t r = 0; r < at->peers->world_size; r++) {
        const int32_t rank = at->peers->global_ranks[r];
        if (is_gone(at->traffic, rank) || at->host->peer_state(at->peers, r) != SYMMEM_PEER_GONE)
            continue;
        atomic_store_explicit(&at->traffic->to[rank].gone, true, memory_order_relaxed);
        new = true;
    }
    return new;
}

static bool look_around(void *look_v) {
    look *at = look_v;
    const uint64_t now_ns = symmem_kit_now_ns();
    if (at->quiet->progress != NULL)
        at->quiet->progress(at->quiet->instance);
    if (now_ns < at->next_ns)
        return false;
    at->next_ns = now_ns + LOOK_NS;
    at->poisoned = at->peers != NULL && !at->was_poisoned && at->host->is_poisoned(at->peers);
    at->lost = note_ends(at);
    return at->poisoned || at->lost;
}

static symmem_status give_up(const look *at) {
    return at->host->fail(at->host, at->poisoned ? SYMMEM_POISONED : SYMMEM_TIMEOUT, 0, "quiet",
                          "the engine's work was given up");
}

/* For what the engine tells by itself. */
static symmem_status await_pending(look *at, uint64_t deadline_ns) {
    for (unsigned turns = 0; symmem_kit_traffic_has_pending(at->traffic); turns++) {
        (void)look_around(at);
        if (at->poisoned || (deadline_ns != 0 && symmem_kit_now_ns() >= deadline_ns))
            return symmem_kit_traffic_has_pending(at->traffic) ? give_up(at) : SYMMEM_OK;
        symmem_kit_pause(turns);
    }
    return SYMMEM_OK;
}

/* True: it has been told, by *status_p and *error_p. */
static bool attempt(look *at, uint64_t deadline_ns, symmem_status *status_p, int *error_p) {
    bool began = false;
    flush *one = collect(at->quiet, at->traffic);
    if (one == NULL) {
        *status_p = at->host->fail(at->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "quiet", "no memory");
        return true;
    }
    if (symmem_kit_helper_run(at->quiet->helper, flush_task, one, deadline_ns, look_around, at,
                              &began)) {
        *error_p = one->error;
        *status_p = one->error == 0 ? SYMMEM_OK : SYMMEM_BACKEND;
        if (one->error == 0)
            take(at->traffic, one);
        drop(one);
        return true;
    }
    if (began) {
        symmem_kit_helper_abandon(at->quiet->helper);
        drop(one);
    } else {
        free(one);
    }
    if (at->lost)
        return false; /* once more, without that peer */
    *status_p = give_up(at);
    return true;
}

symmem_status symmem_kit_quiet_run(const symmem_kit_quiet *quiet, symmem_kit_traffic *traffic,
                                   const symmem_host *host, const symmem_peers *peers,
                                   const symmem_exec *exec, int *error_p) {
    const symmem_kit_wait wait = symmem_kit_wait_begin(exec->timeout_ms);
    const bool was_poisoned = peers != NULL && host->is_poisoned(peers);
    look first = {.quiet = quiet,
                  .traffic = traffic,
                  .host = host,
                  .peers = peers,
                  .was_poisoned = was_poisoned};
    symmem_status status = await_pending(&first, wait.deadline_ns);
    *error_p = 0;
    while (status == SYMMEM_OK && !is_quiet(traffic)) {
        look at = {.quiet = quiet,
                   .traffic = traffic,
                   .host = host,
                   .peers = peers,
                   .was_poisoned = was_poisoned};
        if (note_ends(&at))
            continue;
        if (attempt(&at, wait.deadline_ns, &status, error_p))
            return status;
    }
    return status;
}
