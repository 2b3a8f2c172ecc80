/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs whole jobs of two ranks. In each job one call of one rank fails, the n-th of a class. Runs
 * several jobs at a time and checks each. Usage: walk JOB FOLDER [--seed N] [--seconds N] [--lanes
 * N] [--how HOW] [--class NAME] [--nth N] [--backend BACKEND]. Without --seconds all of them,
 * otherwise as many as there is time for, in an order that the seed gives. See README.md.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "ranks.h"

enum {
    RANKS = 2,
    LIMIT_MS = 3000,    /* of the jobs' calls */
    LONGEST_MS = 25000, /* of a job; what lasts longer hangs */
    MARGIN = 8,         /* beyond what a job without a failure calls */
    LANES_MAX = 64,
    FINDINGS_MAX = 400,
    BATCH = 1000, /* jobs for one process */
};

static const char *const class_names[FAULTS_CLASSES] = {
    "memory", "mappings", "sockets", "files", "threads", "pidfds", "libraries", "system"};

static struct {
    const char *job, *folder, *how, *backend;
    unsigned long seed;
    long seconds, lanes, nth;
    int class; /* -1: all */
} options = {.how = "finalize", .backend = "shm", .lanes = 8, .class = -1};

static long long now_ms(void) {
    return ranks_now_ns() / 1000000;
}

/* --- one job -------------------------------------------------------------------------------- */

struct plan {
    int class, nth, victim; /* victim -1: no call fails */
    bool sockets;
};

/* What a rank said of its first failure. */
struct failure {
    char call[64], status[32], missing[64], text[400];
    int failed_rank;
};

struct outcome {
    int status; /* as waitpid tells it */
    int calls;
    bool done, leaks, wrong;
    char hit[128], remark[256];
    struct failure failure;
};

struct lane {
    bool busy, hung;
    struct plan plan;
    long long begin_ms;
    pid_t pids[RANKS]; /* 0: has ended */
    struct outcome ranks[RANKS];
    char folder[200];
};

static void start_rank(struct lane *lane, int rank) {
    const struct plan *plan = &lane->plan;
    char store[RANKS_PATH], sockets[RANKS_PATH], texts[4][16];
    ranks_path(lane->folder, "store", -1, store);
    ranks_path(lane->folder, "sockets", -1, sockets);
    (void)snprintf(texts[0], sizeof(texts[0]), "%d", rank);
    (void)snprintf(texts[1], sizeof(texts[1]), "%d", plan->class);
    (void)snprintf(texts[2], sizeof(texts[2]), "%d", rank == plan->victim ? plan->nth : 0);
    (void)snprintf(texts[3], sizeof(texts[3]), "%d", LIMIT_MS);
    const char *const arguments[] = {
        options.job, texts[0], "2",         store,    plan->sockets ? sockets : "-",
        texts[1],    texts[2], options.how, texts[3], options.backend,
        NULL};
    lane->pids[rank] = ranks_start(lane->folder, rank, arguments);
}

static void start(struct lane *lane, const struct plan *plan) {
    *lane = (struct lane){.busy = true, .plan = *plan, .begin_ms = now_ms()};
    ranks_make_folder(options.folder, lane->folder);
    for (int rank = 0; rank < RANKS; rank++)
        start_rank(lane, rank);
}

/* --- what it says --------------------------------------------------------------------------- */

static void copy_field(char *to, size_t capacity, const char **from) {
    const size_t bytes = strcspn(*from, "\t\n");
    (void)snprintf(to, capacity, "%.*s", (int)bytes, *from);
    *from += bytes + ((*from)[bytes] != '\0' ? 1 : 0);
}

