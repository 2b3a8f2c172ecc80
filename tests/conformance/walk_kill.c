/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps at which a rank is killed. Each rank sends a process in its place, so that there can be
 * many steps in one case; the processes have a store of their own.
 */
#include <sys/stat.h>

#include "own_held.h"
#include "resources.h"
#include "walk.h"

#define KILL_BUDGET 1
#define HANG_MS 20000u
/* What a promise of one second may take here: the time of death is known to some milliseconds. */
#define GRACE_MS 250u
/* What a killed rank left stays; what other programs of the same user have just made goes. */
#define STRANGERS_MS 5000u
/* The system takes its time to end a process. */
#define ENDING_MS 15000u

struct step {
    const struct walk_scenario *scenario;
    int32_t odd; /* the rank that dies */
    int number, nth;
    char name[32];
    char socket_dir[64]; /* "": sockets without a file */
};

static uint32_t promise_ms(const struct tk *t) {
    return tk_scaled_ms((t->world_size >= 64 ? 2000u : 1000u) + GRACE_MS);
}

/* --- the rank that dies ----------------------------------------------------------------------- */

/* If it does not pass the point this time, it dies after the last step. */
static void die(struct tk *t, const struct step *step, struct walk_run *run) {
    tk_on_point(t, step->name, step->nth, (struct tk_action){.kill = true});
    tk_out_of_band_barrier(t);
    (void)step->scenario->act(run);
    tk_share_u64(t, TK_DEATH_SLOT, tk_now_ms());
    raise(SIGKILL);
}

/* --- the others ------------------------------------------------------------------------------- */

static void expect_in_time(struct tk *t, const struct step *step, uint64_t end_ms) {
    uint64_t death_ms, limit_ms = tk_now_ms() + tk_limit_ms(t, ENDING_MS);

    while ((death_ms = tk_read_u64(t, step->odd, TK_ENDED_SLOT)) == 0 && tk_now_ms() < limit_ms)
        tk_sleep_ms(1);
    TK_TIMELY(t, death_ms != 0, "rank %d killed at %s: it has not ended", (int)step->odd,
              step->name);
    TK_TIMELY(t, death_ms == 0 || end_ms <= death_ms + promise_ms(t) + tk_late_ms(t, death_ms),
              "rank %d killed at %s: returned %lld ms after its end", (int)step->odd, step->name,
              (long long)(end_ms - death_ms));
}

/* Done without the lost rank, or told that it is lost. */
static void judge(struct tk *t, const struct step *step, symmem_status status) {
    bool signals = step->scenario->outcome == WALK_SIGNALS;
    bool local = step->scenario->outcome == WALK_LOCAL;
    /* Without PASSIVE no rank reaches the memory of one that has ended. */
    bool lost =
        status == SYMMEM_PEER_LOST && (!local || (t->capabilities & SYMMEM_CAP_PASSIVE) == 0);
    symmem_error_record record = last_record();
    TK_CHECK_MSG(t, status == SYMMEM_OK || lost || (signals && status == SYMMEM_POISONED),
                 "rank %d killed at %s: %s: %s", (int)step->odd, step->name,
                 symmem_status_name(status), record.message);
    TK_CHECK_MSG(t,
                 status != SYMMEM_PEER_LOST ||
                     symmem_error_is_missing(&record, step->odd - step->scenario->from),
                 "rank %d killed at %s: PEER_LOST does not name it", (int)step->odd, step->name);
}

/* Whatever they saw of it before: now they need it. It may still be on its way to its end. */
static void need_the_lost(struct tk *t, const struct step *step, struct walk_run *run) {
    uint64_t from_ms = tk_now_ms(), end_ms;

    if (run->context == NULL || run->group == NULL)
        return;
    TK_FAILS(t, PEER_LOST, symmem_group_barrier(run->group, run->limit_ms));
    end_ms = tk_now_ms();
    if (tk_read_u64(t, step->odd, TK_ENDED_SLOT) > from_ms)
        from_ms = tk_read_u64(t, step->odd, TK_ENDED_SLOT);
    TK_TIMELY(t, end_ms <= from_ms + promise_ms(t) + tk_late_ms(t, from_ms),
              "rank %d killed at %s: a host barrier took %lld ms", (int)step->odd, step->name,
              (long long)(end_ms - from_ms));
}

static void survive(struct tk *t, const struct step *step, struct walk_run *run) {
    tk_out_of_band_barrier(t);
    symmem_clear_error();
    symmem_status status = step->scenario->act(run);
    uint64_t end_ms = tk_now_ms();
    TK_REQ(t, "SM-POINT-07");
    judge(t, step, status);
    if (status != SYMMEM_OK)
        expect_in_time(t, step, end_ms);
    if (t->rank >= step->scenario->from)
        need_the_lost(t, step, run);
    TK_REQ(t, "SM-POINT-08");
    walk_survivors_work(run, step->odd);
}

/* --- one step --------------------------------------------------------------------------------- */

