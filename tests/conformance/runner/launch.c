/* SPDX-License-Identifier: BSD-3-Clause */
/* One case from its scratch directory to its verdict. */
#include "launcher.h"

#define DEFAULT_TIMEOUT_S 20

static uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

uint64_t runner_repeat_seed(uint64_t seed, int repeat) {
    return seed + (uint64_t)repeat * 0x51ed270bu;
}

/* By name, so that a case keeps its numbers whatever else the filter lets through. */
static uint64_t case_seed(uint64_t seed, const char *name, int repeat) {
    uint64_t value = mix(runner_repeat_seed(seed, repeat));
    for (; *name != '\0'; name++)
        value = mix(value ^ (uint64_t)(unsigned char)*name);
    return value;
}

static uint32_t case_timeout_ms(const struct runner_options *options, const struct tk_case *test) {
    unsigned seconds = test->timeout_s != 0 ? test->timeout_s : DEFAULT_TIMEOUT_S;
    if (options->timeout_s != 0)
        seconds = options->timeout_s;
    double ms = seconds * 1000.0 * options->timeout_scale;
    return ms > 86400000.0 ? 86400000u : (uint32_t)ms;
}

/* --- ranks as threads of one child process, which share one store and one mapping of everything --
 */

static void *rank_thread(void *arg) {
    kit_run_rank(arg);
    return NULL;
}

