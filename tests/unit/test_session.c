/* SPDX-License-Identifier: BSD-3-Clause */
/* Bring-up, exchanges, agreement: ranks as threads and as processes. */
#include "session_ranks.h"

#include <CUnit/Basic.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/resource.h>

/* --- a memory store that counts, and that can be told to fail ----------------------- */

typedef struct counting {
    symmem_store *inner;
    atomic_long sets, gets, waits, adds, removes;
    _Atomic(int64_t) live; /* keys set or counted and not removed, roughly */
    atomic_int fail_sets;  /* this many sets fail from now on */
    atomic_int fail_adds;
} counting;

static symmem_status c_set(void *s, const char *k, const void *v, size_t n, uint32_t t) {
    counting *c = s;
    atomic_fetch_add(&c->sets, 1);
    if (atomic_load(&c->fail_sets) > 0 && atomic_fetch_sub(&c->fail_sets, 1) > 0)
        return SYMMEM_SYSTEM;
    return symmem_store_set(c->inner, k, v, n, t);
}
static symmem_status c_get(void *s, const char *k, void *v, size_t n, size_t *b, uint32_t t) {
    atomic_fetch_add(&((counting *)s)->gets, 1);
    return symmem_store_get(((counting *)s)->inner, k, v, n, b, t);
}
static symmem_status c_wait(void *s, const char *k, uint32_t t) {
    atomic_fetch_add(&((counting *)s)->waits, 1);
    return symmem_store_wait(((counting *)s)->inner, k, t);
}
static symmem_status c_add(void *s, const char *k, int64_t d, int64_t *v, uint32_t t) {
    counting *c = s;
    atomic_fetch_add(&c->adds, 1);
    if (atomic_load(&c->fail_adds) > 0 && atomic_fetch_sub(&c->fail_adds, 1) > 0)
        return SYMMEM_SYSTEM;
    return symmem_store_add(c->inner, k, d, v, t);
}
static symmem_status c_remove(void *s, const char *k, uint32_t t) {
    atomic_fetch_add(&((counting *)s)->removes, 1);
    return symmem_store_remove(((counting *)s)->inner, k, t);
}
static void c_close(void *s) {
    symmem_store_close(((counting *)s)->inner);
}
static const symmem_store_ops counting_ops = {
    sizeof(counting_ops), c_set, c_get, c_wait, c_add, c_remove, c_close};

static symmem_store *counting_store(counting *c) {
    symmem_store *store = NULL;
    memset(c, 0, sizeof(*c));
    if (symmem_store_open_memory(&c->inner) != SYMMEM_OK ||
        symmem_store_open_custom(&counting_ops, c, &store) != SYMMEM_OK)
        abort();
    return store;
}

static symmem_status gather(test_rank *self, const char *operation, bool restart,
                            uint32_t timeout_ms) {
    uint64_t in = 1000u + (uint64_t)self->rank, out[RANKS_MAX];
    symmem_status status = sm_session_all_gather(self->session, operation, "step", &in, sizeof(in),
                                                 out, restart, sm_deadline_ns(timeout_ms));
    for (int32_t i = 0; status == SYMMEM_OK && i < self->world_size; i++)
        if (out[i] != 1000u + (uint64_t)i)
            return SYMMEM_CORRUPT;
    return status;
}

/* --- plain -------------------------------------------------------------------------- */

static int body_plain(test_rank *self) {
    symmem_clear_error();
    for (int i = 0; i < 20; i++)
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    EXPECT(sm_session_id(self->session) != 0);
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    EXPECT(sm_session_agree(self->session, "op", "end", SYMMEM_OK, sm_deadline_ns(10000)) ==
           SYMMEM_OK);
    /* Empty exchanges are barriers. */
    EXPECT(sm_session_all_gather(self->session, "op", "b", NULL, 0, NULL, true, 0) == SYMMEM_OK);
    for (int32_t i = 0; i < self->world_size; i++)
        EXPECT(sm_identity_same_process(sm_session_peer(self->session, i), &self->identity));
    /* Success leaves the record alone. */
    EXPECT(sm_record()->status == SYMMEM_OK);
    return 0;
}

static void test_threads(void) {
    for (int32_t count = 1; count <= 8; count++) {
        counting c;
        symmem_store *store = counting_store(&c);
        test_rank ranks[8];
        prepare_ranks(ranks, count, store, body_plain, NULL);
        CU_ASSERT_TRUE(run_threads(ranks, count));
        symmem_store_close(store);
    }
}