static void expect_nothing_held(struct tk *t, const struct step *step,
                                const struct own_held *before) {
    char text[512];
    struct own_held now;

    own_held_take(&now);
    TK_CHECK_MSG(t, own_held_is(&now, before, text, sizeof(text)), "rank %d killed at %s: %s",
                 (int)step->odd, step->name, text);
}

static void be_rank(struct tk *t, void *arg) {
    const struct step *step = arg;
    struct walk_run run = {.t = t, .number = step->number};
    struct own_held before;

    tk_open_device(t);
    tk_open_engine(t, step->number);
    own_held_take(&before);
    walk_open_store(&run, "kill");
    if (step->socket_dir[0] != '\0')
        run.socket_dir = step->socket_dir;
    walk_begin(&run, step->scenario);
    tk_out_of_band_barrier(t);
    if (t->rank == step->odd) {
        die(t, step, &run);
        return;
    }
    survive(t, step, &run);
    walk_give_back(&run);
    symmem_store_close(run.store);
    TK_REQ(t, "SM-POINT-08");
    expect_nothing_held(t, step, &before);
}

static void expect_no_names(struct tk *t, const struct step *step,
                            const struct resources_names *before) {
    char first[300];
    uint64_t end_ms = tk_now_ms() + tk_limit_ms(t, STRANGERS_MS);
    int count = resources_new_names(before, first, sizeof(first));

    while (count > 0 && tk_now_ms() < end_ms)
        count = resources_new_names(before, first, sizeof(first));
    TK_REQ(t, "SM-POINT-08");
    TK_CHECK_MSG(t, count == 0, "rank %d killed at %s: %s was left behind", (int)step->odd,
                 step->name, first);
}

/* Every other step has sockets in a directory. It must be there before anybody uses it. A rank that
 * dies when the others need it no more leaves its socket. */
static void choose_sockets(struct tk *t, struct step *step) {
    int length = snprintf(step->socket_dir, sizeof(step->socket_dir), "%s/s", t->scratch_dir);

    if ((t->seed + (uint64_t)step->number) % 2 != 0 || step->scenario->ends ||
        length >= (int)sizeof(step->socket_dir)) {
        step->socket_dir[0] = '\0';
        return;
    }
    if (t->rank == 0 && mkdir(step->socket_dir, 0700) != 0)
        TK_CHECK_MSG(t, errno == EEXIST, "no directory %s", step->socket_dir);
}

/* The next process of the rank that was killed, in the same store: others that had ended before the
 * kill, or that were not in its group, cannot tell whose its files are. */
static void end_another(struct tk *t, const struct step *step) {
    struct walk_run run = {.t = t, .number = step->number};
    symmem_context_options options = tk_options(t);
    symmem_context *context = NULL;
    walk_open_store(&run, "kill");
    options.rank = step->odd;
    options.store = run.store;
    options.socket_dir = step->socket_dir;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
    symmem_store_close(run.store);
}

static void expect_no_sockets(struct tk *t, const struct step *step) {
    if (step->socket_dir[0] == '\0')
        return;
    TK_REQ(t, "SM-POINT-08");
    end_another(t, step);
    TK_CHECK_MSG(t, resources_count_entries(step->socket_dir) == 0,
                 "rank %d killed at %s: sockets were left behind", (int)step->odd, step->name);
}

static bool take_step(struct tk *t, struct step *step, const struct walk_list *list, int index,
                      const struct resources_names *names) {
    step->odd = walk_list_rank(list, index);
    if (t->rank == step->odd)
        walk_show_name(t, walk_list_point(t, list, index, &step->nth));
    choose_sockets(t, step);
    tk_out_of_band_barrier(t);
    walk_read_name(t, step->odd, step->name);
    tk_checkpoint(t, "%s: rank %d killed at %s", step->scenario->name, (int)step->odd, step->name);
    TK_REQ(t, "SM-POINT-07");
    enum tk_child_end end = tk_run_child(t, be_rank, step, tk_limit_ms(t, HANG_MS));
    TK_CHECK_MSG(t, (end == TK_CHILD_KILLED) == (t->rank == step->odd),
                 "rank %d at %s: this rank was %skilled", (int)step->odd, step->name,
                 t->rank == step->odd ? "not " : "");
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        expect_no_names(t, step, names);
    if (t->rank == 0)
        expect_no_sockets(t, step);
    return walk_all_good(t);
}

void walk_kills(struct tk *t, const char *name) {
    const struct walk_scenario *scenario = walk_find(name);
    struct walk_list list = {0};
    struct resources_names before;
    int number = 0, killed = 0;
    bool good = true;

    TK_REQUIRE(t, scenario != NULL);
    walk_list_make(t, scenario, &number, KILL_BUDGET, true, &list);
    resources_take_names(&before);
    tk_out_of_band_barrier(t);
    for (; good && killed < list.taken; killed++) {
        struct step step = {.scenario = scenario, .number = number++};
        good = take_step(t, &step, &list, list.order[killed], &before);
    }
    if (t->rank == 0)
        tk_note(t, "%d of %d steps x ranks killed%s", killed, list.total,
                killed < list.total ? " (SYMMEM_SUITE_LONG=1 walks all)" : "");
    walk_list_free(&list);
}
