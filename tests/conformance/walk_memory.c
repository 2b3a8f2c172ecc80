/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenarios by a world of one, where there is no time to be saved: with no host memory at the first
 * place that asks for some, the second, and so on until there are no more; and with a failure each
 * time that a failpoint is passed. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ops_help.h"
#include "resources.h"
#include "walk.h"

#define MOST_PLACES 400
#define MOST_POINTS 64
#define VAIN_MS 300
/* Where a context takes a second, as it may among many processes that compute, not all points and
 * places are tried, unless SYMMEM_SUITE_LONG=1 asks for it. */
#define ENOUGH_S 20

enum { SLOT_STATUS = 8, SLOT_MORE };

/* --- scenarios of their own ------------------------------------------------------------------- */

static void prepare_handle(struct walk_run *run) {
    walk_find("free")->prepare(run);
}

/* What is made here is given back here, too. */
struct kit_of_streams {
    symmem_stream *streams[2];
    symmem_event *events[2];
};

static symmem_status join(struct walk_run *run, struct kit_of_streams *kit,
                          symmem_graph **graph_p) {
    for (int i = 0; i < 2; i++) {
        WALK_STEP(symmem_stream_create(run->context, -1, &kit->streams[i]));
        WALK_STEP(symmem_event_create(run->context, -1, &kit->events[i]));
    }
    if (graph_p != NULL)
        WALK_STEP(symmem_stream_begin_capture(kit->streams[0]));
    for (int i = 0; i < 2; i++) {
        WALK_STEP(symmem_event_record(kit->events[i], kit->streams[i]));
        WALK_STEP(symmem_stream_wait_event(kit->streams[1 - i], kit->events[i]));
        WALK_STEP(symmem_copy(run->context, run->memory, (char *)run->memory + 64, 64,
                              kit->streams[1 - i]));
    }
    if (graph_p != NULL)
        WALK_STEP(symmem_stream_end_capture(kit->streams[0], graph_p));
    return SYMMEM_OK;
}

static symmem_status with_streams(struct walk_run *run, bool captured) {
    struct kit_of_streams kit = {0};
    symmem_graph *graph = NULL;
    symmem_status status = join(run, &kit, captured ? &graph : NULL);
    if (status == SYMMEM_OK && captured)
        status = symmem_graph_launch(graph, kit.streams[0]);
    if (status == SYMMEM_OK && !captured)
        status = symmem_event_synchronize(kit.events[1], run->limit_ms);
    for (int i = 0; i < 2; i++) {
        if (status == SYMMEM_OK)
            status = symmem_stream_synchronize(kit.streams[i], run->limit_ms);
        symmem_event_destroy(kit.events[i]);
    }
    TK_OK(run->t, symmem_graph_destroy(graph));
    for (int i = 0; i < 2; i++)
        TK_OK(run->t, symmem_stream_destroy(kit.streams[i]));
    return status;
}

static symmem_status events(struct walk_run *run) {
    return with_streams(run, false);
}

static symmem_status captured_events(struct walk_run *run) {
    return with_streams(run, true);
}

static symmem_status made_tensors(struct walk_run *run) {
    int64_t count;
    DLTensor input = walk_words(run, &count);
    DLManagedTensor *made = NULL;
    WALK_STEP(symmem_one_shot_all_reduce(run->handle, &input, SYMMEM_SUM, WALK_CHANNEL,
                                         run->limit_ms, NULL, &made));
    made->deleter(made);
    return SYMMEM_OK;
}

static symmem_status stores(struct walk_run *run) {
    symmem_store *store = NULL;
    int64_t sum = 0;
    uint64_t value = 7;
    symmem_status status = symmem_store_open_memory(&store);
    if (status == SYMMEM_OK)
        status = symmem_store_set(store, "key", &value, sizeof(value), run->limit_ms);
    if (status == SYMMEM_OK)
        status = symmem_store_add(store, "sum", 3, &sum, run->limit_ms);
    if (status == SYMMEM_OK)
        TK_EQ_INT(run->t, 3, sum);
    symmem_store_close(store);
    return status;
}

