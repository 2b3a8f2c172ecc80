/* SPDX-License-Identifier: BSD-3-Clause */
/* symmem-report: one page from the results of any number of runs, one run in another format, or one
 * run from its parts. */
#include "merge.h"

#include <getopt.h>
#include <unistd.h>

enum { WRITTEN = 0, INPUT_LEFT_OUT = 1, NOT_WRITTEN = 2 };

struct options {
    const char *spec, *lock, *output, *title, *root;
    const char *format;   /* html, json, tap, junit */
    const char *merge;    /* the file to write in place of a page; NULL: a page */
    char installed[4096]; /* the specification's place, if there is one beside this program */
    char **files;
    int file_count;
};

static void usage(FILE *out) {
    fputs(
        "usage: symmem-report [options] FILE...\n"
        "       symmem-report --merge OUT.json PART.json...\n"
        "Writes one HTML page from any number of FILEs: results of symmem-conformance --format\n"
        "json, mutants of tests/mutants/run.sh, lcov's .info, coverage/museum.sh --table. What a\n"
        "file is is seen from what is in it.\n"
        "  --spec FILE     the requirements and their sentences (default: the installed SPEC.md)\n"
        "  --lock FILE     their digests (default: SPEC.lock beside SPEC.md, if it is there)\n"
        "  --output FILE   default: standard output\n"
        "  --format NAME   html, or of one run json, tap or junit\n"
        "  --title TEXT    the page's heading\n"
        "  --root DIR      taken off the paths of files (default: here)\n"
        "  --merge OUT     no page: the run of which the FILEs are the parts, all that there are, "
        "of\n"
        "                  symmem-conformance --part; tells what failed, the claim and the counts\n"
        "Exit status: 0 the page was written, 1 it was, but a file could not be used (the page\n"
        "names it), 2 it was not. With --merge 0 or 2.\n",
        out);
}

/* Wherever the installed tree was moved to. */
static const char *installed_spec(char *path, size_t capacity) {
    ssize_t length = readlink("/proc/self/exe", path, capacity - 1);
    size_t used;
    if (length <= 0)
        return NULL;
    path[length] = '\0';
    used = (size_t)(strrchr(path, '/') + 1 - path);
    if ((size_t)snprintf(path + used, capacity - used, "%s/SPEC.md", SYMMEM_DOC_FROM_BIN) >=
        capacity - used)
        return NULL;
    return access(path, R_OK) == 0 ? path : NULL;
}

