/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Results as data, and what writes them: a run as JSON, TAP or JUnit, and the page of any number of
 * runs with mutants, covered lines and covered defects. The runner fills it in from its one run,
 * symmem-report from files. Strings are borrowed unless page_keep was told of them; none is NULL
 * once it has been added.
 */
#ifndef SYMMEM_REPORT_PAGE_H
#define SYMMEM_REPORT_PAGE_H

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "claim.h"
#include "text.h"

/* From harmless to bad for what ran; then what did not run. */
enum page_status {
    PAGE_PASSED,
    PAGE_SKIPPED,
    PAGE_UNRESOLVED,
    PAGE_FAILED,
    PAGE_ERROR,
    PAGE_NOT_PLANNED,
    PAGE_NOT_RUN,
    PAGE_STATUS_COUNT
};

struct page_requirement {
    const char *id, *text;
    const char *digest;  /* of the text; empty if unknown */
    const char *chapter; /* its title; empty: the id says enough */
    bool withdrawn;
    const int *tests; /* page_index: numbers of the tests that cite it */
    int test_count;
};

struct page_finding {
    const int *ranks; /* ascending; none: it concerns the case as a whole */
    int rank_count;
    enum page_status status;
    const char *message, *expected, *got; /* expected is empty unless two values were compared */
    const char *file, *requirement;
    const char *next; /* of the failed checks beyond this one */
    int line;         /* 0: not from a check */
    unsigned more;    /* failed checks of these ranks beyond this one */
};

/* Where ranks were last seen. */
struct page_place {
    const int *ranks;
    int rank_count;
    const char *state, *checkpoint, *line, *point;
};

struct page_result {
    const char *test, *suite, *reason;
    const char *requirements;    /* separated by commas */
    const char *detail, *replay; /* of a bad one: all that is known in words; the command */
    const char *output;          /* what the ranks printed; NULL: nothing */
    const char *seed;
    enum page_status status;
    double seconds;
    int ranks, repeat; /* its round, from 0 */
    const struct page_finding *findings;
    int finding_count;
    const struct page_place *places;
    int place_count;
};

/* The layout of a run's JSON beside the fixed keys; grows when one changes its meaning. */
#define PAGE_FORMAT 1

struct page_digest {
    const char *id, *digest;
};

struct page_run {
    const char *backend, *description, *runs_on, *rank_mode, *arch, *commit, *started, *profile;
    const char *claim; /* which profiles it conforms to, in lines */
    const char *build; /* compiler and sanitizers */
    const char *system, *processor, *accelerators, *driver;
    const char *capabilities, *filter, *seed, *source;
    const char *version;
    const char *part; /* "1/3": it is one of so many parts of a run; or empty */
    int parts;        /* in how many it was run, of which `seconds` is the longest; 0: as one */
    int ranks, processors, device_count, device_type, repeat;
    uint64_t memory_bytes;
    double timeout_scale; /* what time limits were multiplied by; 0: unknown */
    int missing;          /* cases that were planned but did not run */
    bool interrupted;
    double seconds;
    const struct claim_profile *profiles;
    int profile_count;
    struct page_result *results; /* also what was not planned */
    int result_count;
    struct page_digest *digests; /* of the texts that were tested; none: unknown */
    int digest_count;
};

struct page_mutant {
    const char *name, *kind, *museum, *mode, *expected, *killed_by, *status, *description;
    int ranks;
    double seconds;
};

struct page_coverage {
    const char *path; /* of the file, below the repository's root */
    int lines, lines_hit, functions, functions_hit, branches, branches_hit;
};

struct page_defect {
    const char *id, *text, *status, *tests, *mutants, *reason;
};

struct page_problem {
    const char *source, *message;
};

/* One test over all runs. */
struct page_test {
    const char *name;
    const struct page_result **results; /* for each run the worst of its rounds, or NULL */
    const char *last;                   /* when the newest run started that knows it */
};

struct page {
    const char *title;
    time_t made;
    struct page_requirement *requirements;
    struct page_run *runs;
    struct page_mutant *mutants;
    struct page_coverage *coverage;
    struct page_defect *defects;
    struct page_problem *problems; /* files that could not be used */
    struct page_test *tests;       /* page_index */
    const char **backends;         /* page_index: each once, sorted; none if there is one run */
    int requirement_count, run_count, mutant_count, coverage_count, defect_count, problem_count;
    int test_count, backend_count;
    const char *mutants_commit;
    void **kept;
    int kept_count;
    bool no_memory; /* something is missing from the page */
};

/* --- filling (page_model.c) ---------------------------------------------------------- */