static void test_alone_without_store(void) {
    test_rank ranks[1];
    prepare_ranks(ranks, 1, NULL, body_plain, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 1));
}

/* --- store traffic ------------------------------------------------------------------ */

static int body_many(test_rank *self) {
    for (int i = 0; i < 1000; i++)
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    return 0;
}

static void test_store_traffic(void) {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[8];
    prepare_ranks(ranks, 8, store, body_many, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 8));
    /* 1001 exchanges of 8 ranks: three writes each. The one that combines sets once more, and is
     * no reader to be counted. */
    CU_ASSERT_EQUAL(atomic_load(&c.sets), 8 + 8 + 1001 * 9);
    CU_ASSERT_EQUAL(atomic_load(&c.adds), 1001 * 15);
    CU_ASSERT_EQUAL(atomic_load(&c.removes), 8 + 1001 * (8 + 3));
    symmem_store_close(store);
}

static void test_keys_go(void) {
    char path[] = "/tmp/symmem-session-XXXXXX";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
    test_rank ranks[4];
    pid_t pids[4];
    prepare_ranks(ranks, 4, NULL, body_many, NULL);
    for (int i = 0; i < 4; i++)
        pids[i] = fork_rank(&ranks[i], path);
    for (int i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), 0);
    CU_ASSERT_EQUAL(count_files(path, 'k'), 4); /* the identities */
    CU_ASSERT_EQUAL(count_files(path, 't'), 0);
    remove_tree(path);
}

/* --- size and call mismatch, large values ------------------------------------------- */

static int body_mismatch(test_rank *self) {
    uint8_t in[64] = {0}, out[64 * 8];
    uint64_t deadline_ns = sm_deadline_ns(10000);
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    uint64_t id = sm_session_id(self->session);
    EXPECT(sm_session_all_gather(self->session, "op", "s", in, self->rank == 2 ? 60 : 64, out, true,
                                 deadline_ns) == SYMMEM_MISMATCH);
    EXPECT(sm_record()->failed_rank == 2 && sm_record()->rank == self->rank);
    EXPECT(sm_record()->expected == 64 && sm_record()->actual == 60);
    EXPECT(strcmp(sm_record()->operation, "op") == 0 && strcmp(sm_record()->group, "test") == 0);
    EXPECT(sm_session_all_gather(self->session, self->rank == 1 ? "other" : "op", "s", in, 64, out,
                                 true, deadline_ns) == SYMMEM_MISMATCH);
    EXPECT(sm_record()->failed_rank == 1);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    EXPECT(sm_session_id(self->session) == id); /* agreed failures keep the session */
    return 0;
}

static int body_large(test_rank *self) {
    size_t bytes = 300000, count = (size_t)self->world_size;
    uint8_t *in = malloc(2u << 20), *out = malloc(count * bytes);
    EXPECT(in != NULL && out != NULL);
    memset(in, 'a' + self->rank, 2u << 20);
    uint64_t deadline_ns = sm_deadline_ns(10000);
    /* Together more than a value takes. */
    symmem_status first =
        sm_session_all_gather(self->session, "op", "s", in, bytes, out, true, deadline_ns);
    bool right = true;
    for (size_t i = 0; i < count * bytes; i++)
        right = right && out[i] == 'a' + (int)(i / bytes);
    /* Alone more than a value takes: refused by all. */
    symmem_status second =
        sm_session_all_gather(self->session, "op", "s", in, 2u << 20, NULL, true, deadline_ns);
    /* Only one is too large, or one is larger than the others can hold. */
    symmem_status third = sm_session_all_gather(
        self->session, "op", "s", in, self->rank == 0 ? 2u << 20 : 8, out, true, deadline_ns);
    symmem_status fourth = sm_session_all_gather(
        self->session, "op", "s", in, self->rank == 0 ? 400000 : 8, out, true, deadline_ns);
    free(in);
    free(out);
    EXPECT(first == SYMMEM_OK && right);
    EXPECT(second == SYMMEM_OUT_OF_RANGE);
    EXPECT(third == SYMMEM_MISMATCH && fourth == SYMMEM_MISMATCH);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    return 0;
}

static void test_sizes(void) {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[4];
    prepare_ranks(ranks, 4, store, body_mismatch, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 4));
    prepare_ranks(ranks, 4, store, body_large, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 4));
    symmem_store_close(store);
}

/* --- agreement ---------------------------------------------------------------------- */

