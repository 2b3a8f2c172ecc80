/* SPDX-License-Identifier: BSD-3-Clause */
/* The comparison as one picture: a panel for each op, time over size, both logarithmic. */
#include "compare.h"

#include <math.h>
#include <string.h>

#define COLUMNS 3
#define PANEL_WIDTH 380
#define PANEL_HEIGHT 280
#define PLOT_LEFT 62
#define PLOT_TOP 40
#define PLOT_WIDTH 296
#define PLOT_HEIGHT 190
#define HEAD_HEIGHT 78

static const char *const colours[SIDE_COUNT] = {"#0b62c4", "#c4460b", "#6a8f1f", "#777777"};

/* The points of one op, input and number of ranks, in the order of their sizes. */
typedef struct panel {
    const compare_point *points[BENCH_MAX_SIZES];
    int count;
    double low_us, high_us; /* powers of ten around all */
} panel;

static bool same_panel(const compare_point *a, const compare_point *b) {
    return a->ranks == b->ranks && strcmp(a->op, b->op) == 0 && strcmp(a->input, b->input) == 0;
}

static void widen(panel *self, double us) {
    if (us <= 0)
        return;
    self->low_us = self->count == 0 || us < self->low_us ? us : self->low_us;
    self->high_us = self->count == 0 || us > self->high_us ? us : self->high_us;
}

static void insert(panel *self, const compare_point *point) {
    int at = self->count;
    if (self->count == BENCH_MAX_SIZES)
        return;
    for (; at > 0 && self->points[at - 1]->bytes > point->bytes; at--)
        self->points[at] = self->points[at - 1];
    self->points[at] = point;
    if (self->count == 0)
        self->low_us = self->high_us = point->spread[OURS].median;
    self->count++;
    for (int side = 0; side < SIDE_COUNT; side++) {
        widen(self, point->spread[side].low);
        widen(self, point->spread[side].high);
    }
    widen(self, point->limit_us);
}

/* The panel that begins with points[first]; false if that belongs to an earlier one or is no op. */
static bool collect(const compare_data *data, size_t first, panel *self) {
    const compare_point *point = &data->points[first];
    memset(self, 0, sizeof *self);
    if (point->spread[OURS].count == 0)
        return false;
    for (size_t i = 0; i < data->count; i++) {
        if (!same_panel(&data->points[i], point) || data->points[i].spread[OURS].count == 0)
            continue;
        if (i < first)
            return false;
        insert(self, &data->points[i]);
    }
    self->low_us = pow(10, floor(log10(self->low_us)));
    self->high_us = pow(10, ceil(log10(self->high_us) + 1e-9));
    return true;
}

/* --- one panel ---------------------------------------------------------------------- */

static double y_of(const panel *self, double us) {
    double share = log10(us / self->low_us) / log10(self->high_us / self->low_us);
    return PLOT_TOP + PLOT_HEIGHT * (1 - share);
}

static double x_of(const panel *self, int index) {
    double first = (double)self->points[0]->bytes + 1;
    double last = (double)self->points[self->count - 1]->bytes + 1;
    if (self->count == 1 || last <= first)
        return PLOT_LEFT + PLOT_WIDTH / 2.0;
    return PLOT_LEFT + 12 +
           (PLOT_WIDTH - 24) * log2(((double)self->points[index]->bytes + 1) / first) /
               log2(last / first);
}

static void draw_axes(const panel *self, FILE *out) {
    fprintf(out, "<rect x='%d' y='%d' width='%d' height='%d' class='frame'/>\n", PLOT_LEFT,
            PLOT_TOP, PLOT_WIDTH, PLOT_HEIGHT);
    for (double us = self->low_us; us <= self->high_us * 1.01; us *= 10) {
        double y = y_of(self, us);
        fprintf(out, "<path d='M%d %.1fh%d' class='grid'/>", PLOT_LEFT, y, PLOT_WIDTH);
        if (us < 1000)
            fprintf(out, "<text x='%d' y='%.1f' class='y'>%g \xc2\xb5s</text>\n", PLOT_LEFT - 6,
                    y + 4, us);
        else
            fprintf(out, "<text x='%d' y='%.1f' class='y'>%g ms</text>\n", PLOT_LEFT - 6, y + 4,
                    us / 1000);
    }
    double last_x = -100;
    for (int i = 0; i < self->count && self->points[i]->bytes > 0; i++) {
        char size[32];
        double x = x_of(self, i);
        if (x - last_x < 44)
            continue;
        compare_size_text(self->points[i]->bytes, size, sizeof size);
        fprintf(out, "<text x='%.1f' y='%d' class='x'>%s</text>\n", x, PLOT_TOP + PLOT_HEIGHT + 16,
                size);
        last_x = x;
    }
}

