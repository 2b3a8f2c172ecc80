/* SPDX-License-Identifier: BSD-3-Clause */
/* What the conformance runner says in the end about the profiles of a backend. */

#include "../../conformance/runner/runner.h"
#include "unit_main.h"

/* --- a small suite ------------------------------------------------------------------ */

static void body(struct tk *t) {}

#define STREAMS SYMMEM_CAP_STREAMS
static const struct tk_case cases[] = {
    {.name = "a.plain", .requirements = "SM-A-01", .body = body},
    {.name = "a.large", .requirements = "SM-A-01", .flags = TK_LARGE, .body = body},
    {.name = "a.threads", .requirements = "SM-A-01", .flags = TK_THREAD_ONLY, .body = body},
    {.name = "a.plain_too", .requirements = "SM-A-01", .body = body},
    {.name = "a.pointers",
     .requirements = "SM-A-01",
     .needs = SYMMEM_CAP_DIRECT_ACCESS | SYMMEM_CAP_HOST_ACCESS,
     .body = body},
    {.name = "a.pool", .requirements = "SM-A-01", .needs = SYMMEM_CAP_POOL, .body = body},
    {.name = "a.pool_in_stream",
     .requirements = "SM-A-01",
     .needs = SYMMEM_CAP_POOL | STREAMS,
     .body = body},
    {.name = "a.graph",
     .requirements = "SM-A-01",
     .needs = SYMMEM_CAP_CAPTURE | STREAMS | SYMMEM_CAP_HOST_FN,
     .body = body},
    {.name = "a.two_ranks", .requirements = "SM-A-01", .min_ranks = 2, .body = body},
};
TK_SUITE(a, cases);
const struct spec_requirement spec_requirements[] = {{"SM-A-01", "It MUST.", "", false}};
const int spec_requirement_count = 1;

/* --- a run of it -------------------------------------------------------------------- */

#define ALL_BUT_MULTICAST (SYMMEM_CAP_ALL & ~SYMMEM_CAP_MULTICAST)
#define PLAIN SYMMEM_CAP_PROCESS_RANKS

static struct arena *arena;

static struct runner plan(uint64_t capabilities, struct runner_options options) {
    struct runner runner = {.options = options, .arena = arena};
    if (runner.options.ranks == 0)
        runner.options.ranks = 2;
    runner.options.repeat = 1;
    arena->probe.capabilities = capabilities;
    snprintf(arena->probe.name, sizeof(arena->probe.name), "unit");
    CU_ASSERT_FATAL(runner_make_plan(&runner));
    for (int i = 0; i < runner.entry_count; i++) {
        const struct runner_entry *entry = &runner.entries[i];
        bool skip = entry->missing_caps != 0;
        runner.results[i] = (struct runner_result){
            .entry = entry, .verdict = skip ? VERDICT_SKIPPED : VERDICT_PASSED};
    }
    runner.result_count = runner.entry_count;
    return runner;
}

static void set(struct runner *runner, const char *name, enum runner_verdict verdict) {
    for (int i = 0; i < runner->result_count; i++)
        if (strcmp(runner->results[i].entry->test->name, name) == 0)
            runner->results[i].verdict = verdict;
}

static const char *build = "gcc 12";

const char *runner_build(void) {
    return build;
}

static char said[4096];

