/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the runner share. */
#ifndef SYMMEM_RUNNER_H
#define SYMMEM_RUNNER_H

#include <time.h>

#include "../../report/page.h"
#include "../kit.h"
#include "arena.h"
#include "lateness.h"

/* --- generated at build time -------------------------------------------------------- */

struct spec_requirement {
    const char *id;
    const char *text;
    const char *digest; /* 16 hexadecimal digits */
    bool withdrawn;
};
extern const struct spec_requirement spec_requirements[];
extern const int spec_requirement_count;

/* --- the cases (cases.c) ------------------------------------------------------------ */

extern int runner_case_count;
const struct tk_case *runner_case(int index);
/* A case's area is the <area> of its file, test_<area>.c. */
void runner_area(int index, char *area, size_t capacity);

/* --- options (options.c) ------------------------------------------------------------ */

enum runner_format { FORMAT_TEXT, FORMAT_TAP, FORMAT_JUNIT, FORMAT_JSON, FORMAT_HTML };

enum runner_exit {
    RUNNER_PASSED = 0,
    RUNNER_FAILED = 1,
    RUNNER_UNRESOLVED = 2,
    RUNNER_NO_BACKEND = 3
};

#define RUNNER_MAX_REPORTS 8
#define RUNNER_MAX_OTHERS 32
#define RUNNER_MAX_JOBS 64

struct runner_report {
    enum runner_format format;
    const char *path;
};

struct runner_options {
    const char *program; /* as it was called */
    const char *backend;
    const char *launcher; /* NULL: the runner forks the ranks */
    int ranks;
    enum tk_mode mode;
    const char *filter;  /* NULL: all */
    const char *profile; /* names, NULL: all */
    enum runner_format format;
    const char *output; /* NULL: standard output */
    uint64_t seed;
    int repeat;
    int slowest;                                      /* how many of the slowest cases to name */
    struct runner_report reports[RUNNER_MAX_REPORTS]; /* beside the one of `format` */
    int report_count;
    unsigned timeout_s; /* 0: each case's own */
    int stop_after;     /* cases that did not pass; 0: go on to the end */
    int jobs;           /* cases at a time; 0: as many as suit backend and machine */
    int part, parts;    /* the one of so many that is run, from 1; 0: the run is a whole */
    double timeout_scale;
    bool list, list_profiles, trace, check_trace, help, no_large, no_color, verbose;
    bool keep_ranks;
};

/* False after a message: wrong usage. */
bool runner_parse_options(int argc, char **argv, struct runner_options *options);
void runner_usage(FILE *out);
const char *runner_mode_name(enum tk_mode mode);
/* SYMMEM_TIMEOUT_SCALE, 1 if it is absent; what is no sensible number ends the program before. */
double runner_timeout_scale(void);

/* --- specification and trace (trace.c) ---------------------------------------------- */

const struct spec_requirement *runner_find_requirement(const char *id);
/* Copies the next id of a comma-separated list and moves *list_p on; false at its end. */
bool runner_next_id(const char **list_p, char *id, size_t capacity);
/* True if tests and requirements cover each other and names are unique; says what is wrong. */
bool runner_check_trace(FILE *out);
void runner_print_trace(FILE *out);

/* --- plan (plan.c) ------------------------------------------------------------------ */

struct runner_entry {
    const struct tk_case *test;
    char area[48];
    int ranks;
    uint64_t missing_caps; /* needed but not declared: skip */
};

struct runner_summary {
    int passed, failed, skipped, errors, unresolved;
};

struct runner_unplanned {
    const struct tk_case *test;
    char reason[48];
};

enum runner_verdict {
    VERDICT_PASSED,
    VERDICT_SKIPPED,
    VERDICT_UNRESOLVED,
    VERDICT_FAILED,
    VERDICT_ERROR,
    VERDICT_COUNT
};

struct runner_ranks {
    uint64_t bits[ARENA_MAX_RANKS / 64];
};

/* What a finding says of its case. */
enum runner_cause {
    CAUSE_OTHER,   /* it is wrong whatever the machine did */
    CAUSE_TIME,    /* something took longer than it may */
    CAUSE_FOLLOWS, /* nothing: it follows from another finding */
};

/* One thing that spoke against a case, on one rank or on several in the same words. */
struct runner_finding {
    enum runner_verdict verdict;
    enum runner_cause cause;
    struct runner_ranks ranks; /* none: it concerns the case as a whole */
    int line;                  /* 0: not from a check */
    unsigned more;             /* failed checks of these ranks beyond this one */
    char next[320];            /* the next of them; empty: none, or not known */
    char message[512];
    char expected[160]; /* empty unless two values were compared; then message names the value */
    char got[400];
    char file[64];
    char requirement[32]; /* in focus; empty: all that the case cites */
};