static void read_line(struct outcome *rank, const char *line) {
    const char *rest = strchr(line, '\t');
    char number[32];
    rest = rest != NULL ? rest + 1 : "";
    if (strncmp(line, "FAILED\t", 7) == 0) {
        struct failure *failure = &rank->failure;
        copy_field(failure->call, sizeof(failure->call), &rest);
        copy_field(failure->status, sizeof(failure->status), &rest);
        copy_field(number, sizeof(number), &rest);
        failure->failed_rank = atoi(number);
        copy_field(failure->missing, sizeof(failure->missing), &rest);
        copy_field(number, sizeof(number), &rest); /* how long it took */
        copy_field(failure->text, sizeof(failure->text), &rest);
    } else if (strncmp(line, "HIT\t", 4) == 0) {
        copy_field(rank->hit, sizeof(rank->hit), &rest);
    } else if (strncmp(line, "END\t", 4) == 0) {
        rank->calls = atoi(rest);
    } else if (strncmp(line, "DONE", 4) == 0) {
        rank->done = true;
    } else if (strncmp(line, "LEAK", 4) == 0 || strncmp(line, "WRONG", 5) == 0) {
        rank->leaks = rank->leaks || line[0] == 'L';
        rank->wrong = rank->wrong || line[0] == 'W';
        const size_t used = strlen(rank->remark);
        (void)snprintf(rank->remark + used, sizeof(rank->remark) - used, " [%.*s]",
                       (int)strcspn(line, "\n"), line);
    }
}

static void read_outcome(struct lane *lane, int rank) {
    char path[RANKS_PATH], line[1024];
    ranks_path(lane->folder, "out", rank, path);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        read_line(&lane->ranks[rank], line);
    if (file != NULL)
        (void)fclose(file);
}

/* Besides a store's own two files. */
static int left_in(const struct lane *lane, const char *name, char first[128]) {
    char path[RANKS_PATH], file[128] = "";
    ranks_path(lane->folder, name, -1, path);
    const int count = ranks_left_in(path, "lock", "notify", file);
    if (count > 0)
        (void)snprintf(first, 128, "%s/%.100s", name, file);
    return count;
}

/* --- judging -------------------------------------------------------------------------------- */

enum kind { CRASH = 0, HANG, LEAK, LEFT, WRONG, BLAMES, UNTOLD, KINDS };
static const char *const kind_names[KINDS] = {"crash", "hang",   "leak",  "left",
                                              "wrong", "blames", "untold"};

struct figures {
    int jobs, reached, absorbed, counts[KINDS];
    int mute;       /* jobs whose failing rank has no store: it has nowhere to tell its cause */
    int both, told; /* other jobs in which the other rank failed too, and named it with its cause */
    long long slowest_ms;
};

/* The same thing at the same place is told once. */
struct finding {
    enum kind kind;
    int count;
    struct plan first;
    char key[300], text[1400];
};

/* What is known so far. Processes that follow each other share it: where their time is limited, one
 * would not do for the whole walk. */
static struct known {
    struct figures figures[FAULTS_CLASSES];
    struct finding findings[FINDINGS_MAX];
    int finding_count;
    int bases[FAULTS_CLASSES][RANKS][2]; /* calls of a job without a failure, [sockets] */
} * known;

static void find(const struct lane *lane, enum kind kind, const char *extra) {
    const struct outcome *own = &lane->ranks[lane->plan.victim];
    const struct outcome *other = &lane->ranks[1 - lane->plan.victim];
    struct finding *finding = NULL;
    char key[300];
    known->figures[lane->plan.class].counts[kind]++;
    (void)snprintf(key, sizeof(key), "%d %.80s %.60s %.30s %.30s", (int)kind, own->hit,
                   own->failure.call, own->failure.status, other->failure.status);
    for (int i = 0; i < known->finding_count; i++)
        if (strcmp(known->findings[i].key, key) == 0)
            finding = &known->findings[i];
    if (finding == NULL && known->finding_count < FINDINGS_MAX) {
        finding = &known->findings[known->finding_count++];
        finding->kind = kind;
        finding->first = lane->plan;
        (void)snprintf(finding->key, sizeof(finding->key), "%s", key);
        (void)snprintf(finding->text, sizeof(finding->text),
                       "    %s\n    victim %d (%x): %s %s %d {%s} %s%s\n"
                       "    other (%x): %s %s %d {%s} %s%s\n    %s",
                       own->hit, lane->plan.victim, (unsigned)own->status, own->failure.call,
                       own->failure.status, own->failure.failed_rank, own->failure.missing,
                       own->failure.text, own->remark, (unsigned)other->status, other->failure.call,
                       other->failure.status, other->failure.failed_rank, other->failure.missing,
                       other->failure.text, other->remark, extra);
    }
    if (finding != NULL)
        finding->count++;
}