static const struct walk_scenario own_scenarios[] = {
    {"events", SYMMEM_CAP_STREAMS, WALK_LOCAL, .prepare = prepare_handle, .act = events},
    {"captured_events", SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, WALK_LOCAL,
     .prepare = prepare_handle, .act = captured_events},
    {"made_tensors", COLLECTIVES, WALK_SIGNALS, .prepare = prepare_handle, .act = made_tensors},
    {"stores", 0, WALK_LOCAL, .prepare = prepare_handle, .act = stores},
};
#define OWN_COUNT (int)(sizeof(own_scenarios) / sizeof(own_scenarios[0]))

static const struct walk_scenario *scenario_at(int index) {
    return index < walk_scenario_count ? &walk_scenarios[index]
                                       : &own_scenarios[index - walk_scenario_count];
}

/* --- one run ---------------------------------------------------------------------------------- */

struct shortage {
    struct tk *t;
    const struct walk_scenario *scenario;
    int number;        /* of the run */
    const char *point; /* NULL: of memory */
    int place;         /* the nth */
    time_t begun_s;    /* the whole walk */
};

/* A stream's work fails later: it has told, or does when it is asked for. */
static symmem_status act(struct walk_run *run, const struct walk_scenario *scenario) {
    symmem_status status = scenario->act(run);
    if (status == SYMMEM_OK && run->stream != NULL)
        status = symmem_stream_synchronize(run->stream, run->limit_ms);
    return status;
}

/* Rank 0 may fail before it comes to the others, which then wait until their limit. */
static bool is_expected(const struct shortage *shortage, symmem_status status) {
    return status == WALK_INJECTED || (shortage->point == NULL && status == SYMMEM_OUT_OF_MEMORY) ||
           (status == SYMMEM_TIMEOUT && shortage->t->rank != 0);
}

static void begin_shortage(const struct shortage *shortage) {
    if (shortage->t->rank != 0)
        return;
    if (shortage->point == NULL)
        tk_fail_allocation(shortage->place);
    else
        tk_on_point(shortage->t, shortage->point, shortage->place,
                    (struct tk_action){.status = WALK_INJECTED});
}

/* Whether it came to that. */
static bool end_shortage(const struct shortage *shortage) {
    if (shortage->point == NULL || shortage->t->rank != 0)
        return tk_fail_allocation(0);
    bool hit = tk_point_count(shortage->t, shortage->point) >= shortage->place;
    tk_forget_points(shortage->t);
    return hit;
}

/* Of rank 0; the others share what it finds. False: there are no more places. */
static bool take_place(struct shortage *shortage) {
    struct tk *t = shortage->t;
    const struct walk_scenario *scenario = shortage->scenario;
    struct walk_run run = {.t = t, .number = shortage->number++};
    const char *what = shortage->point == NULL ? "no memory" : shortage->point;
    tk_checkpoint(t, "%s: %s, %d", scenario->name, what, shortage->place);
    walk_begin(&run, scenario);
    symmem_clear_error();
    tk_out_of_band_barrier(t);
    if (t->world_size > 1)
        run.limit_ms = tk_limit_ms(t, VAIN_MS);
    const int mappings = resources_shared_mappings();
    begin_shortage(shortage);
    symmem_status status = act(&run, scenario);
    bool hit = end_shortage(shortage);
    symmem_pool_stats stats = {.segment_count = 0};
    if (run.pool != NULL) /* it keeps its segments */
        TK_OK(t, symmem_pool_get_stats(run.pool, &stats));
    /* As does who has joined the heap. */
    if (status == SYMMEM_OUT_OF_MEMORY && t->world_size == 1 && stats.segment_count == 0 &&
        (t->capabilities & SYMMEM_CAP_WORLD) == 0)
        TK_CHECK_MSG(t, resources_shared_mappings() <= mappings, "%s: mappings stay at place %d",
                     scenario->name, shortage->place);
    bool failed = !tk_all_agree(t, SLOT_STATUS, status == SYMMEM_OK);
    hit = !tk_all_agree(t, SLOT_MORE, !hit);
    TK_CHECK_MSG(t, status == SYMMEM_OK || (hit && is_expected(shortage, status)), "%s: %s, %d: %s",
                 scenario->name, what, shortage->place, symmem_status_name(status));
    /* Only multicast is gone without. */
    if (hit && !failed && shortage->point == NULL)
        TK_CHECK_MSG(t, scenario->multicast, "%s: nothing fails at place %d", scenario->name,
                     shortage->place);
    run.failure.status = SYMMEM_OK;
    run.limit_ms = tk_limit_ms(t, WALK_LIMIT_MS);
    if (failed && scenario->outcome == WALK_SIGNALS)
        TK_OK(t, symmem_handle_reset(run.handle, run.limit_ms));
    if (failed && (scenario->outcome != WALK_LOCAL || status != SYMMEM_OK))
        TK_OK(t, act(&run, scenario));
    tk_out_of_band_barrier(t);
    walk_give_back(&run);
    return hit && tk_all_agree(t, SLOT_STATUS, !tk_failed(t));
}

