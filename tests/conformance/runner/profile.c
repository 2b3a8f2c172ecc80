/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Profiles: the parts of the suite that a backend takes on by what it declares (SPEC.md, Profiles).
 * What a run says about a backend in the end is said in their terms.
 */
#include "runner.h"

#include <string.h>
#include <sys/utsname.h>

struct profile {
    const char *name;
    uint64_t own;    /* the capability that opens it */
    uint64_t needed; /* that and what comes with it */
};

/* In the order of SPEC.md. A case belongs to the last one whose own capability it needs. */
static const struct profile profiles[] = {
    {"core", 0, 0},
    {"direct-access", SYMMEM_CAP_DIRECT_ACCESS, SYMMEM_CAP_DIRECT_ACCESS},
    {"host-access", SYMMEM_CAP_HOST_ACCESS, SYMMEM_CAP_HOST_ACCESS},
    {"overlap", SYMMEM_CAP_OVERLAP, SYMMEM_CAP_OVERLAP},
    {"pool", SYMMEM_CAP_POOL, SYMMEM_CAP_POOL},
    {"streams", SYMMEM_CAP_STREAMS, SYMMEM_CAP_STREAMS},
    {"host-functions", SYMMEM_CAP_HOST_FN, SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_FN},
    {"capture", SYMMEM_CAP_CAPTURE, SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE},
    {"collectives", SYMMEM_CAP_COLLECTIVES, SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_DIRECT_ACCESS},
    {"products", SYMMEM_CAP_MATMUL,
     SYMMEM_CAP_MATMUL | SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_DIRECT_ACCESS},
    {"multicast", SYMMEM_CAP_MULTICAST, SYMMEM_CAP_MULTICAST},
};
#define PROFILE_COUNT ((int)(sizeof(profiles) / sizeof(profiles[0])))

/* What became of one profile's cases in a run. */
struct tally {
    int passed, bad, undecided; /* repeats count */
    int left_out;               /* by the filter, the number of ranks, --no-large or --part */
    int other_parts;            /* of these what other parts have */
};

static int profile_of(const struct tk_case *test) {
    for (int i = PROFILE_COUNT - 1; i > 0; i--)
        if ((test->needs & profiles[i].own) != 0)
            return i;
    return 0;
}

bool runner_in_profile(const char *list, const struct tk_case *test) {
    char name[64];

    if (list == NULL)
        return true;
    while (runner_next_id(&list, name, sizeof(name)))
        if (strcmp(name, profiles[profile_of(test)].name) == 0)
            return true;
    return false;
}

static const struct profile *find(const char *name) {
    for (int i = 0; i < PROFILE_COUNT; i++)
        if (strcmp(name, profiles[i].name) == 0)
            return &profiles[i];
    return NULL;
}

bool runner_known_profiles(const char *list) {
    char name[64];

    while (runner_next_id(&list, name, sizeof(name)))
        if (find(name) == NULL) {
            fprintf(stderr, "symmem-conformance: unknown profile '%s'; there are:", name);
            for (int i = 0; i < PROFILE_COUNT; i++)
                fprintf(stderr, " %s", profiles[i].name);
            fputc('\n', stderr);
            return false;
        }
    return true;
}

bool runner_declares_profiles(const char *list, const char *backend, uint64_t declared) {
    char name[64], missing[160];

    while (list != NULL && runner_next_id(&list, name, sizeof(name))) {
        const struct profile *profile = find(name);

        if (profile == NULL || (profile->needed & ~declared) == 0)
            continue;
        runner_capability_names(profile->needed & ~declared, missing, sizeof(missing));
        fprintf(stderr, "symmem-conformance: profile %s: backend %s does not declare %s\n", name,
                backend, missing);
        return false;
    }
    return true;
}

