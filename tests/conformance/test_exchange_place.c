/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors go to the sockets of peers only, whatever has taken the name of one. */
#include "case_help.h"
#include "counting_store.h"
#include "sync_help.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define STRANGER 54321 /* a user */

/* The one socket in the directory that takes messages. */
static void name_of_socket(struct tk *t, const char *directory, char *path, size_t capacity) {
    DIR *listing = opendir(directory);
    TK_REQUIRE(t, listing != NULL);
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int length = snprintf(address.sun_path, sizeof address.sun_path, "%.60s/%.45s", directory,
                              entry->d_name);
        if (entry->d_name[0] != '.' && length < (int)sizeof address.sun_path &&
            takes_messages(&address))
            snprintf(path, capacity, "%s", address.sun_path);
    }
    closedir(listing);
}

static symmem_status pass_one(struct tk *t, symmem_group *group, const char *directory,
                              uint32_t limit_ms) {
    int fds[4];
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    symmem_status status = symmem_group_all_gather_fds(group, fd, fds, limit_ms);
    close(fd);
    for (int r = 0; status == SYMMEM_OK && r < t->world_size; r++)
        close(fds[r]);
    return status;
}

/* As another user: the kernel says of a socket that it is of who made it listen. */
static bool listen_as_stranger(int fd) {
    const pid_t child = fork();
    int result = -1;
    if (child == 0)
        _exit(setgroups(0, NULL) != 0 || setuid(STRANGER) != 0 || listen(fd, 8) != 0);
    return child > 0 && waitpid(child, &result, 0) == child && result == 0;
}

static int bind_stranger(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t bytes = strlen(path);
    if (bytes >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, path, bytes);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
                    !listen_as_stranger(fd))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Whether anything was sent there. */
static bool was_sent_to(int stranger) {
    bool sent = false;
    for (int fd; (fd = accept4(stranger, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;
         close(fd)) {
        char byte;
        sent |= recv(fd, &byte, 1, 0) > 0;
    }
    return sent;
}

/* Rank 0's socket file is exchanged for a plain file, and for root also for another user's socket,
 * though the file is the rank's user's: no rank sends there. */
static void with_another(struct tk *t, bool is_socket) {
    char directory[64], path[512] = "", away[600];
    int other = -1;
    tk_short_path(t, "own", t->rank, directory);
    TK_REQUIRE(t, mkdir(directory, 0700) == 0);
    TK_REINIT(t, options.socket_dir = directory);
    symmem_group *group = NULL;
    TK_REQUIRE_OK(
        t, symmem_group_create(t->context, is_socket ? "socket" : "file", NULL, 0, NULL, &group));
    TK_OK(t, pass_one(t, group, directory, LONG_MS));
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        name_of_socket(t, directory, path, sizeof path);
        snprintf(away, sizeof away, "%s-away", path);
        TK_REQUIRE(t, rename(path, away) == 0);
        other = is_socket ? bind_stranger(path) : open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        TK_REQUIRE(t, other >= 0);
    }
    tk_out_of_band_barrier(t);
    symmem_status status = pass_one(t, group, directory, tk_limit_ms(t, t->rank == 0 ? 300 : 600));
    if (t->rank != 0 && TK_STATUS(t, SYMMEM_PERMISSION, status))
        TK_SAYS(t, "not the peer's socket");
    TK_CHECK(t, status != SYMMEM_OK);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_group_destroy(group));
    tk_end_context(t);
    if (other >= 0) {
        TK_CHECK(t, !is_socket || !was_sent_to(other));
        close(other);
        (void)unlink(path); /* the library may have, as it takes them for its own */
        (void)unlink(away);
    }
    TK_CHECK_MSG(t, rmdir(directory) == 0, "%s is not empty", directory);
}

static bool can_be_a_stranger(void) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const struct sockaddr_un any = {.sun_family = AF_UNIX}; /* the kernel makes a name */
    const bool can = fd >= 0 &&
                     bind(fd, (const struct sockaddr *)&any, sizeof any.sun_family) == 0 &&
                     listen_as_stranger(fd);
    if (fd >= 0)
        close(fd);
    return can;
}