static bool is_enough(const struct shortage *shortage) {
    return !tk_suite_is_long() && time(NULL) - shortage->begun_s > ENOUGH_S;
}

static void note_places(struct tk *t, int places, const char *what, time_t begun_s) {
    tk_note(t, "%d %s%s", places, what,
            is_enough(&(struct shortage){.begun_s = begun_s})
                ? ", the rest left out (SYMMEM_SUITE_LONG=1 tries all)"
                : "");
}

static int take_places(struct shortage *shortage) {
    shortage->place = 1;
    while (tk_all_agree(shortage->t, SLOT_MORE, !is_enough(shortage)) && take_place(shortage) &&
           shortage->place < MOST_PLACES)
        shortage->place++;
    TK_BELOW(shortage->t, MOST_PLACES, shortage->place);
    return shortage->place - 1;
}

/* --- all of them ------------------------------------------------------------------------------ */

static int walk_all(struct tk *t, int (*take)(struct shortage *shortage)) {
    const int count = walk_scenario_count + OWN_COUNT;
    struct shortage shortage = {.t = t, .number = 1, .begun_s = time(NULL)};
    int places = 0;
    for (int i = 0; i < count; i++) { /* by the seed, for what comes last may be left out */
        shortage.scenario = scenario_at((int)((t->seed + (uint64_t)i) % (uint64_t)count));
        /* A world of one does without multicast; more ranks are for that alone. */
        if ((shortage.scenario->needs & ~t->capabilities) != 0 ||
            shortage.scenario->multicast != (t->world_size > 1))
            continue;
        const int descriptors = resources_descriptors(), mappings = resources_shared_mappings();
        places += take(&shortage);
        tk_out_of_band_barrier(t);
        TK_EQ_INT(t, descriptors, resources_descriptors());
        TK_EQ_INT(t, mappings, resources_shared_mappings());
        tk_out_of_band_barrier(t);
    }
    return places;
}

void walk_shortages(struct tk *t) {
    TK_REQ(t, "SM-ERROR-09");
    const time_t begun_s = time(NULL);
    int places = walk_all(t, take_places);
    if (t->rank == 0)
        note_places(t, places, "places", begun_s);
}

/* The points that a run passes, and how often each. */
static int find_points(struct shortage *shortage, char names[][32], int counts[]) {
    struct tk *t = shortage->t;
    struct walk_run run = {.t = t, .number = shortage->number++};
    int count = 0;
    walk_begin(&run, shortage->scenario);
    tk_record_points(t, true);
    TK_OK(t, act(&run, shortage->scenario));
    tk_record_points(t, false);
    for (; count < tk_recorded_points(t) && count < MOST_POINTS; count++)
        snprintf(names[count], 32, "%s", tk_recorded_point(t, count, &counts[count]));
    walk_give_back(&run);
    return count;
}

static int take_points(struct shortage *shortage) {
    char names[MOST_POINTS][32];
    if (is_enough(shortage))
        return 0;
    int counts[MOST_POINTS], count = find_points(shortage, names, counts), places = 0;
    TK_BELOW(shortage->t, MOST_POINTS, count);
    for (int i = 0; i < count; i++) {
        shortage->point = names[i];
        for (shortage->place = 1; shortage->place <= counts[i] && !is_enough(shortage);
             shortage->place++)
            places += take_place(shortage);
    }
    shortage->point = NULL;
    return places;
}

void walk_points_of_one(struct tk *t) {
    TK_REQ(t, "SM-POINT-02");
    const time_t begun_s = time(NULL);
    int places = walk_all(t, take_points);
    note_places(t, places, "points", begun_s);
}
