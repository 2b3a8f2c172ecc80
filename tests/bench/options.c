/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line, the same for all the programs. */
#include "bench.h"

#include <getopt.h>

#define MAX_RANKS 1024
#define USUAL_SIZES "1K,64K,1M"
#define TUNE_SIZES "256,1K,2K,4K,8K,16K,32K,64K,256K,1M,4M,16M"

static const char usage[] =
    "  --op OP[,OP]          what to measure, or \"all\"; --list names them\n"
    "  --bytes N[,N]         sizes, with K, M or G for powers of 1024; default 1K,64K,1M.\n"
    "                        What each rank passes in; where the result is larger or smaller,\n"
    "                        it is so by the number of ranks. With --serve: how large requests "
    "will\n"
    "                        be, for the heap of a backend whose engine has one\n"
    "  --ranks N             default 2\n"
    "  --backend NAME|PATH   shm (default), cuda, nccl, or a shared object: /path/to/backend.so\n"
    "  --rank-mode MODE      process (default) or thread\n"
    "  --dtype T             default float32\n"
    "  --checking on|off|both  whether the library compares the ranks' arguments; both:\n"
    "                        interleaved, and what it costs\n"
    "  --tune                instead of --op: the algorithms of all_reduce, alternating, for every "
    "world\n"
    "                        size from 2 to --ranks (at most 17); prints the table that\n"
    "                        symmem_set_all_reduce_table takes. Default sizes: 256 to 16M\n"
    "  --graph N             N operations are captured in a graph, and its launches timed, by the\n"
    "                        device's clock where there is one. Not with --tune, --checking both "
    "and\n"
    "                        --input rewritten; ops that cannot be captured are timed as calls\n"
    "  --serve               instead of --op: lines of standard input, OP BYTES GRAPH, are what "
    "to\n"
    "                        measure next; {\"done\":true} follows each one's results\n"
    "  --input KIND          reused (default): the same input again and again; rewritten: each\n"
    "                        rank writes into every cache line of its input before each call\n"
    "  --seconds S           of measuring, each size; default 0.2\n"
    "  --iterations N        at most so many operations each size, instead of --seconds\n"
    "  --warmup N            operations before the first that counts; default 10\n"
    "  --pin                 rank r stays on the r-th processor that is allowed, round about\n"
    "  --timeout SECONDS     the whole run is ended after that; default 120\n"
    "  --json                one JSON line a size instead of a table\n"
    "  --list                print the names of the ops\n"
    "  --help                this text\n";

bool bench_list_has(const char *list, const char *name) {
    size_t length = strlen(name);
    if (strcmp(list, "all") == 0)
        return true;
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

static bool wrong(const char *name, const char *text) {
    fprintf(stderr, "--%s cannot be '%s'; --help lists the options\n", name, text);
    return false;
}

static bool parse_whole(const char *name, const char *text, uint64_t low, uint64_t high,
                        uint64_t *value_p) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || strchr(text, '-') != NULL || value < low ||
        value > high)
        return wrong(name, text);
    *value_p = value;
    return true;
}

/* One size at *text_p, which is moved behind it. */
static bool parse_size(const char **text_p, size_t *bytes_p) {
    static const char units[] = "KMG";
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(*text_p, &end, 10);
    if (errno != 0 || end == *text_p || **text_p == '-')
        return false;
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
    end += unit != NULL;
    if ((*end != '\0' && *end != ',') || value > BENCH_MAX_BYTES >> shift)
        return false;
    *bytes_p = (size_t)value << shift;
    *text_p = end;
    return true;
}

static bool parse_sizes(const char *text, bench_options *options) {
    options->size_count = 0;
    for (const char *at = text;; at++) {
        if (options->size_count == BENCH_MAX_SIZES ||
            !parse_size(&at, &options->sizes[options->size_count]))
            return wrong("bytes", text);
        options->size_count++;
        if (*at == '\0')
            return true;
    }
}

static bool parse_seconds(const char *text, double *seconds_p) {
    char *end = NULL;
    *seconds_p = strtod(text, &end);
    if (end == text || *end != '\0' || !(*seconds_p > 0 && *seconds_p <= 3600))
        return wrong("seconds", text);
    return true;
}

/* An option, and the field of bench_options that it sets. */
typedef struct option_kind {
    const char *name;
    enum { TEXT, FLAG, WHOLE, CHOICE, SIZES, TIME } kind;
    size_t offset;
    int64_t low, high;    /* of a whole number; of 4 bytes if `wide` is not set */
    const char *words[4]; /* of a choice: the value is the word's number */
    bool wide;
} option_kind;

