/* SPDX-License-Identifier: BSD-3-Clause */
#include "source.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *source_allocate(size_t bytes) {
    static struct block {
        struct block *before;
        max_align_t memory[];
    } * last; /* from which a checker of leaks reaches all */
    struct block *block = calloc(1, sizeof *block + bytes);
    if (block == NULL) {
        fputs("rows: no memory\n", stderr);
        exit(2);
    }
    block->before = last;
    last = block;
    return block->memory;
}

/* --- tokens ---------------------------------------------------------------------------------- */

static bool is_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Behind blanks, continued lines and comments; says if a line of its own begins there. */
static const char *skip_blanks(const char *at, bool *new_line_p) {
    for (;;) {
        if (at[0] == '\\' && (at[1] == '\n' || (at[1] == '\r' && at[2] == '\n'))) {
            at += at[1] == '\r' ? 3 : 2;
        } else if (isspace((unsigned char)*at)) {
            *new_line_p |= *at++ == '\n';
        } else if (at[0] == '/' && at[1] == '/') {
            at += strcspn(at, "\n");
        } else if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at + 2, "*/");
            at = end != NULL ? end + 2 : at + strlen(at);
        } else {
            return at;
        }
    }
}

static size_t quoted_length(const char *at) {
    size_t length = 1;
    while (at[length] != *at && at[length] != '\0' && at[length] != '\n')
        length += at[length] == '\\' && at[length + 1] != '\0' ? 2 : 1;
    return length + (at[length] == *at);
}

static size_t token_length(const char *at) {
    static const char *const operators[] = {"...", "<<=", ">>=", "->", "++", "--", "<<", ">>",
                                            "<=",  ">=",  "==",  "!=", "&&", "||", "+=", "-=",
                                            "*=",  "/=",  "%=",  "&=", "|=", "^=", "##", "::"};
    size_t length = 0;
    if (*at == '"' || *at == '\'')
        return quoted_length(at);
    if (isdigit((unsigned char)*at) || (*at == '.' && isdigit((unsigned char)at[1]))) {
        while (is_name(at[length]) || at[length] == '.' ||
               (strchr("+-", at[length]) && length > 0 && strchr("eEpP", at[length - 1])))
            if (at[length++] == '\0')
                return length - 1;
        return length;
    }
    while (is_name(at[length]))
        length++;
    for (size_t i = 0; length == 0 && i < sizeof operators / sizeof *operators; i++)
        if (strncmp(at, operators[i], strlen(operators[i])) == 0)
            length = strlen(operators[i]);
    return length > 0 ? length : 1;
}

struct source source_of(char *text) {
    struct source source = {.text = text};
    source.tokens = source_allocate((strlen(text) + 1) * sizeof *source.tokens);
    bool new_line = true, in_directive = false;
    for (const char *at = skip_blanks(text, &new_line); *at != '\0';
         at = skip_blanks(at, &new_line)) {
        struct token *token = &source.tokens[source.count++];
        token->text = at;
        token->length = token_length(at);
        token->begins_directive = new_line && *at == '#';
        in_directive = token->begins_directive || (in_directive && !new_line);
        token->in_directive = in_directive;
        new_line = false;
        at += token->length;
    }
    return source;
}

bool source_read(const char *path, struct source *source) {
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return false;
    size_t capacity = 1 << 20, length = 0;
    char *text = source_allocate(capacity);
    while ((length += fread(text + length, 1, capacity - length - 1, file)) == capacity - 1) {
        char *more = source_allocate(capacity * 2);
        text = memcpy(more, text, length);
        capacity *= 2;
    }
    fclose(file);
    *source = source_of(text);
    return true;
}

static bool is(const struct source *source, size_t at, const char *text) {
    return at < source->count && source->tokens[at].length == strlen(text) &&
           memcmp(source->tokens[at].text, text, strlen(text)) == 0;
}

/* --- definitions ----------------------------------------------------------------------------- */

