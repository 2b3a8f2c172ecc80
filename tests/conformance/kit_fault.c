/* SPDX-License-Identifier: BSD-3-Clause */
/* Announced deaths, failpoints, group shapes. */
#include "kit_internal.h"

#include <poll.h>
#include <sys/syscall.h>

/* How long the system may take to end a process. */
#define ENDING_MS 15000u

void tk_expect_death(struct tk *t, int32_t rank) {
    if (rank < 0 || rank >= t->world_size) {
        kit_fail_at(t, __FILE__, __LINE__, "tk_expect_death: no rank %d", rank);
        return;
    }
    /* pairs with: all_arrived */
    atomic_store_explicit(&t->own->setup->arena->ranks[rank].death_expected, 1,
                          memory_order_release);
}

void tk_kill_self(struct tk *t) {
    if (t->mode == TK_MODE_THREAD) {
        kit_fail_at(t, __FILE__, __LINE__, "a rank that is a thread cannot be killed alone");
        tk_leave(t);
    }
    tk_expect_death(t, t->rank);
    for (;;) {
        raise(SIGKILL);
        _exit(127); /* not reached; tells the compiler that this does not return */
    }
}

bool tk_wait_death(struct tk *t, int32_t rank, uint32_t timeout_ms) {
    TK_REQUIRE(t, rank >= 0 && rank < t->world_size);
    return arena_wait_gone(t->own->setup->arena, rank, timeout_ms);
}

uint64_t tk_death_ms(struct tk *t, int32_t rank) {
    TK_REQUIRE(t, rank >= 0 && rank < t->world_size);
    return arena_gone_ns(t->own->setup->arena, rank) / 1000000u;
}

/* A process that is reaped already cannot be asked any more. */
bool tk_has_ended(struct tk *t, int32_t rank) {
    int32_t pid = tk_process_id(t, rank);
    int pidfd = pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    struct pollfd asked = {.fd = pidfd, .events = POLLIN};
    bool ended = pidfd < 0 || poll(&asked, 1, 0) == 1;
    if (pidfd >= 0)
        close(pidfd);
    return ended;
}

void(tk_expect_prompt)(struct tk *t, int32_t rank, uint64_t begin_ms, uint64_t end_ms) {
    const uint32_t promise_ms = t->world_size >= 64 ? 2000 : 1000;
    if (!tk_wait_death(t, rank, tk_scaled_ms(ENDING_MS))) {
        kit_fail_late_at(t, t->own->file, t->own->line, "rank %d has not ended yet", rank);
        return;
    }
    uint64_t from_ms = tk_death_ms(t, rank);
    if (from_ms < begin_ms)
        from_ms = begin_ms;
    if (end_ms > from_ms + tk_scaled_ms(promise_ms) + tk_late_ms(t, from_ms))
        kit_fail_late_at(t, t->own->file, t->own->line,
                         "returned %llu ms after rank %d's end, or after the call began",
                         (unsigned long long)(end_ms - from_ms), rank);
}

int32_t tk_process_id(struct tk *t, int32_t rank) {
    if (rank < 0 || rank >= t->world_size)
        return 0;
    int32_t pid =
        atomic_load_explicit(&t->own->setup->arena->ranks[rank].process_id, memory_order_acquire);
    return pid > 1 ? pid : 0;
}

void tk_on_point(struct tk *t, const char *point, int nth, struct tk_action action) {
    struct tk_rank *own = t->own;
    int index = atomic_load_explicit(&own->point_count, memory_order_relaxed);
    struct kit_point *added = &own->points[index < KIT_POINT_MAX ? index : 0];
    TK_REQUIRE(t, index < KIT_POINT_MAX);
    if (action.kill && !own->is_child)
        tk_expect_death(t, t->rank);
    snprintf(added->name, sizeof(added->name), "%s", point);
    added->nth = nth;
    added->action = action;
    atomic_store_explicit(&added->passed, 0, memory_order_relaxed);
    /* pairs with: kit_point, which another thread of the context may call */
    atomic_store_explicit(&own->point_count, index + 1, memory_order_release);
}

static symmem_status act(struct tk *t, const struct tk_action *action) {
    if (action->delay_ms > 0)
        tk_sleep_ms(action->delay_ms);
    if (action->kill && t->mode == TK_MODE_PROCESS) {
        tk_share_u64(t, TK_DEATH_SLOT, tk_now_ms());
        raise(SIGKILL);
    }
    return action->status;
}

symmem_status kit_point(void *arg, const char *point) {
    struct tk *t = arg;
    /* pairs with: tk_on_point */
    int count = atomic_load_explicit(&t->own->point_count, memory_order_acquire);
    symmem_status status = SYMMEM_OK;
    arena_put_word(&t->own->slot->last_point, point);
    kit_record_point(&t->own->record, point);
    for (int i = 0; i < count; i++) {
        struct kit_point *watched = &t->own->points[i];
        symmem_status own_status = SYMMEM_OK;
        int passed;
        if (strcmp(watched->name, point) != 0)
            continue;
        passed = atomic_fetch_add_explicit(&watched->passed, 1, memory_order_relaxed) + 1;
        if (watched->nth == 0 || watched->nth == passed)
            own_status = act(t, &watched->action);
        if (status == SYMMEM_OK)
            status = own_status;
    }
    return status;
}

