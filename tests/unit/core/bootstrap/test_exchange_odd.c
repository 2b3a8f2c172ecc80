/* SPDX-License-Identifier: BSD-3-Clause */
/* An exchange over a store that is slow, or that returns values which no rank has set. */
#include "bootstrap/exchange.h"
#include "session_store.h"
#include "unit.h"
#include "last_record.h"

#define LARGE (SYMMEM_STORE_VALUE_MAX - 1024) /* bytes a rank: read one by one */

/* The results of rank 1's reads. Rank 0 combines the parts, and its reads succeed. */
typedef enum oddity {
    NONE,
    SLOW,              /* each takes its limit, and ends without an answer */
    ALL_IS_LATE,       /* of the combined value alone, at once */
    PART_HAS_FLAGS,    /* of rank 0's part */
    PART_OF_ANOTHER,   /* another kind */
    ALL_OF_A_FAILURE,  /* which no rank had, and is no verdict */
    ALL_OF_NONE,       /* though this rank has one */
    ALL_OF_A_STRANGER, /* a failure of no rank of the group */
    ALL_IS_SHORT
} oddity;

static _Thread_local oddity odd;

static bool ends_with(const char *key, const char *end) {
    const size_t length = strlen(key), bytes = strlen(end);
    return length >= bytes && strcmp(key + length - bytes, end) == 0;
}

static void change_part(void *value) {
    sm_part part;
    memcpy(&part, value, sizeof(part));
    part.flags = odd == PART_HAS_FLAGS ? 4 : part.flags;
    part.kind ^= odd == PART_OF_ANOTHER ? 1 : 0;
    memcpy(value, &part, sizeof(part));
}

static symmem_status odd_get(void *s, const char *k, void *v, size_t n, size_t *b, uint32_t t) {
    if (odd == SLOW) {
        sm_sleep_ns((uint64_t)t * 1000000);
        return SYMMEM_TIMEOUT;
    }
    if (odd == ALL_IS_LATE && ends_with(k, "/all"))
        return SYMMEM_TIMEOUT;
    const symmem_status status = c_get(s, k, v, n, b, t);
    if (status != SYMMEM_OK)
        return status;
    if (ends_with(k, "/all") && odd == ALL_IS_SHORT)
        *b = sizeof(sm_all_head) - 1;
    if (ends_with(k, "/all") && odd >= ALL_OF_A_FAILURE && odd <= ALL_OF_A_STRANGER) {
        sm_all_head head;
        memcpy(&head, v, sizeof(head));
        head.failed_rank = odd == ALL_OF_NONE ? -1 : odd == ALL_OF_A_FAILURE ? 1 : 2;
        memcpy(v, &head, sizeof(head));
    }
    if (ends_with(k, "/0") && strstr(k, "/j/") == NULL && odd >= PART_HAS_FLAGS &&
        odd <= PART_OF_ANOTHER)
        change_part(v);
    return status;
}

typedef struct plan {
    oddity odd;
    bool alone, fails; /* rank 0 does not come; rank 1 has nothing to give */
    size_t bytes;
    symmem_status wanted;
    const char *text;
} plan;

static atomic_int through;

static symmem_status take_part(test_rank *self, const plan *p, const void *in, void *out) {
    const uint64_t deadline_ns = sm_deadline_ns(300);
    if (p->fails && self->rank == 1)
        return sm_session_agree(self->session, "op", "step",
                                sm_fail(SYMMEM_LIMIT, "op", "step", "nothing is left"),
                                deadline_ns);
    if (p->fails)
        return sm_session_agree(self->session, "op", "step", SYMMEM_OK, deadline_ns);
    return sm_session_all_gather(self->session, "op", "step", in, p->bytes, out, false,
                                 deadline_ns);
}

static int body(test_rank *self) {
    const plan *p = self->arg;
    static char in[LARGE];
    char *out = malloc((size_t)self->world_size * p->bytes + 1);
    EXPECT(out != NULL);
    EXPECT(gather(self, "begin", true, 10000) == SYMMEM_OK);
    EXPECT(gather(self, "begin", false, 10000) == SYMMEM_OK);
    symmem_status status = SYMMEM_OK;
    if (self->rank == 1)
        odd = p->odd;
    if (self->rank == 1 || !p->alone)
        status = take_part(self, p, in, out);
    const symmem_error_record record = last_record();
    odd = NONE;
    leave_together(&through, self->world_size);
    free(out);
    if (self->rank != 1)
        return 0;
    EXPECT(status == p->wanted);
    EXPECT(strstr(record.message, p->text) != NULL);
    return 0;
}

