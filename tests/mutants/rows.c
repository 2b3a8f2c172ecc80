/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mutants that are rows of a table, see README.md for its format.
 *
 *     rows list TABLE...                  the rows without their edits: eight fields between tabs
 *     rows check TREE TABLE...            whether all edits fit the sources in TREE
 *     rows apply NAME TREE TABLE...       makes one mutant's edits there
 *     rows changed OLD NEW TABLE...       the mutants of definitions that differ between two
 * trees
 *
 * Exit status 0 if all is well, 1 if an edit does not fit, 2 for a bad table or wrong usage.
 */
#define _XOPEN_SOURCE 700
#include <ctype.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source.h"

#define MOST_EDITS 8

struct edit {
    const char *file, *name;
    int which;        /* of several occurrences, from 1; 0 if there must be but one */
    char *old, *text; /* what comes in its place */
};

struct row {
    const char *table;
    int line;
    char *name, *how, *museum, *killers, *what;
    struct edit edits[MOST_EDITS];
    int edit_count;
};

static struct row *rows;
static size_t row_count;

static void bad(const struct row *row, int line, const char *text) {
    fprintf(stderr, "%s:%d: %s: %s\n", row->table, line, row->name ? row->name : "?", text);
    exit(2);
}

/* --- the tables ------------------------------------------------------------------------------ */

static char *copy_of(const char *text, size_t length) {
    return memcpy(source_allocate(length + 1), text, length);
}

static char *trimmed(char *text) {
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}

/* Up to the next '|', which is skipped. */
static char *next_field(char **text) {
    if (*text == NULL)
        return NULL;
    char *field = *text, *end = strchr(field, '|');
    if (end != NULL)
        *end++ = '\0';
    *text = end;
    return trimmed(field);
}

static void read_head(struct row *row, char *text) {
    row->name = next_field(&text);
    row->how = next_field(&text);
    row->museum = next_field(&text);
    row->killers = next_field(&text);
    row->what = next_field(&text);
    if (row->what == NULL || text != NULL)
        bad(row, row->line, "a row has five fields");
    for (size_t i = 0; i < row_count; i++)
        if (strcmp(rows[i].name, row->name) == 0)
            bad(row, row->line, "is there twice");
}

/* "NAME", "NAME #2" or "FILE NAME"; the name may be two words, a file has a '/'. */
static void read_place(struct row *row, struct edit *edit, char *text) {
    char *which = strrchr(text, '#');
    if (which != NULL && isdigit((unsigned char)which[1])) {
        edit->which = atoi(which + 1);
        *which = '\0';
    }
    char *blank = text + strcspn(text, " ");
    if (memchr(text, '/', (size_t)(blank - text)) != NULL) {
        edit->file = text;
        text = *blank != '\0' ? blank + 1 : blank;
        *blank = '\0';
    }
    edit->name = trimmed(text);
    if (edit->file == NULL)
        bad(row, row->line, "no @ FILE before it");
    if (*edit->name == '\0')
        bad(row, row->line, "no name behind the file (- for all of it)");
}

/* "PLACE: OLD => NEW"; OLD and NEW may go on over several lines, and "..." in NEW means OLD. */
static void finish_edit(struct row *row, struct edit *edit) {
    char *behind = strchr(edit->old, ':'), *arrow = strstr(edit->old, "=>");
    if (arrow == NULL || behind == NULL || behind > arrow)
        bad(row, row->line, "not PLACE: OLD => NEW");
    *behind++ = *arrow = '\0';
    read_place(row, edit, trimmed(edit->old));
    edit->old = trimmed(behind);
    edit->text = trimmed(arrow + 2);
    const struct source old = source_of(edit->old), dots = source_of("...");
    struct source new = source_of(edit->text);
    struct range place;
    if (source_find(&new, (struct range){0, new.count}, 0, &dots, &place)) {
        edit->text = source_replace(&new, place, edit->old);
        new = source_of(edit->text);
    }
    if (old.count == 0)
        bad(row, row->line, "an edit without an old text");
    if (source_same(&old, (struct range){0, old.count}, &new, (struct range){0, new.count}))
        bad(row, row->line, "an edit that changes nothing");
}

/* A line of an edit: its first one is indented by less than four blanks. */
static void read_edit(struct row *row, int line, char *text, const char *heading) {
    if (strspn(text, " ") < 4) {
        if (row->edit_count == MOST_EDITS)
            bad(row, line, "too many edits");
        row->edits[row->edit_count++] = (struct edit){.file = heading, .old = text};
        return;
    }
    if (row->edit_count == 0)
        bad(row, line, "no edit that it belongs to");
    struct edit *edit = &row->edits[row->edit_count - 1];
    char *longer = source_allocate(strlen(edit->old) + strlen(text) + 2);
    sprintf(longer, "%s\n%s", edit->old, text);
    edit->old = longer;
}

