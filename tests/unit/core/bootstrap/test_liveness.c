/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a process lives, by whatever can be seen of it: SM-TIMEOUT-16, -17. */
#include "life_process.h"
#include "rendezvous/link.h"
#include "rendezvous/link_poison.h"

static atomic_int asked; /* sockets */

void __real_sm_life_ask(const sm_identity *identity, bool wants_process, sm_life_answer *answer);
void __wrap_sm_life_ask(const sm_identity *identity, bool wants_process, sm_life_answer *answer);
void __wrap_sm_life_ask(const sm_identity *identity, bool wants_process, sm_life_answer *answer) {
    atomic_fetch_add(&asked, 1);
    __real_sm_life_ask(identity, wants_process, answer);
}

/* In this namespace, on a kernel without pidfds. */
TEST("by what /proc says") {
    static const struct {
        struct looks looks;
        bool has_no_start, gone;
    } rows[] = {{{.state = 'R', .threads = 1}, false, false},
                {{.state = 'Z', .threads = 1}, false, true},
                {{.state = 'X', .threads = 1}, false, true},
                {{.state = 'Z', .threads = 2}, false, false}, /* its first thread has ended */
                {{.threads = 1, .is_later = true}, false, true},
                {{.cannot_read = true, .kill_error = ESRCH}, false, true},
                {{.cannot_read = true, .kill_error = EPERM}, false, false},
                {{.cannot_read = true}, false, false},
                {{.kill_error = ESRCH}, true, true},
                {{.kill_error = EPERM}, true, false},
                {{.state = 'R'}, true, false}};
    process it = start(NULL);
    it.identity.pid_namespace--;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        process seen = it;
        seen.identity.start_time = rows[i].has_no_start ? 0 : it.identity.start_time;
        sm_liveness *liveness = watch(&seen);
        looks = rows[i].looks;
        looks.is_asked = true;
        looks.open_error = ENOSYS;
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1) == SYMMEM_PEER_GONE, rows[i].gone);
        looks = (struct looks){0};
        sm_liveness_destroy(liveness);
    }
    /* With one, whether its number is another's by now may not be known. */
    sm_liveness *liveness = watch(&it);
    looks = (struct looks){.is_asked = true, .cannot_read = true};
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
    looks = (struct looks){0};
    sm_liveness_destroy(liveness);
    end(&it);
}

static const struct closed {
    struct looks looks;
    bool is_here; /* in this namespace */
    bool gone, gone_late;
} closed_rows[] = {{{.release_error = -1}, false, false, false}, /* its memory is taken back */
                   {{.release_error = ESRCH}, false, false, false},
                   {{.release_error = EINVAL}, false, true, true}, /* it has other memory */
                   {{.release_error = ENOSYS}, false, false, true},
                   {{.release_error = ENOSYS}, true, true, true},
                   {{.release_error = ENOSYS, .is_exiting = true}, true, false, true},
                   {{.release_error = ENOSYS, .cannot_read = true}, true, false, true},
                   {{.open_error = ENOSYS}, true, true, true}};
enum { CLOSED = sizeof(closed_rows) / sizeof(closed_rows[0]), LATE_MS = 10500 };

/* A process whose socket is closed is ending, or another program; where neither can be seen, it has
 * ended after ten seconds. */
TEST("by what is left of it") {
    for (int i = 0; i < CLOSED; i++) {
        const struct closed *row = &closed_rows[i];
        process it = start(NULL);
        it.identity.pid_namespace -= (uint64_t)row->is_here;
        sm_liveness *liveness = watch(&it);
        looks.open_error = row->looks.open_error;
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
        tell(&it, AND_END_LIFE);
        looks = row->looks;
        looks.is_asked = true;
        looks.threads = 1;
        ahead_ms += 300;
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1) == SYMMEM_PEER_GONE, row->gone);
        ahead_ms += LATE_MS;
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1) == SYMMEM_PEER_GONE, row->gone_late);
        looks = (struct looks){0};
        sm_liveness_destroy(liveness);
        end(&it);
    }
}

/* The more ranks there are, the rarer each is looked at. */
TEST("looks are rare") {
    static const struct {
        int32_t world_size;
        uint64_t between_ms;
    } rows[] = {{2, 200}, {100, 1000}, {1000, 1500}};
    for (size_t i = 0; i < 3; i++) {
        process it = start(NULL);
        sm_liveness *liveness = NULL;
        CU_ASSERT_EQUAL_FATAL(sm_liveness_create(rows[i].world_size, &liveness), SYMMEM_OK);
        sm_liveness_learn(liveness, 1, &it.identity);
        CU_ASSERT_EQUAL(__real_clock_gettime(CLOCK_MONOTONIC, &stopped_at), 0);
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
        tell(&it, AND_END_LIFE);
        looks.release_error = EINVAL;
        ahead_ms += rows[i].between_ms - 1;
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
        ahead_ms += 1;
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_GONE);
        stopped_at = (struct timespec){0};
        looks = (struct looks){0};
        sm_liveness_destroy(liveness);
        end(&it);
    }
}

