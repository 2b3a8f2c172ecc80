/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps after which every rank lives on: one of them fails at a point, or comes late there. */
#include "resources.h"
#include "walk.h"

/* Beside those of walk_list.c. */
enum { SLOT_STATUS = 8, SLOT_HIT, SLOT_POISONED, SLOT_MULTICAST };

#define DELAY_MS 25u /* the others come to where they need this rank long before */
/* Steps without SYMMEM_SUITE_LONG. Threads share memory, processes files. */
#define FAIL_BUDGET 1
#define FAIL_BUDGET_THREADS 40
#define DELAY_BUDGET 1

struct step {
    struct tk *t;
    const struct walk_scenario *scenario;
    int32_t odd;        /* the rank */
    bool late;          /* rather than failing */
    bool had_multicast; /* in the dry run */
    char name[32];
    symmem_status status; /* of this rank */
    symmem_error_record record;
    bool hit; /* the point was passed */
};

/* --- what a step leaves ------------------------------------------------------------------- */

struct holdings {
    int descriptors, mappings, keys;
};

/* All ranks stand still. With threads one rank counts for all. */
static void look(struct tk *t, struct holdings *holdings) {
    *holdings = (struct holdings){0};
    tk_out_of_band_barrier(t);
    if (t->mode == TK_MODE_PROCESS || t->rank == 0) {
        holdings->descriptors = resources_descriptors();
        holdings->mappings = resources_shared_mappings();
    }
    if (t->rank == 0)
        holdings->keys = resources_count_entries(t->scratch_dir);
    tk_out_of_band_barrier(t);
}

static void expect_same(struct step *step, const struct holdings *before) {
    struct tk *t = step->t;
    struct holdings now;

    look(t, &now);
    TK_REQ(t, "SM-POINT-05");
    TK_CHECK_MSG(t, now.descriptors == before->descriptors,
                 "rank %d at %s: %d descriptors, before %d", (int)step->odd, step->name,
                 now.descriptors, before->descriptors);
    TK_CHECK_MSG(t, now.mappings == before->mappings,
                 "rank %d at %s: %d shared mappings, before %d", (int)step->odd, step->name,
                 now.mappings, before->mappings);
    TK_CHECK_MSG(t, now.keys == before->keys, "rank %d at %s: %d files of the store, before %d",
                 (int)step->odd, step->name, now.keys, before->keys);
}

/* --- the verdict on a step ---------------------------------------------------------------- */

static symmem_status status_of(const struct step *step, int32_t rank) {
    return (symmem_status)tk_read_u64(step->t, rank, SLOT_STATUS);
}

static void expect_status(struct step *step, symmem_status expected) {
    TK_CHECK_MSG(step->t, step->status == expected, "rank %d %s at %s: %s instead of %s: %s",
                 (int)step->odd, step->late ? "late" : "fails", step->name,
                 symmem_status_name(step->status), symmem_status_name(expected),
                 step->record.message);
}

static bool takes_part(const struct step *step) {
    return step->t->rank >= step->scenario->from;
}

static void judge_agreed(struct step *step) {
    struct tk *t = step->t;

    if (!takes_part(step))
        return;
    TK_REQ(t, "SM-POINT-03");
    expect_status(step, WALK_INJECTED);
    TK_CHECK_MSG(t, step->record.failed_rank == step->odd - step->scenario->from,
                 "rank %d at %s: rank %d is blamed", (int)step->odd, step->name,
                 (int)step->record.failed_rank);
}

/* Another rank's part: who needs a rank that failed is told; who needs one that never began its
 * operation finds out by itself. */
static void judge_signals(struct step *step) {
    struct tk *t = step->t;
    bool told = tk_read_u64(t, step->odd, SLOT_POISONED) != 0;
    bool good = step->status == SYMMEM_OK || step->status == SYMMEM_POISONED ||
                (!told && step->status == SYMMEM_TIMEOUT);

    TK_REQ(t, "SM-POINT-04");
    TK_CHECK_MSG(t, good, "rank %d fails at %s: %s: %s", (int)step->odd, step->name,
                 symmem_status_name(step->status), step->record.message);
}

/* Nothing failed, although the point may fail: only multicast may be done without. */
static void judge_forgiven(struct step *step) {
    struct tk *t = step->t;

    TK_REQ(t, "SM-POINT-02");
    TK_CHECK_MSG(t, step->scenario->multicast, "the failure at %s on rank %d is ignored",
                 step->name, (int)step->odd);
    TK_REQ(t, "SM-POINT-03");
    expect_status(step, SYMMEM_OK);
    for (int32_t r = 0; r < t->world_size; r++)
        TK_CHECK_MSG(t, tk_read_u64(t, r, SLOT_MULTICAST) == 0,
                     "rank %d fails at %s, and rank %d has multicast", (int)step->odd, step->name,
                     (int)r);
}

static void judge_failure(struct step *step) {
    struct tk *t = step->t;

    if (status_of(step, step->odd) == SYMMEM_OK) {
        judge_forgiven(step);
        return;
    }
    if (t->rank == step->odd) {
        TK_REQ(t, "SM-POINT-02");
        expect_status(step, WALK_INJECTED);
        TK_CHECK_MSG(t, strcmp(step->record.stage, step->name) == 0,
                     "the failure at %s names the stage %s", step->name, step->record.stage);
    }
    if (step->scenario->outcome == WALK_AGREED) {
        judge_agreed(step);
    } else if (t->rank != step->odd) {
        TK_REQ(t, "SM-POINT-04");
        if (step->scenario->outcome == WALK_SIGNALS)
            judge_signals(step);
        else
            expect_status(step, SYMMEM_OK);
    }
}

