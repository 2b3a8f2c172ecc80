/* SPDX-License-Identifier: BSD-3-Clause */
#include "runner.h"

#include <getopt.h>
#include <time.h>

#define OFFSET(member) offsetof(struct runner_options, member)

/* Where an option without a parser of its own goes: a flag, a text, or a number in [low, high]. */
struct option_kind {
    const char *name;
    bool (*parse)(const char *text, struct runner_options *options);
    enum { FLAG, TEXT, NUMBER } kind;
    size_t at;
    uint64_t low, high;
};

static bool parse_mode(const char *text, struct runner_options *options);
static bool parse_format(const char *text, struct runner_options *options);
static bool parse_report(const char *text, struct runner_options *options);
static bool parse_part(const char *text, struct runner_options *options);
static bool parse_seed(const char *text, struct runner_options *options);
static bool parse_profile(const char *text, struct runner_options *options);
static bool parse_launcher(const char *text, struct runner_options *options);

static const struct option_kind option_kinds[] = {
    {"backend", NULL, TEXT, OFFSET(backend), 0, 0},
    {"ranks", NULL, NUMBER, OFFSET(ranks), 1, ARENA_MAX_RANKS},
    {"rank-mode", parse_mode, TEXT, 0, 0, 0},
    {"filter", NULL, TEXT, OFFSET(filter), 0, 0},
    {"list", NULL, FLAG, OFFSET(list), 0, 0},
    {"profile", parse_profile, TEXT, 0, 0, 0},
    {"list-profiles", NULL, FLAG, OFFSET(list_profiles), 0, 0},
    {"format", parse_format, TEXT, 0, 0, 0},
    {"output", NULL, TEXT, OFFSET(output), 0, 0},
    {"seed", parse_seed, NUMBER, 0, 0, 0},
    {"repeat", NULL, NUMBER, OFFSET(repeat), 1, 1000000},
    {"timeout", NULL, NUMBER, OFFSET(timeout_s), 1, 86400},
    {"stop-after", NULL, NUMBER, OFFSET(stop_after), 1, 1000000},
    {"no-large", NULL, FLAG, OFFSET(no_large), 0, 0},
    {"jobs", NULL, NUMBER, OFFSET(jobs), 1, RUNNER_MAX_JOBS},
    {"part", parse_part, TEXT, 0, 0, 0},
    {"launcher", parse_launcher, TEXT, 0, 0, 0},
    {"keep-ranks", NULL, FLAG, OFFSET(keep_ranks), 0, 0},
    {"no-color", NULL, FLAG, OFFSET(no_color), 0, 0},
    {"trace", NULL, FLAG, OFFSET(trace), 0, 0},
    {"check-trace", NULL, FLAG, OFFSET(check_trace), 0, 0},
    {"report", parse_report, TEXT, 0, 0, 0},
    {"slowest", NULL, NUMBER, OFFSET(slowest), 1, 1000000},
    {"verbose", NULL, FLAG, OFFSET(verbose), 0, 0},
    {"help", NULL, FLAG, OFFSET(help), 0, 0},
};
#define OPTION_COUNT (sizeof(option_kinds) / sizeof(option_kinds[0]))

static const char *const format_names[] = {"text", "tap", "junit", "json", "html"};