/* A zeroed element more at the end of an array; NULL without memory. */
#define PAGE_ADD(page, array, count)                                                               \
    page_grow((page), (void **)&(array), &(count), sizeof(*(array)))
void *page_grow(struct page *page, void **array_p, int *count_p, size_t size);
/* Memory that lives as long as the page; NULL, and noted, if heap is NULL. */
void *page_keep(struct page *page, void *heap);
/* What `format` prints, kept by the page; empty, and noted, without memory. */
const char *page_print(struct page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Such a run's case: passed, failed and so on; what did not run counts as an error. */
struct page_counts {
    int planned, passed, failed, skipped, errors, unresolved;
};
struct page_counts page_count(const struct page_run *run);
/* The run's counts by profile, for claim.h; it points into the run. */
struct claim page_claim(const struct page_run *run);
/* Finds which tests are whose; after the last result was added. */
bool page_index(struct page *page);
void page_free(struct page *page);

/* --- judging ------------------------------------------------------------------------- */

struct page_verdict {
    enum page_status status;
    int passed, tests; /* how many of the requirement's tests passed, in this run, and all */
    bool stale;        /* the run tested another wording */
};

const char *page_status_name(enum page_status status);
bool page_is_bad(enum page_status status); /* failed, error or unresolved */
/* What a run says of a requirement. Passed only if a test of it passed and none went wrong. */
struct page_verdict page_judge(const struct page *page, int requirement, int run);
/* Passed, and in the present wording: what counts as held. */
bool page_is_held(const struct page_verdict *verdict);
/* What all runs say: bad if one does, passed if one passed (stale only if none passed the present
 * wording), else the best reason for neither. Its counts are those of one of the runs. */
struct page_verdict page_judge_all(const struct page *page, int requirement);
/* What the runs of a backend say: failed or error if one of them does, else the verdict of the run
 * that says most for it. A test that was unresolved in one run may have passed in another. */
struct page_verdict page_judge_backend(const struct page *page, int requirement,
                                       const char *backend);
/* Copies the next word of a comma-separated list and moves *list_p on; false at its end. */
bool page_next(const char **list_p, char *word, size_t capacity);
/* "SIGNAL" of "SM-SIGNAL-03". */
void page_area(const char *id, char *area, size_t capacity);
/* What makes "process" and "thread" as many as the run has ranks. */
const char *page_plural(const struct page_run *run);
/* "A", "B", ... "AA": how tables refer to a run. */
void page_run_letter(int run, char *text, size_t capacity);

/* --- writing (page_*.c) -------------------------------------------------------------- */

void page_write(const struct page *page, FILE *out);
/* One run. TAP quotes the page's requirements. */
void page_write_json(const struct page_run *run, FILE *out);
void page_write_tap(const struct page *page, const struct page_run *run, FILE *out);
void page_write_junit(const struct page_run *run, FILE *out);

void page_write_runs(const struct page *page, FILE *out);
void page_write_bad(const struct page *page, FILE *out);
void page_write_matrix(const struct page *page, FILE *out);
/* Where the run stands: that its limits were not what the cases say; nothing if they were. */
void page_limits(const struct page_run *run, FILE *out);
/* Whether a requirement that stands is of an area, "SIGNAL"; NULL: of any. */
bool page_is_in_area(const struct page *page, int requirement, const char *area);
/* The columns of the matrix that stand for all runs of a backend (page_backends.c). */
void page_backend_heads(const struct page *page, FILE *out);
void page_backend_chapter_cells(const struct page *page, const char *area, FILE *out);
void page_backend_cells(const struct page *page, int requirement, FILE *out);
void page_backend_test_cells(const struct page *page, const struct page_test *test, FILE *out);
void page_backend_legend(FILE *out);
void page_write_mutants(const struct page *page, FILE *out);
void page_write_coverage(const struct page *page, FILE *out);
void page_write_defects(const struct page *page, FILE *out);

/* A cell of a table's head for each name; bars part them. */
void html_heads(FILE *out, const char *names);
/* The same for a sentence, in which `this` is code. */
void html_prose(FILE *out, const char *element, const char *text);
/* A number of a count as percent with its bar. */
void html_share(FILE *out, int part, int whole);
/* The class that gives an element a status's color. */
const char *html_class(enum page_status status);
double page_percent(int part, int whole);
/* Mutants that were killed. */
int page_killed(const struct page *page);
/* Defects with this status; NULL: all. */
int page_defects_with(const struct page *page, const char *status);
void page_add_coverage(struct page_coverage *sum, const struct page_coverage *file);
void page_sum_coverage(const struct page *page, struct page_coverage *sum);

extern const char page_css[], page_js[];

#endif