/* One declaration, definition or preprocessor's line at the top of a file. */
struct item {
    struct range range;
    size_t head_end; /* where its body or value begins, if it has one */
    bool has_body;   /* a function's */
};

/* Brackets that are open. What stands between #if and #else opens and closes them once more behind
 * it. */
struct depth {
    int now, at_if[32], ifs;
};

static void follow_directive(const struct source *source, size_t at, struct depth *depth) {
    const int most = sizeof depth->at_if / sizeof *depth->at_if;
    if (is(source, at + 1, "if") || is(source, at + 1, "ifdef") || is(source, at + 1, "ifndef")) {
        if (depth->ifs < most)
            depth->at_if[depth->ifs++] = depth->now;
    } else if (is(source, at + 1, "else") || is(source, at + 1, "elif")) {
        depth->now = depth->ifs > 0 ? depth->at_if[depth->ifs - 1] : 0;
    } else if (is(source, at + 1, "endif") && depth->ifs > 0) {
        depth->ifs--;
    }
}

static size_t directive_end(const struct source *source, size_t at) {
    do
        at++;
    while (at < source->count && source->tokens[at].in_directive &&
           !source->tokens[at].begins_directive);
    return at;
}

/* Not what encloses a whole file, extern "C" or a namespace: that is an item that ends with its
 * brace. */
static bool encloses(const struct source *source, size_t first, size_t brace) {
    return (is(source, first, "extern") && brace == first + 2 &&
            source->tokens[first + 1].text[0] == '"') ||
           (is(source, first, "namespace") && brace <= first + 2);
}

/* Skips a template's parameters: their default values belong to no function. */
static size_t parameters_end(const struct source *source, size_t first) {
    size_t at = first;
    if (!is(source, first, "template"))
        return first;
    for (int depth = 0; ++at < source->count;) {
        depth += is(source, at, "<");
        depth -= is(source, at, ">");
        if (depth == 0)
            return at + 1;
    }
    return first;
}

static bool next_item(const struct source *source, size_t first, struct item *item) {
    if (first >= source->count)
        return false;
    *item = (struct item){.range = {first, first + 1}};
    if (source->tokens[first].begins_directive) {
        item->head_end = item->range.end = directive_end(source, first);
        return true;
    }
    struct depth depth = {0};
    bool assigned = false, aggregate = false;
    size_t at = parameters_end(source, first);
    for (; at < source->count; at++) {
        if (source->tokens[at].begins_directive)
            follow_directive(source, at, &depth);
        if (source->tokens[at].in_directive)
            continue;
        if (depth.now == 0) {
            assigned |= is(source, at, "=");
            aggregate |= is(source, at, "struct") || is(source, at, "union") ||
                         is(source, at, "enum") || is(source, at, "class");
        }
        if (is(source, at, "{") && depth.now == 0) {
            if (encloses(source, first, at))
                break;
            item->has_body = !assigned && (!aggregate || is(source, at - 1, ")"));
        }
        if (item->head_end == 0 && depth.now == 0 && (is(source, at, "{") || is(source, at, "=")))
            item->head_end = at;
        if (is(source, at, "(") || is(source, at, "[") || is(source, at, "{"))
            depth.now++;
        else if (is(source, at, ")") || is(source, at, "]") || is(source, at, "}"))
            depth.now--;
        if (depth.now < 0 || (depth.now == 0 && is(source, at, ";")) ||
            (depth.now == 0 && is(source, at, "}") && item->has_body))
            break;
    }
    item->range.end = at < source->count ? at + 1 : at;
    if (item->head_end == 0)
        item->head_end = item->range.end;
    return true;
}

