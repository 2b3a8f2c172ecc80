/* SPDX-License-Identifier: BSD-3-Clause */
/* Files: what they are, and what is wrong with them. */
#include "read.h"

#define MAX_FILE_BYTES ((size_t)256 << 20)

bool read_problem(struct reader *reader, const char *path, const char *format, ...) {
    struct page_problem *problem =
        PAGE_ADD(reader->page, reader->page->problems, reader->page->problem_count);
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    text = page_keep(reader->page, text);
    if (problem != NULL) {
        problem->source = path;
        problem->message = text == NULL ? "no memory" : text;
    }
    return false;
}

static char *read_stream(FILE *file, size_t *length_p) {
    size_t used = 0, capacity = 0, got = 1;
    char *text = NULL;
    while (got > 0 && used <= MAX_FILE_BYTES) {
        char *more = capacity - used < 2 ? realloc(text, capacity = capacity * 2 + 65536) : text;
        if (more == NULL) {
            free(text);
            return NULL;
        }
        text = more;
        got = fread(text + used, 1, capacity - used - 1, file);
        used += got;
    }
    text[used] = '\0';
    *length_p = used;
    return text;
}

char *read_whole(struct reader *reader, const char *path, size_t *length_p) {
    FILE *file = fopen(path, "re");
    struct stat facts;
    char *text = NULL;
    bool failed;
    if (file == NULL) {
        read_problem(reader, path, "%s", strerror(errno));
        return NULL;
    }
    if (fstat(fileno(file), &facts) == 0 && S_ISDIR(facts.st_mode)) {
        fclose(file);
        read_problem(reader, path, "a folder, not a file");
        return NULL;
    }
    errno = 0;
    text = page_keep(reader->page, read_stream(file, length_p));
    failed = ferror(file) != 0;
    fclose(file);
    if (text == NULL || failed) {
        read_problem(reader, path, "%s", errno != 0 ? strerror(errno) : "no memory");
        return NULL;
    }
    if (*length_p > MAX_FILE_BYTES) {
        read_problem(reader, path, "larger than %zu MiB", MAX_FILE_BYTES >> 20);
        return NULL;
    }
    return text;
}

char *read_line(char **text_p) {
    char *line = *text_p;
    size_t length;
    if (line == NULL || *line == '\0')
        return NULL;
    length = strcspn(line, "\n");
    *text_p = line + length + (line[length] == '\n');
    line[length] = '\0';
    if (length > 0 && line[length - 1] == '\r')
        line[length - 1] = '\0';
    return line;
}

/* --- JSON ---------------------------------------------------------------------------- */

const char *json_text(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text == NULL ? "" : text;
}

const char *read_below_root(const struct reader *reader, const char *path) {
    size_t length = strlen(reader->root);
    if (length > 0 && strncmp(path, reader->root, length) == 0 && path[length] == '/')
        return path + length + 1;
    return path;
}

double json_number(const cJSON *object, const char *key, double otherwise) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : otherwise;
}

int json_count(const cJSON *object, const char *key, int otherwise) {
    double number = json_number(object, key, -1.0);
    return number >= 0.0 && number <= 1e9 ? (int)number : otherwise;
}

const char *json_list(struct reader *reader, const cJSON *object, const char *key) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, key), *item;
    char *text = NULL;
    size_t length = 0;
    FILE *memory;
    if (cJSON_IsString(list))
        return list->valuestring;
    memory = cJSON_IsArray(list) ? open_memstream(&text, &length) : NULL;
    if (memory == NULL)
        return "";
    cJSON_ArrayForEach(item, list) if (cJSON_IsString(item))
        fprintf(memory, "%s%s", ftell(memory) > 0 ? "," : "", item->valuestring);
    fclose(memory);
    text = page_keep(reader->page, text);
    return text == NULL ? "" : text;
}

/* Where in the text, in lines and columns from 1. */
static void locate(const char *text, const char *at, int *line_p, int *column_p) {
    *line_p = *column_p = 1;
    for (; text < at && *text != '\0'; text++) {
        *column_p = *text == '\n' ? 1 : *column_p + 1;
        *line_p += *text == '\n';
    }
}

static bool read_json(struct reader *reader, const char *path, const char *text, size_t length) {
    const char *end = text;
    cJSON *tree = cJSON_ParseWithLengthOpts(text, length + 1, &end, true);
    cJSON **place;
    if (tree == NULL) {
        int line, column;
        locate(text, end, &line, &column);
        return read_problem(reader, path, "not valid JSON from line %d, column %d on", line,
                            column);
    }
    place = PAGE_ADD(reader->page, reader->trees, reader->tree_count);
    if (place == NULL) {
        cJSON_Delete(tree);
        return read_problem(reader, path, "no memory");
    }
    *place = tree;
    if (cJSON_HasObjectItem(tree, "results"))
        return read_run(reader, path, tree);
    if (cJSON_HasObjectItem(tree, "mutants"))
        return read_mutation(reader, path, tree);
    return read_problem(reader, path, "JSON, but neither a run's results nor mutants");
}

void read_end(struct reader *reader) {
    for (int i = 0; i < reader->tree_count; i++)
        cJSON_Delete(reader->trees[i]);
    free(reader->trees);
}

/* --- what a file is ------------------------------------------------------------------ */

bool read_any(struct reader *reader, const char *path) {
    size_t length = 0;
    char *text = read_whole(reader, path, &length);
    return text != NULL && read_bytes(reader, path, text, length);
}

bool read_bytes(struct reader *reader, const char *path, char *text, size_t length) {
    const char *start;
    if (strlen(text) != length)
        return read_problem(reader, path, "not text: byte %zu is 0", strlen(text) + 1);
    start = text + strspn(text, " \t\r\n");
    if (*start == '\0')
        return read_problem(reader, path, "empty");
    if (*start == '{' || *start == '[')
        return read_json(reader, path, text, length);
    if (strncmp(start, "TN:", 3) == 0 || strncmp(start, "SF:", 3) == 0)
        return read_coverage(reader, path, text);
    if (*start == '#' || memchr(start, '\t', strcspn(start, "\n")) != NULL)
        return read_museum(reader, path, text);
    return read_problem(reader, path,
                        "neither JSON results nor an lcov file nor a table of defects");
}
