/* SPDX-License-Identifier: BSD-3-Clause */
/* The mutants that were found, their ids, and the choice of a sample. */
#include "generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *or_die(void *memory) {
    if (memory != NULL)
        return memory;
    fputs("mutate: no memory\n", stderr);
    exit(1);
}

static char *copy(const char *text) {
    return or_die(strdup(text));
}

static bool is_known(const struct mutant_list *list, const struct change *change) {
    for (size_t i = list->count; i-- > 0;) {
        const struct mutant *other = &list->mutants[i];
        if (other->start == change->start && other->end == change->end &&
            strcmp(other->replacement, change->replacement) == 0 &&
            strcmp(other->file, change->file) == 0)
            return true;
    }
    return false;
}

/* Numbers count within a function and an operator, so that an edit elsewhere moves none. */
static unsigned next_number(const struct mutant_list *list, const struct change *change) {
    unsigned number = 1;
    for (size_t i = 0; i < list->count; i++) {
        const struct mutant *other = &list->mutants[i];
        number += other->operator_name == change->operator_name &&
                  strcmp(other->function, change->function) == 0 &&
                  strcmp(other->file, change->file) == 0;
    }
    return number;
}

void list_add(struct mutant_list *list, const struct change *change) {
    struct mutant *mutant;
    char id[512];
    if (is_known(list, change))
        return;
    if (list->count == list->capacity) {
        list->capacity = list->capacity == 0 ? 1024 : 2 * list->capacity;
        list->mutants = or_die(realloc(list->mutants, list->capacity * sizeof *list->mutants));
    }
    snprintf(id, sizeof id, "%s:%s:%u:%s", change->file, change->function,
             next_number(list, change), change->operator_name);
    mutant = &list->mutants[list->count++];
    *mutant = (struct mutant){.id = copy(id),
                              .operator_name = change->operator_name,
                              .file = copy(change->file),
                              .function = copy(change->function),
                              .line = change->line,
                              .start = change->start,
                              .end = change->end,
                              .replacement = copy(change->replacement)};
}

/* --- the sample --------------------------------------------------------------------- */

/* FNV-1a, mixed as in splitmix64: the same id and seed give the same number everywhere. */
static uint64_t lot(const char *text, uint64_t seed) {
    uint64_t hash = UINT64_C(14695981039346656037) ^ (seed * UINT64_C(0x9e3779b97f4a7c15));
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    hash = (hash ^ (hash >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ (hash >> 27)) * UINT64_C(0x94d049bb133111eb);
    return hash ^ (hash >> 31);
}

static uint64_t drawn_seed;

static int by_file_and_lot(const void *a, const void *b) {
    const struct mutant *left = a, *right = b;
    int files = strcmp(left->file, right->file);
    uint64_t first = lot(left->id, drawn_seed), second = lot(right->id, drawn_seed);
    return files != 0 ? files : (first > second) - (first < second);
}

static int by_place(const void *a, const void *b) {
    const struct mutant *left = a, *right = b;
    if (left->place != right->place)
        return left->place < right->place ? -1 : 1;
    return strcmp(left->id, right->id);
}

static void free_mutant(struct mutant *mutant) {
    free(mutant->id);
    free(mutant->file);
    free(mutant->function);
    free(mutant->replacement);
}

/* The k-th of a file's n mutants, in the order of their lots, lies at (k + part) / n: whatever is
 * cut off, each file has its share of what remains. */
void list_draw(struct mutant_list *list, uint64_t seed) {
    drawn_seed = seed;
    qsort(list->mutants, list->count, sizeof *list->mutants, by_file_and_lot);
    for (size_t first = 0, next; first < list->count; first = next) {
        double part = (double)(lot(list->mutants[first].file, seed) >> 11) / 9007199254740992.0;
        for (next = first; next < list->count &&
                           strcmp(list->mutants[first].file, list->mutants[next].file) == 0;)
            next++;
        for (size_t k = first; k < next; k++)
            list->mutants[k].place = ((double)(k - first) + part) / (double)(next - first);
    }
    qsort(list->mutants, list->count, sizeof *list->mutants, by_place);
}

/* --- the output --------------------------------------------------------------------- */

/* As printf's %b reads it. */
static void print_escaped(const char *text, size_t length) {
    static const char special[] = "\n\t\\", letters[] = "nt\\";
    for (size_t i = 0; i < length; i++) {
        const char *found = memchr(special, text[i], sizeof special - 1);
        if (found != NULL)
            printf("\\%c", letters[found - special]);
        else
            putchar(text[i]);
    }
}

/* Bytes start to end of the file; false if it has not as many. */
static bool print_old(const char *root, const struct mutant *mutant) {
    size_t length = mutant->end - mutant->start;
    char path[4096], *text = or_die(malloc(length + 1));
    FILE *file;
    bool good;
    snprintf(path, sizeof path, "%s/%s", root, mutant->file);
    file = fopen(path, "rb");
    good = file != NULL && fseek(file, (long)mutant->start, SEEK_SET) == 0 &&
           fread(text, 1, length, file) == length;
    if (good)
        print_escaped(text, length);
    if (file != NULL)
        fclose(file);
    free(text);
    return good;
}

bool list_print(const struct mutant_list *list, const char *root) {
    for (size_t i = 0; i < list->count; i++) {
        const struct mutant *mutant = &list->mutants[i];
        printf("%s\t%s\t%s\t%s\t%u\t%zu\t%zu\t", mutant->id, mutant->operator_name, mutant->file,
               mutant->function, mutant->line, mutant->start, mutant->end);
        if (!print_old(root, mutant)) {
            fprintf(stderr, "mutate: %s cannot be read\n", mutant->file);
            return false;
        }
        putchar('\t');
        print_escaped(mutant->replacement, strlen(mutant->replacement));
        putchar('\n');
    }
    return fflush(stdout) == 0 && ferror(stdout) == 0;
}

void list_free(struct mutant_list *list) {
    while (list->count > 0)
        free_mutant(&list->mutants[--list->count]);
    free(list->mutants);
    list->mutants = NULL;
}