TK_TEST(exchange_place, nothing_in_a_sockets_place, "SM-EXCHANGE-14,SM-EXCHANGE-29",
        .ranks = {2, 4}, .timeout_s = 60) {
    with_another(t, false);
    if (can_be_a_stranger())
        with_another(t, true);
}

/* A store that takes its time just when a rank does not come: the time is up in the middle of a
 * store call, and the others still have to say who is missing. */

enum { LIMIT = 12 };

enum slowness { SET_FAILS, SET_LATE, ADD_FAILS, GET_FAILS, GETS_NEED_TIME, SLOWNESS_COUNT };

struct slow_store {
    struct counting_store counting; /* first: what its entries take */
    enum slowness slowness;
    uint32_t limit_ms; /* of the call that goes wrong; 0: none does */
};

/* What a store does that cannot reach its server within the time it was given. */
static symmem_status give_up_after(uint32_t ms) {
    tk_sleep_ms(ms < LIMIT ? ms : LIMIT);
    return SYMMEM_TIMEOUT;
}

/* Only the first call of its kind is slow. */
static uint32_t spoil_once(struct slow_store *store, enum slowness slowness) {
    uint32_t limit_ms = store->slowness == slowness ? store->limit_ms : 0;
    if (limit_ms != 0)
        store->limit_ms = 0;
    return limit_ms;
}

static symmem_status slow_set(void *self, const char *key, const void *value, size_t bytes,
                              uint32_t timeout_ms) {
    if (spoil_once(self, SET_FAILS) != 0)
        return give_up_after(timeout_ms);
    uint32_t late_ms = spoil_once(self, SET_LATE);
    symmem_status status = counting_store_ops.set(self, key, value, bytes, timeout_ms);
    tk_sleep_ms(late_ms);
    return status;
}

static symmem_status slow_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                              uint32_t timeout_ms) {
    if (spoil_once(self, ADD_FAILS) != 0)
        return give_up_after(timeout_ms);
    return counting_store_ops.add(self, key, delta, value_p, timeout_ms);
}

static symmem_status slow_get(void *self, const char *key, void *value, size_t capacity,
                              size_t *bytes_p, uint32_t timeout_ms) {
    if (spoil_once(self, GET_FAILS) != 0)
        return give_up_after(timeout_ms);
    const struct slow_store *store = self;
    if (store->limit_ms != 0 && store->slowness == GETS_NEED_TIME && timeout_ms < 4)
        return give_up_after(timeout_ms);
    return counting_store_ops.get(self, key, value, capacity, bytes_p, timeout_ms);
}

/* False if this rank was kept from running until the time for its last looks was over as well. */
static bool name_rank_0(struct tk *t, struct slow_store *slow, symmem_group *group,
                        enum slowness slowness) {
    const uint64_t last_ms = LIMIT + 95; /* with a little for them to be refused in */
    slow->slowness = slowness;
    slow->limit_ms = LIMIT;
    TK_FAILS(t, TIMEOUT, symmem_group_barrier(group, LIMIT));
    slow->limit_ms = 0;
    symmem_error_record record = last_record();
    if (record.missing_count == 0 && record.elapsed_ns > last_ms * 1000000u)
        return false;
    TK_CHECK_MSG(t, record.missing_count == 1 && symmem_error_is_missing(&record, 0),
                 "slowness %d: %u ranks missing, not rank 0: %s", (int)slowness,
                 (unsigned)record.missing_count, record.message);
    TK_EQ_INT(t, 0, record.failed_rank);
    TK_EQ_STR(t, "group_barrier", record.operation);
    return true;
}

static void absent_rank_is_named(struct tk *t, struct slow_store *slow, symmem_group *group,
                                 enum slowness slowness) {
    tk_checkpoint(t, "slowness %d", (int)slowness);
    tk_out_of_band_barrier(t);
    if (t->rank == 1)
        TK_TIMELY(t, name_rank_0(t, slow, group, slowness), "slowness %d: no rank is named",
                  (int)slowness);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_group_barrier(group, LONG_MS));
}

