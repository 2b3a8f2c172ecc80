/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kills ranks of jobs: one, some or all of them, at any moment. Looks at how soon the others were
 * told, that nothing hangs and nothing is left outside the store, and at the next start in that
 * store: kills JOB FOLDER [--seed N] [--seconds N] [--jobs N] [--load N] [--ranks N,N,...]
 * [--within MS]. See README.md.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"

enum {
    RANKS_MAX = 128,
    SIZES_MAX = 8,
    LOAD_MAX = 64,
    ROUNDS = 40,        /* of a small job; at least 4, in which each call occurs */
    LIMIT_MS = 60000,   /* of the calls: a rank that is told only then was not told */
    LONGEST_MS = 90000, /* of a job, from its start or from the kill on */
    TEXT = 1024,
};

static struct {
    const char *job, *folder;
    unsigned long seed;
    long seconds, jobs, load, within_ms;
    int sizes[SIZES_MAX], size_count;
} options = {.jobs = 3, .sizes = {2, 8, 32, 128}, .size_count = 4};

static void pause_ms(long ms) {
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

/* --- load ----------------------------------------------------------------------------------- */

static pid_t burners[LOAD_MAX];

/* Limits on processor time end them: then others come. */
static void keep_load(void) {
    for (long i = 0; i < options.load; i++) {
        if (burners[i] > 1 && waitpid(burners[i], NULL, WNOHANG) == 0)
            continue;
        burners[i] = fork();
        if (burners[i] == 0) {
            if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
                _exit(1);
            for (volatile uint64_t n = 0;; n++)
                ;
        }
    }
}

static void end_load(void) {
    for (long i = 0; i < options.load; i++)
        if (burners[i] > 1 && kill(burners[i], SIGKILL) == 0)
            (void)waitpid(burners[i], NULL, 0);
}

/* --- one job -------------------------------------------------------------------------------- */

struct rank {
    pid_t pid; /* 0: has ended */
    int status;
    bool victim, there, done, wrong;
    long long told_ns;  /* 0: was not */
    long long delay_ns; /* that it was kept from a processor till then, and till the kill */
    long long delay_before_ns;
    long long cpu_ns; /* that it had a processor till then, and till the kill */
    long long cpu_before_ns;
    long long ended_ns; /* when this process saw it */
    char text[TEXT];
};

static struct rank ranks[RANKS_MAX];
static char folder[200];

/* A large job's rounds take as much longer as it has more ranks for the same processors. */
static int rounds_of(int size) {
    return size <= 8 ? ROUNDS : 8 * ROUNDS / size > 4 ? 8 * ROUNDS / size : 4;
}

static void path_of(const char *name, int number, char path[RANKS_PATH]) {
    ranks_path(folder, name, number, path);
}

static void start(int size, int rounds) {
    char store[RANKS_PATH], sockets[RANKS_PATH], texts[4][16], path[RANKS_PATH];
    path_of("store", -1, store);
    path_of("sockets", -1, sockets);
    (void)snprintf(texts[1], sizeof(texts[1]), "%d", size);
    (void)snprintf(texts[2], sizeof(texts[2]), "%d", rounds);
    (void)snprintf(texts[3], sizeof(texts[3]), "%d", LIMIT_MS);
    const char *const arguments[] = {options.job, texts[0], texts[1], store,
                                     sockets,     texts[2], texts[3], NULL};
    memset(ranks, 0, sizeof(ranks));
    for (int rank = 0; rank < size; rank++) {
        (void)snprintf(texts[0], sizeof(texts[0]), "%d", rank);
        path_of("out", rank, path);
        (void)unlink(path); /* an earlier job's */
        ranks[rank].pid = ranks_start(folder, rank, arguments);
    }
}

/* Whether all have ended by then; those that have not are killed. */
static bool ended_by(int size, long long until_ns) {
    for (bool late = false;; late = ranks_now_ns() > until_ns) {
        bool any = false;
        for (int rank = 0; rank < size; rank++) {
            if (ranks[rank].pid <= 1)
                continue;
            if (late)
                (void)kill(ranks[rank].pid, SIGKILL);
            if (waitpid(ranks[rank].pid, &ranks[rank].status, late ? 0 : WNOHANG) != 0) {
                ranks[rank].pid = 0;
                ranks[rank].ended_ns = ranks_now_ns();
            }
            any = true;
        }
        if (!any || late)
            return !any;
        keep_load();
        pause_ms(5);
    }
}

static bool is_there(int rank) {
    char path[RANKS_PATH];
    struct stat file;
    path_of("out", rank, path);
    return stat(path, &file) == 0 && file.st_size > 0;
}

static void read_rank(int rank) {
    char path[RANKS_PATH], line[TEXT];
    path_of("out", rank, path);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        ranks[rank].there = ranks[rank].there || strncmp(line, "THERE", 5) == 0;
        ranks[rank].done = ranks[rank].done || strncmp(line, "DONE", 4) == 0;
        ranks[rank].wrong = ranks[rank].wrong || strncmp(line, "WRONG", 5) == 0;
        if (strncmp(line, "TOLD\t", 5) == 0 && ranks[rank].told_ns == 0) {
            char *rest;
            ranks[rank].told_ns = strtoll(line + 5, &rest, 10);
            ranks[rank].delay_ns = strtoll(rest, &rest, 10);
            ranks[rank].cpu_ns = strtoll(rest, &rest, 10);
            (void)snprintf(ranks[rank].text, TEXT, "%.*s", (int)strcspn(rest, "\n"), rest);
        }
    }
    if (file != NULL)
        (void)fclose(file);
}