static void run_of(int32_t count, plan p) {
    symmem_store_ops ops = counting_ops;
    test_rank ranks[3];
    counting counts = {0};
    symmem_store *store = NULL;
    ops.get = odd_get;
    atomic_store(&through, 0);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&counts.inner), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, &counts, &store), SYMMEM_OK);
    prepare_ranks(ranks, count, store, body, &p);
    CU_ASSERT_TRUE(run_threads(ranks, count));
    symmem_store_close(store);
}

static void run(plan p) {
    run_of(2, p);
}

TEST("a slow store") {
    for (int32_t count = 2; count <= 3; count++)
        run_of(count, (plan){.odd = SLOW,
                             .alone = true,
                             .bytes = 8,
                             .wanted = SYMMEM_TIMEOUT,
                             .text = "the store did not tell in time who is missing"});
    run((plan){.odd = ALL_IS_LATE,
               .bytes = 8,
               .wanted = SYMMEM_TIMEOUT,
               .text = "the custom store failed for key g/test/"});
}

TEST("parts that are not those that were given") {
    plan p = {.bytes = LARGE, .wanted = SYMMEM_OK, .text = ""};
    run(p);
    p.wanted = SYMMEM_CORRUPT;
    p.text = "rank 0's value is not the one it gave";
    for (p.odd = PART_HAS_FLAGS; p.odd <= PART_OF_ANOTHER; p.odd++)
        run(p);
}

TEST("a combined value that cannot be") {
    plan p = {.bytes = 8,
              .odd = ALL_OF_A_FAILURE,
              .wanted = SYMMEM_CORRUPT,
              .text = "is not of this exchange"};
    run(p);
    p.odd = ALL_IS_SHORT;
    run(p);
    p.fails = true;
    p.odd = NONE;
    p.wanted = SYMMEM_LIMIT;
    p.text = "nothing is left";
    run(p);
    p.odd = ALL_OF_NONE; /* its own failure is the better news all the same */
    run(p);
    p.odd = ALL_OF_A_STRANGER;
    run(p);
}

/* --- a store that does not count the readers
 * ------------------------------------------------------------------------ */

static symmem_status add_fails_with; /* once, if not OK */
static atomic_int adds_fail;
static _Atomic(const char *) readers_key; /* of the last large exchange */

static symmem_status failing_add(void *s, const char *k, int64_t d, int64_t *v, uint32_t t) {
    if (!ends_with(k, "/d"))
        return c_add(s, k, d, v, t);
    if (atomic_fetch_sub(&adds_fail, 1) > 0)
        return add_fails_with;
    free((char *)atomic_exchange(&readers_key, strdup(k)));
    return c_add(s, k, d, v, t);
}

static int body_reads(test_rank *self) {
    static char in[LARGE];
    char *out = malloc((size_t)self->world_size * LARGE);
    EXPECT(out != NULL);
    EXPECT(sm_session_all_gather(self->session, "op", "step", in, LARGE, out, true,
                                 sm_deadline_ns(10000)) == SYMMEM_OK);
    free(out);
    return 0;
}

/* A rank that was not counted is counted at once if the store has told of it; one that may have
 * been counted is not counted twice, and the keys stay. */
TEST("readers that are not counted") {
    static const symmem_status rows[] = {SYMMEM_OK, SYMMEM_SYSTEM, SYMMEM_TIMEOUT};
    for (int i = 0; i < 3; i++) {
        symmem_store_ops ops = counting_ops;
        test_rank ranks[2];
        counting counts = {0};
        symmem_store *store = NULL;
        ops.add = failing_add;
        add_fails_with = rows[i];
        atomic_store(&adds_fail, rows[i] == SYMMEM_OK ? 0 : 1);
        CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&counts.inner), SYMMEM_OK);
        CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, &counts, &store), SYMMEM_OK);
        prepare_ranks(ranks, 2, store, body_reads, NULL);
        CU_ASSERT_TRUE(run_threads(ranks, 2));
        const int64_t counted = rows[i] == SYMMEM_TIMEOUT ? 1 : 2;
        CU_ASSERT_EQUAL(atomic_load(&counts.adds), counted);
        CU_ASSERT_EQUAL(symmem_store_wait(counts.inner, readers_key, 1),
                        counted == 2 ? SYMMEM_TIMEOUT : SYMMEM_OK);
        symmem_store_close(store);
    }
}