void runner_print_profiles(FILE *out) {
    int counts[PROFILE_COUNT] = {0};

    for (int s = 0; s < runner_suite_count; s++)
        for (int c = 0; c < runner_suites[s]->count; c++)
            counts[profile_of(&runner_suites[s]->cases[c])]++;
    for (int i = 0; i < PROFILE_COUNT; i++) {
        char needs[160];

        runner_capability_names(profiles[i].needed, needs, sizeof(needs));
        fprintf(out, "%s\t%s\t%d\n", profiles[i].name, needs, counts[i]);
    }
}

/* --- the claim ---------------------------------------------------------------------- */

/* A case of the other rank mode is no omission: that is another run, and another claim. */
bool runner_is_of_other_mode(const struct runner_options *options, const struct tk_case *test) {
    return (test->flags & (options->mode == TK_MODE_THREAD ? TK_PROCESS_ONLY : TK_THREAD_ONLY)) !=
           0;
}

static bool is_planned(const struct runner *runner, const struct tk_case *test) {
    for (int i = 0; i < runner->entry_count; i++)
        if (runner->entries[i].test == test)
            return true;
    return false;
}

static void count_results(const struct runner *runner, struct tally tallies[]) {
    for (int i = 0; i < runner->result_count; i++) {
        const struct runner_result *result = &runner->results[i];
        struct tally *tally = &tallies[profile_of(result->entry->test)];

        tally->passed += result->verdict == VERDICT_PASSED;
        tally->undecided += result->verdict == VERDICT_UNRESOLVED;
        tally->bad += result->verdict == VERDICT_FAILED || result->verdict == VERDICT_ERROR;
    }
    for (int s = 0; s < runner_suite_count; s++)
        for (int c = 0; c < runner_suites[s]->count; c++) {
            const struct tk_case *test = &runner_suites[s]->cases[c];

            struct tally *tally = &tallies[profile_of(test)];

            if (runner_is_of_other_mode(&runner->options, test) || is_planned(runner, test))
                continue;
            tally->left_out++;
            tally->other_parts += runner_would_plan(&runner->options, test);
        }
    if (runner->result_count < runner->planned_count)
        tallies[0].undecided += runner->planned_count - runner->result_count;
}

enum standing { IN_FULL, IN_PART, NOT_DECIDED, FAILED, NOT_DECLARED, NOT_RUN, STANDING_COUNT };

static enum standing standing_of(const struct tally *tally, uint64_t needs, uint64_t declared) {
    if ((needs & ~declared) != 0)
        return NOT_DECLARED;
    if (tally->bad > 0)
        return FAILED;
    if (tally->undecided > 0)
        return NOT_DECIDED;
    if (tally->passed == 0)
        return NOT_RUN;
    return tally->left_out > 0 ? IN_PART : IN_FULL;
}

static void print_detail(FILE *out, enum standing standing, const struct tally *tally) {
    int ran = tally->passed + tally->bad + tally->undecided;

    if (standing == IN_FULL)
        fprintf(out, " (%d)", tally->passed);
    else if (standing == IN_PART)
        fprintf(out, " (%d, %d left out)", tally->passed, tally->left_out);
    else if (standing == FAILED)
        fprintf(out, " (%d of %d)", tally->bad, ran);
    else if (standing == NOT_DECIDED)
        fprintf(out, " (%d of %d)", tally->undecided, ran);
}

static void print_standing(FILE *out, const char *title, enum standing wanted,
                           const struct tally tallies[], const enum standing standings[]) {
    int count = 0;

    for (int i = 0; i < PROFILE_COUNT; i++) {
        if (standings[i] != wanted)
            continue;
        fprintf(out, "%s%s", count++ == 0 ? title : ", ", profiles[i].name);
        print_detail(out, wanted, &tallies[i]);
    }
    if (count > 0)
        fputc('\n', out);
}

static void judge(const struct runner *runner, struct tally tallies[], enum standing standings[]) {
    count_results(runner, tallies);
    for (int i = 0; i < PROFILE_COUNT; i++)
        standings[i] =
            standing_of(&tallies[i], profiles[i].needed, runner->arena->probe.capabilities);
}

