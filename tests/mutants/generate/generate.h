/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the mutant generator share. */
#ifndef SYMMEM_MUTANTS_GENERATE_H
#define SYMMEM_MUTANTS_GENERATE_H

#include <clang-c/Index.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One change of one file. */
struct mutant {
    char *id; /* file:function:number:operator */
    const char *operator_name;
    char *file; /* seen from the root of the source */
    char *function;
    unsigned line;
    size_t start, end; /* the bytes that are replaced */
    char *replacement;
    double place; /* in the sample: the lowest come first */
};

/* --- the list (list.c) -------------------------------------------------------------- */

struct mutant_list {
    struct mutant *mutants;
    size_t count, capacity;
};

/* What is to be added; the id is made here. A place that the list has already (a header's, seen
 * from another file) is left out. */
struct change {
    const char *operator_name;
    const char *file, *function;
    unsigned line;
    size_t start, end;
    const char *replacement; /* copied */
};

void list_add(struct mutant_list *list, const struct change *change);
/* In an order such that the first so many are a sample: of each file a share in proportion to its
 * mutants. */
void list_draw(struct mutant_list *list, uint64_t seed);
/* A line each: id, operator, file, function, line, start, end, old text, new text; separated by
 * tabs. */
bool list_print(const struct mutant_list *list, const char *root);
void list_free(struct mutant_list *list);
/* Ends the program. */
void *or_die(void *memory);

/* --- the syntax tree (walk.c) ------------------------------------------------------- */

/* Which functions are looked at: those in files below root/PREFIX, for one of the prefixes. */
struct scope {
    const char *root;
    char **prefixes;
    int prefix_count;
};

/* The path seen from the root; NULL if it is not in the scope. */
const char *scope_path(const struct scope *scope, const char *path);
void walk_unit(CXTranslationUnit unit, const struct scope *scope, struct mutant_list *list);

#endif