static int body_agree(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    symmem_status own = SYMMEM_OK;
    if (self->rank >= 1) {
        own = sm_fail(self->rank == 1 ? SYMMEM_NO_SPACE : SYMMEM_LIMIT, "rendezvous", "map",
                      "from rank %d", self->rank);
        sm_record()->expected = 77;
        sm_record()->system_errno = ENOSPC;
    }
    EXPECT(sm_session_agree(self->session, "op", "end", own, sm_deadline_ns(10000)) ==
           SYMMEM_NO_SPACE);
    const symmem_error_record *record = sm_record();
    EXPECT(record->failed_rank == 1 && record->rank == self->rank && record->world_size == 3);
    EXPECT(record->expected == 77 && record->system_errno == ENOSPC);
    EXPECT(strcmp(record->message, "from rank 1") == 0);
    EXPECT(strcmp(record->operation, "rendezvous") == 0 && strcmp(record->stage, "map") == 0);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    /* A record that names somebody else keeps doing so. */
    if (self->rank == 0) {
        own = sm_fail(SYMMEM_PEER_LOST, "op", "x", "lost");
        sm_record()->failed_rank = 2;
        sm_record()->missing[0] = 1u << 2;
        sm_record()->missing_count = 1;
    } else {
        own = SYMMEM_OK;
    }
    EXPECT(sm_session_agree(self->session, "op", "end", own, sm_deadline_ns(10000)) ==
           SYMMEM_PEER_LOST);
    EXPECT(sm_record()->failed_rank == 2);
    EXPECT(sm_record()->missing_count == 1 && symmem_error_is_missing(sm_record(), 2));
    return 0;
}

static void test_agree(void) {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[3];
    prepare_ranks(ranks, 3, store, body_agree, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);
}

/* An own failure wins over the exchange's, and the same operation does not start a bring-up. */
static int body_agree_alone(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank != 0)
        return 0;
    uint64_t deadline_ns = sm_deadline_ns(100);
    sm_fail(SYMMEM_LIMIT, "op", "x", "mine");
    EXPECT(sm_session_agree(self->session, "op", "end", SYMMEM_LIMIT, deadline_ns) == SYMMEM_LIMIT);
    EXPECT(strcmp(sm_record()->message, "mine") == 0);
    EXPECT(sm_session_id(self->session) == 0);
    uint64_t start_ns = sm_now_ns();
    EXPECT(sm_session_agree(self->session, "op", "end", SYMMEM_OK, deadline_ns) == SYMMEM_TIMEOUT);
    EXPECT(sm_now_ns() - start_ns < 50000000);
    return 0;
}

static void test_agree_alone(void) {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[2];
    prepare_ranks(ranks, 2, store, body_agree_alone, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    symmem_store_close(store);
}

/* --- absent, then late -------------------------------------------------------------- */

/* Rank 2 misses the first round; the others' records must name exactly it. arg: rounds before. */
static int body_late(test_rank *self) {
    int before = self->arg == NULL ? 0 : *(const int *)self->arg;
    for (int i = 0; i < before; i++)
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 2) {
        sm_sleep_ns(600000000);
    } else {
        /* Different limits: who leaves first must not look like a missing rank. */
        uint64_t start_ns = sm_now_ns();
        symmem_status status = gather(self, "op", true, 250 + 60 * (uint32_t)self->rank);
        EXPECT(status == SYMMEM_TIMEOUT);
        EXPECT(sm_now_ns() - start_ns < 900000000);
        EXPECT(sm_record()->missing_count == 1 && symmem_error_is_missing(sm_record(), 2));
        EXPECT(sm_record()->failed_rank == 2 && sm_record()->elapsed_ns >= 200000000);
        EXPECT(strcmp(sm_record()->operation, "op") == 0);
    }
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    return 0;
}

static int keys_of(symmem_store *store, int32_t count) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    int found = 0;
    for (int32_t i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "g/test/j/%d", i);
        size_t bytes;
        char value[1024];
        found += symmem_store_get(store, key, value, sizeof(value), &bytes, 0) == SYMMEM_OK;
    }
    return found;
}

static void late(int before) {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[5];
    prepare_ranks(ranks, 5, store, body_late, &before);
    CU_ASSERT_TRUE(run_threads(ranks, 5));
    CU_ASSERT_EQUAL(keys_of(store, 5), 0);
    symmem_store_close(store);

    char path[] = "/tmp/symmem-session-XXXXXX";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
    pid_t pids[5];
    prepare_ranks(ranks, 5, NULL, body_late, &before);
    for (int i = 0; i < 5; i++)
        pids[i] = fork_rank(&ranks[i], path);
    for (int i = 0; i < 5; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), 0);
    CU_ASSERT_EQUAL(count_files(path, 'k'), 5);
    remove_tree(path);
}