void tk_forget_points(struct tk *t) {
    atomic_store_explicit(&t->own->point_count, 0, memory_order_release);
}

int tk_point_count(struct tk *t, const char *point) {
    int count = atomic_load_explicit(&t->own->point_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (strcmp(t->own->points[i].name, point) == 0)
            return atomic_load_explicit(&t->own->points[i].passed, memory_order_relaxed);
    return 0;
}

/* A run of consecutive world ranks. */
struct span {
    const char *name;
    int32_t first, count;
    bool reversed;
};

struct member {
    struct tk_shape shape;
    symmem_group *group;
    int32_t ranks[SYMMEM_MAX_WORLD_SIZE];
};

static bool is_member(const struct tk *t, const struct span *span) {
    return t->rank >= span->first && t->rank < span->first + span->count;
}

static void join(struct tk *t, const struct span *span, struct member *member) {
    char name[SYMMEM_NAME_MAX];
    for (int32_t i = 0; i < span->count; i++)
        member->ranks[i] = span->first + (span->reversed ? span->count - 1 - i : i);
    member->shape.name = span->name;
    member->shape.ranks = member->ranks;
    member->shape.count = span->count;
    member->shape.rank =
        span->reversed ? span->first + span->count - 1 - t->rank : t->rank - span->first;
    snprintf(name, sizeof(name), "tk.%s.%d", span->name, t->own->shape_round);
    member->group = (tk_group)(t, name, member->ranks, span->count);
}

/* Runs fn on spans whose groups are alive at the same time; then all ranks wait for each other. */
static void run_spans(struct tk *t, const struct span *spans, int count, struct member *members,
                      tk_shape_fn fn, void *arg) {
    for (int i = 0; i < count; i++)
        if (is_member(t, &spans[i]))
            join(t, &spans[i], &members[i]);
    for (int i = 0; i < count; i++) {
        if (!is_member(t, &spans[i]))
            continue;
        tk_checkpoint(t, "group shape %s", spans[i].name);
        fn(t, members[i].group, &members[i].shape, arg);
    }
    (tk_out_of_band_barrier)(t);
    for (int i = 0; i < count; i++)
        if (is_member(t, &spans[i]) && kit_untrack(t, KIT_GROUP, members[i].group))
            TK_OK(t, symmem_group_destroy(members[i].group));
}

void(tk_for_each_group_shape)(struct tk *t, tk_shape_fn fn, void *arg) {
    const int32_t n = t->world_size;
    const struct span world = {"world", 0, n, false};
    const struct span subset = {"subset", 1, n - 1, false};
    const struct span reversed = {"reversed", n > 2 ? 1 : 0, n > 2 ? n - 1 : n, true};
    const struct span overlap[] = {{"overlap_low", 0, n / 2 + 1, false},
                                   {"overlap_high", n / 2, n - n / 2, false}};
    const struct span single = {"single", n - 1, 1, false};
    struct member members[2];
    t->own->shape_round++;
    run_spans(t, &world, 1, members, fn, arg);
    if (n > 2)
        run_spans(t, &subset, 1, members, fn, arg);
    if (n > 1)
        run_spans(t, &reversed, 1, members, fn, arg);
    if (n > 2)
        run_spans(t, overlap, 2, members, fn, arg);
    if (n > 1)
        run_spans(t, &single, 1, members, fn, arg);
}

/* --- which failpoints a rank passes, and how often -------------------------------------------- */

void tk_record_points(struct tk *t, bool on) {
    struct kit_record *record = &t->own->record;
    pthread_mutex_lock(&record->lock);
    if (on)
        record->points.count = 0;
    atomic_store_explicit(&record->on, on, memory_order_relaxed); /* the lock orders the rest */
    pthread_mutex_unlock(&record->lock);
}

void kit_record_point(struct kit_record *record, const char *point) {
    int i = 0;
    if (!atomic_load_explicit(&record->on, memory_order_relaxed))
        return;
    pthread_mutex_lock(&record->lock);
    while (i < record->points.count && strcmp(record->points.at[i].name, point) != 0)
        i++;
    if (i == record->points.count && i < KIT_RECORD_MAX) {
        snprintf(record->points.at[i].name, sizeof(record->points.at[i].name), "%s", point);
        record->points.at[i].count = 0;
        record->points.count++;
    }
    if (i < KIT_RECORD_MAX)
        record->points.at[i].count++;
    pthread_mutex_unlock(&record->lock);
}

int tk_recorded_points(struct tk *t) {
    struct kit_record *record = &t->own->record;
    int count;
    pthread_mutex_lock(&record->lock);
    count = record->points.count;
    pthread_mutex_unlock(&record->lock);
    TK_CHECK_MSG(t, count < KIT_RECORD_MAX, "more than %d points", KIT_RECORD_MAX - 1);
    return count;
}

const char *tk_recorded_point(struct tk *t, int index, int *count_p) {
    const struct kit_record *record = &t->own->record;
    TK_REQUIRE(t, index >= 0 && index < record->points.count);
    *count_p = record->points.at[index].count;
    return record->points.at[index].name;
}
