/* SPDX-License-Identifier: BSD-3-Clause */
/* Which cases run, on how many ranks, and which do not and why. */
#include "runner.h"

#include <fnmatch.h>

#define FEW_RANKS 3

static const struct {
    uint64_t bit;
    const char *name;
} capability_names[] = {
    {SYMMEM_CAP_STREAMS, "STREAMS"},
    {SYMMEM_CAP_CAPTURE, "CAPTURE"},
    {SYMMEM_CAP_MULTICAST, "MULTICAST"},
    {SYMMEM_CAP_HOST_ACCESS, "HOST_ACCESS"},
    {SYMMEM_CAP_OVERLAP, "OVERLAP"},
    {SYMMEM_CAP_THREAD_RANKS, "THREAD_RANKS"},
    {SYMMEM_CAP_PROCESS_RANKS, "PROCESS_RANKS"},
    {SYMMEM_CAP_HOST_FN, "HOST_FN"},
    {SYMMEM_CAP_DIRECT_ACCESS, "DIRECT_ACCESS"},
    {SYMMEM_CAP_CROSS_HOST, "CROSS_HOST"},
    {SYMMEM_CAP_POOL, "POOL"},
    {SYMMEM_CAP_WRAP_STREAM, "WRAP_STREAM"},
    {SYMMEM_CAP_COLLECTIVES, "COLLECTIVES"},
    {SYMMEM_CAP_MATMUL, "MATMUL"},
    {SYMMEM_CAP_CONNECTIVITY, "CONNECTIVITY"},
    {SYMMEM_CAP_COLLECTIVES_APART, "COLLECTIVES_APART"},
    {SYMMEM_CAP_WORLD, "WORLD"},
    {SYMMEM_CAP_REACH, "REACH"},
    {SYMMEM_CAP_PASSIVE, "PASSIVE"},
    {SYMMEM_CAP_SPLITS, "SPLITS"},
    {SYMMEM_CAP_VALUES, "VALUES"},
    {SYMMEM_CAP_WINDOW, "WINDOW"},
    {SYMMEM_CAP_TILES, "TILES"},
};

void runner_capability_names(uint64_t bits, char *text, size_t capacity) {
    size_t used = 0;
    snprintf(text, capacity, "-");
    for (size_t i = 0; i < sizeof(capability_names) / sizeof(capability_names[0]); i++)
        if ((bits & capability_names[i].bit) != 0 && used < capacity)
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", used == 0 ? "" : "+",
                                     capability_names[i].name);
}

bool runner_matches(const char *filter, const char *name) {
    const char *list = filter;
    char pattern[256];
    if (filter == NULL)
        return true;
    while (runner_next_id(&list, pattern, sizeof(pattern)))
        if (fnmatch(pattern, name, 0) == 0)
            return true;
    return false;
}

static bool some_test_matches(const char *pattern) {
    for (int i = 0; i < runner_case_count; i++)
        if (fnmatch(pattern, runner_case(i)->name, 0) == 0)
            return true;
    return false;
}

bool runner_knows_patterns(const char *filter) {
    char pattern[256];
    while (filter != NULL && runner_next_id(&filter, pattern, sizeof(pattern)))
        if (!some_test_matches(pattern)) {
            fprintf(stderr, "symmem-conformance: no test matches '%s'\n", pattern);
            return false;
        }
    return true;
}

static bool is_chosen(const struct runner_options *options, const struct tk_case *test) {
    return runner_matches(options->filter, test->name) && runner_in_profile(options->profile, test);
}

/* Empty text: planned. */
static void reason_not_planned(const struct runner_options *options, const struct tk_case *test,
                               char *reason, size_t capacity) {
    reason[0] = '\0';
    if (test->min_ranks > options->ranks)
        snprintf(reason, capacity, "needs %d ranks", test->min_ranks);
    else if ((test->flags & TK_PROCESS_ONLY) != 0 && options->mode == TK_MODE_THREAD)
        snprintf(reason, capacity, "needs ranks as processes");
    else if ((test->flags & TK_THREAD_ONLY) != 0 && options->mode == TK_MODE_PROCESS)
        snprintf(reason, capacity, "needs ranks as threads");
    else if ((test->flags & TK_LARGE) != 0 && options->no_large)
        snprintf(reason, capacity, "large, left out by --no-large");
}