static void test_late_bring_up(void) {
    late(0);
}

static void test_late_exchange(void) {
    late(3);
}

/* --- a failure at each test point on each rank, then a retry
 * --------------------------------------
 */

static int body_points(test_rank *self) {
    int attempts = 0;
    symmem_status status;
    do {
        status = gather(self, "op", true, 400);
        if (status == SYMMEM_OK)
            status = sm_session_agree(self->session, "op", "end", SYMMEM_OK, sm_deadline_ns(400));
        attempts++;
    } while (status != SYMMEM_OK && attempts < 10);
    EXPECT(status == SYMMEM_OK);
    /* The last rank to come does not wait. */
    EXPECT(self->point_name == NULL || atomic_load(&self->point_hits) >= 1 ||
           strcmp(self->point_name, "exchange.wait.before") == 0);
    /* All meet here: nobody is a step behind. */
    EXPECT(gather(self, "meet", true, 10000) == SYMMEM_OK);
    return 0;
}

static void test_points(void) {
    static const char *const names[] = {"session.join.before",    "session.join.published",
                                        "session.join.done",      "exchange.publish.before",
                                        "exchange.publish.after", "exchange.wait.before",
                                        "exchange.done"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (int32_t rank = 0; rank < 3; rank++) {
            counting c;
            symmem_store *store = counting_store(&c);
            test_rank ranks[3];
            prepare_ranks(ranks, 3, store, body_points, NULL);
            ranks[rank].point_name = names[i];
            ranks[rank].point_status = SYMMEM_BACKEND;
            bool fine = run_threads(ranks, 3);
            if (!fine)
                fprintf(stderr, "point %s on rank %d\n", names[i], rank);
            CU_ASSERT_TRUE(fine);
            CU_ASSERT_EQUAL(keys_of(store, 3), 0);
            symmem_store_close(store);
        }
    }
}

/* --- one that has nothing to give
 * ---------------------------------------------------------------------------
 */

typedef struct failing {
    int32_t first, second; /* ranks that fail; -1: none */
    int32_t late;          /* comes last, and so combines */
} failing;

static int body_nothing_to_give(test_rank *self) {
    const failing *plan = self->arg;
    static const char point[] = "exchange.publish.before";
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    uint64_t id = sm_session_id(self->session);
    if (self->rank == plan->late)
        sm_sleep_ns(30000000);
    if (self->rank == plan->first || self->rank == plan->second) {
        self->point_status = self->rank == plan->first ? SYMMEM_LIMIT : SYMMEM_BACKEND;
        atomic_store(&self->point_hits, 0);
        self->point_name = point;
    }
    uint64_t in = 1, out[RANKS_MAX] = {77}, start_ns = sm_now_ns();
    EXPECT(sm_session_all_gather(self->session, "op", "step", &in, sizeof(in), out, false,
                                 sm_deadline_ns(10000)) == SYMMEM_LIMIT);
    const symmem_error_record *record = sm_record();
    EXPECT(record->status == SYMMEM_LIMIT && record->failed_rank == plan->first);
    EXPECT(strcmp(record->stage, point) == 0 && strcmp(record->operation, "op") == 0);
    EXPECT(record->rank == self->rank && record->world_size == self->world_size);
    EXPECT(strcmp(record->group, "test") == 0 && strstr(record->message, point) != NULL);
    EXPECT(out[0] == 77 && sm_now_ns() - start_ns < 2000000000);
    EXPECT(sm_session_id(self->session) == id); /* agreed: the session stays */
    self->point_name = NULL;
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    EXPECT(sm_session_id(self->session) == id);
    return 0;
}

static void test_nothing_to_give(void) {
    static const failing plans[] = {{0, -1, 0}, {0, -1, 2}, {1, -1, 1}, {1, -1, 0}, {2, -1, 2},
                                    {2, -1, 0}, {0, 2, 2},  {0, 1, 0},  {1, 2, 2},  {1, 2, 0}};
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        counting c;
        symmem_store *store = counting_store(&c);
        test_rank ranks[3];
        failing plan = plans[i];
        prepare_ranks(ranks, 3, store, body_nothing_to_give, &plan);
        bool fine = run_threads(ranks, 3);
        if (!fine)
            fprintf(stderr, "ranks %d and %d fail, rank %d comes last\n", plan.first, plan.second,
                    plan.late);
        CU_ASSERT_TRUE(fine);
        /* The join's and three exchanges: each rank counts itself, each but one its reading. */
        CU_ASSERT_EQUAL(atomic_load(&c.adds), 4 * 5);
        symmem_store_close(store);
    }
}