/* Where ranks were last seen. */
struct runner_place {
    struct runner_ranks ranks;
    const char *state;
    char checkpoint[128];
    char line[48];  /* FILE:LINE of the case that it came to; empty for a rank that was done */
    char point[32]; /* the last failpoint passed, or empty */
};

struct runner_result {
    const struct runner_entry *entry;
    int repeat;
    enum runner_verdict verdict;
    double seconds;
    uint64_t seed;
    char *reason; /* one line, heap; of a pass: what the case has to say, or NULL */
    struct runner_finding *findings; /* heap; causes before consequences */
    int finding_count;
    int findings_left_out;
    struct runner_place *places; /* heap; of a case that did not pass */
    int place_count;
    char *output;    /* heap; what the ranks printed, NULL if nothing */
    char *leaks;     /* heap; what was left behind, in full where findings cut it, or NULL */
    bool only_leaks; /* nothing else was wrong */
    bool by_time;    /* it did not pass, and for no other reason than time */
    struct lateness_seen late; /* while it ran */
};

/* How often a case was run without a verdict, and how late the machine was then. */
struct runner_again {
    int times;
    struct lateness_seen late;
};

/* The status line of a terminal. */
struct report_live {
    bool on;
    bool drawn;
    const struct runner_entry *entry; /* the case under way */
    uint64_t entry_start_ns;
    uint64_t drawn_ns;
};

struct runner {
    struct runner_options options;
    struct arena *arena;
    int arena_fd, lateness_fd; /* with a launcher: what its ranks get */
    struct runner_entry *entries;
    int entry_count;
    struct runner_unplanned *unplanned;
    int unplanned_count;
    int matched_count; /* tests that the filter lets through */
    int whole_count;   /* of them what is planned in this part or another */
    struct runner_result *results;
    int result_count;
    int planned_count; /* entry_count * repeat */
    int interrupted;   /* signal that ends the run, 0 if none */
    int bad_count;     /* cases that did not pass */
    bool opens_slowly; /* devices have taken all the time there is for that: they get no more of it
                        */
    uint64_t arena_guard;
    pid_t others[RUNNER_MAX_OTHERS + 1]; /* children that were there before the run; 0: has ended */
    int other_count;
    pid_t starters[ARENA_MAX_RANKS]; /* of the latest launch, see launcher.h; 0: none */
    sigset_t original_signals;
    sigset_t interrupts; /* signals that end the run */
    bool private_shm;    /* no other process can make a name in /dev/shm */
    uint64_t start_ns;   /* CLOCK_MONOTONIC, as arena_now_ns */
    time_t started;      /* the calendar's */
    double seconds;      /* that the run took */
    struct runner_summary summary;
    struct runner_output *output;    /* of the ranks; NULL: they print where the runner does */
    int jobs;                        /* cases at a time */
    int job_fd;                      /* in a job's process: to the controller; else 0 */
    struct lateness *lateness;       /* NULL: not measured */
    struct runner_crew *crew;        /* NULL: each case gets processes of its own */
    FILE *files[RUNNER_MAX_REPORTS]; /* of options.reports; NULL: written, or never opened */
    FILE *output_file;               /* of options.output, or NULL */
    FILE *progress;
    bool color;
    struct report_live live;
    bool reported; /* the report has its closing line */
};

bool runner_make_plan(struct runner *runner);
void runner_free_plan(struct runner *runner);
void runner_print_list(const struct runner_options *options, FILE *out);
/* Whether a run with these options would have the test in its plan if it were not in parts. */
bool runner_would_plan(const struct runner_options *options, const struct tk_case *test);
bool runner_matches(const char *filter, const char *name);
/* Whether each pattern (NULL: there is none) has a test; says on standard error which has not. */
bool runner_knows_patterns(const char *filter);
/* "MULTICAST" for one bit; "-" for none; "A+B" for several. */
void runner_capability_names(uint64_t bits, char *text, size_t capacity);

/* --- profiles (profile.c) ------------------------------------------------------------ */