static bool names(const struct failure *failure, int rank) {
    char text[12];
    (void)snprintf(text, sizeof(text), "%d", rank);
    return failure->failed_rank == rank || strcmp(failure->missing, text) == 0;
}

/* The cause is what the failing rank itself got. */
static bool tells_cause(const struct failure *told, const struct failure *cause) {
    return strcmp(told->status, cause->status) == 0 || strstr(told->text, cause->status) != NULL;
}

static void judge_records(const struct lane *lane, struct figures *of_class) {
    const int victim = lane->plan.victim;
    const struct outcome *own = &lane->ranks[victim], *other = &lane->ranks[1 - victim];
    const bool own_failed = own->failure.call[0] != '\0';
    const bool other_failed = other->failure.call[0] != '\0';
    if (!own_failed && !other_failed) {
        of_class->absorbed++;
        return;
    }
    if (own_failed && names(&own->failure, 1 - victim))
        find(lane, BLAMES, "");
    if (!other_failed)
        return;
    if (strncmp(own->failure.call, "symmem_store_open", strlen("symmem_store_open")) == 0) {
        of_class->mute++;
        return;
    }
    of_class->both++;
    if (own_failed && names(&other->failure, victim) && tells_cause(&other->failure, &own->failure))
        of_class->told++;
    else
        find(lane, UNTOLD, "");
}

static void judge(const struct lane *lane) {
    struct figures *of_class = &known->figures[lane->plan.class];
    const long long took_ms = now_ms() - lane->begin_ms;
    char first[128] = "";
    bool ended = true;
    of_class->jobs++;
    of_class->slowest_ms = took_ms > of_class->slowest_ms ? took_ms : of_class->slowest_ms;
    if (lane->ranks[lane->plan.victim].hit[0] != '\0')
        of_class->reached++;
    for (int rank = 0; rank < RANKS; rank++) {
        const struct outcome *outcome = &lane->ranks[rank];
        const bool whole = WIFEXITED(outcome->status) &&
                           (WEXITSTATUS(outcome->status) == 0 || WEXITSTATUS(outcome->status) == 3);
        ended = ended && whole;
        if (!whole && !lane->hung)
            find(lane, CRASH, "");
        if (outcome->leaks)
            find(lane, LEAK, "");
        if (outcome->wrong)
            find(lane, WRONG, "");
    }
    if (lane->hung)
        find(lane, HANG, "");
    if (!ended)
        return;
    if (strcmp(options.how, "exit") != 0 &&
        left_in(lane, "store", first) + left_in(lane, "sockets", first) != 0)
        find(lane, LEFT, first);
    judge_records(lane, of_class);
}

/* --- all of them ---------------------------------------------------------------------------- */

static struct lane lanes[LANES_MAX];

static void end_job(struct lane *lane) {
    for (int rank = 0; rank < RANKS; rank++)
        read_outcome(lane, rank);
    if (lane->plan.victim >= 0) {
        judge(lane);
    } else {
        for (int rank = 0; rank < RANKS; rank++) {
            const struct outcome *outcome = &lane->ranks[rank];
            if (!outcome->done || outcome->status != 0 || outcome->leaks || outcome->wrong) {
                printf("rank %d fails without a failing call: %s %s%s\n", rank,
                       outcome->failure.call, outcome->failure.text, outcome->remark);
                (void)fflush(stdout);
                _exit(1);
            }
            known->bases[lane->plan.class][rank][lane->plan.sockets] = outcome->calls;
        }
    }
    ranks_remove_folder(lane->folder);
    lane->busy = false;
}