#ifndef SYMMEM_INSTRUMENTED /* a sanitizer's own memory cannot be limited */
/* No memory for the buffers: still only an agreed failure. */
static int body_no_memory(test_rank *self) {
    enum { BYTES = 400000 };
    static uint8_t in[BYTES], out[3 * BYTES];
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    uint64_t id = sm_session_id(self->session);
    if (self->rank == *(const int *)self->arg)
        sm_sleep_ns(30000000); /* as the last one it has to combine */
    struct rlimit before, none;
    EXPECT(getrlimit(RLIMIT_AS, &before) == 0);
    none = before;
    none.rlim_cur = 1;
    if (self->rank == 1)
        EXPECT(setrlimit(RLIMIT_AS, &none) == 0);
    symmem_status status = sm_session_all_gather(self->session, "op", "s", in, BYTES, out, false,
                                                 sm_deadline_ns(10000));
    EXPECT(setrlimit(RLIMIT_AS, &before) == 0);
    EXPECT(status == SYMMEM_OUT_OF_MEMORY && sm_record()->failed_rank == 1);
    EXPECT(strcmp(sm_record()->stage, "s") == 0 && sm_session_id(self->session) == id);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    return 0;
}

static void test_no_memory(void) {
    for (int late = 0; late < 3; late++) {
        char path[] = "/tmp/symmem-session-XXXXXX";
        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
        test_rank ranks[3];
        pid_t pids[3];
        prepare_ranks(ranks, 3, NULL, body_no_memory, &late);
        for (int i = 0; i < 3; i++)
            pids[i] = fork_rank(&ranks[i], path);
        for (int i = 0; i < 3; i++)
            CU_ASSERT_EQUAL(reap(pids[i]), 0);
        CU_ASSERT_EQUAL(count_files(path, 'k'), 3);
        remove_tree(path);
    }
}
#else
static void test_no_memory(void) {
    CU_PASS("not with sanitizers");
}
#endif

/* Where a rank has given its part its point fails nothing. */
static symmem_status observing_point(void *arg, const char *name) {
    static const char *const observing[] = {"session.join.done", "exchange.publish.after",
                                            "exchange.wait.before", "exchange.done"};
    test_rank *self = arg;
    for (size_t i = 0; i < sizeof(observing) / sizeof(observing[0]); i++)
        if (strcmp(name, observing[i]) == 0) {
            atomic_fetch_add(&self->point_hits, 1);
            return SYMMEM_BACKEND;
        }
    return SYMMEM_OK;
}

static int reopen_with(test_rank *self, symmem_point_fn point) {
    sm_session_config config = {.store = self->store,
                                .prefix = "g/test",
                                .world_prefix = "w",
                                .group_name = "test",
                                .rank = self->rank,
                                .world_size = self->world_size,
                                .global_ranks = self->global_ranks,
                                .liveness = self->liveness,
                                .identity = &self->identity,
                                .point = point,
                                .point_arg = self};
    sm_session_destroy(self->session);
    self->session = NULL;
    EXPECT(sm_session_create(&config, &self->session) == SYMMEM_OK);
    return 0;
}

static int body_observing(test_rank *self) {
    EXPECT(reopen_with(self, observing_point) == 0);
    symmem_clear_error();
    for (int i = 0; i < 5; i++)
        EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    EXPECT(atomic_load(&self->point_hits) >= 1 + 2 * 6);
    EXPECT(sm_record()->status == SYMMEM_OK);
    return 0;
}

static void test_observing(void) {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[3];
    prepare_ranks(ranks, 3, store, body_observing, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);
}

/* --- a store that fails
 * ---------------------------------------------------------------------------
 */

static int body_store_fails(test_rank *self) {
    counting *c = self->arg;
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 0) {
        atomic_store(&c->fail_sets, 1);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_SYSTEM);
        EXPECT(sm_record()->rank == 0 && strcmp(sm_record()->operation, "op") == 0);
        EXPECT(sm_session_id(self->session) == 0);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
        atomic_store(&c->fail_adds, 1);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_SYSTEM);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    } else {
        /* Later than rank 0's failure, and then it follows without noticing. */
        sm_sleep_ns(50000000);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
        sm_sleep_ns(50000000);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    }
    return 0;
}