static void read_line(const char *path, int number, char *line, const char **heading) {
    struct row *row = row_count > 0 ? &rows[row_count - 1] : NULL;
    if (*line == '\0' || *line == '#')
        return;
    if (*line == '@') {
        *heading = trimmed(line + 1);
    } else if (*line != ' ') {
        rows[row_count] = (struct row){.table = path, .line = number};
        read_head(&rows[row_count], line);
        row_count++;
    } else if (row != NULL && row->table == path) {
        read_edit(row, number, line, *heading);
    } else {
        bad(&(struct row){.table = path}, number, "an edit before the first row");
    }
}

static void read_table(const char *path) {
    struct source table;
    if (!source_read(path, &table)) {
        fprintf(stderr, "rows: no file %s\n", path);
        exit(2);
    }
    size_t lines = 1;
    for (const char *at = table.text; *at != '\0'; at++)
        lines += *at == '\n';
    struct row *more = source_allocate((row_count + lines) * sizeof *rows);
    if (row_count > 0)
        memcpy(more, rows, row_count * sizeof *rows);
    rows = more;
    const char *heading = NULL;
    int number = 0;
    for (const char *at = table.text, *end; *at != '\0'; at = *end != '\0' ? end + 1 : end) {
        end = at + strcspn(at, "\n");
        read_line(path, ++number, copy_of(at, (size_t)(end - at)), &heading);
    }
}

static void read_tables(char **paths) {
    for (; *paths != NULL; paths++)
        read_table(*paths);
    for (size_t i = 0; i < row_count; i++)
        for (int j = 0; j < rows[i].edit_count; j++)
            finish_edit(&rows[i], &rows[i].edits[j]);
}

/* --- the rows as fields ---------------------------------------------------------------------- */

/* Without the cases of a unit test that are named behind an '@', and each but once. */
static void print_killers(const char *filter) {
    char seen[4096] = ",";
    for (const char *at = filter; *at != '\0';) {
        const size_t length = strcspn(at, ","), name = strcspn(at, ",@");
        char with_commas[256];
        snprintf(with_commas, sizeof with_commas, ",%.*s,", (int)name, at);
        if (strstr(seen, with_commas) == NULL && strlen(seen) + name + 2 < sizeof seen) {
            printf("%s%.*s", seen[1] != '\0' ? "," : "", (int)name, at);
            strcat(seen, with_commas + 1);
        }
        at += length + (at[length] == ',');
    }
}

/* Name, kind, known defects, ranks, mode, filter, killers, what is wrong. */
static void list(const struct row *row) {
    static const char *const kinds = " patch tsan unit gpu_unit fake decorator contained ";
    char kind[16] = "", mode[16] = "process", word[20], *in = strstr(row->killers, " in ");
    int ranks = 2, read = sscanf(row->how, "%15s %d %15s", kind, &ranks, mode);
    snprintf(word, sizeof word, " %s ", kind);
    if (read < 1 || strstr(kinds, word) == NULL || ranks < 1 ||
        (strcmp(mode, "process") != 0 && strcmp(mode, "thread") != 0))
        bad(row, row->line, "not KIND [RANKS [process|thread]]");
    printf("%s\t%s\t%s\t%d\t%s\t%s\t", row->name, kind, row->museum, ranks, mode,
           in != NULL ? in + strlen(" in ") : row->killers);
    if (in != NULL)
        printf("%.*s", (int)(in - row->killers), row->killers);
    else
        print_killers(row->killers);
    printf("\t%s\n", row->what);
}

/* --- trees ----------------------------------------------------------------------------------- */

/* Files as they are by now, by path; those that edits have changed are written by write_files. */
static struct file {
    const char *path;
    struct source source;
    bool is_there, changed;
} files[4096];
static size_t file_count;

static struct file *file_of(const char *tree, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", tree, name);
    for (size_t i = 0; i < file_count; i++)
        if (strcmp(files[i].path, path) == 0)
            return &files[i];
    if (file_count == sizeof files / sizeof *files)
        exit(2);
    struct file *file = &files[file_count++];
    file->path = copy_of(path, strlen(path));
    file->is_there = source_read(path, &file->source);
    return file;
}

static const char *searched_name, *searched_root;
static struct file *other; /* that has what is searched */
static int others;

static int visit(const char *path, const struct stat *status, int type, struct FTW *place) {
    const char *dot = strrchr(path + place->base, '.');
    struct range found;
    size_t at = 0;
    (void)status;
    if (type != FTW_F || dot == NULL || strstr(" .c .h .cu .cuh .cpp ", dot) == NULL)
        return 0;
    struct file *file = file_of(searched_root, path + strlen(searched_root) + 1);
    if (file->is_there && source_definition(&file->source, searched_name, &at, &found)) {
        other = file;
        others++;
    }
    return 0;
}

/* The one file of the product that has the definition, or NULL. */
static struct file *moved_to(const char *tree, const char *name) {
    static const char *const rooms[] = {"core",         "backend_shm_emul", "backend_cuda",
                                        "backend_nccl", "kernels",          "tests/conformance"};
    searched_root = tree;
    searched_name = name;
    others = 0;
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms && strcmp(name, "-") != 0; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", tree, rooms[i]);
        nftw(path, visit, 16, FTW_PHYS);
    }
    return others == 1 ? other : NULL;
}

