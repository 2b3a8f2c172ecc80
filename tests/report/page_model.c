/* SPDX-License-Identifier: BSD-3-Clause */
#include "page.h"

void *page_grow(struct page *page, void **array_p, int *count_p, size_t size) {
    size_t count = (size_t)*count_p;
    char *array = *array_p;
    /* Full at each power of two. */
    if ((count & (count - 1)) == 0) {
        array = realloc(array, (count == 0 ? 1 : count * 2) * size);
        if (array == NULL) {
            page->no_memory = true;
            return NULL;
        }
        *array_p = array;
    }
    (*count_p)++;
    return memset(array + count * size, 0, size);
}

void *page_keep(struct page *page, void *heap) {
    void **place = heap == NULL ? NULL : PAGE_ADD(page, page->kept, page->kept_count);
    if (place == NULL) {
        page->no_memory = true;
        free(heap);
        return NULL;
    }
    *place = heap;
    return heap;
}

const char *page_print(struct page *page, const char *format, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    text = page_keep(page, text);
    return text == NULL ? "" : text;
}

void page_free(struct page *page) {
    for (int i = 0; i < page->run_count; i++) {
        free(page->runs[i].results);
        free(page->runs[i].digests);
    }
    for (int i = 0; i < page->kept_count; i++)
        free(page->kept[i]);
    free(page->requirements);
    free(page->runs);
    free(page->mutants);
    free(page->coverage);
    free(page->defects);
    free(page->problems);
    free(page->tests);
    free(page->backends);
    free(page->kept);
}

bool page_next(const char **list_p, char *word, size_t capacity) {
    const char *start = *list_p == NULL ? "" : *list_p + strspn(*list_p, ", ");
    size_t length = strcspn(start, ", ");
    if (length == 0)
        return false;
    *list_p = start + length;
    snprintf(word, capacity, "%.*s", (int)length, start);
    return true;
}

void page_area(const char *id, char *area, size_t capacity) {
    const char *start = strchr(id, '-'), *end = strrchr(id, '-');
    if (start == NULL || end <= start)
        snprintf(area, capacity, "%s", id);
    else
        snprintf(area, capacity, "%.*s", (int)(end - start - 1), start + 1);
}

/* --- which tests are whose ----------------------------------------------------------- */

static int compare_tests(const void *one, const void *other) {
    return strcmp(((const struct page_test *)one)->name, ((const struct page_test *)other)->name);
}

static struct page_test *find_test(const struct page *page, const char *name) {
    struct page_test key = {.name = name};
    return bsearch(&key, page->tests, (size_t)page->test_count, sizeof(key), compare_tests);
}

/* Every name that occurs, once, sorted. */
static bool collect_tests(struct page *page) {
    int unique = 0;
    for (int run = 0; run < page->run_count; run++)
        for (int i = 0; i < page->runs[run].result_count; i++) {
            struct page_test *test = PAGE_ADD(page, page->tests, page->test_count);
            if (test == NULL)
                return false;
            test->name = page->runs[run].results[i].test;
            test->last = "";
        }
    if (page->test_count == 0)
        return true;
    qsort(page->tests, (size_t)page->test_count, sizeof(page->tests[0]), compare_tests);
    for (int i = 1; i < page->test_count; i++)
        if (strcmp(page->tests[unique].name, page->tests[i].name) != 0)
            page->tests[++unique] = page->tests[i];
    page->test_count = unique + 1;
    return true;
}

static bool join_results(struct page *page) {
    for (int i = 0; i < page->test_count; i++) {
        page->tests[i].results =
            page_keep(page, calloc((size_t)page->run_count, sizeof(page->tests[i].results[0])));
        if (page->tests[i].results == NULL)
            return false;
    }
    for (int run = 0; run < page->run_count; run++)
        for (int i = 0; i < page->runs[run].result_count; i++) {
            const struct page_result *result = &page->runs[run].results[i];
            struct page_test *test = find_test(page, result->test);
            const struct page_result **worst = &test->results[run];
            if (strcmp(test->last, page->runs[run].started) < 0)
                test->last = page->runs[run].started;
            if (*worst == NULL || (*worst)->status < result->status)
                *worst = result;
        }
    return true;
}

static bool list_has(const char *list, const char *id) {
    char word[128];
    while (page_next(&list, word, sizeof(word)))
        if (strcmp(word, id) == 0)
            return true;
    return false;
}

