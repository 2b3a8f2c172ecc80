/* SPDX-License-Identifier: BSD-3-Clause */
/* From medians to a table of symmem_all_reduce. */
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
