/* SPDX-License-Identifier: BSD-3-Clause */
/* The comparison as a table and as JSON. */
#include "compare.h"

void compare_size_text(size_t bytes, char *text, size_t capacity) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    int unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, capacity, "%zu %s", bytes, units[unit]);
}

/* Four digits that matter. */
static void time_text(const compare_spread *spread, char *text, size_t capacity) {
    if (spread->count == 0)
        snprintf(text, capacity, "-");
    else
        snprintf(text, capacity, "%.4g [%.4g .. %.4g]", spread->median, spread->low, spread->high);
}

static void print_row(const compare_data *data, const compare_point *point, FILE *out) {
    char size[32] = "", ours[64], best[64] = "-", ratio[64] = "-", fastest[32] = "-",
         limit[32] = "-", name[96];
    if (point->bytes > 0)
        compare_size_text(point->bytes, size, sizeof size);
    time_text(&point->spread[OURS], ours, sizeof ours);
    if (point->best != OURS) {
        time_text(&point->spread[point->best], best, sizeof best);
        snprintf(ratio, sizeof ratio, "%.2f [%.2f .. %.2f]", point->ratio.median, point->ratio.low,
                 point->ratio.high);
    }
    if (point->fastest_ratio > 0)
        snprintf(fastest, sizeof fastest, "%.2f", point->fastest_ratio);
    if (point->limit_us > 0)
        snprintf(limit, sizeof limit, "%.4g", point->limit_us);
    snprintf(name, sizeof name, "%s%s", point->op,
             strcmp(point->input, "rewritten") == 0 ? " (rewritten)" : "");
    fprintf(out, "%5d  %-32s %8s  %-28s %-28s %-10s %-22s %7s  %s\n", point->ranks, name, size,
            ours, best, point->best == OURS ? "" : data->library[point->best], ratio, fastest,
            limit);
}

void compare_print_table(const compare_data *data, FILE *out) {
    fprintf(out, "%s, %s, commit %.12s, %d alternating rounds\n", data->device, data->arch,
            data->commit, data->rounds);
    fputs(
        "Times in microseconds: median of the rounds' medians [fastest .. slowest round]. ratio:\n"
        "better MPI to symmem, round by round; fastest: of the fastest batches of all rounds, "
        "which other\n"
        "work on the machine disturbs least. limit: one cache line's way from core to core "
        "where\n"
        "ranks synchronize, and one pass over the bytes where there are any.\n\n",
        out);
    fprintf(out, "%5s  %-32s %8s  %-28s %-28s %-10s %-22s %7s  %s\n", "ranks", "op", "size",
            "symmem", "better MPI", "", "ratio", "fastest", "limit");
    for (size_t i = 0; i < data->count; i++)
        if (data->points[i].spread[OURS].count > 0)
            print_row(data, &data->points[i], out);
    fputs("\nlimits\n", out);
    for (size_t i = 0; i < data->count; i++) {
        const compare_point *point = &data->points[i];
        char size[32] = "", time[64];
        if (point->spread[LIMIT].count == 0)
            continue;
        if (point->bytes > 0)
            compare_size_text(point->bytes, size, sizeof size);
        time_text(&point->spread[LIMIT], time, sizeof time);
        fprintf(out, "%5d  %-32s %8s  %s\n", point->ranks, point->op, size, time);
    }
}

static void print_spread(const char *key, const compare_spread *spread, const char *unit,
                         FILE *out) {
    if (spread->count > 0)
        fprintf(out, ",\"%s\":{\"median%s\":%.6g,\"min%s\":%.6g,\"max%s\":%.6g,\"rounds\":%d}", key,
                unit, spread->median, unit, spread->low, unit, spread->high, spread->count);
}

void compare_print_json(const compare_data *data, FILE *out) {
    static const char *const sides[] = {"symmem", "open_mpi", "mpich", "limit"};
    fprintf(out,
            "{\"device\":\"%s\",\"arch\":\"%s\",\"commit\":\"%s\",\"rounds\":%d,"
            "\"libraries\":[\"%s\",\"%s\"],\"results\":[",
            data->device, data->arch, data->commit, data->rounds, data->library[OPEN_MPI],
            data->library[MPICH]);
    for (size_t i = 0; i < data->count; i++) {
        const compare_point *point = &data->points[i];
        fprintf(out, "%s\n{\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"input\":\"%s\"",
                i > 0 ? "," : "", point->op, point->bytes, point->ranks, point->input);
        for (int side = 0; side < SIDE_COUNT; side++)
            print_spread(sides[side], &point->spread[side], "_us", out);
        if (point->best != OURS)
            fprintf(out, ",\"better_mpi\":\"%s\"", data->library[point->best]);
        print_spread("ratio", &point->ratio, "", out);
        if (point->fastest_ratio > 0)
            fprintf(out, ",\"fastest_ratio\":%.6g", point->fastest_ratio);
        if (point->limit_us > 0)
            fprintf(out, ",\"limit_us\":%.6g", point->limit_us);
        fputc('}', out);
    }
    fputs("\n],\"bars\":[", out);
    compare_print_bars_json(data, out);
    fputs("\n]}\n", out);
}
