/* SPDX-License-Identifier: BSD-3-Clause */
/* Requirements and tests must cover each other; this is where that is checked and shown. */
#include "runner.h"

const struct spec_requirement *runner_find_requirement(const char *id) {
    for (int i = 0; i < spec_requirement_count; i++)
        if (strcmp(spec_requirements[i].id, id) == 0)
            return &spec_requirements[i];
    return NULL;
}

bool runner_next_id(const char **list_p, char *id, size_t capacity) {
    const char *start = *list_p == NULL ? "" : *list_p + strspn(*list_p, ", ");
    size_t length = strcspn(start, ", ");
    if (length == 0)
        return false;
    *list_p = start + length;
    snprintf(id, capacity, "%.*s", (int)length, start);
    return true;
}

static bool cites(const struct tk_case *test, const char *id) {
    const char *list = test->requirements;
    char cited[64];
    while (runner_next_id(&list, cited, sizeof(cited)))
        if (strcmp(cited, id) == 0)
            return true;
    return false;
}

/* The names of the tests of a requirement; NULL for out only counts. */
static int tests_of(const char *id, FILE *out) {
    int count = 0;
    for (int i = 0; i < runner_case_count; i++)
        if (cites(runner_case(i), id)) {
            if (out != NULL)
                fprintf(out, "%s%s", count == 0 ? "" : ",", runner_case(i)->name);
            count++;
        }
    return count;
}

static bool check_citations(const struct tk_case *test, FILE *out) {
    const char *list = test->requirements;
    bool good = true;
    char id[64];
    int count = 0;
    for (; runner_next_id(&list, id, sizeof(id)); count++) {
        const struct spec_requirement *requirement = runner_find_requirement(id);
        if (requirement == NULL) {
            fprintf(out, "trace: test %s cites %s, which SPEC.md does not have\n", test->name, id);
            good = false;
        } else if (requirement->withdrawn) {
            fprintf(out, "trace: test %s cites %s, which is withdrawn\n", test->name, id);
            good = false;
        }
    }
    if (count == 0) {
        fprintf(out, "trace: test %s cites no requirement\n", test->name);
        good = false;
    }
    return good;
}

static int count_name(const char *name) {
    int count = 0;
    for (int i = 0; i < runner_case_count; i++)
        count += strcmp(runner_case(i)->name, name) == 0;
    return count;
}

static bool check_case(const struct tk_case *test, FILE *out) {
    bool good = true;
    if (test->name == NULL || test->name[0] == '\0' || strpbrk(test->name, " \t\n,") != NULL ||
        test->body == NULL) {
        fprintf(out, "trace: test '%s' has no proper name or no body\n",
                test->name == NULL ? "" : test->name);
        return false;
    }
    if (count_name(test->name) != 1) {
        fprintf(out, "trace: test %s is there %d times\n", test->name, count_name(test->name));
        good = false;
    }
    if (test->max_ranks != 0 && test->max_ranks < test->min_ranks) {
        fprintf(out, "trace: test %s wants at least %d and at most %d ranks\n", test->name,
                test->min_ranks, test->max_ranks);
        good = false;
    }
    return check_citations(test, out) && good;
}

bool runner_check_trace(FILE *out) {
    bool good = true;
    for (int i = 0; i < runner_case_count; i++)
        good = check_case(runner_case(i), out) && good;
    for (int i = 0; i < spec_requirement_count; i++)
        if (!spec_requirements[i].withdrawn && tests_of(spec_requirements[i].id, NULL) == 0) {
            fprintf(out, "trace: requirement %s has no test\n", spec_requirements[i].id);
            good = false;
        }
    return good;
}

void runner_print_trace(FILE *out) {
    for (int i = 0; i < spec_requirement_count; i++) {
        fprintf(out, "%s\t", spec_requirements[i].id);
        if (spec_requirements[i].withdrawn)
            fputs("(withdrawn)", out);
        else if (tests_of(spec_requirements[i].id, out) == 0)
            fputs("-", out);
        fputc('\n', out);
    }
}
