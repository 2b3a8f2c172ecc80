/* SPDX-License-Identifier: BSD-3-Clause */
/* The cases there are: each reports before main. */
#include "runner.h"

#define MAX_CASES 2048

struct listed {
    const struct tk_case *test;
    const char *file;
    int line;
};

static struct listed listed[MAX_CASES];
int runner_case_count;

/* Files stay in the order in which they are linked, and what is in one comes by its lines. */
static bool comes_behind(const struct listed *one, const struct listed *other) {
    return strcmp(one->file, other->file) == 0 && one->line > other->line;
}

void tk_add_case(const struct tk_case *test, const char *file, int line) {
    const struct listed added = {test, file, line};
    int at = runner_case_count++;
    if (at == MAX_CASES)
        abort();
    for (; at > 0 && comes_behind(&listed[at - 1], &added); at--)
        listed[at] = listed[at - 1];
    listed[at] = added;
}

void tk_add_cases(const struct tk_case *tests, int count, const char *file, int line) {
    for (int i = 0; i < count; i++)
        tk_add_case(&tests[i], file, line);
}

const struct tk_case *runner_case(int index) {
    return listed[index].test;
}

void runner_area(int index, char *area, size_t capacity) {
    const char *slash = strrchr(listed[index].file, '/');
    const char *name = slash == NULL ? listed[index].file : slash + 1;
    if (strncmp(name, "test_", 5) == 0)
        name += 5;
    snprintf(area, capacity, "%.*s", (int)strcspn(name, "."), name);
}
