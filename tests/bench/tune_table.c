/* SPDX-License-Identifier: BSD-3-Clause */
/* From medians to a table of symmem_all_reduce, and how it is printed. */
#include "tune.h"

static double median_of(const tune_cell *cell, symmem_all_reduce_algorithm algorithm) {
    return cell->results[algorithm].median_us;
}

/* What it costs, in parts of the faster one, to take `algorithm`. */
static double loss(const tune_cell *cell, symmem_all_reduce_algorithm algorithm) {
    double one = median_of(cell, SYMMEM_ALL_REDUCE_ONE_SHOT);
    double two = median_of(cell, SYMMEM_ALL_REDUCE_TWO_SHOT);
    double best = one < two ? one : two;
    return best > 0 ? median_of(cell, algorithm) / best - 1 : 0;
}

int tune_crossover(const tune_cell *cells, int size_count) {
    int best = 0;
    double least = 0;
    for (int one_shot = 0; one_shot <= size_count; one_shot++) {
        double total = 0;
        for (int i = 0; i < size_count; i++)
            total += loss(&cells[i],
                          i < one_shot ? SYMMEM_ALL_REDUCE_ONE_SHOT : SYMMEM_ALL_REDUCE_TWO_SHOT);
        if (one_shot == 0 || total < least) {
            best = one_shot;
            least = total;
        }
    }
    return best;
}

/* The first entry that fits decides: smaller worlds and sizes come first, and each world ends with
 * an entry for all sizes, lest the next world's be looked at. Worlds with the same crossover share
 * the largest one's entries. */
int tune_table(const tune_data *data, symmem_all_reduce_entry *entries) {
    int count = 0, worlds = data->last_world - TUNE_FIRST_WORLD + 1;
    for (int place = TUNE_PLACES - 1; place >= 0; place--)
        for (int w = 0; w < worlds; w++) {
            int one_shot = tune_crossover(data->cells[w][place], data->size_count);
            bool last = w == worlds - 1;
            if (!last && one_shot == tune_crossover(data->cells[w + 1][place], data->size_count))
                continue;
            symmem_all_reduce_entry entry = {.symmetric = place,
                                             .max_world_size = last ? 0 : w + TUNE_FIRST_WORLD,
                                             .max_bytes = UINT64_MAX,
                                             .algorithm = SYMMEM_ALL_REDUCE_ONE_SHOT};
            if (one_shot > 0 && one_shot < data->size_count)
                entry.max_bytes = data->sizes[one_shot - 1];
            if (one_shot > 0)
                entries[count++] = entry;
            entry.max_bytes = UINT64_MAX;
            entry.algorithm = SYMMEM_ALL_REDUCE_TWO_SHOT;
            if (one_shot < data->size_count)
                entries[count++] = entry;
        }
    return count;
}

static int compare_sizes(const void *a, const void *b) {
    size_t left = *(const size_t *)a, right = *(const size_t *)b;
    return (left > right) - (left < right);
}

void tune_sort_sizes(tune_data *data) {
    int kept = 0;
    qsort(data->sizes, (size_t)data->size_count, sizeof data->sizes[0], compare_sizes);
    for (int i = 0; i < data->size_count; i++)
        if (kept == 0 || data->sizes[i] != data->sizes[kept - 1])
            data->sizes[kept++] = data->sizes[i];
    data->size_count = kept;
}

/* --- what --tune prints -------------------------------------------------------------------- */

static const char *const place_names[TUNE_PLACES] = {"private", "symmetric"};
static const char *const algorithm_names[SYMMEM_ALL_REDUCE_ALGORITHM_COUNT] = {"one_shot",
                                                                               "two_shot"};
static const char *const c_names[SYMMEM_ALL_REDUCE_ALGORITHM_COUNT] = {
    "SYMMEM_ALL_REDUCE_ONE_SHOT", "SYMMEM_ALL_REDUCE_TWO_SHOT"};

void tune_print_c(FILE *file, const symmem_all_reduce_entry *entries, int count) {
    fputs("static const symmem_all_reduce_entry all_reduce_table[] = {\n", file);
    for (int i = 0; i < count; i++) {
        const symmem_all_reduce_entry *entry = &entries[i];
        fprintf(file, "    {%d, %d, ", (int)entry->symmetric, (int)entry->max_world_size);
        if (entry->max_bytes == UINT64_MAX)
            fputs("UINT64_MAX", file);
        else
            fprintf(file, "%" PRIu64, entry->max_bytes);
        fprintf(file, ", %s},\n", c_names[entry->algorithm]);
    }
    fputs("};\n", file);
}

