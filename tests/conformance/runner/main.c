/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher.h"

#include <sys/prctl.h>

/* Or files of our own would lie where all processes write. */
static void open_standard_files(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* nohup has SIGHUP ignored, which would come all the same if it was blocked. What shells have
 * ignored in the background ends the run nevertheless: there a script's Ctrl-C is meant for all. */
static void choose_interrupts(sigset_t *interrupts) {
    struct sigaction action;
    sigemptyset(interrupts);
    sigaddset(interrupts, SIGINT);
    sigaddset(interrupts, SIGTERM);
    if (sigaction(SIGHUP, NULL, &action) != 0 || action.sa_handler != SIG_IGN)
        sigaddset(interrupts, SIGHUP);
}

/* The watchdog takes these by sigtimedwait, so that nothing interrupts the controller elsewhere. */
static void block_signals(struct runner *runner) {
    choose_interrupts(&runner->interrupts);
    sigset_t blocked = runner->interrupts;
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &runner->original_signals);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static bool mode_is_possible(const struct runner *runner) {
    uint64_t needed =
        runner->options.mode == TK_MODE_THREAD ? SYMMEM_CAP_THREAD_RANKS : SYMMEM_CAP_PROCESS_RANKS;
    enum tk_mode other = runner->options.mode == TK_MODE_THREAD ? TK_MODE_PROCESS : TK_MODE_THREAD;
    char name[32];
    if ((runner->arena->probe.capabilities & needed) != 0)
        return true;
    runner_capability_names(needed, name, sizeof(name));
    fprintf(stderr,
            "symmem-conformance: backend %s does not declare %s: run it with --rank-mode %s\n",
            runner->arena->probe.name, name, runner_mode_name(other));
    return false;
}

/* As its kept ranks ended, when nothing needs them any more. */
static bool close_ranks(struct runner *runner, struct runner_jobs *jobs, char *text,
                        size_t capacity) {
    bool good =
        jobs != NULL ? jobs_close(jobs, text, capacity) : crew_close(runner->crew, text, capacity);
    runner->crew = NULL;
    return good;
}

static void run_cases(struct runner *runner) {
    struct runner_jobs *jobs;
    char bad_ends[192];
    runner->jobs = jobs_count(runner);
    jobs = runner->jobs > 1 ? jobs_open(runner) : NULL;
    if (jobs == NULL && !runner->options.verbose)
        runner->output = output_open();
    if (jobs == NULL && runner->options.keep_ranks)
        runner->crew = crew_open(runner->options.timeout_scale);
    report_begin(runner);
    if (!runner_run_cunit(runner, jobs) && runner->interrupted == 0)
        fputs("symmem-conformance: CUnit did not run the whole list\n", stderr);
    if (!close_ranks(runner, jobs, bad_ends, sizeof(bad_ends)))
        report_blame_last(runner, bad_ends);
}

static enum runner_exit run_planned(struct runner *runner) {
    if (!runner_knows_patterns(runner->options.filter))
        return RUNNER_FAILED;
    if (!runner_probe(runner)) {
        fprintf(stderr, "symmem-conformance: backend %s cannot be loaded: %s\n",
                runner->options.backend, runner->arena->probe.reason);
        return runner->interrupted != 0 ? RUNNER_FAILED : RUNNER_NO_BACKEND;
    }
    if (!mode_is_possible(runner))
        return RUNNER_NO_BACKEND;
    if (!runner_declares_profiles(runner->options.profile, runner->arena->probe.name,
                                  runner->arena->probe.capabilities))
        return RUNNER_FAILED;
    if (!runner_make_plan(runner)) {
        fputs("symmem-conformance: no memory for the plan\n", stderr);
        return RUNNER_FAILED;
    }
    if (runner->matched_count == 0) {
        fprintf(stderr, "symmem-conformance: no test matches --filter %s%s%s\n",
                runner->options.filter == NULL ? "*" : runner->options.filter,
                runner->options.profile == NULL ? "" : " --profile ",
                runner->options.profile == NULL ? "" : runner->options.profile);
        return RUNNER_FAILED;
    }
    if (runner->options.launcher != NULL && !launcher_try(runner))
        return RUNNER_FAILED;
    run_cases(runner);
    runner->reported = true;
    enum runner_exit status = report_end(runner);
    return runner->interrupted != 0 ? RUNNER_FAILED : status;
}

static enum runner_exit run_opened(struct runner *runner) {
    runner->private_shm = private_shm_enter(runner->options.backend);
    /* For cases that look at the names themselves. */
    setenv("SYMMEM_PRIVATE_SHM", runner->private_shm ? "1" : "0", 1);
    block_signals(runner);
    runner_note_others(runner);
    runner->arena_guard = arena_now_ns() ^ UINT64_C(0x9e3779b97f4a7c15);
    runner->arena = runner_make_arena(runner);
    if (runner->arena == NULL) {
        fputs("symmem-conformance: no shared memory for the results\n", stderr);
        return RUNNER_FAILED;
    }
    lateness_open(runner);
    enum runner_exit status = run_planned(runner);
    lateness_close(runner);
    runner_free_plan(runner);
    output_close(runner->output);
    arena_destroy(runner->arena);
    return status;
}

static enum runner_exit run(const struct runner_options *options) {
    struct runner runner = {.options = *options};
    enum runner_exit status = RUNNER_FAILED;
    runner_settle_environment();
    if (report_open(&runner))
        status = run_opened(&runner);
    if (!runner.reported && options->format == FORMAT_TEXT)
        puts("0 passed, 1 failed, 0 skipped"); /* a run always says how it ended */
    report_close(&runner);
    return status;
}

/* What is printed for programs to read must not be cut short without a word. */
static int printed(void) {
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return RUNNER_PASSED;
    fputs("symmem-conformance: standard output could not be written\n", stderr);
    return RUNNER_FAILED;
}

int runner_main(int argc, char **argv) {
    struct runner_options options;
    open_standard_files();
    if (argc == 4 && strcmp(argv[1], STARTER_OPTION) == 0)
        return starter_main(argv[2], argv[3]);
    if (!runner_parse_options(argc, argv, &options)) {
        fputs("usage: symmem-conformance [options], all of them by --help\n", stderr);
        return RUNNER_FAILED;
    }
    if (options.help) {
        runner_usage(stdout);
        return printed();
    }
    if (options.list) {
        if (!runner_knows_patterns(options.filter))
            return RUNNER_FAILED;
        runner_print_list(&options, stdout);
        return printed();
    }
    if (options.list_profiles) {
        runner_print_profiles(stdout);
        return printed();
    }
    if (options.trace) {
        runner_print_trace(stdout);
        return printed();
    }
    if (!runner_check_trace(stderr))
        return RUNNER_FAILED;
    if (options.check_trace) {
        puts("trace: complete");
        return printed();
    }
    return (int)run(&options);
}

int main(int argc, char **argv) {
    return runner_main(argc, argv);
}