static void judge(struct step *step) {
    struct tk *t = step->t;
    bool hit = tk_read_u64(t, step->odd, SLOT_HIT) != 0;

    /* Who comes last differs from run to run, so a point may be passed by another this time. */
    if (hit && !step->late && !walk_observes(step->name)) {
        judge_failure(step);
        return;
    }
    TK_REQ(t, step->late ? "SM-POINT-06" : "SM-POINT-02");
    expect_status(step, SYMMEM_OK);
    if (step->scenario->outcome == WALK_AGREED && step->had_multicast)
        TK_CHECK_MSG(t, tk_read_u64(t, t->rank, SLOT_MULTICAST) != 0,
                     "rank %d passes %s, and multicast is lost", (int)step->odd, step->name);
}

/* --- one step ----------------------------------------------------------------------------- */

static void show_outcome(struct step *step, const struct walk_run *run) {
    symmem_handle_info info = {.rank = -1};

    if (run->handle != NULL)
        TK_OK(step->t, symmem_handle_get_info(run->handle, &info));
    tk_share_u64(step->t, SLOT_STATUS, (uint64_t)step->status);
    tk_share_u64(step->t, SLOT_HIT, step->hit);
    tk_share_u64(step->t, SLOT_POISONED, info.poisoned);
    tk_share_u64(step->t, SLOT_MULTICAST, info.multicast_ptr != NULL);
}

static void act(struct step *step, struct walk_run *run, int nth) {
    struct tk *t = step->t;
    struct tk_action action = {.status = WALK_INJECTED};

    if (step->late)
        action = (struct tk_action){.delay_ms = DELAY_MS};
    if (t->rank == step->odd)
        tk_on_point(t, step->name, nth, action);
    tk_out_of_band_barrier(t);
    uint64_t begin_ms = tk_now_ms();
    symmem_clear_error();
    step->status = step->scenario->act(run);
    symmem_last_error(&step->record);
    if (run->failure.status == step->status)
        step->record = run->failure;
    uint64_t took_ms = tk_now_ms() - begin_ms;
    TK_REQ(t, step->scenario->outcome == WALK_AGREED ? "SM-POINT-03" : "SM-POINT-04");
    TK_TIMELY(t, took_ms < tk_scaled_ms(WALK_LIMIT_MS / 2) + tk_late_ms(t, begin_ms),
              "rank %d at %s: took %llu ms", (int)step->odd, step->name,
              (unsigned long long)took_ms);
    step->hit = t->rank == step->odd && tk_point_count(t, step->name) >= nth;
    show_outcome(step, run);
    tk_out_of_band_barrier(t);
    tk_forget_points(t);
}

/* What failed works when it is tried again, and so does everything else. */
static void recover(struct step *step, struct walk_run *run) {
    struct tk *t = step->t;
    bool failed = status_of(step, step->odd) != SYMMEM_OK;

    TK_REQ(t, "SM-POINT-05");
    run->failure.status = SYMMEM_OK;
    run->limit_ms = tk_limit_ms(t, WALK_LIMIT_MS);
    if (failed && step->scenario->outcome == WALK_SIGNALS)
        TK_REQUIRE_OK(t, symmem_handle_reset(run->handle, tk_limit_ms(t, WALK_LIMIT_MS)));
    if (failed && (step->scenario->outcome != WALK_LOCAL || step->status != SYMMEM_OK))
        TK_REQUIRE_OK(t, step->scenario->act(run));
    tk_out_of_band_barrier(t);
    walk_works(run, step->scenario->from == 0 ? run->group : NULL);
}

static bool take_step(struct step *step, const struct walk_list *list, int index, int *number) {
    struct tk *t = step->t;
    struct walk_run run = {.t = t, .number = (*number)++};
    struct holdings before;
    int nth = 0;

    step->odd = walk_list_rank(list, index);
    if (t->rank == step->odd)
        walk_show_name(t, walk_list_point(t, list, index, &nth));
    look(t, &before);
    walk_read_name(t, step->odd, step->name);
    tk_checkpoint(t, "%s: rank %d %s at %s, pass %d", step->scenario->name, (int)step->odd,
                  step->late ? "late" : "fails", step->name, nth);
    walk_begin(&run, step->scenario);
    if (!step->late && !walk_observes(step->name) && step->scenario->vain_ms != 0)
        run.limit_ms = tk_limit_ms(t, 600 + step->scenario->vain_ms);
    act(step, &run, nth);
    judge(step);
    bool good = walk_all_good(t);
    if (good)
        recover(step, &run);
    walk_give_back(&run);
    expect_same(step, &before);
    return walk_all_good(t);
}

void walk_faults(struct tk *t, const char *name) {
    const struct walk_scenario *scenario = walk_find(name);
    struct walk_list list = {0};
    int number = 0, failed = 0, late = 0;

    TK_REQUIRE(t, scenario != NULL);
    int budget = t->mode == TK_MODE_THREAD ? FAIL_BUDGET_THREADS : FAIL_BUDGET;
    if (scenario->vain_ms != 0) /* some steps end by a time limit only */
        budget = FAIL_BUDGET;
    walk_list_make(t, scenario, &number, budget, false, &list);
    struct step step = {.t = t, .scenario = scenario, .had_multicast = list.multicast};
    int late_count = tk_suite_is_long() ? list.total : DELAY_BUDGET;
    bool good = true;
    for (; good && failed < list.taken; failed++)
        good = take_step(&step, &list, list.order[failed], &number);
    step.late = true;
    for (; good && late < late_count && late < list.total; late++)
        good = take_step(&step, &list, list.order[list.total - 1 - late], &number);
    if (t->rank == 0)
        tk_note(t, "%d of %d steps x ranks failed, %d late%s", failed, list.total, late,
                failed < list.total ? " (SYMMEM_SUITE_LONG=1 walks all)" : "");
    walk_list_free(&list);
}