static void test_store_fails(void) {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[2];
    prepare_ranks(ranks, 2, store, body_store_fails, &c);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    symmem_store_close(store);
}

/* --- a peer that started over in the middle
 * -------------------------------------------------------
 */

static int body_started_over(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 0) {
        rank_close(self);
        EXPECT(rank_open(self) == 0);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
        return 0;
    }
    sm_sleep_ns(30000000);
    EXPECT(gather(self, "op", false, 5000) == SYMMEM_TIMEOUT);
    EXPECT(sm_record()->failed_rank == 0 && symmem_error_is_missing(sm_record(), 0));
    EXPECT(sm_record()->elapsed_ns < 1000000000);
    EXPECT(strstr(sm_record()->message, "started over") != NULL);
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    return 0;
}

static int body_recreated(test_rank *self) {
    for (int i = 0; i < 10; i++) {
        if (i % 2 != 0)
            EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
        if (i % 3 == self->rank % 3) {
            rank_close(self);
            EXPECT(rank_open(self) == 0);
        }
    }
    return 0;
}

/* Rank 2 is late; rank 0 gives up first and starts over; rank 1 must name 2 all the same. */
static int body_names_the_absent(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 2)
        sm_sleep_ns(700000000);
    if (self->rank == 0)
        EXPECT(gather(self, "op", false, 150) == SYMMEM_TIMEOUT);
    if (self->rank == 1)
        EXPECT(gather(self, "op", false, 5000) == SYMMEM_TIMEOUT);
    EXPECT(self->rank == 2 || sm_record()->failed_rank == 2);
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    return 0;
}

static void test_started_over(void) {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[4];
    prepare_ranks(ranks, 3, store, body_started_over, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    prepare_ranks(ranks, 3, store, body_names_the_absent, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    prepare_ranks(ranks, 4, store, body_recreated, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 4));
    CU_ASSERT_EQUAL(keys_of(store, 4), 0);
    symmem_store_close(store);
}

/* --- processes that end
 * ---------------------------------------------------------------------------
 */

typedef struct kill_plan {
    int before; /* exchanges before the end */
    const char *point;
} kill_plan;

static symmem_status kill_point(void *arg, const char *name) {
    const kill_plan *plan = ((test_rank *)arg)->arg;
    if (plan->point != NULL && strcmp(name, plan->point) == 0)
        raise(SIGKILL);
    return SYMMEM_OK;
}

static int body_killed(test_rank *self) {
    const kill_plan *plan = self->arg;
    for (int i = 0; i < plan->before; i++)
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 1) {
        sm_sleep_ns(100000000); /* the others wait by now */
        if (plan->point == NULL)
            raise(SIGKILL);
        EXPECT(reopen_with(self, kill_point) == 0);
        gather(self, "op", true, 10000);
        EXPECT(false);
    }
    uint64_t start_ns = sm_now_ns();
    symmem_status status = SYMMEM_OK;
    while (status == SYMMEM_OK)
        status = gather(self, "op", true, 10000);
    EXPECT(status == SYMMEM_PEER_LOST);
    EXPECT(sm_record()->failed_rank == 1 && sm_record()->missing_count == 1);
    EXPECT(sm_now_ns() - start_ns < 1100000000);
    sm_sleep_ns(600000000); /* the other one must not see this rank end */
    return 0;
}

static void killed(kill_plan plan) {
    char path[] = "/tmp/symmem-session-XXXXXX";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
    test_rank ranks[3];
    pid_t pids[3];
    prepare_ranks(ranks, 3, NULL, body_killed, &plan);
    for (int i = 0; i < 3; i++)
        pids[i] = fork_rank(&ranks[i], path);
    CU_ASSERT_EQUAL(reap(pids[1]), 1000 + SIGKILL);
    int first = reap(pids[0]), last = reap(pids[2]);
    if (first != 0 || last != 0)
        fprintf(stderr, "killed at %s\n", plan.point == NULL ? "-" : plan.point);
    CU_ASSERT_EQUAL(first, 0);
    CU_ASSERT_EQUAL(last, 0);
    remove_tree(path);
}

static void test_killed(void) {
    killed((kill_plan){0, NULL});
    killed((kill_plan){2, NULL});
    static const char *const points[] = {"session.join.before",    "session.join.published",
                                         "session.join.done",      "exchange.publish.before",
                                         "exchange.publish.after", "exchange.done"};
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
        killed((kill_plan){0, points[i]});
}

