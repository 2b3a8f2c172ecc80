/* SPDX-License-Identifier: BSD-3-Clause */
/* Every scenario, by a world of one, with no host memory where it is asked for: at the first place,
 * the second, and so on until there are no more. */
#include "resources.h"
#include "walk.h"

#define MOST_PLACES 400
#define VAIN_MS 300

enum { SLOT_STATUS = 8, SLOT_MORE };

struct shortage {
    struct tk *t;
    const struct walk_scenario *scenario;
    int place;
};

/* A stream's work fails later: it has told, or does when it is asked for. */
static symmem_status act(struct walk_run *run, const struct walk_scenario *scenario) {
    symmem_status status = scenario->act(run);
    if (status == SYMMEM_OK && run->stream != NULL)
        status = symmem_stream_synchronize(run->stream, run->limit_ms);
    return status;
}

/* Rank 0 may fail before it meets the others, who then wait in vain. */
static bool is_shortage(const struct tk *t, symmem_status status) {
    return status == SYMMEM_OUT_OF_MEMORY || status == SYMMEM_LIMIT ||
           (status == SYMMEM_TIMEOUT && t->rank != 0);
}

/* Of rank 0; the others share what it finds. False: there are no more places. */
static bool take_place(struct shortage *shortage) {
    struct tk *t = shortage->t;
    const struct walk_scenario *scenario = shortage->scenario;
    struct walk_run run = {
        .t = t, .number = MOST_PLACES * (int)(scenario - walk_scenarios) + shortage->place};
    tk_checkpoint(t, "%s: no memory at place %d", scenario->name, shortage->place);
    walk_begin(&run, scenario);
    symmem_clear_error();
    tk_out_of_band_barrier(t);
    if (t->world_size > 1)
        run.limit_ms = tk_limit_ms(t, VAIN_MS);
    if (t->rank == 0)
        tk_fail_allocation(shortage->place);
    symmem_status status = act(&run, scenario);
    bool more = tk_fail_allocation(0);
    bool failed = !tk_all_agree(t, SLOT_STATUS, status == SYMMEM_OK);
    more = !tk_all_agree(t, SLOT_MORE, !more);
    TK_CHECK_MSG(t, status == SYMMEM_OK || (more && is_shortage(t, status)), "%s at place %d: %s",
                 scenario->name, shortage->place, symmem_status_name(status));
    run.failure.status = SYMMEM_OK;
    run.limit_ms = tk_limit_ms(t, WALK_LIMIT_MS);
    if (failed && scenario->outcome == WALK_SIGNALS)
        TK_OK(t, symmem_handle_reset(run.handle, run.limit_ms));
    if (failed && (scenario->outcome != WALK_LOCAL || status != SYMMEM_OK))
        TK_OK(t, act(&run, scenario));
    tk_out_of_band_barrier(t);
    walk_give_back(&run);
    return more && tk_all_agree(t, SLOT_STATUS, !tk_failed(t));
}

/* A world of one does without multicast, two ranks are for that alone. */
void walk_shortages(struct tk *t) {
    int places = 0;
    for (int i = 0; i < walk_scenario_count; i++) {
        struct shortage shortage = {.t = t, .scenario = &walk_scenarios[i], .place = 1};
        if ((walk_scenarios[i].needs & ~t->capabilities) != 0 ||
            walk_scenarios[i].multicast != (t->world_size > 1))
            continue;
        const int descriptors = resources_descriptors(), mappings = resources_shared_mappings();
        while (take_place(&shortage) && shortage.place < MOST_PLACES)
            shortage.place++;
        TK_BELOW(t, MOST_PLACES, shortage.place);
        tk_out_of_band_barrier(t);
        TK_EQ_INT(t, descriptors, resources_descriptors());
        TK_EQ_INT(t, mappings, resources_shared_mappings());
        tk_out_of_band_barrier(t);
        places += shortage.place - 1;
    }
    if (t->rank == 0)
        tk_note(t, "%d places", places);
}