/* Asks as a link does for its rank. Without a liveness no rank is known to be gone. */
static bool peer_is_ending(sm_liveness *liveness, const sm_identity *identity, int32_t rank) {
    int32_t global_ranks[2] = {0, 1};
    sm_identity identities[2] = {*identity, *identity};
    symmem_context context = {.liveness = liveness};
    sm_link link = {.context = &context, .identities = identities};
    const symmem_peers peers = {.self = &link, .world_size = 2, .global_ranks = global_ranks};
    if (liveness == NULL)
        CU_ASSERT_EQUAL(sm_link_peer_state(&peers, rank), SYMMEM_PEER_ALIVE);
    return sm_link_peer_is_ending(&peers, rank);
}

/* Without a pidfd, any identity in the store counts, also a successor's. Bytes that are no identity
 * prove nothing. */
TEST("closed, with something in the store") {
    for (int kind = 0; kind < 3; kind++) {
        symmem_store *store = NULL;
        process it = start(NULL), other = it;
        other.identity.pid++;
        CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
        kernel(true, true); /* nothing to hold */
        sm_liveness *liveness = watch(&it);
        sm_liveness_read(liveness, store, "w");
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
        put_identity(store, kind == 0 ? &it : &other);
        if (kind == 2)
            CU_ASSERT_EQUAL(symmem_store_set(store, "w/id/1", "odd", 3, 1000), SYMMEM_OK);
        tell(&it, AND_END_LIFE);
        ahead_ms += 300;
        CU_ASSERT_EQUAL(sm_liveness_is_ending(liveness, &it.identity), kind != 2);
        CU_ASSERT_EQUAL(peer_is_ending(liveness, &it.identity, 1), kind != 2);
        CU_ASSERT_FALSE(peer_is_ending(liveness, &it.identity, 0)); /* this one itself */
        CU_ASSERT_FALSE(peer_is_ending(NULL, &it.identity, 1));
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1) == SYMMEM_PEER_GONE, kind != 2);
        CU_ASSERT_FALSE(sm_liveness_is_ending(liveness, &other.identity)); /* of no rank */
        sm_liveness_learn(liveness, 0, &it.identity); /* another thread of it */
        sm_liveness_learn(liveness, 1, &other.identity);
        CU_ASSERT_FALSE(sm_liveness_is_ending(liveness, &it.identity)); /* rank 0 left no key */
        CU_ASSERT_EQUAL(symmem_store_set(store, "w/id/0", &it.identity, sizeof(it.identity), 0),
                        SYMMEM_OK);
        CU_ASSERT_TRUE(sm_liveness_is_ending(liveness, &it.identity));
        sm_liveness_destroy(liveness);
        symmem_store_close(store);
        kernel(false, false);
        end(&it);
    }
}

/* A file's socket that is another user's is as good as closed. */
TEST("another user's file") {
    char made[] = "/tmp/symm-life-XXXXXX";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(made));
    kernel(true, true);
    process it = start(made);
    it.identity.life[0] ^= 1;
    it.identity.net_namespace++;
    sm_liveness *liveness = watch(&it);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
    says_another_user = true;
    ahead_ms += 300;
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_GONE);
    sm_liveness_destroy(liveness);
    kernel(false, false);
    /* A file with another name belongs to no process of symmem, so it is not tried. */
    sm_life_answer answer;
    memcpy(it.identity.life_file, "/tmp/x", sizeof("/tmp/x"));
    sm_life_ask(&it.identity, false, &answer);
    CU_ASSERT_EQUAL(answer.by_file, SM_LIFE_UNKNOWN);
    tell(&it, AND_END_LIFE);
    CU_ASSERT_EQUAL(rmdir(made), 0);
    end(&it);
}

/* Old kernels: the number may be another process's by the time that it is held. */
TEST("a number that moves on") {
    kernel(true, false);
    for (moves_on = 0; moves_on < 2; moves_on++) {
        process it = start(NULL);
        sm_life_answer answer;
        sm_life_ask(&it.identity, true, &answer);
        CU_ASSERT_EQUAL(answer.by_name, SM_LIFE_LIVES);
        CU_ASSERT_EQUAL(answer.pidfd >= 0, moves_on == 0);
        if (answer.pidfd >= 0)
            close(answer.pidfd);
        looks.open_error = ESRCH; /* it has gone by then */
        sm_life_ask(&it.identity, true, &answer);
        CU_ASSERT_EQUAL(answer.pidfd, -1);
        looks.open_error = 0;
        if (answer.by_name == SM_LIFE_LIVES)
            sm_life_ask(&it.identity, false, &answer); /* an even number of answers */
        end(&it);
    }
    moves_on = 0;
    kernel(false, false);
}

