/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process is set to: working directory, umask, environment, locale, limits, signals, timers,
 * cores, priority, arithmetic, and its threads. A library that changes any of it for good changes
 * its user's program.
 */
#include "kit_internal.h"

#include <dirent.h>
#include <fenv.h>
#include <float.h>
#include <locale.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/time.h>

#define MAX_THREADS 64
#define SETTLE_MS 500
#define SIGNAL_COUNT 65
/* Set by the C library on whatever it restores; not a setting. */
#define SA_RESTORER_FLAG 0x04000000

extern char **environ;

struct kit_state {
    char directory[512];
    char status[512]; /* the lines of /proc/self/status that must not change */
    char locale[256];
    char **environment;
    int environment_count;
    struct rlimit limits[RLIM_NLIMITS];
    struct sigaction actions[SIGNAL_COUNT];
    int timers;
    struct itimerval intervals[3];
    cpu_set_t cores;
    int priority;
    int rounding;
    bool has_subnormals;
    int threads[MAX_THREADS];
    int thread_count;
};

/* The umask and the signal mask of the calling thread. */
static void take_status(char *text, size_t capacity) {
    static const char *const kept[] = {"Umask:", "SigBlk:"};
    FILE *file = fopen("/proc/thread-self/status", "re");
    char line[256];
    size_t used = 0;
    text[0] = '\0';
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
            if (strncmp(line, kept[i], strlen(kept[i])) == 0 && used < capacity)
                used += (size_t)snprintf(text + used, capacity - used, "%s", line);
    if (file != NULL)
        fclose(file);
}

/* The process's locale; the calling thread's stands in its place while it has one of its own. */
static void take_locale(char *text, size_t capacity) {
    const char *name = setlocale(LC_ALL, NULL);
    bool own = uselocale((locale_t)0) != LC_GLOBAL_LOCALE;
    snprintf(text, capacity, "%s%s", name == NULL ? "unknown" : name, own ? ", the thread's" : "");
}

static int count_timers(void) {
    FILE *file = fopen("/proc/self/timers", "re");
    char line[256];
    int count = 0;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        count += strncmp(line, "ID:", 3) == 0;
    if (file != NULL)
        fclose(file);
    return count;
}

static int list_threads(int *threads) {
    DIR *directory = opendir("/proc/self/task");
    const struct dirent *entry;
    int count = 0;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.' && count < MAX_THREADS)
            threads[count++] = atoi(entry->d_name);
    if (directory != NULL)
        closedir(directory);
    return count;
}

int kit_threads(void) {
    int threads[MAX_THREADS];
    return list_threads(threads);
}

static void take_environment(struct kit_state *state) {
    int count = 0;
    while (environ != NULL && environ[count] != NULL)
        count++;
    state->environment = calloc((size_t)count + 1, sizeof(*state->environment));
    for (int i = 0; state->environment != NULL && i < count; i++)
        state->environment[i] = strdup(environ[i]);
    state->environment_count = count;
}

static void *do_nothing(void *arg) {
    return arg;
}

/* ThreadSanitizer starts a thread of its own with the first that the program starts. */
static void start_sanitizers_thread(void) {
    pthread_t thread;
    if (KIT_THREAD_SANITIZER && pthread_create(&thread, NULL, do_nothing, NULL) == 0)
        pthread_join(thread, NULL);
}

/* What code that was built for speed switches off for all. */
static bool subnormals_work(void) {
    volatile float smallest = FLT_MIN;
    smallest /= 2;
    return smallest > 0;
}

static void take_execution(struct kit_state *state) {
    for (int i = 0; i < 3; i++)
        if (getitimer((__itimer_which_t)i, &state->intervals[i]) != 0)
            memset(&state->intervals[i], 0, sizeof(state->intervals[i]));
    CPU_ZERO(&state->cores);
    (void)sched_getaffinity(0, sizeof(state->cores), &state->cores); /* fails on over 1024 cores */
    state->priority = getpriority(PRIO_PROCESS, 0);
    state->rounding = fegetround();
    state->has_subnormals = subnormals_work();
}

struct kit_state *kit_state_take(void) {
    struct kit_state *state = calloc(1, sizeof(*state));
    if (state == NULL)
        return NULL;
    start_sanitizers_thread();
    if (getcwd(state->directory, sizeof(state->directory)) == NULL)
        state->directory[0] = '\0';
    take_status(state->status, sizeof(state->status));
    take_locale(state->locale, sizeof(state->locale));
    take_environment(state);
    for (int i = 0; i < RLIM_NLIMITS; i++)
        (void)getrlimit((__rlimit_resource_t)i, &state->limits[i]);
    for (int i = 1; i < SIGNAL_COUNT; i++)
        (void)sigaction(i, NULL, &state->actions[i]);
    state->timers = count_timers();
    take_execution(state);
    state->thread_count = list_threads(state->threads);
    return state;
}

