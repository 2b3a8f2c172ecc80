/* SPDX-License-Identifier: BSD-3-Clause */
/* From what the ranks left behind to one verdict with its reason. The worst finding wins. */
#include "runner.h"

#include <stdarg.h>
#include <sys/wait.h>

struct judgment {
    struct runner_result *result;
    bool cut_short;  /* ranks were ended, so that what they left behind shows nothing */
    unsigned causes; /* a bit for each of enum runner_cause */
    bool only_leaks; /* so far */
    FILE *leaks;     /* those that findings cut; NULL: no memory */
    char reason[1200];
};

static uint32_t load(_Atomic uint32_t *value) {
    return atomic_load_explicit(value, memory_order_acquire);
}

/* Keeps the first of the worst findings as the reason. */
static void add(struct judgment *judgment, int rank, const struct runner_finding *finding) {
    struct runner_finding own = *finding;
    judgment->causes |= 1u << finding->cause;
    judgment->only_leaks = judgment->only_leaks && finding->line == 0 &&
                           strncmp(finding->message, "leak: ", 6) == 0 &&
                           strcmp(finding->requirement, "SM-LIFE-10") != 0;
    if (finding->verdict > judgment->result->verdict) {
        judgment->result->verdict = finding->verdict;
        runner_add_rank(&own.ranks, rank);
        findings_headline(&own, judgment->reason, sizeof(judgment->reason));
    }
    findings_add(judgment->result, rank, finding);
}