/* Whether `list` (NULL: all) names the test's profile. */
bool runner_in_profile(const char *list, const struct tk_case *test);
/* The next two say what is wrong on standard error. `list` may be NULL in the second. */
bool runner_known_profiles(const char *list);
bool runner_declares_profiles(const char *list, const char *backend, uint64_t declared);
/* A line each: name, tab, capabilities that it takes, tab, number of cases. */
void runner_print_profiles(FILE *out);
/* Which profiles the backend passed in this run, and what may be claimed from that. */
void runner_print_claim(const struct runner *runner, FILE *out);
/* The same of one profile for a program to read. */
struct runner_profile_result {
    struct claim_profile counts;
    const char *standing; /* "in full", "in part", "failed", "not decided" and so on */
    bool claimed;         /* the run shows that the backend conforms to it */
};
/* Profiles count from 0; false beyond the last. */
bool runner_profile_result(const struct runner *runner, int index,
                           struct runner_profile_result *result);
/* A case of ranks as threads in a run with processes, or the reverse. */
bool runner_is_of_other_mode(const struct runner_options *options, const struct tk_case *test);

/* --- running (probe.c, launch.c, watch.c, scratch.c, names.c, private.c,
 * verdict.c, cunit.c) ---- */

/* Asks the backend for its capabilities in a child process, since opening a device in the
 * controller would be inherited by every rank. The answer is in arena->probe. */
bool runner_probe(struct runner *runner);
/* The exit status of a rank's process that came to its end. No other code uses it by chance: a
 * backend whose exit handler or destructor ends the process as if all were well is seen through. */
#define RUNNER_RANK_DONE 87
/* Forks. Returns 0 in the child, which is bound to the parent's life; -1 on failure. */
pid_t runner_fork(struct runner *runner);

/* A case under way. */
struct kit_setup;

struct runner_child {
    pid_t pid; /* 0: not started or reaped */
    int status;
    bool started;
    bool hung;        /* did not end in time */
    bool waited;      /* when time was up, at its end for the others */
    bool stopped;     /* ended by the controller because another rank had crashed, or: */
    bool interrupted; /* the run was interrupted */
    bool lost;        /* the launcher ended it */
    bool gone;        /* the ranks know of its end */
};

struct runner_run {
    struct runner *runner;
    const struct runner_entry *entry;
    uint64_t seed;
    uint32_t timeout_ms;
    uint32_t late_ms;      /* how late the machine may be, by what was seen */
    uint64_t next_look_ns; /* at the ranks' delays */
    char scratch[256];
    struct runner_child *children;
    int child_count; /* 1 with ranks as threads */
    bool by_crew;    /* the children go on after the case */
    bool fork_failed;
    struct runner_launcher *launcher; /* NULL: there is none, or it has ended */
    char launch_fault[320];           /* what is wrong with the launch; empty: nothing */
    int strays;                       /* processes that ranks left behind */
    bool arena_broken;                /* what the ranks have written there is not to be believed */
    char name_leak[8192];
    char store_leak[4096];
};

/* The seed with which a first round does what round `repeat` of `seed` does. */
uint64_t runner_repeat_seed(uint64_t seed, int repeat);
/* Number `index` of all that is planned, in all rounds, in this process. `late_ms` is what an
 * earlier try of it has shown of the machine, see again.c. */
void runner_run_case(struct runner *runner, int index, uint32_t late_ms,
                     struct runner_result *result);
/* Starts the ranks; in a child it does not return. */
void runner_launch(struct runner_run *run);
/* What a shell that became this process has left it as children is not the runner's to end. */
void runner_note_others(struct runner *runner);
/* Waits for one child of runner_fork, ends it when time is up, and with it what it has started.
 * False if it had to be ended; *status_p is as waitpid gives it. */
bool runner_await(struct runner *runner, pid_t pid, uint64_t timeout_ms, int *status_p);
/* Waits for the children, ends them when time is up, and reaps all. */
void runner_watch(struct runner_run *run);
/* Body of a child: runs rank `rank` (process mode) or all ranks (thread mode). */
void runner_child_run(struct runner_run *run, int rank);
void runner_judge(const struct runner_run *run, struct runner_result *result);
/* Takes a signal that came while none was waited for. */
void runner_take_interrupt(struct runner *runner);

/* Whether a case that ended so is to be run once more, by itself; what to remember of it if so, and
 * what its last result says of that (again.c). */
bool runner_wants_again(const struct runner *runner, const struct runner_result *result,
                        const struct runner_again *again);
void runner_note_again(struct runner_again *again, const struct runner_result *result);
void runner_tell_again(struct runner_result *result, const struct runner_again *again);
/* How late the machine may be in the next try. */
uint32_t runner_again_late_ms(const struct runner_again *again);
/* As runner_run_case, until it needs no other try. True. */
bool runner_run_alone(struct runner *runner, int index);

/* Starts to measure; without a process or memory for it nothing is late. */
void lateness_open(struct runner *runner);
void lateness_close(struct runner *runner);