/* Asks after what runs, without waiting for it. Returns whether something ended. */
static bool look(void) {
    bool any = false;
    for (long i = 0; i < options.lanes; i++) {
        struct lane *lane = &lanes[i];
        bool running = false;
        if (!lane->busy)
            continue;
        const bool late = now_ms() - lane->begin_ms > LONGEST_MS;
        for (int rank = 0; rank < RANKS; rank++) {
            if (lane->pids[rank] <= 1)
                continue;
            if (late) {
                lane->hung = true;
                (void)kill(lane->pids[rank], SIGKILL);
            }
            if (waitpid(lane->pids[rank], &lane->ranks[rank].status, WNOHANG) == lane->pids[rank])
                lane->pids[rank] = 0;
            running = running || lane->pids[rank] != 0;
        }
        if (!running) {
            end_job(lane);
            any = true;
        }
    }
    return any;
}

static void run_some(const struct plan *plans, size_t count, long long until_ms) {
    const struct timespec pause = {.tv_nsec = 5000000};
    size_t next = 0;
    for (bool busy = true; busy;) {
        busy = false;
        for (long i = 0; i < options.lanes; i++) {
            if (!lanes[i].busy && next < count && now_ms() < until_ms)
                start(&lanes[i], &plans[next++]);
            busy = busy || lanes[i].busy;
        }
        if (busy && !look())
            (void)nanosleep(&pause, NULL);
    }
}

/* True if all were run that there was time for. */
static bool run_all(const struct plan *plans, size_t count, long long until_ms) {
    for (size_t at = 0; at < count; at += BATCH) {
        int status = -1;
        const pid_t child = fork();
        if (child == 0) {
            run_some(plans + at, count - at < BATCH ? count - at : BATCH, until_ms);
            _exit(0);
        }
        /* Whatever it runs has a limit. */
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            return false;
    }
    return true;
}

static bool wanted(int class) {
    return options.class < 0 || options.class == class;
}

static size_t plan_all(struct plan **plans_p) {
    size_t count = 0, at = 0;
    for (int class = 0; class < FAULTS_CLASSES; class ++)
        for (int i = 0; wanted(class) && i < 2 * RANKS; i++)
            count += (size_t)known->bases[class][i % 2][i / 2] + MARGIN;
    struct plan *plans = calloc(count + 1, sizeof(*plans));
    if (plans == NULL)
        exit(2);
    for (int class = 0; class < FAULTS_CLASSES; class ++)
        for (int i = 0; wanted(class) && i < 2 * RANKS; i++)
            for (int nth = 1; nth <= known->bases[class][i % 2][i / 2] + MARGIN; nth++)
                if (options.nth == 0 || nth == options.nth)
                    plans[at++] = (struct plan){class, nth, i % 2, i / 2 != 0};
    count = at;
    for (size_t i = count; i > 1; i--) { /* shuffled */
        const size_t j = ranks_random(options.seed) % i;
        const struct plan kept = plans[i - 1];
        plans[i - 1] = plans[j];
        plans[j] = kept;
    }
    *plans_p = plans;
    return count;
}

static bool find_bases(void) {
    struct plan plans[2 * FAULTS_CLASSES];
    size_t count = 0;
    for (int class = 0; class < FAULTS_CLASSES; class ++)
        for (int sockets = 0; wanted(class) && sockets < 2; sockets++)
            plans[count++] = (struct plan){class, 0, -1, sockets != 0};
    return run_all(plans, count, now_ms() + 60000);
}

/* --- the report ------------------------------------------------------------------------------ */

