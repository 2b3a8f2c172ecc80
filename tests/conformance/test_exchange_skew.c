/* SPDX-License-Identifier: BSD-3-Clause */
/* Exchanges in bad conditions: slow readers, stores that lose, double or delay a write, ranks that
 * get stuck half way, long waits, and jobs beside one another. */
#include <sys/stat.h>

#include "counting_store.h"
#include "sync_help.h"

/* One gathering after the other, of another size and content each time, while one rank is still
 * about to read the one before. */
TK_TEST(exchange_skew, slow_readers_read_their_round, "SM-EXCHANGE-01", .ranks = {2, 4},
        .timeout_s = 60) {
    enum { ROUNDS = 16, MOST = 700 };
    static const char *const points[] = {"exchange.wait.before", "exchange.done",
                                         "exchange.publish.after"};
    symmem_group *group = tk_world_group(t);
    uint32_t own[MOST];
    uint32_t *all = tk_scratch(t, (size_t)t->world_size * sizeof(own));
    tk_group_barrier(t, group);
    for (int i = 0; i < 3; i++)
        for (int nth = 1 + t->rank; nth <= ROUNDS && i < 2; nth += t->world_size + i)
            tk_on_point(t, points[i], nth, (struct tk_action){.delay_ms = 8});
    for (uint32_t g = 1; g <= ROUNDS && !tk_failed(t); g++) {
        size_t count = 1 + g * 37 % MOST;
        fill_words(own, count, t->rank, g);
        TK_OK(t, symmem_group_all_gather(group, own, count * 4, all, LONG_MS));
        for (int32_t r = 0; r < t->world_size; r++)
            TK_CHECK_MSG(t, first_wrong_word(all + (size_t)r * count, count, r, g) == count,
                         "gathering %u has other words of rank %d", g, (int)r);
    }
}

enum trouble { LOST = 0, TWICE, LATE, TROUBLE_COUNT };

/* The nth write of this rank goes wrong. */
struct faulty_store {
    struct counting_store counting; /* first: what its entries take */
    enum trouble trouble;
    int nth;
    atomic_int writes;
};

static bool goes_wrong(struct faulty_store *store) {
    return atomic_fetch_add(&store->writes, 1) + 1 == store->nth;
}

static symmem_status faulty_set(void *self, const char *key, const void *value, size_t bytes,
                                uint32_t timeout_ms) {
    struct faulty_store *store = self;
    bool wrong = goes_wrong(store);
    if (wrong && store->trouble == LOST)
        return SYMMEM_OK;
    if (wrong && store->trouble == LATE)
        tk_sleep_ms(40);
    symmem_status status = counting_store_ops.set(self, key, value, bytes, timeout_ms);
    if (wrong && store->trouble == TWICE && status == SYMMEM_OK)
        status = counting_store_ops.set(self, key, value, bytes, timeout_ms);
    return status;
}

/* A job of its own on the store: from init to a rendezvous, with a limit. */
static symmem_status short_job(struct tk *t, symmem_store *store, uint32_t limit_ms,
                               uint64_t *longest_ms_p) {
    symmem_context_options options = tk_options(t);
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    void *memory = NULL;
    options.store = store;
    options.default_timeout_ms = limit_ms;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_group_create(context, "job", NULL, 0, NULL, &group));
    uint64_t begin_ms = tk_now_ms();
    symmem_status status = symmem_join(context, NULL, limit_ms);
    if (status == SYMMEM_OK) {
        TK_REQUIRE_OK(t, symmem_alloc(context, 256, -1, NULL, &memory));
        begin_ms = tk_now_ms();
        status = symmem_rendezvous(context, memory, group, limit_ms, &handle);
    }
    *longest_ms_p = tk_now_ms() - begin_ms;
    TK_CHECK(t, (status == SYMMEM_OK) == (handle != NULL));
    tk_out_of_band_barrier(t);
    symmem_handle_release(handle);
    symmem_context_free(context);
    return status;
}

static void one_trouble(struct tk *t, enum trouble trouble, int nth) {
    struct faulty_store faulty = {.trouble = trouble, .nth = t->rank == nth % 2 ? nth : 0};
    symmem_store_ops ops = counting_store_ops;
    symmem_store *store = NULL;
    char path[4096];
    uint32_t limit_ms = trouble == LOST ? 70 : LONG_MS;
    uint64_t took_ms = 0;
    snprintf(path, sizeof(path), "%s/store-%d-%d", t->scratch_dir, (int)trouble, nth);
    ops.set = faulty_set;
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &faulty.counting.inner));
    TK_REQUIRE_OK(t, symmem_store_open_custom(&ops, &faulty, &store));
    tk_checkpoint(t, "trouble %d at write %d", (int)trouble, nth);
    symmem_status status = short_job(t, store, limit_ms, &took_ms);
    if (trouble == LOST)
        TK_TIMELY(t, status == SYMMEM_OK || took_ms < limit_ms + tk_limit_ms(t, 2000),
                  "a lost write held the call for %llu ms", (unsigned long long)took_ms);
    else
        TK_OK(t, status);
    symmem_store_close(store);
    symmem_store_close(faulty.counting.inner);
}