static bool says(struct runner *runner, const char *text) {
    FILE *out = fmemopen(said, sizeof(said), "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    runner_print_claim(runner, out);
    fclose(out);
    bool found = strstr(said, text) != NULL;
    if (!found)
        fprintf(stderr, "not found: '%s' in:\n%s\n", text, said);
    return found;
}

/* The same for a program: the profile's standing, and whether the claim names it. */
static bool stands(const struct runner *runner, const char *name, const char *standing,
                   bool claimed) {
    struct runner_profile_result result;
    for (int i = 0; runner_profile_result(runner, i, &result); i++)
        if (strcmp(result.counts.name, name) == 0)
            return strcmp(result.standing, standing) == 0 && result.claimed == claimed;
    return false;
}

/* --- the claims --------------------------------------------------------------------- */

TEST("full claim") {
    struct runner runner = plan(ALL_BUT_MULTICAST, (struct runner_options){0});
    CU_ASSERT(says(&runner, "profiles passed in full: core (4), direct-access (1), pool (1), "
                            "streams (1), capture (1)\n"));
    CU_ASSERT(says(&runner, "profiles not declared: multicast\n"));
    CU_ASSERT(says(&runner, "claim: backend unit conforms to core, direct-access, pool, streams, "
                            "capture with 2 ranks as processes on "));
    CU_ASSERT(strstr(said, "in part") == NULL && strstr(said, "failed") == NULL);
    CU_ASSERT(stands(&runner, "core", "in full", true));
    CU_ASSERT(stands(&runner, "capture", "in full", true));
    CU_ASSERT(stands(&runner, "multicast", "not declared", false));
    CU_ASSERT(stands(&runner, "overlap", "not run", false));
    runner_free_plan(&runner);
}

TEST("undeclared is no pass") {
    struct runner runner = plan(PLAIN, (struct runner_options){0});
    CU_ASSERT(says(&runner, "passed in full: core (4)\n"));
    CU_ASSERT(says(&runner,
                   "not declared: one-sided, direct-access, overlap, pool, streams, "
                   "host-functions, capture, collectives, products, multicast, windows\n"));
    CU_ASSERT(says(&runner, "conforms to core with 2 ranks"));
    runner_free_plan(&runner);
}

/* Declared, and nothing in the suite can tell. */
TEST("unshown capabilities") {
    struct runner runner = plan(PLAIN | SYMMEM_CAP_CROSS_HOST, (struct runner_options){0});
    CU_ASSERT(says(&runner, "declared, but not shown by any test: CROSS_HOST\n"));
    runner_free_plan(&runner);
}

TEST("skip for another capability") {
    struct runner runner = plan(PLAIN | STREAMS | SYMMEM_CAP_CAPTURE, (struct runner_options){0});
    /* a.pool_in_stream is skipped and a.graph too: nothing of either profile has run. */
    CU_ASSERT(says(&runner, "passed in full: core (4)\n"));
    CU_ASSERT(says(&runner, "conforms to core with"));
    CU_ASSERT(strstr(said, "capture") == NULL && strstr(said, "streams,") == NULL);
    runner_free_plan(&runner);
}

TEST("left out is in part") {
    struct runner runner = plan(PLAIN, (struct runner_options){.no_large = true});
    CU_ASSERT(says(&runner, "profiles passed in part: core (3, 1 left out)\n"));
    CU_ASSERT(says(&runner, "claim: none, because profile core was run in part only\n"));
    runner_free_plan(&runner);
    runner = plan(PLAIN, (struct runner_options){.ranks = 1});
    CU_ASSERT(says(&runner, "profiles passed in part: core (3, 1 left out)\n"));
    runner_free_plan(&runner);
    runner = plan(PLAIN, (struct runner_options){.filter = "a.plain"});
    CU_ASSERT(says(&runner, "profiles passed in part: core (1, 3 left out)\n"));
    runner_free_plan(&runner);
}

/* Cases of other parts are left out, as those of a filter are, and are counted beside. */
TEST("part is in part") {
    struct runner_profile_result result;
    struct runner runner =
        plan(PLAIN, (struct runner_options){.part = 2, .parts = 2, .no_large = true});
    CU_ASSERT_EQUAL_FATAL(runner.entry_count, 3);
    CU_ASSERT_STRING_EQUAL(runner.entries[0].test->name, "a.plain_too");
    CU_ASSERT_STRING_EQUAL(runner.entries[1].test->name, "a.pool");
    CU_ASSERT_STRING_EQUAL(runner.entries[2].test->name, "a.graph");
    CU_ASSERT(says(&runner, "profiles passed in part: core (1, 3 left out)\n"));
    CU_ASSERT(says(&runner, "claim: none, because profile core was run in part only\n"));
    CU_ASSERT(runner_profile_result(&runner, 0, &result));
    CU_ASSERT_EQUAL(result.counts.left_out, 3);
    CU_ASSERT_EQUAL(result.counts.other_parts, 2); /* a.large is in no part */
    runner_free_plan(&runner);
    runner = plan(PLAIN, (struct runner_options){.part = 1, .parts = 1});
    CU_ASSERT(says(&runner, "passed in full: core (4)\n"));
    runner_free_plan(&runner);
}

TEST("threads") {
    struct runner runner =
        plan(SYMMEM_CAP_THREAD_RANKS, (struct runner_options){.mode = TK_MODE_THREAD});
    CU_ASSERT(says(&runner, "passed in full: core (5)\n"));
    CU_ASSERT(says(&runner, "with 2 ranks as threads on "));
    CU_ASSERT(says(&runner, "; a run under ThreadSanitizer belongs to it\n"));
    build = "gcc 12, ThreadSanitizer";
    CU_ASSERT(says(&runner, " under ThreadSanitizer\n"));
    build = "gcc 12";
    runner_free_plan(&runner);
}

TEST("no claim after a failure") {
    struct runner runner = plan(ALL_BUT_MULTICAST, (struct runner_options){0});
    set(&runner, "a.plain", VERDICT_ERROR);
    CU_ASSERT(says(&runner, "profiles failed: core (1 of 4)\n"));
    CU_ASSERT(says(&runner, "claim: none, because profile core failed\n"));
    set(&runner, "a.plain", VERDICT_PASSED);
    set(&runner, "a.pool", VERDICT_FAILED);
    CU_ASSERT(says(&runner, "passed in full: core (4), "));
    CU_ASSERT(says(&runner, "claim: none, because profile pool failed\n"));
    CU_ASSERT(stands(&runner, "pool", "failed", false));
    CU_ASSERT(stands(&runner, "core", "in full", false)); /* nothing is claimed then */
    runner_free_plan(&runner);
}

TEST("no claim without a decision") {
    struct runner runner = plan(ALL_BUT_MULTICAST, (struct runner_options){0});
    set(&runner, "a.pool", VERDICT_UNRESOLVED);
    CU_ASSERT(says(&runner, "profiles not decided: pool (1 of 1)\n"));
    CU_ASSERT(says(&runner, "conforms to core, direct-access, streams, capture with"));
    CU_ASSERT(stands(&runner, "pool", "not decided", false));
    CU_ASSERT(stands(&runner, "core", "in full", true));
    set(&runner, "a.plain", VERDICT_UNRESOLVED);
    CU_ASSERT(says(&runner, "claim: none, because profile core is not decided\n"));
    set(&runner, "a.plain", VERDICT_PASSED);
    runner.result_count--; /* a run that was cut short */
    CU_ASSERT(says(&runner, "claim: none, because profile core is not decided\n"));
    runner_free_plan(&runner);
}

/* --- choosing by profile ------------------------------------------------------------ */

TEST("choice") {
    struct runner runner =
        plan(ALL_BUT_MULTICAST, (struct runner_options){.profile = "pool,capture"});
    CU_ASSERT_EQUAL_FATAL(runner.entry_count, 2);
    CU_ASSERT_STRING_EQUAL(runner.entries[0].test->name, "a.pool");
    CU_ASSERT_STRING_EQUAL(runner.entries[1].test->name, "a.graph");
    CU_ASSERT(says(&runner, "claim: none, because profile core was not run\n"));
    runner_free_plan(&runner);
    CU_ASSERT(runner_known_profiles("core,multicast"));
    CU_ASSERT(!runner_known_profiles("core,cores"));
    CU_ASSERT(runner_declares_profiles(NULL, "unit", 0));
    CU_ASSERT(runner_declares_profiles("core,pool", "unit", SYMMEM_CAP_POOL));
    CU_ASSERT(!runner_declares_profiles("core,pool", "unit", STREAMS));
    CU_ASSERT(!runner_declares_profiles("capture", "unit", SYMMEM_CAP_CAPTURE));
}

int unit_setup(void) {
    arena = arena_create(-1);
    return arena == NULL;
}

int unit_teardown(void) {
    arena_destroy(arena);
    return 0;
}