/* What a side took at a point; the limit is drawn like a side. */
static double value_of(const compare_point *point, int side) {
    return side == LIMIT ? point->limit_us : point->spread[side].median;
}

/* A point alone is a short stroke, beside those of the others. */
static void draw_side(const panel *self, int side, FILE *out) {
    double shift = self->count == 1 ? (side - 1.5) * 44 : 0;
    bool started = false;
    fprintf(out, "<path class='line%s' stroke='%s' d='", side == LIMIT ? " limit" : "",
            colours[side]);
    for (int i = 0; i < self->count; i++) {
        double value = value_of(self->points[i], side);
        if (value <= 0)
            continue;
        fprintf(out, "%c%.1f %.1f", started ? 'L' : 'M',
                x_of(self, i) + shift - (self->count == 1 ? 16 : 0), y_of(self, value));
        if (self->count == 1)
            fputs("h32", out);
        started = true;
    }
    fputs("'/>\n", out);
    for (int i = 0; i < self->count && side != LIMIT; i++) {
        const compare_spread *spread = &self->points[i]->spread[side];
        if (spread->count > 0)
            fprintf(out,
                    "<path class='spread' stroke='%s' d='M%.1f %.1fV%.1f'><title>%.4g us "
                    "[%.4g .. %.4g]</title></path>\n",
                    colours[side], x_of(self, i) + shift, y_of(self, spread->low),
                    y_of(self, spread->high), spread->median, spread->low, spread->high);
    }
}

static void draw_panel(const panel *self, int place, FILE *out) {
    const compare_point *point = self->points[0];
    fprintf(out, "<g transform='translate(%d %d)'>\n", place % COLUMNS * PANEL_WIDTH,
            HEAD_HEIGHT + place / COLUMNS * PANEL_HEIGHT);
    fprintf(out, "<text x='%d' y='%d' class='title'>%s, %d ranks%s</text>\n", PLOT_LEFT,
            PLOT_TOP - 10, point->op, point->ranks,
            strcmp(point->input, "rewritten") == 0 ? ", input rewritten" : "");
    draw_axes(self, out);
    for (int side = SIDE_COUNT - 1; side >= 0; side--)
        draw_side(self, side, out);
    fputs("</g>\n", out);
}

/* --- the picture -------------------------------------------------------------------- */

static void draw_head(const compare_data *data, FILE *out) {
    fprintf(out,
            "<text x='%d' y='26' class='head'>symmem and MPI: time of one operation</text>\n"
            "<text x='%d' y='46' class='note'>%s, %s, commit %.12s, medians of %d alternating "
            "rounds; strokes: fastest to slowest round</text>\n",
            PLOT_LEFT, PLOT_LEFT, data->device, data->arch, data->commit, data->rounds);
    for (int side = 0, x = PLOT_LEFT; side < SIDE_COUNT; side++) {
        const char *name = side == LIMIT ? "limit of the machine" : data->library[side];
        if (name[0] == '\0')
            continue;
        fprintf(out,
                "<path class='line%s' stroke='%s' d='M%d 64h24'/><text x='%d' y='68' "
                "class='note'>%s</text>\n",
                side == LIMIT ? " limit" : "", colours[side], x, x + 30, name);
        x += 60 + 8 * (int)strlen(name);
    }
}

void compare_print_svg(const compare_data *data, FILE *out) {
    panel one;
    int count = 0, place = 0;
    for (size_t i = 0; i < data->count; i++)
        count += collect(data, i, &one);
    int rows = (count + COLUMNS - 1) / COLUMNS;
    int width = COLUMNS * PANEL_WIDTH, height = HEAD_HEIGHT + rows * PANEL_HEIGHT;
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "viewBox='0 0 %d %d'>\n"
            "<style>text{font:11px sans-serif;fill:#222}.head{font:bold 18px sans-serif}"
            ".title{font:bold 13px sans-serif}.note{fill:#444}.y{text-anchor:end}"
            ".x{text-anchor:middle}.frame{fill:none;stroke:#999}.grid{stroke:#ddd;fill:none}"
            ".line{fill:none;stroke-width:2}.limit{stroke-dasharray:5 4}"
            ".spread{fill:none;stroke-width:5;stroke-opacity:.35}</style>\n"
            "<rect width='100%%' height='100%%' fill='#fff'/>\n",
            width, height, width, height);
    draw_head(data, out);
    for (size_t i = 0; i < data->count; i++)
        if (collect(data, i, &one))
            draw_panel(&one, place++, out);
    fputs("</svg>\n", out);
}
