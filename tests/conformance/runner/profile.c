/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Profiles: the parts of the suite that a backend takes on by what it declares (SPEC.md, Profiles).
 * What a run says about a backend in the end is said in their terms.
 */
#include "runner.h"

#include <sys/utsname.h>

struct profile {
    const char *name;
    uint64_t own;    /* the capability that opens it */
    uint64_t needed; /* that and what comes with it */
};

/* In the order of SPEC.md. A case belongs to the last one whose own capability it needs. */
static const struct profile profiles[] = {
    {"core", 0, 0},
    {"one-sided", SYMMEM_CAP_REACH, SYMMEM_CAP_REACH},
    {"direct-access", SYMMEM_CAP_DIRECT_ACCESS, SYMMEM_CAP_DIRECT_ACCESS},
    {"overlap", SYMMEM_CAP_OVERLAP, SYMMEM_CAP_OVERLAP},
    {"pool", SYMMEM_CAP_POOL, SYMMEM_CAP_POOL},
    {"streams", SYMMEM_CAP_STREAMS, SYMMEM_CAP_STREAMS},
    {"host-functions", SYMMEM_CAP_HOST_FN, SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_FN},
    {"capture", SYMMEM_CAP_CAPTURE, SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE},
    {"collectives", SYMMEM_CAP_COLLECTIVES, SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_DIRECT_ACCESS},
    {"products", SYMMEM_CAP_MATMUL,
     SYMMEM_CAP_MATMUL | SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_DIRECT_ACCESS},
    {"multicast", SYMMEM_CAP_MULTICAST, SYMMEM_CAP_MULTICAST},
    {"windows", SYMMEM_CAP_WINDOW, SYMMEM_CAP_WINDOW},
};
#define PROFILE_COUNT ((int)(sizeof(profiles) / sizeof(profiles[0])))

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
    for (int i = 0; i < runner_case_count; i++)
        counts[profile_of(runner_case(i))]++;
    for (int i = 0; i < PROFILE_COUNT; i++) {
        char needs[160];
        runner_capability_names(profiles[i].needed, needs, sizeof(needs));
        fprintf(out, "%s\t%s\t%d\n", profiles[i].name, needs, counts[i]);
    }
}

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

static void count_results(const struct runner *runner, struct claim_profile tallies[]) {
    for (int i = 0; i < runner->result_count; i++) {
        const struct runner_result *result = &runner->results[i];
        struct claim_profile *tally = &tallies[profile_of(result->entry->test)];
        tally->passed += result->verdict == VERDICT_PASSED;
        tally->undecided += result->verdict == VERDICT_UNRESOLVED;
        tally->leaked += result->only_leaks;
        tally->failed += result->verdict == VERDICT_FAILED || result->verdict == VERDICT_ERROR;
    }
    if (runner->result_count < runner->planned_count)
        tallies[0].undecided += runner->planned_count - runner->result_count;
}

static void count_left_out(const struct runner *runner, struct claim_profile tallies[]) {
    for (int i = 0; i < runner_case_count; i++) {
        const struct tk_case *test = runner_case(i);
        struct claim_profile *tally = &tallies[profile_of(test)];
        if (runner_is_of_other_mode(&runner->options, test) || is_planned(runner, test))
            continue;
        tally->left_out++;
        tally->other_parts += runner_would_plan(&runner->options, test);
    }
}

/* All that claim.c decides by; it points into itself. */
struct told {
    struct claim claim;
    struct claim_profile profiles[PROFILE_COUNT];
    struct utsname machine;
    char capabilities[256];
};

static void tell(const struct runner *runner, struct told *told) {
    uint64_t declared = runner->arena->probe.capabilities;
    *told = (struct told){.machine = {.machine = "this machine"}};
    uname(&told->machine);
    runner_capability_names(declared, told->capabilities, sizeof(told->capabilities));
    for (int i = 0; i < PROFILE_COUNT; i++) {
        told->profiles[i].name = profiles[i].name;
        told->profiles[i].declared = (profiles[i].needed & ~declared) == 0;
    }
    count_results(runner, told->profiles);
    count_left_out(runner, told->profiles);
    told->claim = (struct claim){
        .backend = runner->arena->probe.name,
        .arch = told->machine.machine,
        .build = runner_build(),
        .capabilities = told->capabilities,
        .timeout_scale = runner->options.timeout_scale,
        .ranks = runner->options.ranks,
        .threads = runner->options.mode == TK_MODE_THREAD,
        .profiles = told->profiles,
        .profile_count = PROFILE_COUNT,
    };
}

void runner_print_claim(const struct runner *runner, FILE *out) {
    struct told told;
    tell(runner, &told);
    claim_write(&told.claim, out);
}

bool runner_profile_result(const struct runner *runner, int index,
                           struct runner_profile_result *result) {
    struct told told;
    if (index < 0 || index >= PROFILE_COUNT)
        return false;
    tell(runner, &told);
    *result = (struct runner_profile_result){
        .counts = told.profiles[index],
        .standing = claim_standing(&told.profiles[index]),
        .claimed = claim_has(&told.claim, index),
    };
    return true;
}