TK_TEST(exchange_skew, unreliable_stores, "SM-EXCHANGE-10", .ranks = {2, 4}, .timeout_s = 60) {
    for (int nth = 1; nth <= 5; nth++) {
        one_trouble(t, LOST, nth);
        one_trouble(t, nth % 2 ? TWICE : LATE, nth);
    }
    TK_OK(t, symmem_barrier(tk_handle(t, 64, tk_world_group(t)), 0, LONG_MS, NULL));
}

/* A failpoint that holds its rank until all others have given up on it. */
struct stuck {
    struct tk *t;
    const char *point; /* NULL: none */
    uint64_t round;
    bool passed, waited_for_ever;
};

static symmem_status stay(void *arg, const char *point) {
    struct stuck *stuck = arg;
    uint64_t end_ms = tk_now_ms() + tk_scaled_ms(3000);
    if (stuck->point == NULL || strcmp(point, stuck->point) != 0)
        return SYMMEM_OK;
    stuck->point = NULL;
    stuck->passed = true;
    for (int32_t r = 0; r < stuck->t->world_size; r++)
        while (r != stuck->t->rank && tk_read_u64(stuck->t, r, 0) < stuck->round) {
            stuck->waited_for_ever = stuck->waited_for_ever || tk_now_ms() > end_ms;
            if (stuck->waited_for_ever)
                return SYMMEM_OK;
            tk_sleep_ms(1);
        }
    return SYMMEM_OK;
}

/* One rank lives but stays in a step for longer than the others' limit. */
static void stick_at(struct tk *t, struct stuck *stuck, const char *point) {
    int32_t odd = (int32_t)(++stuck->round % (uint64_t)t->world_size);
    void *memory = tk_alloc(t, 256);
    symmem_handle *handle = NULL;
    tk_checkpoint(t, "rank %d stuck at %s", (int)odd, point);
    stuck->point = t->rank == odd ? point : NULL;
    stuck->passed = false;
    tk_out_of_band_barrier(t);
    symmem_status status = symmem_rendezvous(t->context, memory, tk_world_group(t), 70, &handle);
    tk_share_u64(t, 0, stuck->round);
    tk_share_u64(t, 1, stuck->passed);
    tk_out_of_band_barrier(t);
    if (tk_read_u64(t, odd, 1) == 0) /* a backend that has no such step */
        TK_STATUS_EITHER(t, SYMMEM_OK, SYMMEM_TIMEOUT, status);
    else if (t->rank != odd)
        TK_FAILS(t, TIMEOUT, status);
    else
        TK_CHECK_MSG(t, status != SYMMEM_OK && !stuck->waited_for_ever,
                     "the others waited for longer than their limit at %s", point);
    symmem_handle_release(handle);
    tk_out_of_band_barrier(t);
    tk_free(t, memory);
    symmem_handle *after = tk_handle(t, 64, tk_world_group(t));
    TK_OK(t, symmem_barrier(after, 0, LONG_MS, NULL));
}

TK_TEST(exchange_skew, stuck_at_each_step, "SM-RDV-21", .ranks = {2, 4}, .timeout_s = 60) {
    static const char *const points[] = {
        "rendezvous.metadata.before",   "exchange.publish.after",
        "rendezvous.metadata.after",    "ipc.send.before",
        "rendezvous.descriptors.after", "rendezvous.map.before",
        "rendezvous.map.after",         "rendezvous.commit.before"};
    struct stuck stuck = {.t = t};
    TK_REINIT(t, options.point = stay; options.point_arg = &stuck);
    tk_group_barrier(t, tk_world_group(t));
    for (size_t i = 0; i < TK_COUNT(points); i++)
        stick_at(t, &stuck, points[i]);
    tk_end_context(t);
}

/* While a rank is late the others sleep in the store; they do not ask it again and again. PASSIVE:
 * without it they wake all the time to serve their peers. */
TK_TEST(exchange_skew, waiting_is_not_polling, "SM-EXCHANGE-11", .needs = SYMMEM_CAP_PASSIVE,
        .ranks = {2, 4}, .timeout_s = 60) {
    struct counting_store *counting = counting_store_begin(t->store);
    symmem_store *store = NULL;
    symmem_group *group = NULL;
    TK_REQUIRE_OK(t, symmem_store_open_custom(&counting_store_ops, counting, &store));
    TK_OK(t, symmem_group_create(t->context, "counted", NULL, 0, store, &group));
    TK_OK(t, symmem_group_barrier(group, LONG_MS));
    for (int32_t late = 0; late < t->world_size; late += t->last) {
        int before = counting_store_calls(counting);
        tk_out_of_band_barrier(t);
        uint64_t begin_ms = tk_now_ms();
        if (t->rank == late)
            tk_sleep_ms(200);
        TK_OK(t, symmem_group_barrier(group, LONG_MS));
        int ticks = (int)((tk_now_ms() - begin_ms) / 40);
        int most = 4 * t->world_size + 16 + ticks * t->world_size;
        TK_CHECK_MSG(t, counting_store_calls(counting) - before <= most,
                     "%d calls of the store in one barrier, more than %d",
                     counting_store_calls(counting) - before, most);
    }
    TK_OK(t, symmem_group_destroy(group));
    tk_out_of_band_barrier(t);
    tk_end_context(t);
    symmem_store_close(store);
}