static void report_row(const char *name, const struct figures *row) {
    printf("%-10s %6d %8d %9d %6d %5d %5d %5d %6d %7d %5d %7d %7d", name, row->jobs, row->reached,
           row->absorbed, row->counts[CRASH], row->counts[HANG], row->counts[LEAK],
           row->counts[LEFT], row->counts[WRONG], row->counts[BLAMES], row->mute, row->both,
           row->told);
    if (row->both > 0)
        printf(" %6.1f %%", 100.0 * row->told / row->both);
    else
        printf("        -");
    printf(" %7.1f s\n", (double)row->slowest_ms / 1000);
}

/* True if the bars hold. */
static bool report(void) {
    struct figures all = {0};
    for (int i = 0; i < known->finding_count; i++)
        printf("%s x%d  %s, %s, n = %d%s\n%s\n", kind_names[known->findings[i].kind],
               known->findings[i].count, class_names[known->findings[i].first.class],
               known->findings[i].first.victim == 0 ? "rank 0" : "rank 1",
               known->findings[i].first.nth,
               known->findings[i].first.sockets ? ", sockets in a folder" : "",
               known->findings[i].text);
    printf("%-10s %6s %8s %9s %6s %5s %5s %5s %6s %7s %5s %7s %7s %8s %9s\n", "class", "jobs",
           "reached", "absorbed", "crash", "hang", "leak", "left", "wrong", "blames", "mute",
           "failed", "told", "", "slowest");
    for (int class = 0; class < FAULTS_CLASSES; class ++) {
        const struct figures *row = &known->figures[class];
        if (row->jobs == 0)
            continue;
        report_row(class_names[class], row);
        all.jobs += row->jobs;
        all.reached += row->reached;
        all.absorbed += row->absorbed;
        all.mute += row->mute;
        all.both += row->both;
        all.told += row->told;
        for (int kind = 0; kind < KINDS; kind++)
            all.counts[kind] += row->counts[kind];
        all.slowest_ms = row->slowest_ms > all.slowest_ms ? row->slowest_ms : all.slowest_ms;
    }
    report_row("all", &all);
    bool holds = all.jobs > 0 && all.told * 100 >= all.both * 99;
    for (int kind = 0; kind < BLAMES; kind++)
        holds = holds && all.counts[kind] == 0;
    return holds;
}

static int class_of(const char *name) {
    for (int class = 0; class < FAULTS_CLASSES; class ++)
        if (strcmp(name, class_names[class]) == 0)
            return class;
    return -1;
}

static void read_options(int argc, char **argv) {
    options.job = argc > 1 ? argv[1] : "";
    options.folder = argc > 2 ? argv[2] : "";
    for (int i = 3; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--how") == 0)
            options.how = argv[i + 1];
        else if (strcmp(argv[i], "--backend") == 0)
            options.backend = argv[i + 1];
        else if (strcmp(argv[i], "--class") == 0)
            options.class = class_of(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            options.seed = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            options.seconds = atol(argv[i + 1]);
        else if (strcmp(argv[i], "--nth") == 0)
            options.nth = atol(argv[i + 1]);
        else if (strcmp(argv[i], "--lanes") == 0)
            options.lanes = atol(argv[i + 1]);
    }
    if (options.lanes < 1 || options.lanes > LANES_MAX || argc < 3) {
        fprintf(stderr,
                "usage: walk JOB FOLDER [--seed N] [--seconds N] [--lanes 1..%d] "
                "[--how finalize|exit|again] [--class NAME] [--nth N] [--backend shm|PATH]\n",
                LANES_MAX);
        exit(2);
    }
}

int main(int argc, char **argv) {
    struct plan *plans;
    read_options(argc, argv);
    const long long until_ms = options.seconds > 0 ? now_ms() + options.seconds * 1000 : INT64_MAX;
    known = mmap(NULL, sizeof(*known), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (known == MAP_FAILED || !find_bases())
        return 2;
    const size_t count = plan_all(&plans);
    const bool whole = run_all(plans, count, until_ms);
    if (!whole)
        puts("the walk was ended early");
    free(plans);
    return report() && whole ? 0 : 1;
}