/* Several cases at a time (jobs.c). */
struct runner_jobs;
/* By the options, or what suits the backend and the machine; 1 if there is nothing to gain. */
int jobs_count(const struct runner *runner);
/* With runner->jobs of them; NULL without memory. */
struct runner_jobs *jobs_open(struct runner *runner);
/* Waits for the result of number `index` of all that is planned, in all rounds, and runs others
 * meanwhile. False: the run was interrupted, and it has none. */
bool jobs_await(struct runner_jobs *jobs, int index);
/* Ends what still runs. As crew_close, of all that jobs kept. */
bool jobs_close(struct runner_jobs *jobs, char *text, size_t capacity);
/* What a job is told to run, as runner_run_case. */
struct job_order {
    int index;
    uint32_t late_ms;
};
/* The process of a job (job.c): takes orders over `fd` until its end. */
void job_serve(struct runner *runner, int fd) __attribute__((noreturn));
/* False if the job is gone. A result without an entry is the last, of its kept ranks' end. */
bool job_receive(int fd, struct runner_result *result);
/* All of it; false if the other end is gone. */
bool job_read(int fd, void *bytes, size_t count);
/* In a rank's process: that line is not its own. */
void job_forget(const struct runner *runner);

/* Runs the plan under CUnit, which counts the cases. False: CUnit itself failed. */
bool runner_run_cunit(struct runner *runner, struct runner_jobs *jobs);

/* Processes that are kept from case to case (crew.c). All but the first do nothing with NULL. */
struct runner_crew *crew_open(double timeout_scale);
/* Ends the members, too. False if some ended otherwise than they should; how many and how the first
 * is in text then. */
bool crew_close(struct runner_crew *crew, char *text, size_t capacity);
bool crew_takes(const struct runner_crew *crew, const struct tk_case *test);
/* Before processes of a case of their own: ends members, unless the case opens no device. */
void crew_make_room(struct runner_crew *crew, const struct tk_case *test);
/* As runner_launch, with members, new ones where there are none. */
void crew_launch(struct runner_run *run);
/* Takes those that are through with the case off run->children. */
void crew_collect(struct runner_run *run);
bool crew_has(const struct runner_crew *crew, pid_t pid);
/* That process was reaped, and had no case. */
void crew_lost(struct runner_crew *crew, pid_t pid, int status);
/* That process was reaped. */
void crew_forget(struct runner_crew *crew, pid_t pid);
/* Ends all members, so that the next case gets new ones. */
void crew_end(struct runner_crew *crew);

/* What ranks print (output.c). All but the first do nothing with NULL. */
struct runner_output *output_open(void);
void output_close(struct runner_output *output);
/* In a rank's process: from now on it prints there. */
void output_redirect(const struct runner_output *output);
/* Keeps the ranks from blocking; to be called while they run. True if there was something. */
bool output_drain(struct runner_output *output);
/* Where the ranks print. */
int output_descriptor(const struct runner_output *output);
/* All since the last call, on the heap; NULL if nothing. */
char *output_take(struct runner_output *output);

/* With a sub-directory "tmp", the TMPDIR of the case. */
bool scratch_create(char *path, size_t capacity);
void scratch_remove(const char *path);
/* Names of files below `path`, blank-separated; how many. */
int scratch_list_files(const char *path, char *names, size_t capacity);

/* A /dev/shm of the run's own, unless SYMMEM_PRIVATE_SHM=0, the system does not permit it, or what
 * the run needs, such as the backend's object, lies in the one that it would hide. */
bool private_shm_enter(const char *backend);
/* Once more, for a part of the run, in a process of its own: whether it may, and does. */
bool private_shm_is_permitted(void);
bool private_shm_enter_again(void);

/* What a case leaves behind in places that have names; by the controller (names.c). */
struct names;
/* Before the case; NULL without memory. */
struct names *names_take(const struct runner_run *run);
/* After it: writes what is new and the case's, blank-separated. */
void names_find(const struct names *before, const struct runner_run *run, char *text,
                size_t capacity);
void names_free(struct names *names);

/* --- what was found (findings.c) ---------------------------------------------------- */

void runner_add_rank(struct runner_ranks *ranks, int rank);
bool runner_has_rank(const struct runner_ranks *ranks, int rank);
int runner_count_ranks(const struct runner_ranks *ranks);
/* "rank 3" or "ranks 0-2,5"; empty for none. */
void runner_rank_list(const struct runner_ranks *ranks, char *text, size_t capacity);
/* Adds a finding about `rank` (-1: the case), to an equal one if there is one. */
void findings_add(struct runner_result *result, int rank, const struct runner_finding *finding);
/* Notes where each rank was last seen. */
void findings_note_places(struct runner_result *result, struct arena *arena, int ranks);
void findings_free(struct runner_result *result);
/* "rank 3: what: expected this, got that (file.c:12)" */
void findings_headline(const struct runner_finding *finding, char *text, size_t capacity);

