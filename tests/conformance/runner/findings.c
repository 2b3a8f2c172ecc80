/* SPDX-License-Identifier: BSD-3-Clause */
/* What spoke against a case, and where its ranks were last seen. */
#include "runner.h"

#define MAX_FINDINGS 16

void runner_add_rank(struct runner_ranks *ranks, int rank) {
    if (rank >= 0 && rank < ARENA_MAX_RANKS)
        ranks->bits[rank / 64] |= (uint64_t)1 << (rank % 64);
}

bool runner_has_rank(const struct runner_ranks *ranks, int rank) {
    return rank >= 0 && rank < ARENA_MAX_RANKS && (ranks->bits[rank / 64] >> (rank % 64) & 1) != 0;
}

int runner_count_ranks(const struct runner_ranks *ranks) {
    int count = 0;
    for (int rank = 0; rank < ARENA_MAX_RANKS; rank++)
        count += runner_has_rank(ranks, rank);
    return count;
}

void runner_rank_list(const struct runner_ranks *ranks, char *text, size_t capacity) {
    int list[ARENA_MAX_RANKS], count = 0;
    for (int rank = 0; rank < ARENA_MAX_RANKS; rank++)
        if (runner_has_rank(ranks, rank))
            list[count++] = rank;
    report_rank_list(list, count, text, capacity);
}

/* Of the same finding, on one rank more. */
static void merge(struct runner_finding *known, int rank, const struct runner_finding *finding) {
    runner_add_rank(&known->ranks, rank);
    known->more += finding->more;
    if (known->next[0] == '\0')
        memcpy(known->next, finding->next, sizeof(known->next));
}

static bool same_finding(const struct runner_finding *one, const struct runner_finding *other) {
    return one->verdict == other->verdict && one->line == other->line &&
           strcmp(one->message, other->message) == 0 &&
           strcmp(one->expected, other->expected) == 0 && strcmp(one->got, other->got) == 0 &&
           strcmp(one->file, other->file) == 0 && strcmp(one->requirement, other->requirement) == 0;
}

void findings_add(struct runner_result *result, int rank, const struct runner_finding *finding) {
    for (int i = 0; i < result->finding_count; i++)
        if (rank >= 0 && same_finding(&result->findings[i], finding)) {
            merge(&result->findings[i], rank, finding);
            return;
        }
    struct runner_finding *more =
        result->finding_count < MAX_FINDINGS
            ? realloc(result->findings,
                      (size_t)(result->finding_count + 1) * sizeof(result->findings[0]))
            : NULL;
    if (more == NULL) {
        result->findings_left_out++;
        return;
    }
    result->findings = more;
    more[result->finding_count] = *finding;
    runner_add_rank(&more[result->finding_count].ranks, rank);
    result->finding_count++;
}

void findings_headline(const struct runner_finding *finding, char *text, size_t capacity) {
    char ranks[128];
    runner_rank_list(&finding->ranks, ranks, sizeof(ranks));
    size_t used = (size_t)snprintf(text, capacity, "%s%s%s", ranks, ranks[0] == '\0' ? "" : ": ",
                                   finding->message);
    if (finding->expected[0] != '\0' && used < capacity)
        used += (size_t)snprintf(text + used, capacity - used, ": expected %s, got %s",
                                 finding->expected, finding->got);
    if (finding->line != 0 && used < capacity)
        snprintf(text + used, capacity - used, " (%s:%d)", finding->file, finding->line);
}

static const char *state_text(struct arena_rank *rank) {
    static const char *const names[ARENA_STATE_COUNT] = {
        "not started", "opening its device", "warming up", "prologue",
        "body",        "after the body",     "epilogue",   "done",
    };
    uint32_t state = atomic_load_explicit(&rank->state, memory_order_acquire);
    if (atomic_load_explicit(&rank->in_barrier, memory_order_acquire) != 0)
        return "out-of-band barrier";
    return state < ARENA_STATE_COUNT ? names[state] : "unknown";
}

/* What it did last: for a rank that hangs this says in which call. */
static void note_last(struct runner_place *place, struct arena_rank *rank) {
    char file[32];
    if (atomic_load_explicit(&rank->state, memory_order_acquire) == ARENA_DONE)
        return;
    arena_get_word(&rank->last_point, place->point);
    arena_get_word(&rank->last_file, file);
    if (file[0] != '\0')
        snprintf(place->line, sizeof(place->line), "%s:%u", file,
                 atomic_load_explicit(&rank->last_line, memory_order_relaxed));
}

static bool same_place(const struct runner_place *one, const struct runner_place *other) {
    return strcmp(one->state, other->state) == 0 &&
           strcmp(one->checkpoint, other->checkpoint) == 0 && strcmp(one->line, other->line) == 0 &&
           strcmp(one->point, other->point) == 0;
}

/* A new place for the rank unless an earlier rank was seen there. */
static void note_place(struct runner_result *result, struct arena *arena, int rank) {
    struct runner_place place = {.state = state_text(&arena->ranks[rank])};
    int at = 0;
    snprintf(place.checkpoint, sizeof(place.checkpoint), "%.*s", (int)sizeof(place.checkpoint) - 1,
             arena->ranks[rank].checkpoint);
    note_last(&place, &arena->ranks[rank]);
    while (at < result->place_count && !same_place(&result->places[at], &place))
        at++;
    if (at == result->place_count)
        result->places[result->place_count++] = place;
    runner_add_rank(&result->places[at].ranks, rank);
}

void findings_note_places(struct runner_result *result, struct arena *arena, int ranks) {
    result->places = calloc((size_t)ranks, sizeof(result->places[0]));
    if (result->places == NULL)
        return;
    for (int rank = 0; rank < ranks; rank++)
        note_place(result, arena, rank);
}

void findings_free(struct runner_result *result) {
    free(result->findings);
    free(result->places);
    free(result->reason);
    free(result->output);
    free(result->leaks);
}