bool runner_would_plan(const struct runner_options *options, const struct tk_case *test) {
    char reason[48];
    reason_not_planned(options, test, reason, sizeof(reason));
    return is_chosen(options, test) && reason[0] == '\0';
}

/* Of what is planned in all parts, number `index`. Dealt out one by one, so that all parts get of
 * everything. */
static bool is_of_part(const struct runner_options *options, int index) {
    return options->parts == 0 || index % options->parts == options->part - 1;
}

/* A part's list is what it runs; else what the filter lets through, on however many ranks. */
static bool is_listed(const struct runner_options *options, const struct tk_case *test,
                      int *planned_p) {
    if (options->parts == 0)
        return is_chosen(options, test);
    return runner_would_plan(options, test) && is_of_part(options, (*planned_p)++);
}

void runner_print_list(const struct runner_options *options, FILE *out) {
    int planned = 0;
    for (int i = 0; i < runner_case_count; i++) {
        const struct tk_case *test = runner_case(i);
        char capabilities[160];
        if (!is_listed(options, test, &planned))
            continue;
        runner_capability_names(test->needs, capabilities, sizeof(capabilities));
        fprintf(out, "%s\t%s\t%s\n", test->name,
                test->requirements == NULL ? "" : test->requirements, capabilities);
    }
}

bool tk_suite_is_long(void) {
    const char *text = getenv("SYMMEM_SUITE_LONG");
    return text != NULL && strcmp(text, "1") == 0;
}

static void plan_case(struct runner *runner, int index) {
    const struct tk_case *test = runner_case(index);
    const struct runner_options *options = &runner->options;
    uint64_t declared = runner->arena->probe.capabilities;
    struct runner_unplanned *unplanned = &runner->unplanned[runner->unplanned_count];
    struct runner_entry *entry = &runner->entries[runner->entry_count];
    if (!is_chosen(options, test))
        return;
    runner->matched_count++;
    reason_not_planned(options, test, unplanned->reason, sizeof(unplanned->reason));
    if (unplanned->reason[0] != '\0') {
        unplanned->test = test;
        runner->unplanned_count++;
        return;
    }
    if (!is_of_part(options, runner->whole_count++))
        return;
    entry->test = test;
    runner_area(index, entry->area, sizeof(entry->area));
    entry->ranks = options->ranks;
    if ((test->flags & TK_GROWS_FAST) != 0 && entry->ranks > FEW_RANKS && !tk_suite_is_long())
        entry->ranks = FEW_RANKS;
    if (test->max_ranks != 0 && entry->ranks > test->max_ranks)
        entry->ranks = test->max_ranks;
    entry->missing_caps = test->needs & ~declared;
    runner->entry_count++;
}

bool runner_make_plan(struct runner *runner) {
    const size_t case_count = (size_t)runner_case_count + 1; /* calloc of nothing may be NULL */
    runner->entries = calloc(case_count, sizeof(*runner->entries));
    runner->unplanned = calloc(case_count, sizeof(*runner->unplanned));
    if (runner->entries == NULL || runner->unplanned == NULL)
        return false;
    for (int i = 0; i < runner_case_count; i++)
        plan_case(runner, i);
    runner->planned_count = runner->entry_count * runner->options.repeat;
    runner->results = calloc((size_t)runner->planned_count + 1, sizeof(*runner->results));
    return runner->results != NULL;
}

void runner_free_plan(struct runner *runner) {
    for (int i = 0; i < runner->result_count; i++)
        findings_free(&runner->results[i]);
    free(runner->results);
    free(runner->unplanned);
    free(runner->entries);
}