/* --- reports (report*.c) ------------------------------------------------------------ */

const char *runner_verdict_name(enum runner_verdict verdict);
bool runner_verdict_is_good(enum runner_verdict verdict);
/* Opens the files that the options name, before anything is run and before the run gets a /dev/shm
 * of its own, which would hide what lies there. False after a message. */
bool report_open(struct runner *runner);
/* In a rank's process: the reports are not its own, and must not look as if it held them. */
void report_forget(const struct runner *runner);
void report_begin(struct runner *runner);
/* A case starts. */
void report_start(struct runner *runner, const struct runner_entry *entry);
/* Time passes; called at least ten times a second while a case runs. */
void report_tick(struct runner *runner);
void report_case(struct runner *runner, const struct runner_result *result);
/* What came to light after the last case makes it an error, so that every report has it. */
void report_blame_last(struct runner *runner, const char *message);
/* As the last line counts them: one if nothing that was asked for can be run. */
int report_failed(const struct runner *runner);
/* Writes the report; the exit status of the run. */
enum runner_exit report_end(struct runner *runner);
/* Those that were not written stay empty. */
void report_close(struct runner *runner);

void report_text_begin(struct runner *runner);
void report_text_case(struct runner *runner, const struct runner_result *result);
void report_text_end(struct runner *runner, const struct page *page);
/* By chapter of the specification. */
void report_chapters(const struct runner *runner, const struct page *page);
/* All that is known of one case that went wrong, indented by four; in colors if asked for. */
void report_findings(const struct runner *runner, const struct runner_result *result, bool color,
                     FILE *out);
/* ", limits x 3"; nothing if they are as the cases have them. */
void report_limits(const struct runner *runner, FILE *out);
/* The command that runs just this case with the same random numbers. */
void report_replay(const struct runner *runner, const struct runner_result *result, FILE *out);

/* The line that a terminal shows while cases run. */
void report_live_draw(struct runner *runner, bool now);
/* Takes it away, so that something else can be printed. */
void report_live_clear(struct runner *runner);

/* Fills an empty page with the run, from which it borrows. False: memory ran out. */
bool report_model(const struct runner *runner, struct page *page);
/* What a reader of results from many machines wants to know of one; never its name. */
struct report_machine {
    char arch[72];
    char system[160];    /* kernel and release */
    char processor[160]; /* empty if the kernel does not say, as the next ones */
    char accelerators[256];
    char driver[160];
    long processors;
    uint64_t memory_bytes;
};
/* Of the source that this was built from, if the build knew it. */
const char *runner_commit(void);
const char *runner_version(void);
/* The compiler and what it was asked to add. */
const char *runner_build(void);
void report_machine_read(struct report_machine *machine);

/* Without what would steer contexts. */
void runner_settle_environment(void);
/* NULL if there is no memory. */
struct arena *runner_make_arena(struct runner *runner);
int runner_main(int argc, char **argv);

/* --- between runner and kit (kit_rank.c)
 * -----------------------------------------------------------
 */

struct kit_setup {
    struct arena *arena;
    const struct tk_case *test;
    int rank;
    int world_size;
    enum tk_mode mode;
    uint64_t seed;
    const char *backend;
    const char *scratch_dir;
    symmem_store *shared_store; /* thread mode; NULL: open the directory */
    uint32_t timeout_ms;        /* of the case */
    const struct lateness *lateness;
    uint32_t late_ms; /* how late the machine may be, the same for all ranks */
};
/* Prologue, body, epilogue of one rank. */
void kit_run_rank(const struct kit_setup *setup);

/* Remembers in the arena which names this process holds (kit_held.c). */
void kit_note_held(const struct kit_setup *setup);
/* What the controller left to this process does not count. */
void kit_note_inherited(const struct kit_setup *setup);

/* The leak ledger of one process. */
struct kit_ledger;
struct kit_ledger *kit_ledger_open(const struct kit_setup *setup);
/* Compares and frees; text is empty if nothing leaked. */
void kit_ledger_close(struct kit_ledger *ledger, unsigned case_flags, char *text, size_t capacity);
/* Once in a process: uses the rank's device, with ranks as threads all ranks' devices, so that what
 * a device's driver keeps for the life of a process is there before the ledger is opened. The rank
 * is ARENA_OPENING meanwhile. */
void kit_warm_up(const struct kit_setup *setup);

#endif
