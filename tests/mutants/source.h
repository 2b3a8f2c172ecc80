/* SPDX-License-Identifier: BSD-3-Clause */
/* C as tokens: finds a definition by its name, and text inside it whatever the layout. */
#ifndef SYMMEM_MUTANTS_SOURCE_H
#define SYMMEM_MUTANTS_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

struct token {
    const char *text;
    size_t length;
    bool in_directive, begins_directive; /* of a preprocessor's line */
};

struct source {
    char *text;
    struct token *tokens; /* without comments */
    size_t count;
};

/* Tokens from first to before end. */
struct range {
    size_t first, end;
};

/* Takes the text over, which ends with a zero. What is allocated here is never freed: the program
 * is short. */
struct source source_of(char *text);
bool source_read(const char *path, struct source *source);

/* The next definition that a name means, from token *at on, which moves behind it. A name is that
 * of a function with a body or of a variable or type, or "#define NAME", "struct NAME", "enum
 * NAME", or "-" for all of the file. */
bool source_definition(const struct source *source, const char *name, size_t *at,
                       struct range *found);

/* The place of the wanted tokens in a range, from token `from` on; false if they are not there. */
bool source_find(const struct source *source, struct range in, size_t from,
                 const struct source *wanted, struct range *found);

bool source_same(const struct source *a, struct range in_a, const struct source *b,
                 struct range in_b);

/* The text with another in place of a range. */
char *source_replace(const struct source *source, struct range old, const char *text);

void *source_allocate(size_t bytes);

#endif
