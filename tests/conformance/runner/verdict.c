/* SPDX-License-Identifier: BSD-3-Clause */
/* From what the ranks left behind to one verdict with its reason. The worst finding wins. */
#include "runner.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define MAX_RANKS_SHOWN 16

struct judgement {
    enum runner_verdict verdict;
    char reason[768];
    FILE *detail;
    int shown;
};

static uint32_t load(_Atomic uint32_t *value) {
    return atomic_load_explicit(value, memory_order_acquire);
}

static void find(struct judgement *judgement, enum runner_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Keeps the first of the worst findings as the reason; all go to the detail. */
static void find(struct judgement *judgement, enum runner_verdict verdict, const char *format,
                 ...) {
    char text[sizeof(judgement->reason)];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (verdict > judgement->verdict) {
        judgement->verdict = verdict;
        memcpy(judgement->reason, text, sizeof(text));
    }
    if (judgement->shown++ < MAX_RANKS_SHOWN)
        fprintf(judgement->detail, "%s\n", text);
}

static void quote_requirement(const struct judgement *judgement, const char *id) {
    const struct spec_requirement *requirement = runner_find_requirement(id);

    fprintf(judgement->detail, "    %s: %s\n", id,
            requirement == NULL ? "(not in SPEC.md)" : requirement->text);
}

static void quote_requirements(const struct judgement *judgement, const struct tk_case *test,
                               const struct arena_rank *rank) {
    const char *list = test->requirements;
    char id[64];

    if (judgement->shown > MAX_RANKS_SHOWN)
        return;
    if (rank->requirement[0] != '\0') {
        quote_requirement(judgement, rank->requirement);
        return;
    }
    while (runner_next_id(&list, id, sizeof(id)))
        quote_requirement(judgement, id);
}

static bool death_is_fine(const struct runner_run *run, int rank, int status) {
    return (run->entry->test->flags & TK_MAY_DIE) != 0 && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGKILL &&
           load(&run->runner->arena->ranks[rank].death_expected) != 0;
}

static bool waits_for_others(const struct runner_run *run, int rank) {
    return run->runner->options.mode == TK_MODE_PROCESS &&
           load(&run->runner->arena->ranks[rank].state) == ARENA_BODY_DONE;
}

/* True if what became of the rank follows from another rank's fate. */
static bool is_consequence(const struct runner_run *run, int rank) {
    const struct runner_child *child = &run->children[rank];

    return child->stopped || (child->hung && waits_for_others(run, rank));
}

/* How the process of `rank` ended; with ranks as threads `who` is all of them. */
static void judge_end(struct judgement *judgement, const struct runner_run *run, int rank,
                      const struct runner_child *child, const char *who) {
    bool done = load(&run->runner->arena->ranks[rank].state) == ARENA_DONE;

    if (!child->started)
        find(judgement, VERDICT_UNRESOLVED, "%s: could not be started", who);
    else if (child->stopped && run->fork_failed)
        return;
    else if (child->hung && run->runner->interrupted == 0 && waits_for_others(run, rank))
        find(judgement, VERDICT_ERROR, "%s: was at its end and waited for the others", who);
    else if (child->hung && run->runner->interrupted == 0)
        find(judgement, VERDICT_ERROR, "%s: hang: no end within %.1f s", who,
             run->timeout_ms / 1000.0);
    else if (child->hung || child->stopped)
        find(judgement, VERDICT_ERROR, "%s: stopped because %s", who,
             run->runner->interrupted != 0 ? "the run was interrupted"
                                           : "another rank had ended badly");
    else if (WIFSIGNALED(child->status) && !death_is_fine(run, rank, child->status))
        find(judgement, VERDICT_ERROR, "%s: killed by signal %d (%s)", who, WTERMSIG(child->status),
             strsignal(WTERMSIG(child->status)));
    else if (WIFEXITED(child->status) && done && WEXITSTATUS(child->status) != 0)
        find(judgement, VERDICT_ERROR,
             "%s: exit status %d after its end (a sanitizer's report is on standard error)", who,
             WEXITSTATUS(child->status));
    else if (WIFEXITED(child->status) && !done)
        find(judgement, VERDICT_ERROR, "%s: left the test with exit status %d", who,
             WEXITSTATUS(child->status));
}

static void judge_findings(struct judgement *judgement, const struct runner_run *run, int rank,
                           bool secondary) {
    struct arena_rank *found = &run->runner->arena->ranks[rank];
    uint32_t failures = load(&found->failures);

    if ((found->secondary != 0) != secondary)
        return;
    if (load(&found->failed) == 2) {
        find(judgement, VERDICT_FAILED, "rank %d: %s (%s:%d)", rank, found->message, found->file,
             found->line);
        quote_requirements(judgement, run->entry->test, found);
        if (failures > 1 && judgement->shown <= MAX_RANKS_SHOWN)
            fprintf(judgement->detail, "    and %u more failed checks of this rank\n",
                    failures - 1);
    } else if (failures > 0) {
        find(judgement, VERDICT_FAILED, "rank %d: a check failed", rank);
    }
    if (found->leak[0] != '\0')
        find(judgement, VERDICT_FAILED, "rank %d: leak: %s", rank, found->leak);
    if (load(&found->unresolved) == 2)
        find(judgement, VERDICT_UNRESOLVED, "rank %d: unresolved: %s", rank,
             found->unresolved_text);
}

static void judge_case(struct judgement *judgement, const struct runner_run *run) {
    struct arena *arena = run->runner->arena;
    uint64_t checks = 0;

    for (int rank = 0; rank < run->entry->ranks; rank++)
        checks += load(&arena->ranks[rank].checks);
    if (run->strays > 0)
        find(judgement, VERDICT_FAILED, "leak: %d process(es) left behind", run->strays);
    if (run->shm_leak[0] != '\0')
        find(judgement, VERDICT_FAILED, "leak: names left behind: %s", run->shm_leak);
    /* What a failed or killed case leaves in the store is no finding of its own. */
    if (run->store_leak[0] != '\0' && judgement->verdict == VERDICT_PASSED)
        find(judgement, VERDICT_FAILED, "leak: store keys left behind: %s", run->store_leak);
    if (checks == 0 && judgement->verdict == VERDICT_PASSED)
        find(judgement, VERDICT_FAILED, "made no check");
}

static const char *state_text(struct arena_rank *rank) {
    static const char *const names[ARENA_STATE_COUNT] = {
        "not started", "prologue", "body", "after the body", "epilogue", "done",
    };
    uint32_t state = load(&rank->state);

    if (load(&rank->in_barrier) != 0)
        return "out-of-band barrier";
    return state < ARENA_STATE_COUNT ? names[state] : "unknown";
}

static bool same_place(struct arena_rank *one, struct arena_rank *other) {
    return strcmp(one->checkpoint, other->checkpoint) == 0 &&
           strcmp(state_text(one), state_text(other)) == 0;
}

/* "0-2,5": the ranks that were last seen where `first` was. */
static void show_ranks(FILE *detail, struct arena *arena, int first, int ranks) {
    const char *separator = " ";

    for (int rank = first; rank < ranks; rank++) {
        int end = rank;

        if (!same_place(&arena->ranks[rank], &arena->ranks[first]))
            continue;
        while (end + 1 < ranks && same_place(&arena->ranks[end + 1], &arena->ranks[first]))
            end++;
        fprintf(detail, "%s%d", separator, rank);
        if (end > rank)
            fprintf(detail, "%s%d", end == rank + 1 ? "," : "-", end);
        rank = end;
        separator = ",";
    }
}

/* One line for each place at which some rank was last seen. */
static void show_checkpoints(FILE *detail, struct arena *arena, int ranks) {
    for (int first = 0; first < ranks; first++) {
        bool shown = false;

        for (int earlier = 0; earlier < first && !shown; earlier++)
            shown = same_place(&arena->ranks[earlier], &arena->ranks[first]);
        if (shown)
            continue;
        fputs("last seen: rank", detail);
        show_ranks(detail, arena, first, ranks);
        fprintf(detail, ": %s", state_text(&arena->ranks[first]));
        if (arena->ranks[first].checkpoint[0] != '\0')
            fprintf(detail, ", checkpoint \"%s\"", arena->ranks[first].checkpoint);
        fputc('\n', detail);
    }
}

static void judge_ends(struct judgement *judgement, const struct runner_run *run, bool secondary) {
    char who[32];

    for (int i = 0; i < run->child_count; i++) {
        if (is_consequence(run, i) != secondary)
            continue;
        snprintf(who, sizeof(who), "rank %d", i);
        judge_end(judgement, run, i, &run->children[i], who);
    }
}

static void judge_process_of_all(struct judgement *judgement, const struct runner_run *run) {
    int last = 0; /* a rank that did not come to its end, if there is one */

    for (int rank = 0; rank < run->entry->ranks; rank++)
        if (load(&run->runner->arena->ranks[rank].state) != ARENA_DONE)
            last = rank;
    judge_end(judgement, run, last, &run->children[0], "the process of all ranks");
}

/* Causes before consequences, so that the reason names a cause. */
static void judge_all(struct judgement *judgement, const struct runner_run *run) {
    for (int secondary = 0; secondary <= 1; secondary++) {
        if (run->runner->options.mode == TK_MODE_PROCESS)
            judge_ends(judgement, run, secondary == 1);
        else if (secondary == 0)
            judge_process_of_all(judgement, run);
        for (int rank = 0; rank < run->entry->ranks && !run->arena_broken; rank++)
            judge_findings(judgement, run, rank, secondary == 1);
    }
    if (run->arena_broken)
        find(judgement, VERDICT_ERROR,
             "the memory in which the ranks report was overwritten: this case shows nothing");
    judge_case(judgement, run);
    if (judgement->shown > MAX_RANKS_SHOWN)
        fprintf(judgement->detail, "and %d findings more\n", judgement->shown - MAX_RANKS_SHOWN);
    if (judgement->verdict != VERDICT_PASSED && !run->arena_broken)
        show_checkpoints(judgement->detail, run->runner->arena, run->entry->ranks);
}

void runner_judge(const struct runner_run *run, struct runner_result *result) {
    struct judgement judgement = {.verdict = VERDICT_PASSED};
    char *text = NULL;
    size_t length = 0;

    judgement.detail = open_memstream(&text, &length);
    if (judgement.detail == NULL) {
        result->verdict = VERDICT_ERROR;
        result->reason = strdup("no memory for the verdict");
        return;
    }
    judge_all(&judgement, run);
    fclose(judgement.detail);
    result->verdict = judgement.verdict;
    if (judgement.verdict == VERDICT_PASSED) {
        const char *note = run->runner->arena->note;

        free(text);
        result->reason = note[0] != '\0' ? strdup(note) : NULL;
        return;
    }
    result->reason = strdup(judgement.reason);
    result->detail = text;
}
