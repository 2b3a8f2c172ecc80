/* SPDX-License-Identifier: BSD-3-Clause */
#include "withheld.h"

#define SMALL 9 /* up to here every pair of ranks is tried */
#define MAX_TRIALS SYMMEM_MAX_WORLD_SIZE

/* The trials of one case: who is withheld from whom. */
struct plan {
    struct tk *t;
    const struct withheld_kind *kind;
    int32_t trials;
    /* The rank withheld in a trial as `rank` sees it, -1 if it does not wait; in group ranks. */
    int32_t (*absent)(const struct plan *plan, int32_t trial, int32_t rank);
    int32_t chosen[8]; /* of withhold_some */
};

/* A rank that is kept from running for longer is missing, rightly. */
static uint32_t limit_of(struct tk *t) {
    return tk_limit_ms(t, t->world_size <= SMALL ? 100 : 200 + 8 * (uint32_t)t->world_size);
}

static symmem_group *group_of(struct tk *t, const struct plan *plan, int32_t index) {
    int32_t ranks[SYMMEM_MAX_WORLD_SIZE];
    symmem_group *group = NULL;
    char name[32];
    snprintf(name, sizeof(name), "withheld.%d", plan->kind->own_group ? index : index % 2);
    if (symmem_group_find(t->context, name, &group) == SYMMEM_OK)
        return group;
    for (int32_t i = 0; i < t->world_size; i++)
        ranks[i] = withheld_mirror(t->world_size, index, i);
    return tk_group(t, name, ranks, t->world_size);
}

void withheld_make_handle(struct withheld *w) {
    w->memory = tk_alloc(w->t, 64);
    w->handle = tk_rendezvous(w->t, w->memory, w->group);
}

void withheld_end_handle(struct withheld *w) {
    tk_release(w->t, w->handle);
    tk_free(w->t, w->memory);
}

static void make_objects(const struct plan *plan, struct withheld *objects, int32_t count) {
    struct tk *t = plan->t;
    for (int32_t i = 0; i < count; i++) {
        struct withheld *w = &objects[i];
        *w = (struct withheld){.t = t, .index = i, .size = t->world_size, .limit_ms = limit_of(t)};
        w->group = group_of(t, plan, i);
        w->rank = withheld_mirror(t->world_size, i, t->rank);
        if (plan->kind->make != NULL)
            plan->kind->make(w);
    }
}

static void end_objects(const struct plan *plan, struct withheld *objects, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (plan->kind->end != NULL)
            plan->kind->end(&objects[i]);
}

struct waiter {
    const struct withheld_kind *kind;
    struct withheld *object;
    pthread_t thread;
    bool started;
};

static void *wait_in_thread(void *arg) {
    const struct waiter *self = arg;
    struct withheld *w = self->object;
    w->begin_ms = tk_now_ms();
    w->status = self->kind->run(w);
    w->took_ms = tk_now_ms() - w->begin_ms;
    symmem_last_error(&w->record);
    tk_note_delay(w->t);
    return NULL;
}

static void wait_for_all(const struct plan *plan, struct withheld *objects, int32_t count) {
    struct waiter waiters[WITHHELD_BATCH];
    struct tk *t = plan->t;
    for (int32_t i = 0; i < count; i++) {
        waiters[i] = (struct waiter){.kind = plan->kind, .object = &objects[i]};
        if (objects[i].absent >= 0)
            waiters[i].started = TK_CHECK(
                t, pthread_create(&waiters[i].thread, NULL, wait_in_thread, &waiters[i]) == 0);
    }
    for (int32_t i = 0; i < count; i++)
        if (waiters[i].started)
            TK_CHECK(t, pthread_join(waiters[i].thread, NULL) == 0);
}

static bool names_exactly(const struct withheld_kind *kind, const struct withheld *w) {
    for (int32_t r = 0; r < SYMMEM_MAX_WORLD_SIZE; r++)
        if (symmem_error_is_missing(&w->record, r) != (r == w->absent && !kind->ranks_unknown))
            return false;
    return kind->ranks_unknown ||
           (w->record.missing_count == 1 && w->record.failed_rank == w->absent &&
            w->record.rank == w->rank && w->record.world_size == w->size);
}

static void describe(const struct withheld_kind *kind, const struct withheld *w, char *text,
                     size_t capacity) {
    size_t used =
        (size_t)snprintf(text, capacity, "expected TIMEOUT of %s after %u ms",
                         kind->operation == NULL ? "the call" : kind->operation, w->limit_ms);
    if (!kind->ranks_unknown)
        used += (size_t)snprintf(text + used, capacity - used, " with %d failed and missing",
                                 w->absent);
    used += (size_t)snprintf(text + used, capacity - used,
                             ", got %s of %s after %llu ms by group rank %d with %d failed and",
                             symmem_status_name(w->status), w->record.operation,
                             (unsigned long long)w->took_ms, w->record.rank, w->record.failed_rank);
    for (int32_t r = 0; r < SYMMEM_MAX_WORLD_SIZE && used < capacity; r++)
        if (symmem_error_is_missing(&w->record, r))
            used += (size_t)snprintf(text + used, capacity - used, " %d", r);
    if (used < capacity)
        snprintf(text + used, capacity - used, "%s",
                 w->record.missing_count > 0 ? " missing" : " none missing");
}