void runner_usage(FILE *out) {
    fputs(
        "symmem-conformance: runs the conformance suite on a backend\n\n"
        "usage: symmem-conformance [options]\n"
        "  --backend NAME|PATH   shm (default), cuda, nccl, or a shared object: "
        "/path/to/backend.so\n"
        "  --ranks N             1 to 1024, default 4\n"
        "  --rank-mode MODE      process (default) or thread\n"
        "  --filter GLOB[,GLOB]  only tests whose name matches one of the patterns\n"
        "  --profile NAME[,NAME] only tests of these profiles, which the backend must declare\n"
        "  --format FORMAT       text (default), tap, junit, json, html\n"
        "  --output FILE         write the report there instead of standard output\n"
        "  --report FORMAT=FILE  one more report of the same run; may be repeated\n"
        "  --seed N              replay the random numbers of an earlier run\n"
        "  --repeat N            run the whole list N times, each with its own seed\n"
        "  --timeout SECONDS     the limit of every case, in place of its own\n"
        "  --stop-after N        end the run after N cases that did not pass\n"
        "  --no-large            leave out cases that need much memory\n"
        "  --jobs N              run up to N cases at a time; without it as many as suit backend\n"
        "                        and machine: one on a device or with --verbose\n"
        "  --part K/N            every N-th of the planned cases, from the K-th on: one of N runs\n"
        "                        that symmem-report --merge puts together\n"
        "  --keep-ranks          keep the ranks' processes from case to case where nothing speaks\n"
        "                        against it: for backends that take long to open\n"
        "  --launcher COMMAND    start each case's ranks by this command, in which %n is their "
        "number,\n"
        "                        such as 'mpirun -n %n': for engines that start with their "
        "launcher\n"
        "  --no-color            plain text on a terminal too\n"
        "  --verbose             a line for each case, with its requirements, on a terminal too, "
        "and\n"
        "                        what the ranks print, which is otherwise kept for failures\n"
        "  --slowest N           name the N cases that took longest\n"
        "  --list                print the tests: name, requirements, capability needed\n"
        "  --list-profiles       print the profiles: name, capabilities needed, number of tests\n"
        "  --trace               print each requirement with its tests\n"
        "  --check-trace         only check that tests and requirements cover each other\n"
        "  --help                this text\n"
        "SYMMEM_SUITE_LONG=1 walks every failpoint on every rank instead of a sample.\n"
        "SYMMEM_TIMEOUT_SCALE multiplies every time limit, for slow builds and machines.\n"
        "SYMMEM_PRIVATE_SHM=0 leaves the run in the system's /dev/shm, where names that others\n"
        "make cannot be told from a rank's that it no longer holds.\n"
        "TMPDIR is where the cases' directories lie; unset, it is memory if the run can have it.\n"
        "NO_COLOR=1 is --no-color. TERM=dumb and CI=true mean plain lines, no status line.\n"
        "Exit status: 0 all passed or were skipped for a missing capability, 1 a failure, an\n"
        "error, a profile that is not declared, or nothing that can be run, 2 something stayed\n"
        "unresolved, 3 the backend cannot be loaded or lacks the rank mode.\n",
        out);
}

const char *runner_mode_name(enum tk_mode mode) {
    return mode == TK_MODE_THREAD ? "thread" : "process";
}

static bool parse_number(const char *name, const char *text, uint64_t low, uint64_t high,
                         uint64_t *value_p) {
    char *end = NULL;
    unsigned long long value;
    errno = 0;
    value = strtoull(text, &end, 0);
    if (errno != 0 || end == text || *end != '\0' || strchr(text, '-') != NULL || value < low ||
        value > high) {
        fprintf(stderr, "symmem-conformance: --%s wants a number from %llu to %llu, not '%s'\n",
                name, (unsigned long long)low, (unsigned long long)high, text);
        return false;
    }
    *value_p = value;
    return true;
}

static bool find_format(const char *text, enum runner_format *format_p) {
    for (int i = 0; i < (int)(sizeof(format_names) / sizeof(format_names[0])); i++)
        if (strcmp(text, format_names[i]) == 0) {
            *format_p = (enum runner_format)i;
            return true;
        }
    fprintf(stderr, "symmem-conformance: unknown format '%s'\n", text);
    return false;
}

static bool parse_format(const char *text, struct runner_options *options) {
    return find_format(text, &options->format);
}

/* FORMAT=FILE */
static bool parse_report(const char *text, struct runner_options *options) {
    const char *sign = strchr(text, '=');
    struct runner_report *report = &options->reports[options->report_count];
    char format[16];
    if (sign == NULL || sign[1] == '\0') {
        fprintf(stderr, "symmem-conformance: --report wants FORMAT=FILE, not '%s'\n", text);
        return false;
    }
    if (options->report_count == RUNNER_MAX_REPORTS) {
        fprintf(stderr, "symmem-conformance: more than %d reports\n", RUNNER_MAX_REPORTS);
        return false;
    }
    snprintf(format, sizeof(format), "%.*s", (int)(sign - text), text);
    if (!find_format(format, &report->format))
        return false;
    if (report->format == FORMAT_TEXT) {
        fputs("symmem-conformance: a text report is made with --format text --output FILE\n",
              stderr);
        return false;
    }
    report->path = sign + 1;
    options->report_count++;
    return true;
}

/* K/N, both plain digits. */
static bool parse_part(const char *text, struct runner_options *options) {
    static const char digits[] = "0123456789";
    size_t first = strspn(text, digits);
    const char *second = text + first + (text[first] == '/');
    size_t length = strspn(second, digits);
    if (first > 0 && first <= 4 && text[first] == '/' && length <= 4 && second[length] == '\0') {
        options->part = (int)strtol(text, NULL, 10);
        options->parts = (int)strtol(second, NULL, 10);
        if (options->part >= 1 && options->part <= options->parts)
            return true;
    }
    fprintf(stderr, "symmem-conformance: --part wants K/N with K from 1 to N, not '%s'\n", text);
    return false;
}