/* Rank 0 publishes its record and ends. Rank 1 has read it and waits for rank 2, which saw the end,
 * left, and will not come: rank 1 must see the end, too. */
static symmem_status slow_kill_point(void *arg, const char *name) {
    (void)arg;
    if (strcmp(name, "session.join.published") != 0)
        return SYMMEM_OK;
    sm_sleep_ns(200000000);
    raise(SIGKILL);
    return SYMMEM_OK;
}

static int body_left_waiting(test_rank *self) {
    if (self->rank == 0) {
        EXPECT(reopen_with(self, slow_kill_point) == 0);
        gather(self, "op", true, 10000);
        EXPECT(false);
    }
    if (self->rank == 1) {
        uint64_t start_ns = sm_now_ns();
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_PEER_LOST);
        EXPECT(sm_record()->failed_rank == 0 && sm_record()->missing_count == 1);
        EXPECT(sm_now_ns() - start_ns < 1200000000);
    } else {
        sm_sleep_ns(1500000000);
    }
    return 0;
}

static void test_left_waiting(void) {
    char path[] = "/tmp/symmem-session-XXXXXX";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
    test_rank ranks[3];
    pid_t pids[3];
    prepare_ranks(ranks, 3, NULL, body_left_waiting, NULL);
    for (int i = 0; i < 3; i++)
        pids[i] = fork_rank(&ranks[i], path);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), i == 0 ? 1000 + SIGKILL : 0);
    remove_tree(path);
}

/* A process dies, its successor takes its place: the others follow it. */
static int body_successor(test_rank *self) {
    const int *generation = self->arg;
    if (*generation == 1) {
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
        return 0;
    }
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 1)
        raise(SIGKILL);
    symmem_status status;
    uint64_t until_ns = sm_deadline_ns(8000);
    do
        status = gather(self, "op", true, 2000);
    while (status == SYMMEM_PEER_LOST && !sm_expired(until_ns));
    EXPECT(status == SYMMEM_OK);
    return 0;
}

static void test_successor(void) {
    char path[] = "/tmp/symmem-session-XXXXXX";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
    test_rank ranks[3];
    pid_t pids[3];
    int generation = 0;
    prepare_ranks(ranks, 3, NULL, body_successor, &generation);
    for (int i = 0; i < 3; i++)
        pids[i] = fork_rank(&ranks[i], path);
    CU_ASSERT_EQUAL(reap(pids[1]), 1000 + SIGKILL);
    sm_sleep_ns(200000000);
    generation = 1;
    pid_t next = fork_rank(&ranks[1], path);
    CU_ASSERT_EQUAL(reap(pids[0]), 0);
    CU_ASSERT_EQUAL(reap(pids[2]), 0);
    CU_ASSERT_EQUAL(reap(next), 0);
    CU_ASSERT_EQUAL(count_files(path, 'k'), 3);
    remove_tree(path);
}

/* A stopped process is not a dead one. */
static int body_stopped(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 1)
        raise(SIGSTOP);
    else {
        EXPECT(gather(self, "op", true, 500) == SYMMEM_TIMEOUT);
        EXPECT(sm_record()->failed_rank == 1);
    }
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    sm_sleep_ns(100000000);
    return 0;
}

static void test_stopped(void) {
    char path[] = "/tmp/symmem-session-XXXXXX";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
    test_rank ranks[3];
    pid_t pids[3];
    prepare_ranks(ranks, 3, NULL, body_stopped, NULL);
    for (int i = 0; i < 3; i++)
        pids[i] = fork_rank(&ranks[i], path);
    sm_sleep_ns(1200000000);
    if (pids[1] > 1)
        kill(pids[1], SIGCONT);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), 0);
    remove_tree(path);
}

/* --- scale -------------------------------------------------------------------------- */

static int body_scale(test_rank *self) {
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(60000)) == SYMMEM_OK);
    for (int i = 0; i < 5; i++)
        EXPECT(gather(self, "op", true, 60000) == SYMMEM_OK);
    return 0;
}

