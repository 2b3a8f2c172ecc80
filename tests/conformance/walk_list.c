/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a walk: what a dry run passed, and in which order it is taken. */
#include "walk.h"

#define DRY_MS 60000u

enum { SLOT_STEPS = 0, SLOT_GOOD = 1, SLOT_NAME = 2 }; /* four of the last */

bool walk_all_good(struct tk *t) {
    return tk_all_agree(t, SLOT_GOOD, !tk_failed(t));
}

void walk_show_name(struct tk *t, const char *name) {
    uint64_t words[4] = {0};

    strncpy((char *)words, name, sizeof(words) - 1);
    for (int i = 0; i < 4; i++)
        tk_share_u64(t, SLOT_NAME + i, words[i]);
}

void walk_read_name(struct tk *t, int32_t rank, char name[32]) {
    for (int i = 0; i < 4; i++) {
        uint64_t word = tk_read_u64(t, rank, SLOT_NAME + i);
        memcpy(name + 8 * i, &word, sizeof(word));
    }
}

/* The same on all ranks, unlike tk_random. */
static uint64_t next_random(uint64_t *state) {
    uint64_t value = *state += 0x9e3779b97f4a7c15u;

    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

static void shuffle(int *order, int count, uint64_t seed) {
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int other = (int)(next_random(&seed) % ((uint64_t)i + 1));
        int kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

/* How many passes this rank noted, of the core's points or of the backend's. */
static int count_passes(struct tk *t, bool of_backend) {
    int passes = 0;

    for (int i = 0; i < tk_recorded_points(t); i++) {
        int count;
        const char *name = tk_recorded_point(t, i, &count);
        if ((walk_core_point(name) == NULL) == of_backend)
            passes += count;
    }
    return passes;
}

/* The ranks' shares: a rank's steps are numbered from first[], the backend's `own` before the
 * core's. */
static void count_steps(struct tk *t, struct walk_list *list, int own[]) {
    uint64_t backends = (uint64_t)count_passes(t, true);

    tk_share_u64(t, SLOT_STEPS, backends << 32 | (uint64_t)count_passes(t, false));
    tk_out_of_band_barrier(t);
    for (int32_t r = 0; r < t->world_size; r++) {
        uint64_t counts = tk_read_u64(t, r, SLOT_STEPS);
        own[r] = (int)(counts >> 32);
        list->first[r + 1] = list->first[r] + own[r] + (int)(counts & UINT32_MAX);
    }
    tk_out_of_band_barrier(t);
    list->total = list->first[t->world_size];
}

/* Every second step that is taken is the backend's, as far as it has some. They are few beside the
 * core's, and only its author has seen them fail. */
static void prefer_backends(const struct walk_list *list, const int own[], uint64_t seed) {
    int from = 0;

    for (int to = (int)(seed & 1); to < list->taken; to += 2) {
        for (from = from > to ? from : to; from < list->total; from++) {
            int index = list->order[from];
            int32_t rank = walk_list_rank(list, index);
            if (index - list->first[rank] < own[rank])
                break;
        }
        if (from == list->total)
            return;
        int kept = list->order[to];
        list->order[to] = list->order[from];
        list->order[from++] = kept;
    }
}

struct dry_run {
    const struct walk_scenario *scenario;
    int number;
    bool apart;
    bool multicast;
};

static void run_dry(struct tk *t, void *arg) {
    struct dry_run *dry = arg;
    const struct walk_scenario *scenario = dry->scenario;
    struct walk_run run = {.t = t, .number = dry->number};

    if (dry->apart)
        walk_open_store(&run, "dry");
    walk_begin(&run, scenario);
    tk_out_of_band_barrier(t);
    tk_record_points(t, true);
    TK_REQUIRE_OK(t, scenario->act(&run));
    tk_record_points(t, false);
    if (run.handle != NULL) {
        symmem_handle_info info;
        TK_REQUIRE_OK(t, symmem_handle_get_info(run.handle, &info));
        dry->multicast = info.multicast_ptr != NULL;
    }
    tk_out_of_band_barrier(t);
    walk_works(&run, scenario->from == 0 ? run.group : NULL); /* the store has all its folders */
    walk_give_back(&run);
    if (dry->apart)
        symmem_store_close(run.store);
}

void walk_list_make(struct tk *t, const struct walk_scenario *scenario, int *number, int budget,
                    bool apart, struct walk_list *list) {
    struct dry_run dry = {.scenario = scenario, .number = (*number)++, .apart = apart};
    int own[SYMMEM_MAX_WORLD_SIZE] = {0};

    if (apart)
        TK_REQUIRE(t, tk_run_child(t, run_dry, &dry, tk_limit_ms(t, DRY_MS)) == TK_CHILD_DONE);
    else
        run_dry(t, &dry);
    list->multicast = dry.multicast;
    count_steps(t, list, own);
    TK_CHECK_MSG(t, list->total > 0, "no test point is passed");
    list->taken = tk_suite_is_long() || budget > list->total ? list->total : budget;
    list->order = calloc((size_t)list->total + 1, sizeof(list->order[0]));
    TK_REQUIRE(t, list->order != NULL);
    shuffle(list->order, list->total, t->seed);
    prefer_backends(list, own, t->seed);
}

void walk_list_free(struct walk_list *list) {
    free(list->order);
    list->order = NULL;
}

int32_t walk_list_rank(const struct walk_list *list, int index) {
    int32_t rank = 0;

    while (list->first[rank + 1] <= index)
        rank++;
    return rank;
}

const char *walk_list_point(struct tk *t, const struct walk_list *list, int index, int *nth_p) {
    int left = index - list->first[t->rank], points = tk_recorded_points(t);

    for (int i = 0; i < 2 * points; i++) {
        int count;
        const char *name = tk_recorded_point(t, i % points, &count);
        if ((walk_core_point(name) == NULL) != (i < points))
            continue;
        *nth_p = left + 1;
        if (left < count)
            return name;
        left -= count;
    }
    return ""; /* not reached: the indices are this rank's own */
}