/* --- a rank that fails twice
 * ------------------------------------------------------------------------ */

static int body_twice(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 0) {
        self->point_name = "exchange.publish.before";
        self->point_status = SYMMEM_PERMISSION;
    }
    const symmem_status own =
        self->rank == 0 ? sm_fail(SYMMEM_LIMIT, "op", "step", "nothing is left") : SYMMEM_OK;
    EXPECT(sm_session_agree(self->session, "op", "step", own, sm_deadline_ns(10000)) ==
           SYMMEM_LIMIT);
    EXPECT(last_record().failed_rank == 0);
    EXPECT(self->rank != 0 || atomic_load(&self->point_hits) == 1);
    return 0;
}

TEST("the first failure counts") {
    test_rank ranks[2];
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    prepare_ranks(ranks, 2, store, body_twice, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    symmem_store_close(store);
}

/* --- a rank that comes alone
 * ------------------------------------------------------------------------ */

static _Thread_local bool slow_sets;

static symmem_status slow_set(void *s, const char *k, const void *v, size_t n, uint32_t t) {
    if (!slow_sets)
        return c_set(s, k, v, n, t);
    sm_sleep_ns((uint64_t)t * 1000000);
    return SYMMEM_TIMEOUT;
}

/* The session names the missing ranks even if the store takes until the limit to set its record. */
static int body_alone(test_rank *self) {
    for (int slow = 0; slow < 2; slow++) {
        slow_sets = slow == 1;
        EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(600)) == SYMMEM_TIMEOUT);
        EXPECT(last_record().missing_count == (uint32_t)self->world_size - 1);
        EXPECT(!last_is_missing(0));
        EXPECT(strstr(last_record().message, "did not arrive") != NULL);
    }
    slow_sets = false;
    return 0;
}

TEST("one of a large world") {
    symmem_store_ops ops = counting_ops;
    test_rank ranks[RANKS_MAX];
    counting counts = {0};
    symmem_store *store = NULL;
    ops.set = slow_set;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&counts.inner), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, &counts, &store), SYMMEM_OK);
    prepare_ranks(ranks, 70, store, body_alone, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 1));
    symmem_store_close(store);
}

/* --- what is left of one ------------------------------------------------------------------------
 */

static _Thread_local int parts_read;
static _Thread_local bool reads_late;
static atomic_int left;

/* Counts looks at ranks' parts, and lets the combined value be read once the others have left. */
static symmem_status counted_get(void *s, const char *k, void *v, size_t n, size_t *b, uint32_t t) {
    const char *name = strrchr(k, '/');
    const bool is_exchanges = strncmp(k, "g/test/", 7) == 0 && strstr(k, "/j/") == NULL;
    parts_read += is_exchanges && name[1] >= '0' && name[1] <= '9';
    if (reads_late && ends_with(k, "/all"))
        await_counter(&left, 2);
    return c_get(s, k, v, n, b, t);
}

static void run_counted(rank_body of_each) {
    test_rank ranks[3];
    counting counts;
    symmem_store_ops ops = counting_ops;
    symmem_store *store = NULL;
    memset(&counts, 0, sizeof(counts));
    ops.get = counted_get;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&counts.inner), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, &counts, &store), SYMMEM_OK);
    prepare_ranks(ranks, 3, store, of_each, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);
}

static int body_counted(test_rank *self) {
    parts_read = 0;
    for (int i = 0; i < 4; i++)
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    EXPECT(self->rank == 0 || parts_read == 0);
    return 0;
}

/* But the rank that combines them. */
TEST("nobody looks for all parts") {
    run_counted(body_counted);
}

static int body_leaving(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    reads_late = self->rank == 2;
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank < 2) {
        rank_close(self);
        (void)atomic_fetch_add(&left, 1);
    }
    return 0;
}

/* Leaves the value to who has yet to read it. */
TEST("who leaves first") {
    run_counted(body_leaving);
}