/* The profile that stands in the way of a claim; -1: none. */
static int obstacle(const enum standing standings[]) {
    for (int i = 0; i < PROFILE_COUNT; i++)
        if (i == 0 ? standings[0] != IN_FULL : standings[i] == FAILED)
            return i;
    return -1;
}

static void print_sentence(FILE *out, const struct runner *runner,
                           const enum standing standings[]) {
    static const char *const why[STANDING_COUNT] = {
        [IN_PART] = "was run in part only",
        [NOT_DECIDED] = "is not decided",
        [FAILED] = "failed",
        [NOT_RUN] = "was not run",
    };
    const char *separator = "";
    struct utsname machine;
    int against = obstacle(standings);

    if (against >= 0) {
        fprintf(out, "claim: none, because profile %s %s\n", profiles[against].name,
                why[standings[against]]);
        return;
    }
    fprintf(out, "claim: backend %s conforms to ", runner->arena->probe.name);
    for (int i = 0; i < PROFILE_COUNT; i++)
        if (standings[i] == IN_FULL) {
            fprintf(out, "%s%s", separator, profiles[i].name);
            separator = ", ";
        }
    fprintf(out, " with %d ranks as %s on %s", runner->options.ranks,
            runner->options.mode == TK_MODE_THREAD ? "threads" : "processes",
            uname(&machine) == 0 ? machine.machine : "this machine");
    if (strstr(runner_build(), "ThreadSanitizer") != NULL)
        fputs(" under ThreadSanitizer", out);
    else if (runner->options.mode == TK_MODE_THREAD)
        fputs("; a run under ThreadSanitizer belongs to it", out);
    fputc('\n', out);
}

/* What is declared, but cannot be claimed: SPEC.md, "Profiles". */
static void print_unshown(FILE *out, uint64_t declared) {
    uint64_t unshown = declared & (SYMMEM_CAP_CROSS_HOST | SYMMEM_CAP_WRAP_STREAM);
    char names[64];

    if (unshown == 0)
        return;
    runner_capability_names(unshown, names, sizeof(names));
    fprintf(out, "declared, but not shown by any test: %s\n", names);
}

void runner_print_claim(const struct runner *runner, FILE *out) {
    struct tally tallies[PROFILE_COUNT] = {{0}};
    enum standing standings[PROFILE_COUNT];

    judge(runner, tallies, standings);
    print_standing(out, "profiles passed in full: ", IN_FULL, tallies, standings);
    print_standing(out, "profiles passed in part: ", IN_PART, tallies, standings);
    print_standing(out, "profiles failed: ", FAILED, tallies, standings);
    print_standing(out, "profiles not decided: ", NOT_DECIDED, tallies, standings);
    print_standing(out, "profiles not declared: ", NOT_DECLARED, tallies, standings);
    print_unshown(out, runner->arena->probe.capabilities);
    print_sentence(out, runner, standings);
}

bool runner_profile_result(const struct runner *runner, int index,
                           struct runner_profile_result *result) {
    static const char *const words[STANDING_COUNT] = {
        [IN_FULL] = "in full", [IN_PART] = "in part",           [NOT_DECIDED] = "not decided",
        [FAILED] = "failed",   [NOT_DECLARED] = "not declared", [NOT_RUN] = "not run",
    };
    struct tally tallies[PROFILE_COUNT] = {{0}};
    enum standing standings[PROFILE_COUNT];

    if (index < 0 || index >= PROFILE_COUNT)
        return false;
    judge(runner, tallies, standings);
    *result = (struct runner_profile_result){
        .name = profiles[index].name,
        .standing = words[standings[index]],
        .passed = tallies[index].passed,
        .failed = tallies[index].bad,
        .undecided = tallies[index].undecided,
        .left_out = tallies[index].left_out,
        .other_parts = tallies[index].other_parts,
        .claimed = standings[index] == IN_FULL && obstacle(standings) < 0,
    };
    return true;
}
