/* SPDX-License-Identifier: BSD-3-Clause */
/* From lines to medians, spreads and ratios. */
#include "compare.h"

#define MAX_LINE 4096

/* --- one line: our own programs' JSON, so keys are unique and texts without escapes ----------- */

static const char *find(const char *line, const char *key) {
    char pattern[COMPARE_NAME];
    snprintf(pattern, sizeof pattern, "\"%s\":", key);
    const char *at = strstr(line, pattern);
    return at != NULL ? at + strlen(pattern) : NULL;
}

static bool find_text(const char *line, const char *key, char *text, size_t capacity) {
    const char *at = find(line, key);
    if (at == NULL || *at != '"')
        return false;
    snprintf(text, capacity, "%.*s", (int)strcspn(at + 1, "\""), at + 1);
    return true;
}

static bool find_number(const char *line, const char *key, double *number_p) {
    const char *at = find(line, key);
    char *end = NULL;
    if (at == NULL)
        return false;
    *number_p = strtod(at, &end);
    return end != at;
}

static compare_side side_of(const char *library) {
    return strncmp(library, "Open MPI", 8) == 0 ? OPEN_MPI
           : strncmp(library, "MPICH", 5) == 0  ? MPICH
           : strcmp(library, "limit") == 0      ? LIMIT
                                                : OURS;
}

/* --- points ------------------------------------------------------------------------- */

static compare_point *find_point(const compare_data *data, const char *op, const char *input,
                                 size_t bytes, int ranks) {
    for (size_t i = 0; i < data->count; i++) {
        compare_point *point = &data->points[i];
        if (point->bytes == bytes && point->ranks == ranks && strcmp(point->op, op) == 0 &&
            strcmp(point->input, input) == 0)
            return point;
    }
    return NULL;
}

static compare_point *add_point(compare_data *data, const char *op, const char *input, size_t bytes,
                                int ranks) {
    if (data->count == data->capacity) {
        size_t capacity = data->capacity > 0 ? 2 * data->capacity : 64;
        compare_point *points = realloc(data->points, capacity * sizeof *points);
        if (points == NULL)
            return NULL;
        data->points = points;
        data->capacity = capacity;
    }
    compare_point *point = &data->points[data->count++];
    memset(point, 0, sizeof *point);
    snprintf(point->op, sizeof point->op, "%s", op);
    snprintf(point->input, sizeof point->input, "%s", input);
    point->bytes = bytes;
    point->ranks = ranks;
    return point;
}

/* False without memory. Lines that are not results are passed over. */
static bool take_line(compare_data *data, const char *line) {
    char op[COMPARE_NAME], input[COMPARE_NAME], library[COMPARE_NAME];
    double bytes, ranks, round, median, fastest;
    if (!find_text(line, "op", op, sizeof op) || !find_text(line, "input", input, sizeof input) ||
        !find_text(line, "library", library, sizeof library) ||
        !find_number(line, "bytes", &bytes) || !find_number(line, "ranks", &ranks) ||
        !find_number(line, "round", &round) || !find_number(line, "median_us", &median) ||
        !find_number(line, "min_us", &fastest) || round < 0 || round >= COMPARE_MAX_ROUNDS ||
        bytes < 0)
        return true;
    compare_side side = side_of(library);
    compare_point *point = find_point(data, op, input, (size_t)bytes, (int)ranks);
    if (point == NULL)
        point = add_point(data, op, input, (size_t)bytes, (int)ranks);
    if (point == NULL)
        return false;
    point->us[side][(int)round] = median;
    if (fastest > 0 && (point->fastest[side] <= 0 || fastest < point->fastest[side]))
        point->fastest[side] = fastest;
    snprintf(data->library[side], sizeof data->library[side], "%s", library);
    if (side == OURS) {
        find_text(line, "device", data->device, sizeof data->device);
        find_text(line, "arch", data->arch, sizeof data->arch);
        find_text(line, "commit", data->commit, sizeof data->commit);
    }
    data->rounds = (int)round + 1 > data->rounds ? (int)round + 1 : data->rounds;
    return true;
}

/* --- what follows ------------------------------------------------------------------- */

static compare_spread spread_of(const double *values, int rounds) {
    double there[COMPARE_MAX_ROUNDS];
    compare_spread spread = {.count = 0};
    for (int i = 0; i < rounds; i++)
        if (values[i] > 0)
            there[spread.count++] = values[i];
    if (spread.count == 0)
        return spread;
    spread.median = bench_median(there, (size_t)spread.count); /* sorts */
    spread.low = there[0];
    spread.high = there[spread.count - 1];
    return spread;
}

static void find_ratio(compare_point *point, int rounds) {
    double ratios[COMPARE_MAX_ROUNDS] = {0};
    compare_side best = OURS;
    for (compare_side side = OPEN_MPI; side <= MPICH; side++)
        if (point->spread[side].count > 0 &&
            (best == OURS || point->spread[side].median < point->spread[best].median))
            best = side;
    point->best = best;
    for (int i = 0; i < rounds && best != OURS; i++)
        if (point->us[OURS][i] > 0)
            ratios[i] = point->us[best][i] / point->us[OURS][i];
    point->ratio = spread_of(ratios, rounds);
    double fastest = point->fastest[OPEN_MPI];
    if (fastest <= 0 || (point->fastest[MPICH] > 0 && point->fastest[MPICH] < fastest))
        fastest = point->fastest[MPICH];
    if (fastest > 0 && point->fastest[OURS] > 0)
        point->fastest_ratio = fastest / point->fastest[OURS];
}

static double limit_of(const compare_data *data, const char *limit, const compare_point *point,
                       size_t bytes) {
    const compare_point *found = find_point(data, limit, point->input, bytes, point->ranks);
    if (found == NULL) /* limits do not depend on the input's history */
        found = find_point(data, limit, "reused", bytes, point->ranks);
    return found != NULL ? found->spread[LIMIT].median : 0;
}

/* One hop if ranks synchronize, and one pass over the bytes if there are any. */
static void find_limit(const compare_data *data, compare_point *point) {
    static const char moves[] = "put,get,copy";
    bool reduces = strstr(point->op, "reduce") != NULL;
    bool meets = !bench_list_has(moves, point->op);
    double hop = meets && point->ranks > 1 ? limit_of(data, "hop", point, 0) : 0;
    double pass = point->bytes > 0 && strcmp(point->op, "rendezvous") != 0
                      ? limit_of(data, reduces ? "reduce" : "memcpy", point, point->bytes)
                      : 0;
    point->limit_us = hop + pass;
}

bool compare_read(FILE *in, compare_data *data) {
    char line[MAX_LINE];
    memset(data, 0, sizeof *data);
    while (fgets(line, sizeof line, in) != NULL)
        if (!take_line(data, line))
            return false;
    for (size_t i = 0; i < data->count; i++) {
        compare_point *point = &data->points[i];
        for (int side = 0; side < SIDE_COUNT; side++)
            point->spread[side] = spread_of(point->us[side], data->rounds);
        find_ratio(point, data->rounds);
    }
    for (size_t i = 0; i < data->count; i++)
        find_limit(data, &data->points[i]);
    return data->count > 0;
}

void compare_finish(compare_data *data) {
    free(data->points);
    memset(data, 0, sizeof *data);
}