/* Whether the item's head has the name where it is defined, not used. */
static bool defines(const struct source *source, const struct item *item,
                    const struct source *name) {
    struct range place, head = {item->range.first, item->head_end};
    if (is(name, 0, "#"))
        return source_find(source, head, head.first, name, &place) && place.first == head.first;
    if (source->tokens[head.first].begins_directive)
        return false;
    int depth = 0;
    for (size_t at = head.first; at < head.end; at++) {
        if (is(source, at, "(") || is(source, at, "["))
            depth++;
        if (is(source, at, ")") || is(source, at, "]"))
            depth--;
        if (depth > 0 ||
            !source_find(source, (struct range){at, at + name->count}, at, name, &place))
            continue;
        if (name->count > 1  ? is(source, place.end, "{")
            : item->has_body ? is(source, place.end, "(")
                             : is(source, place.end, "=") || is(source, place.end, "[") ||
                                   is(source, place.end, ";") || is(source, place.end, ","))
            return true;
    }
    /* The name of a typedef stands behind its body. */
    return name->count == 1 && is(source, head.first, "typedef") && item->range.end >= 2 &&
           is(source, item->range.end - 1, ";") &&
           source_find(source, (struct range){item->range.end - 2, item->range.end - 1},
                       item->range.end - 2, name, &place);
}

/* As in "f(a) int a;". */
static bool has_parameters_behind(const struct source *source, struct range item) {
    for (size_t at = item.first; at + 1 < item.end; at++)
        if (is(source, at, ")") && is_name(*source->tokens[at + 1].text))
            return true;
    return false;
}

bool source_definition(const struct source *source, const char *name, size_t *at,
                       struct range *found) {
    const struct source wanted = source_of((char *)name);
    struct item item;
    if (strcmp(name, "-") == 0) {
        *found = (struct range){0, source->count};
        return (*at)++ == 0;
    }
    size_t old_style = (size_t)-1; /* a head with declarations of its parameters behind it */
    while (next_item(source, *at, &item)) {
        /* f(a) int a; { }: its declarations ended items, and its body begins one. */
        if (is(source, item.range.first, "{") && old_style != (size_t)-1) {
            item.range.first = old_style;
            item.head_end = *at;
        } else if (!is(source, item.range.end - 1, ";")) {
            old_style = (size_t)-1;
        } else if (has_parameters_behind(source, item.range)) {
            old_style = item.range.first;
        }
        *at = item.range.end;
        if (defines(source, &item, &wanted)) {
            *found = item.range;
            return true;
        }
    }
    return false;
}

/* --- texts ----------------------------------------------------------------------------------- */

static bool same_token(const struct token *a, const struct token *b) {
    return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

bool source_find(const struct source *source, struct range in, size_t from,
                 const struct source *wanted, struct range *found) {
    const size_t end = in.end < source->count ? in.end : source->count;
    for (size_t at = from > in.first ? from : in.first; at + wanted->count <= end; at++) {
        size_t alike = 0;
        while (alike < wanted->count &&
               same_token(&source->tokens[at + alike], &wanted->tokens[alike]))
            alike++;
        if (alike == wanted->count) {
            *found = (struct range){at, at + alike};
            return true;
        }
    }
    return false;
}

bool source_same(const struct source *a, struct range in_a, const struct source *b,
                 struct range in_b) {
    struct range found;
    const struct source part = {.tokens = b->tokens + in_b.first, .count = in_b.end - in_b.first};
    return in_a.end - in_a.first == part.count && source_find(a, in_a, in_a.first, &part, &found);
}

char *source_replace(const struct source *source, struct range old, const char *text) {
    const char *begin = source->tokens[old.first].text;
    const struct token *last = &source->tokens[old.end - 1];
    const size_t before = (size_t)(begin - source->text), length = strlen(text);
    const char *behind = last->text + last->length;
    char *result = source_allocate(strlen(source->text) + length + 3);
    memcpy(result, source->text, before);
    /* Blanks, lest it makes one token with its neighbors. */
    result[before] = ' ';
    memcpy(result + before + 1, text, length);
    result[before + 1 + length] = ' ';
    strcpy(result + before + length + 2, behind);
    return result;
}