/* A finding about `rank`, or with -1 about the whole case. */
static void find(struct judgment *judgment, enum runner_verdict verdict, int rank,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

static void find_of(struct judgment *judgment, enum runner_verdict verdict, enum runner_cause cause,
                    int rank, const char *format, va_list args) {
    struct runner_finding finding = {.verdict = verdict, .cause = cause};
    vsnprintf(finding.message, sizeof(finding.message), format, args);
    add(judgment, rank, &finding);
}

static void find(struct judgment *judgment, enum runner_verdict verdict, int rank,
                 const char *format, ...) {
    va_list args;
    va_start(args, format);
    find_of(judgment, verdict, CAUSE_OTHER, rank, format, args);
    va_end(args);
}

/* An error that time explains, or another finding. */
static void find_end(struct judgment *judgment, enum runner_cause cause, int rank,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

static void find_end(struct judgment *judgment, enum runner_cause cause, int rank,
                     const char *format, ...) {
    va_list args;
    va_start(args, format);
    find_of(judgment, VERDICT_ERROR, cause, rank, format, args);
    va_end(args);
}

/* Between arrays of one size. A rank gone wild may have written over the end of its text. */
#define COPY(to, from) snprintf(to, sizeof(to), "%.*s", (int)sizeof(from) - 1, from)

static enum runner_cause cause_of_checks(struct arena_rank *record) {
    uint32_t late = load(&record->late_failures), follow = load(&record->following_failures);
    if (record->secondary == 0 && late + follow != load(&record->failures))
        return CAUSE_OTHER;
    return late > 0 ? CAUSE_TIME : CAUSE_FOLLOWS;
}

/* What the rank itself recorded: its first failed check, and in short the next. */
static void find_failed_check(struct judgment *judgment, int rank, struct arena_rank *record) {
    struct runner_finding finding = {.verdict = VERDICT_FAILED, .line = record->line};
    finding.more = load(&record->failures) - 1;
    finding.cause = cause_of_checks(record);
    COPY(finding.message, record->message);
    COPY(finding.expected, record->expected);
    COPY(finding.got, record->got);
    COPY(finding.file, record->file);
    COPY(finding.requirement, record->requirement);
    if (load(&record->failed_next) == 2)
        COPY(finding.next, record->next);
    add(judgment, rank, &finding);
}

/* The sentence that a rank's leaks break, by the first of them, for what was left behind comes
 * before the settings that are not as they were. */
static const char *requirement_of_leak(const char *leak) {
    static const char *const settings[] = {
        "working directory", "umask or signal mask", "locale changed",    "environment variable",
        "resource limit",    "disposition of",       "an interval timer", "affinity",
        "priority",          "floating-point"};
    size_t digits = strspn(leak, "0123456789");
    bool setting = digits > 0 && strncmp(leak + digits, " timer", 6) == 0;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        setting = setting || strncmp(leak, settings[i], strlen(settings[i])) == 0;
    return setting ? "SM-LIFE-10" : "SM-LIFE-01";
}

/* What a case leaves behind or changes says nothing about what it is for. `what` is what is said of
 * the leak first. */
static void find_leak(struct judgment *judgment, int rank, const char *what, const char *leak) {
    struct runner_finding finding = {.verdict = VERDICT_FAILED,
                                     .cause = judgment->cut_short ? CAUSE_FOLLOWS : CAUSE_OTHER};
    const int most = (int)sizeof(finding.message) - 64;
    const bool is_cut = (int)strlen(leak) > most;
    snprintf(finding.message, sizeof(finding.message), "leak: %s%.*s%s", what, most, leak,
             is_cut ? " ..." : "");
    if (is_cut && judgment->leaks != NULL && rank >= 0)
        fprintf(judgment->leaks, "rank %d: %s%s\n", rank, what, leak);
    else if (is_cut && judgment->leaks != NULL)
        fprintf(judgment->leaks, "%s%s\n", what, leak);
    snprintf(finding.requirement, sizeof(finding.requirement), "%s",
             rank < 0 ? "SM-LIFE-01" : requirement_of_leak(leak));
    add(judgment, rank, &finding);
}

static bool death_is_fine(const struct runner_run *run, int rank, int status) {
    return (run->entry->test->flags & TK_MAY_DIE) != 0 && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGKILL &&
           load(&run->runner->arena->ranks[rank].death_expected) != 0;
}

/* True if what became of the rank follows from another rank's fate. */
static bool is_consequence(const struct runner_run *run, int rank) {
    const struct runner_child *child = &run->children[rank];
    return child->stopped || (child->hung && child->waited);
}

/* How the process of `rank` ended; with ranks as threads it is the process of all of them. */
static void judge_end(struct judgment *judgment, const struct runner_run *run, int rank,
                      const struct runner_child *child) {
    bool threads = run->runner->options.mode == TK_MODE_THREAD;
    const char *who = threads ? "the process of all ranks: " : "";
    int about = threads ? -1 : rank;
    uint32_t state = load(&run->runner->arena->ranks[rank].state);
    bool done = state == ARENA_DONE;
    if (!child->started && (run->launch_fault[0] != '\0' || run->runner->interrupted != 0))
        return;
    if (!child->started)
        find(judgment, VERDICT_UNRESOLVED, about, "%scould not be started", who);
    else if (child->stopped && run->fork_failed)
        return;
    else if (child->hung && child->waited)
        find_end(judgment, CAUSE_FOLLOWS, about, "%sat its end, waiting for the others", who);
    else if (child->hung && state == ARENA_OPENING)
        find_end(judgment, CAUSE_TIME, about, "%shang: a device did not open in time", who);
    else if (child->hung)
        find_end(judgment, CAUSE_TIME, about, "%shang: no end within %.1f s", who,
                 run->timeout_ms / 1000.0);
    else if (child->stopped)
        find(judgment, VERDICT_ERROR, about, "%sstopped because %s", who,
             child->interrupted ? "the run was interrupted" : "another rank had ended badly");
    else if (child->lost)
        find(judgment, VERDICT_ERROR, about, "%sended by its launcher", who);
    else if (WIFSIGNALED(child->status) && !death_is_fine(run, rank, child->status))
        find(judgment, VERDICT_ERROR, about, "%skilled by signal %d (%s)", who,
             WTERMSIG(child->status), strsignal(WTERMSIG(child->status)));
    else if (WIFEXITED(child->status) && done && WEXITSTATUS(child->status) == 0)
        find(judgment, VERDICT_ERROR, about,
             "%sended with exit status 0 by somebody else, on its way out", who);
    else if (WIFEXITED(child->status) && done && WEXITSTATUS(child->status) != RUNNER_RANK_DONE)
        find(judgment, VERDICT_ERROR, about,
             "%sexit status %d after its end (a sanitizer's report is in what the ranks printed)",
             who, WEXITSTATUS(child->status));
    else if (WIFEXITED(child->status) && !done && WEXITSTATUS(child->status) == RUNNER_RANK_DONE)
        find(judgment, VERDICT_ERROR, about, "%sa rank's thread ended before its test did", who);
    else if (WIFEXITED(child->status) && !done)
        find(judgment, VERDICT_ERROR, about, "%sleft the test with exit status %d", who,
             WEXITSTATUS(child->status));
}

static void judge_findings(struct judgment *judgment, const struct runner_run *run, int rank,
                           bool secondary) {
    struct arena_rank *found = &run->runner->arena->ranks[rank];
    if ((found->secondary != 0) != secondary)
        return;
    if (load(&found->failed) == 2)
        find_failed_check(judgment, rank, found);
    else if (load(&found->failures) > 0)
        find(judgment, VERDICT_FAILED, rank, "a check failed");
    if (found->leak[0] != '\0')
        find_leak(judgment, rank, "", found->leak);
    if (load(&found->unresolved) == 2)
        find(judgment, VERDICT_UNRESOLVED, rank, "unresolved: %.*s",
             (int)sizeof(found->unresolved_text) - 1, found->unresolved_text);
}

static bool ended_some(const struct runner_run *run) {
    for (int i = 0; i < run->child_count; i++)
        if (run->children[i].hung || run->children[i].stopped)
            return true;
    return false;
}

static void judge_case(struct judgment *judgment, const struct runner_run *run) {
    struct arena *arena = run->runner->arena;
    uint64_t checks = 0;
    for (int rank = 0; rank < run->entry->ranks; rank++)
        checks += load(&arena->ranks[rank].checks);
    if (run->launch_fault[0] != '\0')
        find(judgment, VERDICT_ERROR, -1, "%s", run->launch_fault);
    if (run->strays > 0)
        find(judgment, VERDICT_FAILED, -1, "leak: %d process(es) left behind", run->strays);
    if (run->name_leak[0] != '\0')
        find_leak(judgment, -1, "names left behind: ", run->name_leak);
    /* What a failed or killed case leaves in the store is no finding of its own. */
    if (run->store_leak[0] != '\0' && judgment->result->verdict == VERDICT_PASSED)
        find_leak(judgment, -1, "store keys left behind: ", run->store_leak);
    if (run->runner->interrupted != 0 && !ended_some(run)) /* else their ends say so */
        find(judgment, VERDICT_ERROR, -1, "the run was interrupted");
    if (checks == 0 && judgment->result->verdict == VERDICT_PASSED)
        find(judgment, VERDICT_FAILED, -1, "made no check");
}

static void judge_ends(struct judgment *judgment, const struct runner_run *run, bool secondary) {
    for (int i = 0; i < run->child_count; i++)
        if (is_consequence(run, i) == secondary)
            judge_end(judgment, run, i, &run->children[i]);
}

static void judge_process_of_all(struct judgment *judgment, const struct runner_run *run) {
    int last = 0; /* a rank that did not come to its end, if there is one */
    for (int rank = 0; rank < run->entry->ranks; rank++)
        if (load(&run->runner->arena->ranks[rank].state) != ARENA_DONE)
            last = rank;
    judge_end(judgment, run, last, &run->children[0]);
}

/* Causes before consequences, so that the reason names a cause. */
static void judge_all(struct judgment *judgment, const struct runner_run *run) {
    for (int secondary = 0; secondary <= 1; secondary++) {
        if (run->runner->options.mode == TK_MODE_PROCESS)
            judge_ends(judgment, run, secondary == 1);
        else if (secondary == 0)
            judge_process_of_all(judgment, run);
        for (int rank = 0; rank < run->entry->ranks && !run->arena_broken; rank++)
            judge_findings(judgment, run, rank, secondary == 1);
    }
    if (run->arena_broken)
        find(judgment, VERDICT_ERROR, -1,
             "the memory in which the ranks report was overwritten: this case shows nothing");
    judge_case(judgment, run);
}

/* NULL if there is nothing that was cut. */
static void take_leaks(struct judgment *judgment) {
    struct runner_result *result = judgment->result;
    if (judgment->leaks == NULL || fclose(judgment->leaks) != 0 || result->leaks[0] != '\0')
        return;
    free(result->leaks);
    result->leaks = NULL;
}

static char *state_reason(const struct judgment *judgment) {
    char *text = NULL;
    const char *status = judgment->result->only_leaks ? "passed but for SM-LIFE-01: " : "";
    return asprintf(&text, "%s%s", status, judgment->reason) < 0 ? NULL : text;
}

void runner_judge(const struct runner_run *run, struct runner_result *result) {
    struct judgment judgment = {.result = result, .cut_short = ended_some(run), .only_leaks = true};
    size_t leaks_size = 0;
    const char *note = run->runner->arena->note;
    result->verdict = VERDICT_PASSED;
    judgment.leaks = open_memstream(&result->leaks, &leaks_size);
    judge_all(&judgment, run);
    take_leaks(&judgment);
    if (result->verdict == VERDICT_PASSED) {
        result->reason = note[0] != '\0' ? strdup(note) : NULL;
        return;
    }
    result->by_time = judgment.causes == 1u << CAUSE_TIME ||
                      judgment.causes == (1u << CAUSE_TIME | 1u << CAUSE_FOLLOWS);
    result->only_leaks = judgment.only_leaks && result->verdict == VERDICT_FAILED;
    result->reason = state_reason(&judgment);
    if (!run->arena_broken)
        findings_note_places(result, run->runner->arena, run->entry->ranks);
}