/* --- what the kills led to ------------------------------------------------------------------ */

static struct figures {
    int size, jobs, kills, survivors, hangs, crashes, left, late, late_itself, unnamed;
    int next_works, next_says, next_fails;
    long long slowest_ns;        /* to tell, from the kill on */
    long long slowest_after_ns;  /* and from the last victim's end on */
    long long slowest_end_ns;    /* from the kill to that end */
    long long slowest_itself_ns; /* from that end on, without the waits for a processor */
    double told_s, cpu_s;        /* the sums of all survivors' */
} figures[SIZES_MAX];

static int told_lines;

static void complain(const struct figures *of, const char *what, int rank) {
    if (told_lines++ < 200)
        printf("%s: %d ranks, rank %d: %s\n", what, of->size, rank,
               rank >= 0 ? ranks[rank].text : "");
    (void)fflush(stdout);
}

/* "\tSTATUS\tFAILED_RANK\tMISSING\tMESSAGE": some victim is named. Those that were told and have
 * ended since may be, too. */
static bool names_victims(const char *text) {
    char status[32] = "", missing[TEXT] = "";
    int failed_rank = -1, used = 0;
    if (sscanf(text, "\t%31[^\t]\t%d%n", status, &failed_rank, &used) < 2 || text[used] != '\t')
        return false;
    text += used + 1;
    (void)snprintf(missing, sizeof(missing), "%.*s", (int)strcspn(text, "\t"), text);
    bool any = failed_rank >= 0 && failed_rank < RANKS_MAX && ranks[failed_rank].victim;
    for (char *at = missing; *at != '\0';) {
        const long rank = strtol(at, &at, 10);
        any = any || (rank >= 0 && rank < RANKS_MAX && ranks[rank].victim);
        at += *at == ',' ? 1 : 0;
    }
    return any;
}

/* How long the call had gone on, which may have begun after the end of those that were killed. */
static long long waited_ns(const char *text) {
    const char *waited = strstr(text, "(waited ");
    return waited != NULL ? atoll(waited + strlen("(waited ")) * 1000000 : INT64_MAX / 2;
}

static void judge_survivor(struct figures *of, int rank, long long killed_ns, long long gone_ns) {
    const struct rank *one = &ranks[rank];
    const long long limit_ns = (of->size >= 64 ? 2000 : 1000) * 1000000ll;
    const bool whole =
        WIFEXITED(one->status) && (WEXITSTATUS(one->status) == 0 || WEXITSTATUS(one->status) == 3);
    if (!whole || one->wrong) {
        of->crashes++;
        complain(of, "crash", rank);
    }
    if (one->told_ns == 0)
        return;
    const long long took_ns = one->told_ns - killed_ns;
    of->survivors++;
    of->told_s += (double)took_ns * 1e-9;
    of->cpu_s += (double)(one->cpu_ns - one->cpu_before_ns) * 1e-9;
    of->slowest_ns = took_ns > of->slowest_ns ? took_ns : of->slowest_ns;
    if (one->told_ns - gone_ns > of->slowest_after_ns)
        of->slowest_after_ns = one->told_ns - gone_ns;
    /* Who got no processor can do nothing about it. The count lags by the wait that goes on. */
    const long long delay_ns = one->delay_ns - one->delay_before_ns;
    const long long begin_ns = one->told_ns - waited_ns(one->text);
    const long long from_ns = begin_ns > gone_ns ? begin_ns : gone_ns;
    const long long itself_ns = one->told_ns - from_ns - delay_ns;
    of->slowest_itself_ns = itself_ns > of->slowest_itself_ns ? itself_ns : of->slowest_itself_ns;
    of->late_itself += itself_ns > limit_ns;
    if (took_ns > limit_ns) {
        of->late++;
        printf("%.3f s, %.3f s after its end, %.3f s of it without a processor, ",
               (double)took_ns * 1e-9, (double)(one->told_ns - gone_ns) * 1e-9,
               (double)delay_ns * 1e-9);
        complain(of, "late", rank);
    }
    if (!names_victims(one->text)) {
        of->unnamed++;
        complain(of, "unnamed", rank);
    }
}