static bool is_format(const char *name) {
    static const char *const names[] = {"html", "json", "tap", "junit"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool parse(int argc, char **argv, struct options *options) {
    enum { HELP = 'h' };
    static const struct option names[] = {
        {"spec", required_argument, NULL, 0},
        {"lock", required_argument, NULL, 1},
        {"output", required_argument, NULL, 2},
        {"title", required_argument, NULL, 3},
        {"root", required_argument, NULL, 4},
        {"merge", required_argument, NULL, 5},
        {"format", required_argument, NULL, 6},
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    const char **const texts[] = {&options->spec,  &options->lock, &options->output,
                                  &options->title, &options->root, &options->merge,
                                  &options->format};
    int id;
    *options = (struct options){.title = "symmem conformance", .format = "html"};
    while ((id = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (id == HELP) {
            usage(stdout);
            exit(WRITTEN);
        }
        if ((size_t)id >= sizeof(texts) / sizeof(texts[0]))
            return false;
        *texts[id] = optarg;
    }
    options->files = argv + optind;
    options->file_count = argc - optind;
    if (options->merge != NULL)
        return options->file_count > 0;
    if (!is_format(options->format)) {
        fprintf(stderr, "symmem-report: no format %s\n", options->format);
        return false;
    }
    if (options->spec == NULL)
        options->spec = installed_spec(options->installed, sizeof(options->installed));
    if (options->spec == NULL)
        fputs("symmem-report: --spec is missing\n", stderr);
    return options->spec != NULL;
}

static bool is_one_file(const char *one, const char *other) {
    struct stat first, second;
    return stat(one, &first) == 0 && stat(other, &second) == 0 && first.st_ino == second.st_ino &&
           first.st_dev == second.st_dev;
}

/* True if an earlier argument names the same file. */
static bool is_given_before(const struct options *options, int number) {
    for (int i = 0; i < number; i++)
        if (is_one_file(options->files[i], options->files[number]))
            return true;
    return false;
}

/* What is read must not be written over: it may be all that is left of a run. */
static bool spares_files(const struct options *options) {
    const char *output = options->merge != NULL ? options->merge : options->output;
    for (int i = 0; output != NULL && i < options->file_count; i++)
        if (is_one_file(options->files[i], output)) {
            fprintf(stderr, "symmem-report: %s: is read, and would be written over\n", output);
            return false;
        }
    return true;
}

static bool read_digests(struct reader *reader, const struct options *options) {
    size_t length = strlen(options->spec);
    char *beside;
    if (options->lock != NULL)
        return read_lock(reader, options->lock);
    if (length < 3 || strcmp(options->spec + length - 3, ".md") != 0)
        return true;
    beside = page_keep(reader->page, malloc(length + 3));
    if (beside == NULL)
        return false;
    snprintf(beside, length + 3, "%.*slock", (int)length - 2, options->spec);
    return access(beside, R_OK) != 0 || read_lock(reader, beside);
}

static bool read_all(struct reader *reader, const struct options *options) {
    bool good = read_spec(reader, options->spec) && read_digests(reader, options);
    for (int i = 0; i < options->file_count; i++)
        if (!is_given_before(options, i))
            good = read_any(reader, options->files[i]) && good;
    return page_index(reader->page) && good && !reader->page->no_memory;
}

static void tell_problems(const struct page *page) {
    for (int i = 0; i < page->problem_count; i++)
        report_plain(stderr, "symmem-report: %s: %s\n", page->problems[i].source,
                     page->problems[i].message);
    if (page->no_memory)
        fputs("symmem-report: no memory\n", stderr);
}

static void write_as(const struct page *page, const char *format, FILE *out) {
    if (strcmp(format, "html") == 0)
        page_write(page, out);
    else if (strcmp(format, "json") == 0)
        page_write_json(&page->runs[0], out);
    else if (strcmp(format, "tap") == 0)
        page_write_tap(page, &page->runs[0], out);
    else
        page_write_junit(&page->runs[0], out);
}

static bool write_page(const struct page *page, const struct options *options) {
    const char *path = options->output;
    FILE *out;
    bool good;
    if (strcmp(options->format, "html") != 0 && page->run_count != 1) {
        fprintf(stderr, "symmem-report: %s is of one run, not of %d\n", options->format,
                page->run_count);
        return false;
    }
    out = path == NULL ? stdout : fopen(path, "we");
    if (out == NULL) {
        fprintf(stderr, "symmem-report: %s: %s\n", path, strerror(errno));
        return false;
    }
    write_as(page, options->format, out);
    good = ferror(out) == 0 && fflush(out) == 0;
    if (path != NULL)
        good = fclose(out) == 0 && good;
    if (!good)
        fputs("symmem-report: the page could not be written\n", stderr);
    return good;
}

static int make_page(struct reader *reader, const struct options *options) {
    bool good = read_all(reader, options);
    tell_problems(reader->page);
    if (!write_page(reader->page, options))
        return NOT_WRITTEN;
    return good ? WRITTEN : INPUT_LEFT_OUT;
}

static int make_run(struct reader *reader, const struct options *options) {
    bool good = merge_files(reader, options->files, options->file_count, options->merge);
    tell_problems(reader->page);
    return good ? WRITTEN : NOT_WRITTEN;
}

int main(int argc, char **argv) {
    struct page page = {.made = time(NULL)};
    struct reader reader = {.page = &page};
    struct options options;
    char here[4096] = "";
    int status;
    if (!parse(argc, argv, &options)) {
        usage(stderr);
        return NOT_WRITTEN;
    }
    if (!spares_files(&options))
        return NOT_WRITTEN;
    page.title = options.title;
    reader.root = options.root != NULL                 ? options.root
                  : getcwd(here, sizeof(here)) != NULL ? here
                                                       : "";
    status = options.merge != NULL ? make_run(&reader, &options) : make_page(&reader, &options);
    read_end(&reader);
    page_free(&page);
    return status;
}
