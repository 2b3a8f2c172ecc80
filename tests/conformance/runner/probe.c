/* SPDX-License-Identifier: BSD-3-Clause */
#include "runner.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PROBE_TIMEOUT_S 60

#if defined(SYMMEM_COVERAGE_BUILD) && !defined(__clang__)
/* A weak declaration would stay NULL, because nothing else pulls it out of its archive. */
extern void __gcov_dump(void);
#endif

/* A hung child is asked to end before it is killed, so that its coverage is not lost. */
static void end_on_term(int signal_number) {
    (void)signal_number;
#if defined(SYMMEM_COVERAGE_BUILD) && !defined(__clang__)
    __gcov_dump();
#endif
    _exit(124);
}

pid_t runner_fork(struct runner *runner) {
    pid_t parent = getpid();
    struct sigaction action = {.sa_handler = end_on_term};
    fflush(NULL); /* or the child prints the controller's text once more */
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(125);
    /* A group of its own: what a rank starts can be ended with it, the terminal's Ctrl-C reaches
     * the controller alone, which then ends the ranks. */
    setpgid(0, 0);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &runner->original_signals, NULL);
    report_forget(runner);
    job_forget(runner);
    output_redirect(runner->output);
    dup2(STDERR_FILENO, STDOUT_FILENO); /* standard output is the report's */
    return 0;
}

static void note_failure(struct arena_probe *probe, symmem_status status) {
    symmem_error_record record;
    probe->ok = 0; /* whatever a backend that writes at random made of it */
    symmem_last_error(&record);
    snprintf(probe->reason, sizeof(probe->reason), "%s: %s", symmem_status_name(status),
             record.message[0] != '\0' ? record.message : symmem_status_text(status));
}

/* The objects that the process has loaded, by file name. */
struct objects {
    char names[64][256];
    int count;
};

static int note_object(struct dl_phdr_info *info, size_t size, void *arg) {
    struct objects *objects = arg;
    (void)size;
    if (info->dlpi_name != NULL && info->dlpi_name[0] != '\0' && objects->count < 64)
        snprintf(objects->names[objects->count++], sizeof(objects->names[0]), "%s",
                 info->dlpi_name);
    return 0;
}

static void ask_table(const symmem_backend *table, struct arena_probe *probe) {
    snprintf(probe->description, sizeof(probe->description), "%s", table->description);
    if (table->instance->probe(probe->runs_on, sizeof(probe->runs_on)) != SYMMEM_OK)
        probe->runs_on[0] = '\0';
}

/* The library has no call for it, so the table of the loaded plug-in is asked. */
static void describe_backend(struct arena_probe *probe) {
    struct objects *objects = calloc(1, sizeof(*objects));
    if (objects == NULL)
        return;
    dl_iterate_phdr(note_object, objects);
    for (int i = 0; i < objects->count && probe->description[0] == '\0'; i++) {
        void *object = dlopen(objects->names[i], RTLD_LAZY | RTLD_NOLOAD);
        symmem_backend_entry_fn entry = NULL;
        if (object == NULL)
            continue;
        *(void **)&entry = dlsym(object, SYMMEM_BACKEND_ENTRY);
        const symmem_backend *table = entry == NULL ? NULL : entry(SYMMEM_BACKEND_ABI);
        if (table != NULL && strcmp(table->name, probe->name) == 0)
            ask_table(table, probe);
        dlclose(object);
    }
    free(objects);
}

static void ask_backend(const char *backend, struct arena_probe *probe) {
    symmem_context_options options;
    symmem_context *context = NULL;
    const char *name = NULL;
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    options.local_rank = 0;
    options.backend = backend;
    symmem_status status = symmem_init(&options, &context);
    if (status == SYMMEM_OK)
        status = symmem_get_backend(context, &name);
    if (status == SYMMEM_OK)
        status = symmem_backend_capabilities(context, &probe->capabilities);
    if (status == SYMMEM_OK)
        status = symmem_device_count(context, &probe->device_count);
    if (status == SYMMEM_OK)
        status = symmem_device_type(context, &probe->device_type);
    if (status == SYMMEM_OK && name != NULL) {
        snprintf(probe->name, sizeof(probe->name), "%s", name);
        describe_backend(probe);
        probe->ok = 1;
    } else {
        note_failure(probe, status);
    }
    symmem_context_free(context);
}

/* What became of a probe that did not end as it should. */
static void explain(struct runner *runner, bool ended, uint64_t limit_ms, int status) {
    struct arena_probe *probe = &runner->arena->probe;
    const char *what = probe->ok == 1 ? "closing" : "opening";
    if (runner->interrupted != 0)
        snprintf(probe->reason, sizeof(probe->reason), "the run was interrupted");
    else if (!ended)
        snprintf(probe->reason, sizeof(probe->reason), "%s it hangs: no end within %.1f s", what,
                 (double)limit_ms / 1000.0);
    else if (WIFSIGNALED(status))
        snprintf(probe->reason, sizeof(probe->reason), "%s it ended with signal %d (%s)", what,
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (probe->reason[0] == '\0')
        snprintf(probe->reason, sizeof(probe->reason),
                 "opening it ended the process with exit status %d", WEXITSTATUS(status));
}

bool runner_probe(struct runner *runner) {
    const struct runner_options *options = &runner->options;
    struct arena_probe *probe = &runner->arena->probe;
    unsigned limit_s = options->timeout_s != 0 ? options->timeout_s : PROBE_TIMEOUT_S;
    uint64_t limit_ms = (uint64_t)(limit_s * 1000.0 * options->timeout_scale);
    int status = 0;
    pid_t pid = runner_fork(runner);
    if (pid < 0) {
        snprintf(probe->reason, sizeof(probe->reason), "cannot start a process");
        return false;
    }
    if (pid == 0) {
        ask_backend(options->backend, probe);
        exit(0);
    }
    bool ended = runner_await(runner, pid, limit_ms, &status);
    bool good = ended && probe->ok == 1 && WIFEXITED(status);
    probe->name[sizeof(probe->name) - 1] = '\0';
    probe->description[sizeof(probe->description) - 1] = '\0';
    probe->runs_on[sizeof(probe->runs_on) - 1] = '\0';
    probe->reason[sizeof(probe->reason) - 1] = '\0';
    if (!good)
        explain(runner, ended, limit_ms, status);
    arena_seal_probe(runner->arena);
    return good;
}