static void look_for_rest(struct figures *of) {
    char sockets[RANKS_PATH], first[128] = "";
    const char *own = strrchr(options.folder, '/');
    path_of("sockets", -1, sockets);
    if (ranks_left_in(sockets, "", "", first) +
            ranks_left_in("/dev/shm", own != NULL ? own + 1 : "", "", first) ==
        0)
        return;
    of->left++;
    printf("left: %s, %d ranks\n", first, of->size);
}

/* The next job in that store works, or says that there was another one. */
static void start_next(struct figures *of) {
    bool works = true, says = true;
    start(of->size, 1);
    if (!ended_by(of->size, ranks_now_ns() + LONGEST_MS * 1000000ll)) {
        of->hangs++;
        complain(of, "the next start hangs", -1);
        return;
    }
    for (int rank = 0; rank < of->size; rank++) {
        read_rank(rank);
        works = works && ranks[rank].done && ranks[rank].status == 0;
        says = says && (ranks[rank].done || strstr(ranks[rank].text, "earlier job") != NULL);
    }
    of->next_works += works;
    of->next_says += !works && says;
    of->next_fails += !works && !says;
    for (int rank = 0; !works && rank < of->size; rank++)
        if (ranks[rank].text[0] != '\0' && strstr(ranks[rank].text, "earlier job") == NULL)
            complain(of, "next", rank);
}

/* --- one trial ------------------------------------------------------------------------------ */

static void choose_victims(int size, int how_many) {
    for (int left = how_many; left > 0;) {
        const int rank = (int)(ranks_random(options.seed) % (unsigned)size);
        left -= ranks[rank].victim ? 0 : 1;
        ranks[rank].victim = true;
    }
}

/* Waits until all victims have started: the others cannot miss a rank that never was there. */
static bool victims_are_there(int size, long long until_ns) {
    for (int rank = 0; rank < size; rank++)
        while (ranks[rank].victim && !is_there(rank)) {
            if (ranks_now_ns() > until_ns)
                return false;
            pause_ms(1);
        }
    return true;
}

/* The calls are those of the first thread. */
static void note_shares(int size) {
    for (int rank = 0; rank < size; rank++) {
        char path[RANKS_PATH];
        (void)snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)ranks[rank].pid);
        FILE *file = fopen(path, "r");
        if (file != NULL && fscanf(file, "%lld %lld", &ranks[rank].cpu_before_ns,
                                   &ranks[rank].delay_before_ns) != 2)
            ranks[rank].cpu_before_ns = ranks[rank].delay_before_ns = 0;
        if (file != NULL)
            (void)fclose(file);
    }
}

static void kill_some(struct figures *of, int how_many, long duration_ms) {
    ranks_make_folder(options.folder, folder);
    start(of->size, rounds_of(of->size));
    choose_victims(of->size, how_many);
    const bool there = victims_are_there(of->size, ranks_now_ns() + LONGEST_MS * 1000000ll);
    pause_ms((long)(ranks_random(options.seed) % (unsigned long)(duration_ms + 1)));
    note_shares(of->size);
    const long long killed_ns = ranks_now_ns();
    for (int rank = 0; rank < of->size; rank++)
        if (ranks[rank].victim && kill(ranks[rank].pid, SIGKILL) == 0)
            of->kills++;
    const bool ended = ended_by(of->size, killed_ns + LONGEST_MS * 1000000ll);
    of->jobs++;
    if (!there || !ended) {
        of->hangs++;
        complain(of, there ? "hang" : "does not come", -1);
    }
    long long gone_ns = killed_ns;
    for (int rank = 0; rank < of->size; rank++)
        if (ranks[rank].victim && ranks[rank].ended_ns > gone_ns)
            gone_ns = ranks[rank].ended_ns;
    if (gone_ns - killed_ns > of->slowest_end_ns)
        of->slowest_end_ns = gone_ns - killed_ns;
    for (int rank = 0; ended && rank < of->size; rank++) {
        read_rank(rank);
        if (!ranks[rank].victim)
            judge_survivor(of, rank, killed_ns, gone_ns);
    }
    start_next(of);
    look_for_rest(of);
    ranks_remove_folder(folder);
}

