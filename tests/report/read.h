/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading files into a page. A file that cannot be used is noted as a problem of the page and
 * leaves nothing else behind. */
#ifndef SYMMEM_REPORT_READ_H
#define SYMMEM_REPORT_READ_H

#include <cjson/cJSON.h>

#include "page.h"

struct reader {
    struct page *page;
    const char *root; /* prefix that is taken off the paths of covered files and of results */
    cJSON **trees;    /* their strings are borrowed by the page */
    int tree_count;
};

/* The whole file with a NUL behind it, kept by the page; NULL after noting the problem. */
char *read_whole(struct reader *reader, const char *path, size_t *length_p);
/* Notes a problem and returns false. */
bool read_problem(struct reader *reader, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The path below the root, if it is there. */
const char *read_below_root(const struct reader *reader, const char *path);

/* Finds out what the file is, and reads it. */
bool read_any(struct reader *reader, const char *path);
/* The same of what is in memory, with a NUL behind it; kept by the page and written to. */
bool read_bytes(struct reader *reader, const char *path, char *text, size_t length);
bool read_spec(struct reader *reader, const char *path);
/* The digests of the texts; after read_spec. */
bool read_lock(struct reader *reader, const char *path);

bool read_run(struct reader *reader, const char *path, const cJSON *tree);
bool read_mutation(struct reader *reader, const char *path, const cJSON *tree);
bool read_coverage(struct reader *reader, const char *path, char *text);
bool read_museum(struct reader *reader, const char *path, char *text);
void read_end(struct reader *reader);

/* --- JSON ---------------------------------------------------------------------------- */

/* Never NULL: empty if it is absent or no string. */
const char *json_text(const cJSON *object, const char *key);
double json_number(const cJSON *object, const char *key, double otherwise);
/* An integer from 0 to a billion, else `otherwise`. */
int json_count(const cJSON *object, const char *key, int otherwise);
/* An array of strings as "a,b"; empty if it is absent. A string is taken as it is. */
const char *json_list(struct reader *reader, const cJSON *object, const char *key);

/* Cuts the next line off *text_p; NULL at the end. */
char *read_line(char **text_p);

#endif