#define FIELD(member) .offset = offsetof(bench_options, member)
static const option_kind kinds[] = {
    {"op", TEXT, FIELD(ops)},
    {"bytes", SIZES, FIELD(sizes)},
    {"ranks", WHOLE, FIELD(ranks), 1, MAX_RANKS},
    {"backend", TEXT, FIELD(backend)},
    {"rank-mode", CHOICE, FIELD(threads), .words = {"process", "thread"}},
    {"dtype", TEXT, FIELD(dtype)},
    {"checking", CHOICE, FIELD(checking), .words = {"off", "on", "both"}},
    {"input", CHOICE, FIELD(rewrite), .words = {"reused", "rewritten"}},
    {"seconds", TIME, FIELD(seconds)},
    {"iterations", WHOLE, FIELD(iterations), 1, INT32_MAX, .wide = true},
    {"warmup", WHOLE, FIELD(warmup), 0, INT32_MAX, .wide = true},
    {"timeout", WHOLE, FIELD(timeout_s), 1, 86400},
    {"graph", WHOLE, FIELD(graph), 1, BENCH_MAX_GRAPH},
    {"pin", FLAG, FIELD(pin)},
    {"tune", FLAG, FIELD(tune)},
    {"serve", FLAG, FIELD(serve)},
    {"json", FLAG, FIELD(json)},
    {"list", FLAG, FIELD(list)},
    {"help", FLAG, .offset = 0},
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0], HELP = KIND_COUNT - 1 };

static bool take_choice(const option_kind *kind, const char *text, void *field) {
    for (int i = 0; kind->words[i] != NULL; i++)
        if (strcmp(text, kind->words[i]) == 0) {
            if (kind->words[2] != NULL)
                *(int *)field = i;
            else
                *(bool *)field = i != 0;
            return true;
        }
    return wrong(kind->name, text);
}

static bool take(const option_kind *kind, const char *text, bench_options *options) {
    void *field = (char *)options + kind->offset;
    uint64_t number = 0;
    switch (kind->kind) {
    case TEXT:
        *(const char **)field = text;
        return true;
    case FLAG:
        *(bool *)field = true;
        return true;
    case CHOICE:
        return take_choice(kind, text, field);
    case SIZES:
        return parse_sizes(text, options);
    case TIME:
        return parse_seconds(text, field);
    default:
        if (!parse_whole(kind->name, text, (uint64_t)kind->low, (uint64_t)kind->high, &number))
            return false;
        if (kind->wide)
            *(int64_t *)field = (int64_t)number;
        else
            *(int *)field = (int)number;
        return true;
    }
}

/* Without its folder: the manual page is made from the help. */
static const char *program_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

bool bench_options_parse(int argc, char **argv, bench_options *options, int *status_p) {
    *options = (bench_options){.backend = "shm",
                               .dtype = "float32",
                               .ranks = 2,
                               .checking = -1,
                               .seconds = 0.2,
                               .warmup = 10,
                               .timeout_s = 120};
    *status_p = BENCH_USAGE;
    struct option long_options[KIND_COUNT + 1] = {{.name = NULL}};
    for (int i = 0; i < KIND_COUNT; i++)
        long_options[i] = (struct option){kinds[i].name, kinds[i].kind != FLAG, NULL, i};
    int option;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (option == HELP) {
            printf("symmem-bench: measures how long symmem's operations take\n\n"
                   "usage: %s --op OP [options]\n%s",
                   program_name(argv[0]), usage);
            *status_p = BENCH_DONE;
            return false;
        }
        if (option == '?' || !take(&kinds[option], optarg, options))
            return false;
    }
    bool calls = options->tune || options->rewrite || options->checking == BENCH_CHECKING_BOTH;
    if (optind < argc ||
        (options->ops != NULL) + options->list + options->tune + options->serve < 1 ||
        (options->ops != NULL) + options->tune + options->serve > 1 ||
        (calls && (options->graph > 0 || options->serve))) {
        fprintf(stderr, "usage: %s --op OP [options]; --help lists them\n", program_name(argv[0]));
        return false;
    }
    if (options->ops == NULL)
        options->ops = "";
    if (options->size_count == 0)
        (void)parse_sizes(options->tune ? TUNE_SIZES : USUAL_SIZES, options);
    return true;
}