static void test_scale(void) {
    enum { COUNT = 128 };
    char path[] = "/tmp/symmem-session-XXXXXX";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
    static test_rank ranks[COUNT];
    pid_t pids[COUNT];
    prepare_ranks(ranks, COUNT, NULL, body_scale, NULL);
    struct rusage before, after;
    getrusage(RUSAGE_CHILDREN, &before);
    uint64_t start_ns = sm_now_ns();
    for (int i = 0; i < COUNT; i++)
        pids[i] = fork_rank(&ranks[i], path);
    bool fine = true;
    for (int i = 0; i < COUNT; i++)
        fine = reap(pids[i]) == 0 && fine;
    CU_ASSERT_TRUE(fine);
    getrusage(RUSAGE_CHILDREN, &after);
    double cpu = (double)(after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec -
                          before.ru_stime.tv_sec) +
                 (double)(after.ru_utime.tv_usec + after.ru_stime.tv_usec -
                          before.ru_utime.tv_usec - before.ru_stime.tv_usec) /
                     1e6;
    printf("128 ranks: %.2f s, %.2f s of CPU for a bring-up and 5 exchanges\n",
           (double)(sm_now_ns() - start_ns) / 1e9, cpu);
    CU_ASSERT_EQUAL(count_files(path, 'k'), COUNT);
    remove_tree(path);
}

/* --- odds and ends ------------------------------------------------------------------ */

static int body_bad_join(test_rank *self) {
    if (self->rank == 0) {
        EXPECT(symmem_store_set(self->store, "g/test/j/1", "nonsense", 8, 0) == SYMMEM_OK);
        EXPECT(gather(self, "op", true, 5000) == SYMMEM_MISMATCH);
        EXPECT(sm_record()->failed_rank == 1);
    }
    return 0;
}

static int body_bad_socket(test_rank *self) {
    /* One rank cannot make its socket: all hear it from the bring-up at once. */
    EXPECT(gather(self, "op", true, 5000) == SYMMEM_PATH_TOO_LONG);
    EXPECT(sm_record()->failed_rank == 1 && sm_record()->rank == self->rank);
    EXPECT(strcmp(sm_record()->stage, "join") == 0);
    EXPECT(sm_session_id(self->session) == 0);
    return 0;
}

static void test_odds(void) {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[3];
    prepare_ranks(ranks, 2, store, body_bad_join, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    CU_ASSERT_EQUAL(symmem_store_remove(store, "g/test/j/1", 0), SYMMEM_OK);
    char directory[200];
    memset(directory, 'x', sizeof(directory) - 1);
    directory[0] = '/';
    directory[sizeof(directory) - 1] = '\0';
    prepare_ranks(ranks, 3, store, body_bad_socket, NULL);
    ranks[1].socket_dir = directory;
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);

    char prefix[190];
    memset(prefix, 'p', sizeof(prefix) - 1);
    prefix[sizeof(prefix) - 1] = '\0';
    sm_session_config config = {.prefix = prefix, .world_size = 2};
    sm_session *session = NULL;
    CU_ASSERT_EQUAL(sm_session_create(&config, &session), SYMMEM_INVALID_ARGUMENT);
    sm_session_destroy(NULL);
}

int main(void) {
    CU_pSuite suite;
    if (CU_initialize_registry() != CUE_SUCCESS ||
        (suite = CU_add_suite("session", NULL, NULL)) == NULL)
        return 2;
    /* First: what other tests freed would serve it. */
    CU_add_test(suite, "no memory", test_no_memory);
    CU_add_test(suite, "threads, 1 to 8 ranks", test_threads);
    CU_add_test(suite, "alone without store", test_alone_without_store);
    CU_add_test(suite, "store traffic", test_store_traffic);
    CU_add_test(suite, "keys go", test_keys_go);
    CU_add_test(suite, "sizes", test_sizes);
    CU_add_test(suite, "agree", test_agree);
    CU_add_test(suite, "agree alone", test_agree_alone);
    CU_add_test(suite, "late at the bring-up", test_late_bring_up);
    CU_add_test(suite, "late at an exchange", test_late_exchange);
    CU_add_test(suite, "each point fails", test_points);
    CU_add_test(suite, "nothing to give", test_nothing_to_give);
    CU_add_test(suite, "observing points", test_observing);
    CU_add_test(suite, "store fails", test_store_fails);
    CU_add_test(suite, "started over", test_started_over);
    CU_add_test(suite, "killed", test_killed);
    CU_add_test(suite, "left waiting", test_left_waiting);
    CU_add_test(suite, "successor", test_successor);
    CU_add_test(suite, "stopped", test_stopped);
    CU_add_test(suite, "128 processes", test_scale);
    CU_add_test(suite, "odds and ends", test_odds);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    unsigned run = CU_get_number_of_tests_run();
    CU_cleanup_registry();
    return failures == 0 && run == 21 ? 0 : 1;
}