static bool has_variable(char *const *list, const char *variable) {
    for (int i = 0; list != NULL && list[i] != NULL; i++)
        if (strcmp(list[i], variable) == 0)
            return true;
    return false;
}

static void compare_environment(const struct kit_state *before, struct kit_text *text) {
    for (int i = 0; before->environment != NULL && i < before->environment_count; i++)
        if (!has_variable(environ, before->environment[i]))
            kit_add(text, "environment variable changed or gone, was %.60s",
                    before->environment[i]);
    for (int i = 0; before->environment != NULL && environ != NULL && environ[i] != NULL; i++)
        if (!has_variable(before->environment, environ[i]))
            kit_add(text, "environment variable set: %.60s", environ[i]);
}

static void compare_signals(const struct kit_state *before, struct kit_text *text) {
    for (int i = 1; i < SIGNAL_COUNT; i++) {
        struct sigaction now;
        if (sigaction(i, NULL, &now) == 0 &&
            (now.sa_handler != before->actions[i].sa_handler ||
             (now.sa_flags ^ before->actions[i].sa_flags) & ~SA_RESTORER_FLAG))
            kit_add(text, "disposition of signal %d changed", i);
    }
}

static bool was_running(const struct kit_state *before, int thread) {
    for (int i = 0; i < before->thread_count; i++)
        if (before->threads[i] == thread)
            return true;
    return false;
}

static int new_threads(const struct kit_state *before) {
    int threads[MAX_THREADS];
    int count = list_threads(threads), left = 0;
    for (int i = 0; i < count; i++)
        left += !was_running(before, threads[i]);
    return left;
}

/* The kernel lists a thread for a moment after it was joined. */
static void compare_threads(const struct kit_state *before, struct kit_text *text) {
    int left = new_threads(before);
    for (int waited_ms = 0; left > 0 && waited_ms < SETTLE_MS; waited_ms += 5) {
        tk_sleep_ms(5);
        left = new_threads(before);
    }
    if (left > 0)
        kit_add(text, "%d thread%s left running", left, left == 1 ? "" : "s");
}

static void compare_execution(const struct kit_state *before, struct kit_text *text) {
    struct kit_state now;
    take_execution(&now);
    for (int i = 0; i < 3; i++)
        if (timerisset(&now.intervals[i].it_value) && !timerisset(&before->intervals[i].it_value))
            kit_add(text, "an interval timer or alarm");
    if (!CPU_EQUAL(&now.cores, &before->cores))
        kit_add(text, "affinity changed: %d cores, were %d", CPU_COUNT(&now.cores),
                CPU_COUNT(&before->cores));
    if (now.priority != before->priority)
        kit_add(text, "priority changed to %d", now.priority);
    if (now.rounding != before->rounding || now.has_subnormals != before->has_subnormals)
        kit_add(text, "floating-point %s changed",
                now.rounding != before->rounding ? "rounding" : "treatment of subnormals");
}

static void compare(const struct kit_state *before, bool device, struct kit_text *text) {
    char directory[sizeof(before->directory)] = "";
    char status[sizeof(before->status)], locale[sizeof(before->locale)];
    int timers = count_timers();
    if (!device)
        compare_threads(before, text);
    if (getcwd(directory, sizeof(directory)) == NULL || strcmp(directory, before->directory) != 0)
        kit_add(text, "working directory changed to %.100s", directory);
    take_status(status, sizeof(status));
    if (strcmp(status, before->status) != 0)
        kit_add(text, "umask or signal mask changed");
    take_locale(locale, sizeof(locale));
    if (strcmp(locale, before->locale) != 0)
        kit_add(text, "locale changed to %.60s", locale);
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit now;
        if (getrlimit((__rlimit_resource_t)i, &now) == 0 &&
            (now.rlim_cur != before->limits[i].rlim_cur ||
             now.rlim_max != before->limits[i].rlim_max))
            kit_add(text, "resource limit %d changed", i);
    }
    compare_signals(before, text);
    compare_execution(before, text);
    if (timers > before->timers)
        kit_add(text, "%d timer%s", timers - before->timers,
                timers > before->timers + 1 ? "s" : "");
}

void kit_state_compare(struct kit_state *before, unsigned case_flags, bool device,
                       struct kit_text *text) {
    if (before == NULL)
        return;
    compare(before, device, text);
    if ((case_flags & TK_SETS_ENVIRONMENT) == 0)
        compare_environment(before, text);
    for (int i = 0; before->environment != NULL && i < before->environment_count; i++)
        free(before->environment[i]);
    free(before->environment);
    free(before);
}