TEST("ranks that are none") {
    static const int32_t ranks[] = {-1, 2};
    process it = start(NULL);
    sm_liveness *liveness = watch(&it);
    for (int i = 0; i < 2; i++) {
        sm_liveness_learn(liveness, ranks[i], &it.identity);
        CU_ASSERT_FALSE(sm_liveness_knows(liveness, ranks[i]));
        CU_ASSERT_FALSE(sm_liveness_sees(liveness, ranks[i]));
    }
    CU_ASSERT_FALSE(sm_liveness_sees(NULL, 0));
    it.identity.pid_namespace--;
    sm_liveness_learn(liveness, 0, &it.identity);
    kill(it.pid, SIGKILL);
    AWAIT(SOON_MS, sm_liveness_ask(liveness, 0) == SYMMEM_PEER_GONE);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, ranks[i]), SYMMEM_PEER_ALIVE);
        CU_ASSERT_EQUAL(sm_liveness_ask_of(liveness, ranks[i], &it.identity), SYMMEM_PEER_ALIVE);
        CU_ASSERT_EQUAL(sm_liveness_glanced_of(liveness, ranks[i], &it.identity),
                        SYMMEM_PEER_ALIVE);
        CU_ASSERT_FALSE(sm_liveness_is_known_gone(liveness, ranks[i], NULL));
    }
    CU_ASSERT_TRUE(sm_liveness_is_known_gone(liveness, 0, &it.identity));
    CU_ASSERT_EQUAL(sm_liveness_glanced_of(liveness, 0, &it.identity), SYMMEM_PEER_GONE);
    it.identity.start_time++; /* a later process */
    CU_ASSERT_FALSE(sm_liveness_is_known_gone(liveness, 0, &it.identity));
    sm_liveness_destroy(liveness);
    end(&it);
}

/* The identity's own values do not matter if the socket answers. At most one boot id per rank is
 * kept, and an unknown one (0) is not. */
TEST("odd identities") {
    process it = start(NULL);
    sm_liveness *liveness = watch(&it);
    const sm_identity told = it.identity;
    for (uint64_t i = 1; i <= 3; i++) {
        it.identity.boot_id = told.boot_id + i;
        CU_ASSERT_TRUE(sm_liveness_is_near(liveness, &it.identity));
    }
    it.identity.boot_id = 0;
    CU_ASSERT_TRUE(sm_liveness_is_near(liveness, &it.identity));
    it.identity = told;
    it.identity.pid = 0;
    it.identity.pid_namespace--;
    sm_liveness_learn(liveness, 1, &it.identity);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
    it.identity.pid = told.pid;
    it.identity.listens = 0;
    looks.open_error = ENOSYS;
    sm_liveness_learn(liveness, 1, &it.identity);
    CU_ASSERT_TRUE(sm_liveness_sees(liveness, 1)); /* in /proc */
    looks.open_error = 0;
    it.identity.pid_namespace++;
    sm_liveness_learn(liveness, 1, &it.identity);
    CU_ASSERT_FALSE(sm_liveness_sees(liveness, 1));
    end(&it);
    CU_ASSERT_FALSE(sm_liveness_is_ending(liveness, &it.identity)); /* who knows */
    it.identity.listens = 1;
    it.identity.boot_id = told.boot_id + 2;
    CU_ASSERT_TRUE(sm_liveness_is_near(liveness, &it.identity));
    it.identity.boot_id = told.boot_id + 3;
    CU_ASSERT_FALSE(sm_liveness_is_near(liveness, &it.identity));
    sm_liveness_destroy(liveness);
}

/* A thread that was kept from a processor after its glance does not try the socket of a process
 * that has ended since. */
TEST("an end after the glance") {
    process it = start(NULL);
    sm_liveness *liveness = watch(&it);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
    sm_liveness_glance(liveness);
    ahead_ms += 300;
    atomic_store(&asked, 0);
    CU_ASSERT_EQUAL(sm_liveness_glanced_of(liveness, 1, &it.identity), SYMMEM_PEER_ALIVE);
    CU_ASSERT_EQUAL(atomic_load(&asked), 0); /* it is held, and the glance saw it */
    CU_ASSERT_EQUAL(sm_liveness_seen(liveness, 1), SYMMEM_PEER_ALIVE);
    CU_ASSERT_EQUAL(atomic_load(&asked), 1);
    end(&it);
    ahead_ms += 300;
    CU_ASSERT_EQUAL(sm_liveness_seen(liveness, 1), SYMMEM_PEER_GONE);
    CU_ASSERT_EQUAL(atomic_load(&asked), 1);
    sm_liveness_destroy(liveness);
}