struct job {
    symmem_store *store;
    symmem_context *context;
    symmem_group *group;
    symmem_handle *handle;
    void *memory;
};

static void begin_job(struct tk *t, struct job *job, const char *name, const char *socket_dir) {
    symmem_context_options options = tk_options(t);
    char path[4096];
    memset(job, 0, sizeof(*job));
    snprintf(path, sizeof(path), "%s/%s", t->scratch_dir, name);
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &job->store));
    options.store = job->store;
    options.socket_dir = socket_dir;
    TK_REQUIRE_OK(t, symmem_init(&options, &job->context));
    tk_join(t, job->context);
    TK_REQUIRE_OK(t, symmem_group_create(job->context, "same", NULL, 0, NULL, &job->group));
    TK_REQUIRE_OK(t, symmem_alloc(job->context, 4096, -1, NULL, &job->memory));
}

static void end_job(struct job *job) {
    symmem_handle_release(job->handle);
    symmem_context_free(job->context);
    symmem_store_close(job->store);
}

static void use_job(struct tk *t, struct job *job, uint8_t byte) {
    tk_fill(t, job->handle, t->next, 0, 4096, (uint8_t)(byte + t->rank));
    TK_OK(t, symmem_barrier(job->handle, 0, LONG_MS, NULL));
    for (int32_t r = 0; r < t->world_size; r++)
        tk_expect_bytes(t, job->handle, r, 0, 4096,
                        (uint8_t)(byte + (r + t->world_size - 1) % t->world_size));
    ring_signal(t, job->handle, 1);
    TK_OK(t, symmem_barrier(job->handle, 0, LONG_MS, NULL));
}

struct meeting {
    struct tk *t;
    struct job *job;
};

static void *meet(void *arg) {
    struct meeting *meeting = arg;
    struct job *job = meeting->job;
    TK_OK(meeting->t,
          symmem_rendezvous(job->context, job->memory, job->group, LONG_MS, &job->handle));
    return NULL;
}

/* The same ranks, group names, sizes and channels in two jobs of one machine, at the same time.
 * PASSIVE: a rank that is through waits for the others in neither job. */
TK_TEST(exchange_skew, two_jobs_do_not_meet, "SM-CONTEXT-11", .needs = SYMMEM_CAP_PASSIVE,
        .ranks = {2, 4}, .timeout_s = 60) {
    struct job jobs[2];
    struct meeting meeting = {.t = t, .job = &jobs[1]};
    pthread_t thread;
    begin_job(t, &jobs[0], "first", NULL);
    begin_job(t, &jobs[1], "second", NULL);
    bool started = TK_CHECK(t, pthread_create(&thread, NULL, meet, &meeting) == 0);
    (void)meet(&(struct meeting){.t = t, .job = &jobs[0]});
    TK_CHECK(t, started && pthread_join(thread, NULL) == 0);
    TK_REQUIRE(t, jobs[0].handle != NULL && jobs[1].handle != NULL);
    use_job(t, &jobs[0], 0x10);
    use_job(t, &jobs[1], 0x80);
    for (int32_t r = 0; r < t->world_size; r++)
        tk_expect_bytes(t, jobs[0].handle, r, 0, 4096,
                        (uint8_t)(0x10 + (r + t->world_size - 1) % t->world_size));
    TK_OK(t, symmem_put_signal(jobs[0].handle, t->next, 2, LONG_MS, NULL));
    tk_out_of_band_barrier(t);
    check_nothing_pending(t, jobs[1].handle, -1, 2);
    tk_out_of_band_barrier(t);
    end_job(&jobs[0]);
    end_job(&jobs[1]);
}

/* Each rank keeps its sockets somewhere else, as containers with their own TMPDIR do. */
TK_TEST(exchange_skew, directories_of_their_own, "SM-EXCHANGE-12", .ranks = {2, 4},
        .timeout_s = 60) {
    char directory[64];
    struct job job;
    tk_short_path(t, "own", t->rank, directory);
    TK_REQUIRE(t, mkdir(directory, 0700) == 0);
    begin_job(t, &job, "apart", directory);
    (void)meet(&(struct meeting){.t = t, .job = &job});
    if (job.handle != NULL)
        use_job(t, &job, 0x30);
    tk_out_of_band_barrier(t);
    end_job(&job);
    TK_CHECK_MSG(t, rmdir(directory) == 0, "%s is not empty", directory);
}
