/* SPDX-License-Identifier: BSD-3-Clause */
/* The table that symmem-bench --tune makes: what the library chooses by it is what it says. */
#include "ops/reduce.h"
#include "tune.h"
#include "unit.h"
#include "ops/all_reduce.h"

/* Medians of which one-shot is faster for the first `crossover` sizes. */
static void set_cells(tune_data *data, int world, int place, int crossover) {
    for (int i = 0; i < data->size_count; i++) {
        bench_result *results = data->cells[world - TUNE_FIRST_WORLD][place][i].results;
        results[SYMMEM_ALL_REDUCE_ONE_SHOT].median_us = i < crossover ? 1 : 3;
        results[SYMMEM_ALL_REDUCE_TWO_SHOT].median_us = 2;
    }
}

static tune_data *make_data(int last_world, int size_count) {
    tune_data *data = calloc(1, sizeof *data);
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    data->last_world = last_world;
    data->size_count = size_count;
    for (int i = 0; i < size_count; i++)
        data->sizes[i] = (size_t)64 << 2 * i;
    return data;
}

static int crossover_of(const tune_data *data, int world, int place) {
    return tune_crossover(data->cells[world - TUNE_FIRST_WORLD][place], data->size_count);
}

/* Each world, place and size that was measured, and what lies beyond. */
static void expect_choices(const tune_data *data, const symmem_all_reduce_entry *entries,
                           int count) {
    for (int world = TUNE_FIRST_WORLD; world <= data->last_world + 2; world++)
        for (int place = 0; place < TUNE_PLACES; place++) {
            int measured = world < data->last_world ? world : data->last_world;
            int crossover = crossover_of(data, measured, place);
            for (int i = 0; i <= data->size_count; i++) {
                uint64_t bytes = i < data->size_count ? data->sizes[i] : (uint64_t)1 << 60;
                bool one =
                    i < crossover || (i == data->size_count && crossover == data->size_count);
                CU_ASSERT_EQUAL(
                    sm_all_reduce_look_up(entries, count, place == TUNE_SYMMETRIC, world, bytes),
                    one ? SYMMEM_ALL_REDUCE_ONE_SHOT : SYMMEM_ALL_REDUCE_TWO_SHOT);
            }
        }
}

/* Random crossovers in every world; the limits among them. */
TEST("the library chooses so") {
    symmem_all_reduce_entry entries[SYMMEM_ALL_REDUCE_MAX_ENTRIES];
    uint32_t random = 1;
    for (int last = TUNE_FIRST_WORLD; last <= TUNE_LAST_WORLD; last++)
        for (int sizes = 1; sizes <= 9; sizes += 4) {
            tune_data *data = make_data(last, sizes);
            for (int world = TUNE_FIRST_WORLD; world <= last; world++)
                for (int place = 0; place < TUNE_PLACES; place++) {
                    random = random * 1664525u + 1013904223u;
                    int crossover = (int)((random >> 16) % (uint32_t)(sizes + 1));
                    set_cells(data, world, place, crossover);
                    CU_ASSERT_EQUAL(crossover_of(data, world, place), crossover);
                }
            int count = tune_table(data, entries);
            CU_ASSERT(count >= TUNE_PLACES && count <= SYMMEM_ALL_REDUCE_MAX_ENTRIES);
            expect_choices(data, entries, count);
            free(data);
        }
}

/* The longest: no two neighbors alike, and two entries each. */
TEST("the longest fits") {
    symmem_all_reduce_entry entries[SYMMEM_ALL_REDUCE_MAX_ENTRIES];
    tune_data *data = make_data(TUNE_LAST_WORLD, 5);
    for (int world = TUNE_FIRST_WORLD; world <= TUNE_LAST_WORLD; world++)
        for (int place = 0; place < TUNE_PLACES; place++)
            set_cells(data, world, place, 1 + world % 3);
    CU_ASSERT_EQUAL(tune_table(data, entries), SYMMEM_ALL_REDUCE_MAX_ENTRIES);
    expect_choices(data, entries, SYMMEM_ALL_REDUCE_MAX_ENTRIES);
    free(data);
}

/* One slow sample does not move it: what counts is the whole. */
TEST("one odd size") {
    tune_data *data = make_data(2, 6);
    set_cells(data, 2, TUNE_SYMMETRIC, 4);
    data->cells[0][TUNE_SYMMETRIC][1].results[SYMMEM_ALL_REDUCE_ONE_SHOT].median_us = 2.5;
    CU_ASSERT_EQUAL(crossover_of(data, 2, TUNE_SYMMETRIC), 4);
    free(data);
}

TEST("sizes ascend") {
    static const size_t given[] = {64, 8, 64, 1024, 8, 16};
    tune_data *data = make_data(2, 6);
    memcpy(data->sizes, given, sizeof given);
    tune_sort_sizes(data);
    CU_ASSERT_EQUAL(data->size_count, 4);
    CU_ASSERT(data->sizes[0] == 8 && data->sizes[1] == 16 && data->sizes[2] == 64 &&
              data->sizes[3] == 1024);
    free(data);
}

/* What is printed is what the environment takes, and C takes. */
TEST("printed forms") {
    static const symmem_all_reduce_entry entries[] = {
        {1, 2, 4096, SYMMEM_ALL_REDUCE_ONE_SHOT},
        {0, 0, UINT64_MAX, SYMMEM_ALL_REDUCE_TWO_SHOT},
    };
    char text[512] = "";
    FILE *file = fmemopen(text, sizeof text, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    tune_print_text(file, entries, 2);
    fclose(file);
    CU_ASSERT_STRING_EQUAL(text, "1:2:4096:one_shot,0:0:any:two_shot");
    symmem_context_options options;
    symmem_context *context = NULL;
    symmem_context_options_init(&options);
    options.rank = options.local_rank = 0;
    options.world_size = 1;
    setenv("SYMMEM_ALL_REDUCE_TABLE", text, 1);
    EXPECT_OK(symmem_init(&options, &context));
    unsetenv("SYMMEM_ALL_REDUCE_TABLE");
    symmem_context_free(context);
    file = fmemopen(text, sizeof text, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    tune_print_c(file, entries, 2);
    fclose(file);
    CU_ASSERT_STRING_EQUAL(text, "static const symmem_all_reduce_entry all_reduce_table[] = {\n"
                                 "    {1, 2, 4096, SYMMEM_ALL_REDUCE_ONE_SHOT},\n"
                                 "    {0, 0, UINT64_MAX, SYMMEM_ALL_REDUCE_TWO_SHOT},\n"
                                 "};\n");
}