static bool cites(const struct page *page, const struct page_test *test, const char *id) {
    for (int run = 0; run < page->run_count; run++)
        if (test->results[run] != NULL && list_has(test->results[run]->requirements, id))
            return true;
    return false;
}

static int compare_names(const void *one, const void *other) {
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

static bool has_backend(const struct page *page, const char *name) {
    for (int i = 0; i < page->backend_count; i++)
        if (strcmp(page->backends[i], name) == 0)
            return true;
    return false;
}

/* One run says itself what its backend came to. */
static bool collect_backends(struct page *page) {
    for (int run = 0; run < page->run_count && page->run_count > 1; run++) {
        const char **backend;
        if (has_backend(page, page->runs[run].backend))
            continue;
        backend = PAGE_ADD(page, page->backends, page->backend_count);
        if (backend == NULL)
            return false;
        *backend = page->runs[run].backend;
    }
    if (page->backend_count > 0)
        qsort(page->backends, (size_t)page->backend_count, sizeof(page->backends[0]),
              compare_names);
    return true;
}

bool page_index(struct page *page) {
    if (!collect_tests(page) || !join_results(page) || !collect_backends(page))
        return false;
    for (int i = 0; i < page->requirement_count; i++) {
        struct page_requirement *requirement = &page->requirements[i];
        int *tests = page_keep(page, calloc((size_t)page->test_count + 1, sizeof(*tests)));
        if (tests == NULL)
            return false;
        for (int t = 0; t < page->test_count; t++)
            if (cites(page, &page->tests[t], requirement->id))
                tests[requirement->test_count++] = t;
        requirement->tests = tests;
    }
    return true;
}

/* --- judging ------------------------------------------------------------------------- */

const char *page_status_name(enum page_status status) {
    static const char *const names[PAGE_STATUS_COUNT] = {
        "passed", "skipped", "unresolved", "failed", "error", "not planned", "not run",
    };
    return (unsigned)status < PAGE_STATUS_COUNT ? names[status] : "unknown";
}

bool page_is_bad(enum page_status status) {
    return status == PAGE_FAILED || status == PAGE_ERROR || status == PAGE_UNRESOLVED;
}

static bool is_stale(const struct page *page, const struct page_requirement *requirement, int run) {
    const struct page_run *of = &page->runs[run];
    for (int i = 0; i < of->digest_count && requirement->digest[0] != '\0'; i++)
        if (strcmp(of->digests[i].id, requirement->id) == 0)
            return strcmp(of->digests[i].digest, requirement->digest) != 0;
    return false;
}

/* It names every case of the suite of its time, if only as not planned. */
static bool is_whole(const struct page_run *run) {
    return strcmp(run->filter, "*") == 0 && run->profile[0] == '\0' && run->missing == 0 &&
           run->part[0] == '\0';
}

/* Only older runs know it: it was taken away or renamed since, and this run does not lack it. */
static bool is_gone(const struct page_test *test, const struct page_run *run) {
    return is_whole(run) && test->last[0] != '\0' && strcmp(test->last, run->started) < 0;
}

struct page_verdict page_judge(const struct page *page, int requirement, int run) {
    static const enum page_status order[] = {PAGE_ERROR,   PAGE_FAILED,      PAGE_UNRESOLVED,
                                             PAGE_PASSED,  PAGE_SKIPPED,     PAGE_NOT_PLANNED,
                                             PAGE_NOT_RUN, PAGE_STATUS_COUNT};
    const struct page_requirement *of = &page->requirements[requirement];
    struct page_verdict verdict = {.status = PAGE_NOT_RUN, .tests = of->test_count};
    int counts[PAGE_STATUS_COUNT] = {0};
    for (int i = 0; i < of->test_count; i++) {
        const struct page_test *test = &page->tests[of->tests[i]];
        const struct page_result *result = test->results[run];
        if (is_gone(test, &page->runs[run]))
            verdict.tests--;
        else
            counts[result == NULL ? PAGE_NOT_RUN : result->status]++;
    }
    for (int i = 0; order[i] != PAGE_STATUS_COUNT; i++)
        if (counts[order[i]] > 0) {
            verdict.status = order[i];
            break;
        }
    verdict.passed = counts[PAGE_PASSED];
    verdict.stale = is_stale(page, of, run);
    return verdict;
}

bool page_is_held(const struct page_verdict *verdict) {
    return verdict->status == PAGE_PASSED && !verdict->stale;
}

/* Of bad ones the worst counts, else the best; at par one of the present wording. */
static bool outweighs(const struct page_verdict *one, const struct page_verdict *other) {
    if (one->status == other->status)
        return !one->stale && other->stale;
    if (page_is_bad(one->status))
        return !page_is_bad(other->status) || one->status > other->status;
    return !page_is_bad(other->status) && one->status < other->status;
}

struct page_verdict page_judge_all(const struct page *page, int requirement) {
    struct page_verdict all = {.status = PAGE_NOT_RUN};
    for (int run = 0; run < page->run_count; run++) {
        struct page_verdict one = page_judge(page, requirement, run);
        if (outweighs(&one, &all))
            all = one;
    }
    return all;
}

/* How much a verdict counts among those of one backend; what went wrong counts most. */
static int weight_of(const struct page_verdict *verdict) {
    static const int weights[PAGE_STATUS_COUNT] = {
        [PAGE_ERROR] = 8,   [PAGE_FAILED] = 7,      [PAGE_PASSED] = 4,  [PAGE_UNRESOLVED] = 3,
        [PAGE_SKIPPED] = 2, [PAGE_NOT_PLANNED] = 1, [PAGE_NOT_RUN] = 0,
    };
    if (!page_is_held(verdict))
        return weights[verdict->status];
    return verdict->passed == verdict->tests ? 6 : 5;
}

struct page_verdict page_judge_backend(const struct page *page, int requirement,
                                       const char *backend) {
    struct page_verdict best = {.status = PAGE_NOT_RUN};
    for (int run = 0; run < page->run_count; run++) {
        struct page_verdict one;
        int more;
        if (strcmp(page->runs[run].backend, backend) != 0)
            continue;
        one = page_judge(page, requirement, run);
        more = weight_of(&one) - weight_of(&best);
        if (more > 0 || (more == 0 && one.passed > best.passed))
            best = one;
    }
    return best;
}

void page_run_letter(int run, char *text, size_t capacity) {
    if (run < 26)
        snprintf(text, capacity, "%c", 'A' + run);
    else
        snprintf(text, capacity, "%c%c", 'A' + (run / 26 - 1) % 26, 'A' + run % 26);
}

const char *page_plural(const struct page_run *run) {
    size_t length = strlen(run->rank_mode);
    if (run->ranks == 1)
        return "";
    return length > 0 && run->rank_mode[length - 1] == 's' ? "es" : "s";
}

struct page_counts page_count(const struct page_run *run) {
    struct page_counts counts = {.planned = run->missing, .errors = run->missing};
    for (int i = 0; i < run->result_count; i++) {
        enum page_status status = run->results[i].status;
        counts.planned += status != PAGE_NOT_PLANNED;
        counts.passed += status == PAGE_PASSED;
        counts.failed += status == PAGE_FAILED;
        counts.skipped += status == PAGE_SKIPPED;
        counts.errors += status == PAGE_ERROR;
        counts.unresolved += status == PAGE_UNRESOLVED;
    }
    return counts;
}

struct claim page_claim(const struct page_run *run) {
    return (struct claim){
        .backend = run->backend,
        .arch = run->arch,
        .build = run->build,
        .capabilities = run->capabilities,
        .timeout_scale = run->timeout_scale,
        .ranks = run->ranks,
        .threads = strcmp(run->rank_mode, "thread") == 0,
        .profiles = run->profiles,
        .profile_count = run->profile_count,
    };
}

/* --- sums ---------------------------------------------------------------------------- */

double page_percent(int part, int whole) {
    return whole == 0 ? 0.0 : 100.0 * part / whole;
}

int page_killed(const struct page *page) {
    int killed = 0;
    for (int i = 0; i < page->mutant_count; i++)
        killed += strcmp(page->mutants[i].status, "killed") == 0;
    return killed;
}

int page_defects_with(const struct page *page, const char *status) {
    int count = 0;
    for (int i = 0; i < page->defect_count; i++)
        count += status == NULL || strcmp(page->defects[i].status, status) == 0;
    return count;
}

void page_add_coverage(struct page_coverage *sum, const struct page_coverage *file) {
    sum->lines += file->lines;
    sum->lines_hit += file->lines_hit;
    sum->functions += file->functions;
    sum->functions_hit += file->functions_hit;
    sum->branches += file->branches;
    sum->branches_hit += file->branches_hit;
}

void page_sum_coverage(const struct page *page, struct page_coverage *sum) {
    *sum = (struct page_coverage){.path = ""};
    for (int i = 0; i < page->coverage_count; i++)
        page_add_coverage(sum, &page->coverage[i]);
}