static bool parse_mode(const char *text, struct runner_options *options) {
    if (strcmp(text, "process") != 0 && strcmp(text, "thread") != 0) {
        fprintf(stderr, "symmem-conformance: unknown rank mode '%s'\n", text);
        return false;
    }
    options->mode = strcmp(text, "thread") == 0 ? TK_MODE_THREAD : TK_MODE_PROCESS;
    return true;
}

/* Unset or empty is 1. */
static bool read_scale(const char *text, double *scale_p) {
    char *end = NULL;
    *scale_p = 1.0;
    if (text == NULL || text[0] == '\0')
        return true;
    *scale_p = strtod(text, &end);
    return end[0] == '\0' && *scale_p >= 0.01 && *scale_p <= 1000.0;
}

double runner_timeout_scale(void) {
    double scale;
    return read_scale(getenv("SYMMEM_TIMEOUT_SCALE"), &scale) ? scale : 1.0;
}

static bool take_scale(double *scale_p) {
    const char *text = getenv("SYMMEM_TIMEOUT_SCALE");
    if (read_scale(text, scale_p))
        return true;
    fprintf(stderr, "symmem-conformance: SYMMEM_TIMEOUT_SCALE wants 0.01 to 1000, not '%s'\n",
            text);
    return false;
}

static bool parse_seed(const char *text, struct runner_options *options) {
    return parse_number("seed", text, 0, UINT64_MAX, &options->seed);
}

static bool parse_profile(const char *text, struct runner_options *options) {
    options->profile = text;
    return runner_known_profiles(text);
}

static bool parse_launcher(const char *text, struct runner_options *options) {
    options->launcher = text;
    if (strstr(text, "%n") != NULL)
        return true;
    fprintf(stderr,
            "symmem-conformance: --launcher wants %%n where the number of ranks stands, not '%s'\n",
            text);
    return false;
}

/* What it starts are processes, and an engine's process cannot be used for a second launch. */
static bool launcher_fits(const struct runner_options *options) {
    const char *other = options->mode == TK_MODE_THREAD ? "--rank-mode thread" : "--keep-ranks";
    if (options->launcher == NULL || (options->mode == TK_MODE_PROCESS && !options->keep_ranks))
        return true;
    fprintf(stderr, "symmem-conformance: --launcher and %s exclude each other\n", other);
    return false;
}

static bool take_option(const struct option_kind *kind, const char *text,
                        struct runner_options *options) {
    void *at = (char *)options + kind->at;
    uint64_t value = 0;
    if (kind->parse != NULL)
        return kind->parse(text, options);
    if (kind->kind == FLAG)
        return *(bool *)at = true;
    if (kind->kind == TEXT) {
        *(const char **)at = text;
        return true;
    }
    if (!parse_number(kind->name, text, kind->low, kind->high, &value))
        return false;
    *(int *)at = (int)value;
    return true;
}

/* Each would write over the other. */
static bool reports_differ(const struct runner_options *options) {
    for (int i = 0; i < options->report_count; i++) {
        const char *path = options->reports[i].path;
        bool differ = options->output == NULL || strcmp(options->output, path) != 0;
        for (int j = 0; j < i; j++)
            differ = differ && strcmp(options->reports[j].path, path) != 0;
        if (!differ) {
            fprintf(stderr, "symmem-conformance: two reports are to be one file: %s\n", path);
            return false;
        }
    }
    return true;
}

bool runner_parse_options(int argc, char **argv, struct runner_options *options) {
    struct option long_options[OPTION_COUNT + 1] = {{0}};
    int number;
    for (size_t i = 0; i < OPTION_COUNT; i++)
        long_options[i] = (struct option){
            .name = option_kinds[i].name, .has_arg = option_kinds[i].kind != FLAG, .val = (int)i};
    *options = (struct runner_options){.backend = "shm", .ranks = 4, .repeat = 1};
    options->program = argc > 0 ? argv[0] : "symmem-conformance";
    options->seed =
        (arena_now_ns() ^ ((uint64_t)time(NULL) << 20) ^ (uint64_t)getpid()) % 1000000000u;
    if (!take_scale(&options->timeout_scale))
        return false;
    optind = 1;
    while ((number = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        if (number == '?' || !take_option(&option_kinds[number], optarg, options))
            return false;
    if (optind != argc) {
        fprintf(stderr, "symmem-conformance: unexpected argument '%s'\n", argv[optind]);
        return false;
    }
    return reports_differ(options) && launcher_fits(options);
}
