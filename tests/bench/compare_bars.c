/* SPDX-License-Identifier: BSD-3-Clause */
/* The ratios to the better MPI that the project wants to reach. Never a test: machines differ. */
#include "compare.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

typedef struct bar {
    const char *op;
    int ranks;
    size_t low, high; /* sizes */
    double ratio;
} bar;

/* 8 ranks: on 2 processors. */
static const bar bars[] = {
    {"barrier", 2, 0, 0, 2},
    /* On symmetric buffers: both in one, or the output elsewhere. */
    {"all_reduce_in_place", 2, KIB, KIB, 2},
    {"all_reduce_in_place", 2, 8 * KIB, 512 * KIB, 5},
    {"all_reduce_in_place", 2, 4 * MIB, 4 * MIB, 3.5},
    {"all_reduce_in_place", 2, 32 * MIB, 32 * MIB, 5},
    {"all_reduce", 2, KIB, KIB, 2},
    {"all_reduce", 2, 8 * KIB, 512 * KIB, 5},
    {"all_reduce", 2, 4 * MIB, 4 * MIB, 3.5},
    {"all_reduce", 2, 32 * MIB, 32 * MIB, 5},
    {"all_reduce_copy_out", 2, KIB, 32 * MIB, 1.5},
    {"barrier", 8, 0, 0, 1},
    {"all_reduce_in_place", 8, 8 * KIB, 8 * KIB, 1},
    {"all_reduce", 8, 8 * KIB, 8 * KIB, 1},
};
#define BAR_COUNT (sizeof bars / sizeof bars[0])

static bool belongs(const bar *which, const compare_point *point) {
    return strcmp(point->op, which->op) == 0 && point->ranks == which->ranks &&
           point->bytes >= which->low && point->bytes <= which->high && point->ratio.count > 0;
}

void compare_print_bars(const compare_data *data, FILE *out) {
    fprintf(out, "\n%-28s %-10s %5s %8s %8s  %-22s %7s  %s\n", "ratios wanted", "input", "ranks",
            "size", "wanted", "is", "fastest", "");
    for (size_t i = 0; i < BAR_COUNT; i++) {
        int found = 0;
        for (size_t j = 0; j < data->count; j++) {
            const compare_point *point = &data->points[j];
            char size[32] = "", is[64];
            if (!belongs(&bars[i], point))
                continue;
            if (point->bytes > 0)
                compare_size_text(point->bytes, size, sizeof size);
            snprintf(is, sizeof is, "%.2f [%.2f .. %.2f]", point->ratio.median, point->ratio.low,
                     point->ratio.high);
            fprintf(out, "%-28s %-10s %5d %8s %7.1fx  %-22s %7.2f  %s\n", point->op, point->input,
                    point->ranks, size, bars[i].ratio, is, point->fastest_ratio,
                    point->ratio.median >= bars[i].ratio ? "reached" : "MISSED");
            found++;
        }
        if (found == 0)
            fprintf(out, "%-28s %-10s %5d %8s %7.1fx  not measured\n", bars[i].op, "",
                    bars[i].ranks, "", bars[i].ratio);
    }
}

void compare_print_bars_json(const compare_data *data, FILE *out) {
    int count = 0;
    for (size_t i = 0; i < BAR_COUNT; i++)
        for (size_t j = 0; j < data->count; j++) {
            const compare_point *point = &data->points[j];
            if (!belongs(&bars[i], point))
                continue;
            fprintf(out,
                    "%s\n{\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"input\":\"%s\","
                    "\"wanted\":%g,\"ratio\":%.4g,\"fastest_ratio\":%.4g,\"reached\":%s}",
                    count++ > 0 ? "," : "", point->op, point->bytes, point->ranks, point->input,
                    bars[i].ratio, point->ratio.median, point->fastest_ratio,
                    point->ratio.median >= bars[i].ratio ? "true" : "false");
        }
}
