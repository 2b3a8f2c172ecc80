/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of lines: the specification, its lock, lcov's figures, the table of defects. */
#include "read.h"

/* --- specification ------------------------------------------------------------------- */

/* "- **SM-AREA-nn** Sentence": cuts the id out and returns where the sentence begins. */
static char *requirement_start(char *line, const char **id_p) {
    char *end;
    if (strncmp(line, "- **SM-", 7) != 0)
        return NULL;
    end = strstr(line + 4, "** ");
    if (end == NULL)
        return NULL;
    *end = '\0';
    *id_p = line + 4;
    return end + 3;
}

/* Joins a continuation line to the text that is kept in the file's own memory before it. */
static void join(char *text, const char *line) {
    size_t length = strlen(text);
    line += strspn(line, " \t");
    /* The line lies behind the text, with at least its own indent between them. */
    text[length] = ' ';
    memmove(text + length + 1, line, strlen(line) + 1);
}

/* "## Title [SM-AREA]": the title. */
static const char *chapter_title(char *line) {
    char *end = strstr(line, " [SM-");
    if (end != NULL)
        *end = '\0';
    return line + 3;
}

bool read_spec(struct reader *reader, const char *path) {
    struct page *page = reader->page;
    struct page_requirement *open = NULL;
    const char *chapter = "", *id = "";
    size_t length = 0;
    char *text = read_whole(reader, path, &length), *line, *sentence = NULL, *start;
    if (text == NULL)
        return false;
    while ((line = read_line(&text)) != NULL) {
        if (strncmp(line, "## ", 3) == 0)
            chapter = chapter_title(line);
        start = requirement_start(line, &id);
        if (start != NULL) {
            open = PAGE_ADD(page, page->requirements, page->requirement_count);
            if (open == NULL)
                return read_problem(reader, path, "no memory");
            sentence = start;
            *open = (struct page_requirement){
                .id = id, .text = start, .digest = "", .chapter = chapter};
            open->withdrawn = strncmp(start, "(withdrawn)", 11) == 0;
        } else if (open != NULL && isblank((unsigned char)line[0]) &&
                   line[strspn(line, " \t")] != '\0') {
            join(sentence, line);
        } else {
            open = NULL;
        }
    }
    if (page->requirement_count == 0)
        return read_problem(reader, path, "no requirement in it");
    return true;
}

bool read_lock(struct reader *reader, const char *path) {
    size_t length = 0;
    char *text = read_whole(reader, path, &length), *line;
    if (text == NULL)
        return false;
    while ((line = read_line(&text)) != NULL) {
        char *blank = strchr(line, ' ');
        if (blank == NULL || strncmp(line, "SM-", 3) != 0)
            continue;
        *blank = '\0';
        for (int i = 0; i < reader->page->requirement_count; i++)
            if (strcmp(reader->page->requirements[i].id, line) == 0)
                reader->page->requirements[i].digest = blank + 1 + strspn(blank + 1, " ");
    }
    return true;
}

/* --- lcov ---------------------------------------------------------------------------- */

static bool take_figure(struct page_coverage *file, const char *line) {
    const struct {
        const char *key;
        int *value;
    } figures[] = {
        {"LF:", &file->lines},          {"LH:", &file->lines_hit}, {"FNF:", &file->functions},
        {"FNH:", &file->functions_hit}, {"BRF:", &file->branches}, {"BRH:", &file->branches_hit},
    };
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        const char *key = figures[i].key;
        char *end = NULL;
        long value;
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        value = strtol(line + strlen(key), &end, 10);
        if (end == line + strlen(key) || value < 0 || value > 1000000000)
            return false;
        *figures[i].value = (int)value;
    }
    return true;
}

/* The record of a file; a second file of results may speak of it too: the better one counts, since
 * counts of two runs cannot be added without their lines. */
static struct page_coverage *coverage_of(struct page *page, const char *path) {
    struct page_coverage *file;
    for (int i = 0; i < page->coverage_count; i++)
        if (strcmp(page->coverage[i].path, path) == 0)
            return &page->coverage[i];
    file = PAGE_ADD(page, page->coverage, page->coverage_count);
    if (file != NULL)
        file->path = path;
    return file;
}

static bool end_record(struct reader *reader, const struct page_coverage *read) {
    struct page_coverage *file = coverage_of(reader->page, read->path);
    if (file == NULL)
        return false;
    if (file->lines == 0 ||
        page_percent(read->lines_hit, read->lines) > page_percent(file->lines_hit, file->lines))
        *file = *read;
    return true;
}

static bool read_records(struct reader *reader, const char *path, char *text) {
    struct page_coverage file = {.path = NULL};
    int number = 0, files = 0;
    char *line;
    while ((line = read_line(&text)) != NULL) {
        number++;
        if (strncmp(line, "SF:", 3) == 0) {
            file = (struct page_coverage){.path = read_below_root(reader, line + 3)};
        } else if (strcmp(line, "end_of_record") == 0) {
            if (file.path == NULL || file.lines_hit > file.lines ||
                file.branches_hit > file.branches || file.functions_hit > file.functions)
                return read_problem(reader, path, "line %d: a record without sense", number);
            if (!end_record(reader, &file))
                return read_problem(reader, path, "no memory");
            files++;
            file.path = NULL;
        } else if (!take_figure(&file, line)) {
            return read_problem(reader, path, "line %d: no count: %.60s", number, line);
        }
    }
    if (files == 0 || file.path != NULL)
        return read_problem(reader, path, "an lcov file that is cut short");
    return true;
}

bool read_coverage(struct reader *reader, const char *path, char *text) {
    int before = reader->page->coverage_count;
    if (read_records(reader, path, text))
        return true;
    reader->page->coverage_count = before;
    return false;
}

/* --- defects ------------------------------------------------------------------------- */

static const char *next_column(char **line_p) {
    char *column = *line_p;
    size_t length = strcspn(column, "\t");
    *line_p = column + length + (column[length] == '\t');
    column[length] = '\0';
    return column;
}

static bool known_status(const char *status) {
    return strcmp(status, "covered") == 0 || strcmp(status, "not-expressible") == 0 ||
           strcmp(status, "open") == 0;
}

bool read_museum(struct reader *reader, const char *path, char *text) {
    struct page *page = reader->page;
    int number = 0, before = page->defect_count;
    char *line;
    while ((line = read_line(&text)) != NULL) {
        struct page_defect *defect;
        number++;
        if (line[0] == '#' || line[0] == '\0' || strncmp(line, "id\t", 3) == 0)
            continue;
        defect = PAGE_ADD(page, page->defects, page->defect_count);
        if (defect == NULL)
            return read_problem(reader, path, "no memory");
        defect->id = next_column(&line);
        defect->text = next_column(&line);
        defect->status = next_column(&line);
        defect->tests = next_column(&line);
        defect->mutants = next_column(&line);
        defect->reason = next_column(&line);
        if (defect->id[0] == '\0' || !known_status(defect->status)) {
            page->defect_count = before;
            return read_problem(reader, path, "line %d: no entry with a status that is known",
                                number);
        }
    }
    if (page->defect_count == before)
        return read_problem(reader, path, "no entry in it");
    return true;
}