/* --- edits ----------------------------------------------------------------------------------- */

static bool problem(const struct row *row, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: %s: ", row->table, row->line, row->name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}

/* Where the text stands: in all definitions of that name, of which #if and #else may choose one. */
static int find_text(const struct source *source, const struct edit *edit, struct range *place,
                     int *definitions) {
    const struct source wanted = source_of(edit->old);
    struct range definition, found;
    size_t at = 0;
    int count = 0;
    *definitions = 0;
    while (source_definition(source, edit->name, &at, &definition)) {
        ++*definitions;
        for (size_t from = definition.first; source_find(source, definition, from, &wanted, &found);
             from = found.end)
            if (++count == edit->which || edit->which == 0)
                *place = found;
    }
    return count;
}

static bool make_edit(const struct row *row, const char *tree, const struct edit *edit) {
    struct file *file = file_of(tree, edit->file);
    struct range place;
    int definitions = 0, count = 0;
    if (file->is_there)
        count = find_text(&file->source, edit, &place, &definitions);
    if (definitions == 0) {
        const struct file *now = moved_to(tree, edit->name);
        const char *path = now != NULL ? now->path + strlen(tree) + 1 : "";
        return problem(
            row, file->is_there ? "no definition of %2$s in %1$s%3$s%4$s" : "no file %1$s%3$s%4$s",
            edit->file, edit->name, now != NULL ? "; it is now in " : "", path);
    }
    if (count == 0)
        return problem(row, "%s in %s does not have the text: %s", edit->name, edit->file,
                       edit->old);
    if (count < edit->which || (edit->which == 0 && count > 1))
        return problem(row, "%s in %s has the text %d times%s: %s", edit->name, edit->file, count,
                       edit->which == 0 ? ", say which by #N" : "", edit->old);
    file->source = source_of(source_replace(&file->source, place, edit->text));
    file->changed = true;
    return true;
}

static bool make_edits(const struct row *row, const char *tree) {
    bool fits = true;
    for (int i = 0; fits && i < row->edit_count; i++)
        fits = make_edit(row, tree, &row->edits[i]);
    return fits;
}

static void write_files(void) {
    for (size_t i = 0; i < file_count; i++) {
        FILE *out = files[i].changed ? fopen(files[i].path, "wb") : NULL;
        if (files[i].changed &&
            (out == NULL || fputs(files[i].source.text, out) < 0 || fclose(out) != 0)) {
            perror(files[i].path);
            exit(2);
        }
    }
}

static int apply(const char *name, const char *tree) {
    for (size_t i = 0; i < row_count; i++)
        if (strcmp(rows[i].name, name) == 0) {
            if (!make_edits(&rows[i], tree))
                return 1;
            write_files();
            return 0;
        }
    fprintf(stderr, "rows: no row %s\n", name);
    return 2;
}

static int check(const char *tree) {
    int misfits = 0;
    for (size_t i = 0; i < row_count; i++) {
        misfits += !make_edits(&rows[i], tree);
        /* The next one finds the sources as they were. */
        for (size_t j = 0; j < file_count; j++)
            if (files[j].changed)
                files[j].changed =
                    !(files[j].is_there = source_read(files[j].path, &files[j].source));
    }
    return misfits > 0;
}

/* --- what changed ---------------------------------------------------------------------------- */

/* What the definition is in a tree, wherever it is there. */
static bool definition_in(const char *tree, const struct edit *edit, const struct source **source,
                          struct range *found) {
    struct file *file = file_of(tree, edit->file);
    size_t at = 0;
    if (!file->is_there || !source_definition(&file->source, edit->name, &at, found)) {
        at = 0;
        file = moved_to(tree, edit->name);
        if (file == NULL || !source_definition(&file->source, edit->name, &at, found))
            return false;
    }
    *source = &file->source;
    return true;
}

static void print_changed(const char *old, const char *tree) {
    for (size_t i = 0; i < row_count; i++)
        for (int j = 0; j < rows[i].edit_count; j++) {
            const struct source *before, *after;
            struct range was, is;
            if (definition_in(old, &rows[i].edits[j], &before, &was) &&
                definition_in(tree, &rows[i].edits[j], &after, &is) &&
                source_same(before, was, after, is))
                continue;
            puts(rows[i].name);
            break;
        }
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[1] : "";
    if (strcmp(what, "list") == 0) {
        read_tables(argv + 2);
        for (size_t i = 0; i < row_count; i++)
            list(&rows[i]);
        return 0;
    }
    if (strcmp(what, "check") == 0) {
        read_tables(argv + 3);
        return check(argv[2]);
    }
    if (argc > 3)
        read_tables(argv + 4);
    if (strcmp(what, "apply") == 0 && argc > 3)
        return apply(argv[2], argv[3]);
    if (strcmp(what, "changed") == 0 && argc > 3) {
        print_changed(argv[2], argv[3]);
        return 0;
    }
    fputs("rows list TABLE... | check TREE TABLE... | apply NAME TREE TABLE... | changed OLD NEW "
          "TABLE...\n",
          stderr);
    return 2;
}