/* What is left in a rank's key of ended processes must be a whole identity, and the rank's own. */
TEST("marks of other processes") {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    symmem_store *store = NULL;
    process it = start(NULL);
    kernel(true, true); /* nothing to hold */
    it.identity.net_namespace++;
    it.identity.life_file[0] = '/'; /* of a file that is not there */
    sm_liveness *liveness = watch(&it);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    sm_liveness_read(liveness, store, "w");
    sm_liveness_ended_key("w", 1, key, sizeof(key));
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
    tell(&it, AND_END_LIFE);
    const size_t whole = sizeof(it.identity.life);
    const struct {
        size_t bytes;
        uint8_t change;
        symmem_peer_state state;
    } rows[] = {{whole, 1, SYMMEM_PEER_ALIVE},
                {whole - 1, 0, SYMMEM_PEER_ALIVE},
                {whole, 0, SYMMEM_PEER_GONE}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t life[SM_LIFE_ID_BYTES];
        memcpy(life, it.identity.life, whole);
        life[0] ^= rows[i].change;
        CU_ASSERT_EQUAL(symmem_store_set(store, key, life, rows[i].bytes, 0), SYMMEM_OK);
        ahead_ms += 300;
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), rows[i].state);
    }
    sm_liveness_destroy(liveness);
    symmem_store_close(store);
    kernel(false, false);
    end(&it);
}

/* Those that are held are all looked at together, however many there are. */
/* More than one system call asks about; all but the first and the last are one process. */
TEST("at one glance") {
    enum { PROCESSES = 3, WORLD_SIZE = 200 };
    static const int32_t ranks[PROCESSES] = {1, 70, WORLD_SIZE - 1};
    process its[PROCESSES];
    sm_liveness *liveness = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(WORLD_SIZE, &liveness), SYMMEM_OK);
    for (int i = 0; i < PROCESSES; i++) {
        its[i] = start(NULL);
        sm_liveness_learn(liveness, ranks[i], &its[i].identity);
        CU_ASSERT_EQUAL(sm_liveness_seen(liveness, ranks[i]), SYMMEM_PEER_ALIVE);
    }
    for (int32_t rank = ranks[0] + 1; rank < ranks[2]; rank++) {
        sm_liveness_learn(liveness, rank, &its[1].identity);
        CU_ASSERT_EQUAL(sm_liveness_seen(liveness, rank), SYMMEM_PEER_ALIVE);
    }
    end(&its[0]);
    end(&its[2]);
    CU_ASSERT_EQUAL(sm_liveness_seen(liveness, ranks[2]), SYMMEM_PEER_ALIVE);
    sm_liveness_glance(liveness);
    for (int i = 0; i < PROCESSES; i++) {
        const symmem_peer_state state = i == 1 ? SYMMEM_PEER_ALIVE : SYMMEM_PEER_GONE;
        CU_ASSERT_EQUAL(sm_liveness_is_known_gone(liveness, ranks[i], NULL), i != 1);
        CU_ASSERT_EQUAL(sm_liveness_seen(liveness, ranks[i]), state);
        CU_ASSERT_EQUAL(sm_liveness_seen_of(liveness, ranks[i], &its[i].identity), state);
    }
    end(&its[1]);
    sm_liveness_destroy(liveness);
}

/* Sockets of processes that are held tell little, and keep a rank from the news of an end. */
TEST("few sockets between two glances") {
    enum { RANKS = 20, LOOKS = 16 };
    process it = start(NULL);
    sm_liveness *liveness = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(RANKS, &liveness), SYMMEM_OK);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        sm_liveness_learn(liveness, rank, &it.identity);
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, rank), SYMMEM_PEER_ALIVE);
    }
    ahead_ms += 1000; /* all are to be tried again */
    atomic_store(&asked, 0);
    for (int glance = 1; glance <= 2; glance++) {
        sm_liveness_glance(liveness);
        for (int32_t rank = 0; rank < RANKS; rank++)
            CU_ASSERT_EQUAL(sm_liveness_seen(liveness, rank), SYMMEM_PEER_ALIVE);
        CU_ASSERT_EQUAL(atomic_load(&asked), glance == 1 ? LOOKS : RANKS);
    }
    sm_liveness_destroy(liveness);
    end(&it);
}