static void start_and_join(const struct kit_setup *setup, struct kit_setup *setups,
                           pthread_t *threads) {
    int started = 0;
    for (; started < setup->world_size; started++) {
        setups[started] = *setup;
        setups[started].rank = started;
        if (pthread_create(&threads[started], NULL, rank_thread, &setups[started]) != 0)
            break;
    }
    if (started < setup->world_size) {
        fprintf(stderr, "symmem-conformance: cannot start thread %d\n", started);
        _exit(126); /* the others would wait for it */
    }
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

static void run_threads(const struct kit_setup *setup) {
    struct kit_setup shared = *setup;
    size_t count = (size_t)setup->world_size;
    struct kit_setup *setups = calloc(count, sizeof(*setups));
    pthread_t *threads = calloc(count, sizeof(*threads));
    struct arena_rank *first = &setup->arena->ranks[0];
    if (setups == NULL || threads == NULL)
        _exit(126);
    kit_warm_up(setup);
    struct kit_ledger *ledger = kit_ledger_open(setup);
    /* NULL on failure: each rank's prologue then reports it. */
    if (symmem_store_open_memory(&shared.shared_store) != SYMMEM_OK)
        shared.shared_store = NULL;
    start_and_join(&shared, setups, threads);
    symmem_store_close(shared.shared_store);
    kit_ledger_close(ledger, setup->test->flags, first->leak, sizeof(first->leak));
    free(threads);
    free(setups);
}

/* --- one case -----------------------------------------------------------------------------------
 */

void runner_child_run(struct runner_run *run, int rank) {
    const struct runner *runner = run->runner;
    struct kit_setup setup = {
        .arena = runner->arena,
        .test = run->entry->test,
        .rank = rank,
        .world_size = run->entry->ranks,
        .mode = runner->options.mode,
        .seed = run->seed,
        .backend = runner->options.backend,
        .scratch_dir = run->scratch,
        .timeout_ms = run->timeout_ms,
        .lateness = runner->lateness,
        .late_ms = run->late_ms,
    };
    char number[16];
    char temporary[sizeof(run->scratch) + 8];
    snprintf(temporary, sizeof(temporary), "%s/tmp", run->scratch);
    setenv("TMPDIR", temporary, 1);
    kit_note_inherited(&setup);
    if (setup.mode == TK_MODE_THREAD) {
        run_threads(&setup);
        return;
    }
    snprintf(number, sizeof(number), "%d", rank);
    setenv("RANK", number, 1);
    setenv("LOCAL_RANK", number, 1);
    snprintf(number, sizeof(number), "%d", setup.world_size);
    setenv("WORLD_SIZE", number, 1);
    kit_run_rank(&setup);
}

void runner_launch(struct runner_run *run) {
    for (int i = 0; i < run->child_count; i++) {
        pid_t pid = runner_fork(run->runner);
        if (pid == 0) {
            runner_child_run(run, i);
            exit(RUNNER_RANK_DONE); /* not _exit: coverage and leak detection work at exit */
        }
        if (pid < 0) {
            run->fork_failed = true;
            return;
        }
        run->children[i].pid = pid;
        run->children[i].started = true;
    }
}

static void find_leaks(struct runner_run *run, const struct names *before) {
    char path[sizeof(run->scratch) + 8];
    if ((run->entry->test->flags & TK_MAY_LEAK) != 0)
        return;
    names_find(before, run, run->name_leak, sizeof(run->name_leak));
    snprintf(path, sizeof(path), "%s/store", run->scratch);
    scratch_list_files(path, run->store_leak, sizeof(run->store_leak));
}

static void start_and_judge(struct runner_run *run, struct runner_result *result) {
    struct names *before = names_take(run);
    free(output_take(run->runner->output)); /* of a stray of the case before */
    if (run->by_crew) {
        crew_launch(run);
    } else if (run->runner->options.launcher != NULL) {
        launcher_launch(run);
    } else {
        crew_make_room(run->runner->crew, run->entry->test);
        runner_launch(run);
    }
    runner_watch(run);
    run->arena_broken =
        !arena_check(run->runner->arena, run->entry->ranks, run->runner->arena_guard);
    find_leaks(run, before);
    names_free(before);
    result->output = output_take(run->runner->output);
    runner_judge(run, result);
    if (result->verdict != VERDICT_PASSED)
        crew_end(run->runner->crew);
}

/* True if the case cannot or need not be started; the result says why. */
static bool decided_before(const struct runner *runner, const struct runner_entry *entry,
                           struct runner_result *result) {
    const struct arena_probe *probe = &runner->arena->probe;
    char names[160];
    int length = 0;
    if (entry->missing_caps != 0) {
        runner_capability_names(entry->missing_caps, names, sizeof(names));
        length = asprintf(&result->reason, "needs capability %s", names);
        result->verdict = VERDICT_SKIPPED;
    } else if ((probe->capabilities & SYMMEM_CAP_WORLD) != 0 &&
               (entry->test->flags & TK_UNMET) != 0) {
        length = asprintf(&result->reason, "is about ranks that have not met; with WORLD all have");
        result->verdict = VERDICT_SKIPPED;
    } else if ((probe->capabilities & SYMMEM_CAP_OVERLAP) == 0 &&
               (entry->test->flags & (TK_NO_BACKEND | TK_NO_CONTEXT)) == 0 &&
               entry->ranks > probe->device_count) {
        length = asprintf(&result->reason, "needs %d devices, the machine has %d", entry->ranks,
                          probe->device_count);
        result->verdict = VERDICT_UNRESOLVED;
    } else {
        return false;
    }
    if (length < 0)
        result->reason = NULL;
    return true;
}

void runner_run_case(struct runner *runner, int index, uint32_t late_ms,
                     struct runner_result *result) {
    const struct runner_entry *entry = &runner->entries[index % runner->entry_count];
    const int repeat = index / runner->entry_count;
    struct lateness_seen before = lateness_about(runner->lateness, NULL, arena_now_ns());
    struct runner_run run = {.runner = runner, .entry = entry};
    uint64_t start = arena_now_ns();
    *result = (struct runner_result){.entry = entry, .repeat = repeat};
    result->seed = run.seed = case_seed(runner->options.seed, entry->test->name, repeat);
    if (decided_before(runner, entry, result))
        return;
    run.timeout_ms = case_timeout_ms(&runner->options, entry->test);
    run.late_ms = lateness_of_a_call(&before);
    if (late_ms > run.late_ms)
        run.late_ms = late_ms;
    run.by_crew = crew_takes(runner->crew, entry->test);
    run.child_count = runner->options.mode == TK_MODE_THREAD ? 1 : entry->ranks;
    run.children = calloc((size_t)run.child_count, sizeof(*run.children));
    if (run.children == NULL || !scratch_create(run.scratch, sizeof(run.scratch))) {
        result->verdict = VERDICT_UNRESOLVED;
        result->reason = strdup("no memory or no scratch directory for the case");
    } else {
        arena_reset(runner->arena, entry->ranks, runner->arena_guard);
        start_and_judge(&run, result);
    }
    if (run.scratch[0] != '\0')
        scratch_remove(run.scratch);
    free(run.children);
    result->late = lateness_about(runner->lateness, &runner->arena->delays, start);
    result->seconds = (double)(arena_now_ns() - start) / 1e9;
}