/* Before the first call of all on a group and after it. */
TK_TEST(exchange_slow, absent_rank_is_named, "SM-EXCHANGE-04", .ranks = {2, 2}) {
    static _Thread_local struct slow_store slow; /* stays, if the body is left early */
    symmem_store_ops ops = counting_store_ops;
    symmem_store *store = NULL;
    ops.set = slow_set;
    ops.get = slow_get;
    ops.add = slow_add;
    slow = (struct slow_store){.counting = {.inner = t->store}};
    TK_REQUIRE_OK(t, symmem_store_open_custom(&ops, &slow, &store));
    for (int i = 0; i < SLOWNESS_COUNT; i++) {
        symmem_group *group = NULL;
        TK_OK(t, symmem_group_create(t->context, "slow", NULL, 0, store, &group));
        absent_rank_is_named(t, &slow, group, (enum slowness)i);
        absent_rank_is_named(t, &slow, group, (enum slowness)i);
        TK_OK(t, symmem_group_destroy(group));
    }
    tk_out_of_band_barrier(t);
    tk_end_context(t);
    symmem_store_close(store);
}

/* What goes on beside an exchange and must not disturb it: another group of the same ranks, another
 * thread on the same group. */

#define MAX_RANKS 4
#define ROUNDS 30

/* One thread's gatherings on one group. */
struct gatherer {
    struct tk *t;
    symmem_group *group;
    int32_t number; /* the same on all ranks of one exchange; -1: any thread may pair with any */
    uint32_t delay_ms;
};

static void *gather(void *arg) {
    struct gatherer *own = arg;
    struct tk *t = own->t;
    int32_t mine[2] = {own->number, t->rank}, all[2 * MAX_RANKS];
    tk_sleep_ms(own->delay_ms);
    for (int round = 0; round < ROUNDS; round++) {
        memset(all, 0xEE, sizeof(all));
        if (!TK_OK(t, symmem_group_all_gather(own->group, mine, sizeof(mine), all, LONG_MS)))
            return NULL;
        for (int32_t rank = 0; rank < t->world_size; rank++) {
            TK_EQ_INT(t, own->number, all[2 * rank]);
            TK_EQ_INT(t, rank, all[2 * rank + 1]);
        }
        if (tk_failed(t))
            return NULL;
    }
    return NULL;
}

static void run_both(struct tk *t, struct gatherer *gatherers) {
    tk_in_threads(t, gather, gatherers, sizeof(gatherers[0]), 2);
}

/* Two groups of the same ranks come up at the same time, at rank 0 in the other order. */
TK_TEST(exchange, twin_groups_in_threads, "SM-EXCHANGE-07,SM-EXCHANGE-01",
        .ranks = {2, MAX_RANKS}) {
    int32_t ranks[MAX_RANKS] = {0, 1, 2, 3};
    TK_REQUIRE(t, t->world_size <= MAX_RANKS);
    symmem_group *groups[2] = {tk_group(t, "twin", ranks, t->world_size),
                               tk_group(t, "other twin", ranks, t->world_size)};
    struct gatherer gatherers[2];
    for (int i = 0; i < 2; i++)
        gatherers[i] = (struct gatherer){t, groups[i], i, (t->rank == 0) == (i == 0) ? 0 : 60};
    tk_out_of_band_barrier(t);
    run_both(t, gatherers);
}

/* Both threads of a rank call on one group; whichever pair up, all ranks take part. */
TK_TEST(exchange, threads_take_turns, "SM-GROUP-11", .ranks = {2, MAX_RANKS}) {
    TK_REQUIRE(t, t->world_size <= MAX_RANKS);
    struct gatherer gatherers[2] = {{t, tk_world_group(t), -1, 0}, {t, tk_world_group(t), -1, 0}};
    tk_group_barrier(t, tk_world_group(t));
    run_both(t, gatherers);
}