/* What the rank that waited got. Whom it names is a matter of time, for a rank that was kept from
 * running is missing, too, and may poison the object before the others' limits are over. */
static void judge(const struct plan *plan, const struct withheld *w) {
    const struct withheld_kind *kind = plan->kind;
    uint64_t most_ms = w->limit_ms + tk_scaled_ms(1000) + tk_late_ms(w->t, w->begin_ms);
    bool failed = w->status != SYMMEM_OK && w->record.status == w->status &&
                  (kind->operation == NULL || strcmp(kind->operation, w->record.operation) == 0);
    char got[300];
    describe(kind, w, got, sizeof(got));
    TK_CHECK_MSG(plan->t, failed, "without group rank %d of %d: %s", w->absent, w->size, got);
    TK_CHECK_MSG(plan->t, w->status != SYMMEM_TIMEOUT || w->took_ms + 2 >= w->limit_ms,
                 "without group rank %d of %d: %s", w->absent, w->size, got);
    TK_TIMELY(plan->t,
              w->status == SYMMEM_TIMEOUT && names_exactly(kind, w) && w->took_ms <= most_ms,
              "without group rank %d of %d: %s", w->absent, w->size, got);
}

/* Trials first .. first + count - 1 at once. */
static void try_batch(const struct plan *plan, struct withheld *objects, int32_t first,
                      int32_t count) {
    struct tk *t = plan->t;
    for (int32_t i = 0; i < count; i++) {
        struct withheld *w = &objects[i];
        w->absent = plan->absent(plan, first + i, w->rank);
        if (plan->kind->arm != NULL && w->absent >= 0)
            plan->kind->arm(w);
    }
    tk_checkpoint(t, "trials %d to %d", first, first + count - 1);
    tk_out_of_band_barrier(t);
    wait_for_all(plan, objects, count);
    for (int32_t i = 0; i < count; i++)
        if (objects[i].absent >= 0)
            judge(plan, &objects[i]);
    tk_out_of_band_barrier(t);
    for (int32_t i = 0; i < count; i++)
        if (plan->kind->mend != NULL)
            plan->kind->mend(&objects[i]);
}

/* What ranks map of each other is their number squared for each object, and each has a thread that
 * waits: there large worlds have more to do than they save. Even, for the groups alternate. */
static int32_t batch_of(int32_t world_size) {
    return world_size > 72   ? WITHHELD_BATCH / 4
           : world_size > 32 ? WITHHELD_BATCH / 2
                             : WITHHELD_BATCH;
}

static void run_plan(const struct plan *plan) {
    struct withheld objects[WITHHELD_BATCH];
    int32_t most = batch_of(plan->t->world_size);
    int32_t count = plan->trials < most ? plan->trials : most;
    make_objects(plan, objects, count);
    for (int32_t first = 0; first < plan->trials; first += count) {
        int32_t part = plan->trials - first < count ? plan->trials - first : count;
        try_batch(plan, objects, first, part);
    }
    end_objects(plan, objects, count);
}

static int32_t each_absent(const struct plan *plan, int32_t trial, int32_t rank) {
    return trial == rank ? -1 : trial;
}

void withhold_each(struct tk *t, const struct withheld_kind *kind) {
    struct plan plan = {.t = t, .kind = kind, .trials = t->world_size, .absent = each_absent};
    run_plan(&plan);
}

static int32_t some_absent(const struct plan *plan, int32_t trial, int32_t rank) {
    return each_absent(plan, plan->chosen[trial], rank);
}

void withhold_some(struct tk *t, const struct withheld_kind *kind) {
    static const int32_t telling[] = {1, 31, 32, 63, 64, 127};
    struct plan plan = {.t = t, .kind = kind, .absent = some_absent};
    if (t->world_size <= SMALL) {
        withhold_each(t, kind);
        return;
    }
    plan.chosen[plan.trials++] = 0;
    for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++)
        if (telling[i] < t->last)
            plan.chosen[plan.trials++] = telling[i];
    plan.chosen[plan.trials++] = t->last;
    run_plan(&plan);
}

/*
 * A rank that waits may not be withheld from another at the same time on the same object. So the
 * ranks are laid out in blocks of `distance`; in one trial those of the even blocks wait for the
 * rank that far above them, then those of the odd ones, then both for the rank below.
 */
static int32_t peer_absent(const struct plan *plan, int32_t trial, int32_t rank) {
    static const int32_t distances[] = {1, 31, 32, 64};
    int32_t distance = distances[trial / 4];
    int32_t peer = trial % 4 < 2 ? rank + distance : rank - distance;
    if (rank / distance % 2 != trial % 2 || peer < 0 || peer >= plan->t->world_size)
        return -1;
    return peer;
}

static int32_t own_absent(const struct plan *plan, int32_t trial, int32_t rank) {
    return rank;
}

void withhold_peers(struct tk *t, const struct withheld_kind *kind) {
    struct plan plan = {.t = t, .kind = kind, .absent = peer_absent};
    if (t->world_size > 1 && t->world_size <= SMALL) {
        withhold_each(t, kind);
        return;
    }
    plan.trials = t->world_size > 64 ? 16 : t->world_size > 32 ? 12 : t->world_size > 31 ? 8 : 4;
    if (t->world_size == 1) {
        plan.trials = 1;
        plan.absent = own_absent;
    }
    run_plan(&plan);
}
