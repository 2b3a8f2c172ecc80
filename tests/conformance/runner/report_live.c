/* SPDX-License-Identifier: BSD-3-Clause */
/* One line at the bottom of a terminal: how far the run is, what went wrong so far, what runs. */
#include "runner.h"

#include <stdarg.h>
#include <sys/ioctl.h>

#define REDRAW_NS 100000000u
#define BAR_CELLS 20

static int width_of(FILE *out) {
    struct winsize size = {0};
    if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col < 20)
        return 80;
    return size.ws_col;
}

/* Text that remembers how much room is left on its line; colors take none. */
struct line {
    FILE *out;
    int room;
};

static void put(struct line *line, const char *color, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put(struct line *line, const char *color, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (line->room <= 0)
        return;
    fprintf(line->out, "%s%.*s%s", color, line->room, text, color[0] == '\0' ? "" : "\033[0m");
    line->room -= (int)strlen(text);
}

static void put_bar(struct line *line, const struct runner *runner) {
    bool bad = runner->summary.failed + runner->summary.errors + runner->summary.unresolved > 0;
    const char *color = !runner->color ? "" : bad ? "\033[31m" : "\033[32m";
    int done = runner->planned_count == 0
                   ? 0
                   : (int)((long)runner->result_count * BAR_CELLS / runner->planned_count);
    char cells[BAR_CELLS + 1];
    memset(cells, '.', sizeof(cells) - 1);
    memset(cells, '=', (size_t)done);
    cells[BAR_CELLS] = '\0';
    put(line, "", "[");
    put(line, color, "%s", cells);
    put(line, "", "] ");
}

static void put_counts(struct line *line, const struct runner *runner) {
    const struct runner_summary *summary = &runner->summary;
    int bad = summary->failed + summary->errors + summary->unresolved;
    unsigned seconds = (unsigned)((arena_now_ns() - runner->start_ns) / 1000000000u);
    put(line, "", "%d/%d %3d%%  %u:%02u  ", runner->result_count, runner->planned_count,
        runner->planned_count == 0
            ? 100
            : (int)((long)runner->result_count * 100 / runner->planned_count),
        seconds / 60, seconds % 60);
    if (bad > 0)
        put(line, runner->color ? "\033[1;31m" : "", "%d failed", bad);
    if (bad > 0)
        put(line, "", "  ");
}

void report_live_draw(struct runner *runner, bool now) {
    struct report_live *live = &runner->live;
    uint64_t time = arena_now_ns();
    struct line line = {.out = runner->progress};
    if (!live->on || (!now && live->drawn && time - live->drawn_ns < REDRAW_NS))
        return;
    line.room = width_of(runner->progress) - 1; /* the last column would wrap */
    fputs("\r\033[K", runner->progress);
    if (line.room >= 60)
        put_bar(&line, runner);
    put_counts(&line, runner);
    if (live->entry != NULL) {
        uint64_t seconds = (time - live->entry_start_ns) / 1000000000u;
        put(&line, "", "%s", live->entry->test->name);
        if (seconds >= 1)
            put(&line, runner->color ? "\033[2m" : "", "  %llu s", (unsigned long long)seconds);
    }
    fflush(runner->progress);
    live->drawn = true;
    live->drawn_ns = time;
}

void report_live_clear(struct runner *runner) {
    if (!runner->live.drawn)
        return;
    fputs("\r\033[K", runner->progress);
    runner->live.drawn = false;
}