/* How long a job goes on once a rank is there, under the same load. */
static long measure(struct figures *of) {
    ranks_make_folder(options.folder, folder);
    start(of->size, rounds_of(of->size));
    ranks[0].victim = true;
    bool good = victims_are_there(of->size, ranks_now_ns() + LONGEST_MS * 1000000ll);
    const long long begin_ns = ranks_now_ns();
    good = good && ended_by(of->size, begin_ns + 2ll * LONGEST_MS * 1000000);
    const long took_ms = (long)((ranks_now_ns() - begin_ns) / 1000000);
    for (int rank = 0; rank < of->size; rank++) {
        read_rank(rank);
        good = good && ranks[rank].done && ranks[rank].status == 0;
    }
    ranks_remove_folder(folder);
    if (good)
        return took_ms;
    for (int rank = 0; rank < of->size; rank++)
        if (!ranks[rank].done)
            complain(of, "fails without a kill", rank);
    return -1;
}

static void run_size(struct figures *of, long long until_ns) {
    long duration_ms = measure(of);
    if (options.within_ms > 0 && duration_ms > options.within_ms)
        duration_ms = options.within_ms;
    for (long job = 0; job < options.jobs && ranks_now_ns() < until_ns; job++) {
        const int some =
            of->size > 2 ? 2 + (int)(ranks_random(options.seed) % (unsigned)(of->size - 2)) : 1;
        const int how_many[] = {1, some, of->size};
        keep_load();
        if (duration_ms >= 0)
            kill_some(of, how_many[job % 3], duration_ms);
    }
}

/* --- the report ------------------------------------------------------------------------------ */

static bool report(void) {
    bool holds = true;
    printf("%5s %5s %6s %9s %5s %6s %5s %5s %6s %8s %9s %9s %9s %9s %9s %9s %6s %5s %6s\n", "ranks",
           "jobs", "kills", "survivors", "hangs", "crash", "left", "late", "itself", "unnamed",
           "cpu", "mean", "slowest", "its end", "after it", "itself", "works", "says", "fails");
    for (int i = 0; i < options.size_count; i++) {
        const struct figures *of = &figures[i];
        printf("%5d %5d %6d %9d %5d %6d %5d %5d %6d %8d %6.2f ms %7.3f s %7.3f s %7.3f s %7.3f s "
               "%7.3f s %6d %5d %6d\n",
               of->size, of->jobs, of->kills, of->survivors, of->hangs, of->crashes, of->left,
               of->late, of->late_itself, of->unnamed,
               of->survivors > 0 ? of->cpu_s * 1e3 / of->survivors : 0,
               of->survivors > 0 ? of->told_s / of->survivors : 0, (double)of->slowest_ns * 1e-9,
               (double)of->slowest_end_ns * 1e-9, (double)of->slowest_after_ns * 1e-9,
               (double)of->slowest_itself_ns * 1e-9, of->next_works, of->next_says, of->next_fails);
        holds = holds && of->jobs > 0 &&
                of->hangs + of->crashes + of->left + of->late_itself + of->next_fails == 0;
    }
    return holds;
}

static void read_sizes(const char *list) {
    options.size_count = 0;
    while (*list != '\0' && options.size_count < SIZES_MAX) {
        char *rest;
        const long size = strtol(list, &rest, 10);
        if (size < 1 || size > RANKS_MAX || rest == list)
            break;
        options.sizes[options.size_count++] = (int)size;
        list = rest + (*rest == ',' ? 1 : 0);
    }
}

static void read_options(int argc, char **argv) {
    options.job = argc > 1 ? argv[1] : "";
    options.folder = argc > 2 ? argv[2] : "";
    for (int i = 3; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--ranks") == 0)
            read_sizes(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            options.seed = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            options.seconds = atol(argv[i + 1]);
        else if (strcmp(argv[i], "--jobs") == 0)
            options.jobs = atol(argv[i + 1]);
        else if (strcmp(argv[i], "--load") == 0)
            options.load = atol(argv[i + 1]);
        else if (strcmp(argv[i], "--within") == 0)
            options.within_ms = atol(argv[i + 1]);
    }
    if (argc < 3 || options.load < 0 || options.load > LOAD_MAX || options.size_count == 0) {
        fprintf(stderr,
                "usage: kills JOB FOLDER [--seed N] [--seconds N] [--jobs N, of each size] "
                "[--load 0..%d] [--ranks N,N,...] [--within MS]\n",
                LOAD_MAX);
        exit(2);
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    const long long begin_ns = ranks_now_ns();
    keep_load();
    for (int i = 0; i < options.size_count; i++) {
        /* Each size has its part of the time. */
        const long long until_ns =
            options.seconds == 0
                ? INT64_MAX
                : begin_ns + options.seconds * 1000000000ll * (i + 1) / options.size_count;
        figures[i].size = options.sizes[i];
        run_size(&figures[i], until_ns);
    }
    end_load();
    return report() ? 0 : 1;
}