void tune_print_text(FILE *file, const symmem_all_reduce_entry *entries, int count) {
    for (int i = 0; i < count; i++) {
        const symmem_all_reduce_entry *entry = &entries[i];
        fprintf(file, "%s%d:%d:", i > 0 ? "," : "", (int)entry->symmetric,
                (int)entry->max_world_size);
        if (entry->max_bytes == UINT64_MAX)
            fputs("any", file);
        else
            fprintf(file, "%" PRIu64, entry->max_bytes);
        fprintf(file, ":%s", algorithm_names[entry->algorithm]);
    }
}

/* One measured size: both medians, the faster one, and the one that the table takes. */
typedef struct row {
    int ranks, place;
    size_t bytes;
    const bench_result *one, *two;
    const char *faster, *chosen;
} row;

static void print_row(const row *self) {
    printf("%5d  %-9s %10zu B %12.3f us [%.3f ..] %12.3f us [%.3f ..]  %-8s  %s\n", self->ranks,
           place_names[self->place], self->bytes, self->one->median_us, self->one->min_us,
           self->two->median_us, self->two->min_us, self->faster, self->chosen);
}

static void print_row_json(const row *self, const bench_options *options) {
    printf("{\"tune\":\"all_reduce\",\"ranks\":%d,\"place\":\"%s\",\"bytes\":%zu,\"dtype\":\"%s\","
           "\"one_shot_us\":%.4f,\"one_shot_min_us\":%.4f,\"two_shot_us\":%.4f,"
           "\"two_shot_min_us\":%.4f,\"faster\":\"%s\",\"chosen\":\"%s\"}\n",
           self->ranks, place_names[self->place], self->bytes, options->dtype, self->one->median_us,
           self->one->min_us, self->two->median_us, self->two->min_us, self->faster, self->chosen);
}

static void print_rows(const tune_data *data, const bench_options *options) {
    for (int place = TUNE_PLACES - 1; place >= 0; place--)
        for (int w = 0; w <= data->last_world - TUNE_FIRST_WORLD; w++) {
            const tune_cell *cells = data->cells[w][place];
            int one_shot = tune_crossover(cells, data->size_count);
            for (int i = 0; i < data->size_count; i++) {
                const bench_result *results = cells[i].results;
                row line = {.ranks = w + TUNE_FIRST_WORLD,
                            .place = place,
                            .bytes = data->sizes[i],
                            .one = &results[SYMMEM_ALL_REDUCE_ONE_SHOT],
                            .two = &results[SYMMEM_ALL_REDUCE_TWO_SHOT]};
                line.faster = algorithm_names[line.one->median_us < line.two->median_us
                                                  ? SYMMEM_ALL_REDUCE_ONE_SHOT
                                                  : SYMMEM_ALL_REDUCE_TWO_SHOT];
                line.chosen = algorithm_names[i < one_shot ? SYMMEM_ALL_REDUCE_ONE_SHOT
                                                           : SYMMEM_ALL_REDUCE_TWO_SHOT];
                if (options->json)
                    print_row_json(&line, options);
                else
                    print_row(&line);
            }
        }
}

void tune_print(const tune_data *data, const bench_options *options) {
    symmem_all_reduce_entry entries[SYMMEM_ALL_REDUCE_MAX_ENTRIES];
    int count = tune_table(data, entries);
    if (!options->json)
        printf("%5s  %-9s %12s %15s %22s %17s  %s\n", "ranks", "input", "size", "one-shot",
               "two-shot", "faster", "chosen");
    print_rows(data, options);
    if (options->json) {
        fputs("{\"table\":\"", stdout);
        tune_print_text(stdout, entries, count);
        fputs("\"}\n", stdout);
        return;
    }
    printf("\n/* %s, %s, worlds of %d to %d ranks. For symmem_set_all_reduce_table. */\n",
           options->backend, options->dtype, TUNE_FIRST_WORLD, data->last_world);
    tune_print_c(stdout, entries, count);
    fputs("\nexport SYMMEM_ALL_REDUCE_TABLE=", stdout);
    tune_print_text(stdout, entries, count);
    putchar('\n');
}
