/* SPDX-License-Identifier: BSD-3-Clause */
/* One case that went wrong, in full: what each rank found, the requirement's sentence, where the
 * ranks were last seen, and how to see it again. */
#include "runner.h"

#include <ctype.h>

struct style {
    const char *bold, *dim, *good, *bad, *off;
};

static const struct style plain = {"", "", "", "", ""};
static const struct style colored = {"\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m"};

static void quote_requirement(const struct style *style, const char *id, FILE *out) {
    const struct spec_requirement *requirement = runner_find_requirement(id);
    fprintf(out, "      %s%s%s: %s\n", style->bold, id, style->off,
            requirement == NULL ? "(not in SPEC.md)" : requirement->text);
}

static void quote_requirements(const struct style *style, const char *list, FILE *out) {
    char id[64];
    while (runner_next_id(&list, id, sizeof(id)))
        quote_requirement(style, id, out);
}

static void value(const char *name, const char *color, const char *text, const struct style *style,
                  FILE *out) {
    fprintf(out, "      %s%-8s%s  %s", style->dim, name, style->off, color);
    report_escape_plain(out, text);
    fprintf(out, "%s\n", style->off);
}

static const char *requirements_of(const struct runner_result *result,
                                   const struct runner_finding *finding) {
    return finding->requirement[0] != '\0' ? finding->requirement
                                           : result->entry->test->requirements;
}

/* What has no place in the source, such as a crash, says nothing about a requirement, unless it
 * names one. */
static bool is_about_one(const struct runner_finding *finding) {
    return finding->line != 0 || finding->requirement[0] != '\0';
}

/* A sentence is quoted once, where it is first at stake. */
static bool quoted_before(const struct runner_result *result,
                          const struct runner_finding *finding) {
    if (!is_about_one(finding))
        return true;
    for (const struct runner_finding *at = result->findings; at < finding; at++)
        if (is_about_one(at) &&
            strcmp(requirements_of(result, at), requirements_of(result, finding)) == 0)
            return true;
    return false;
}

static void more_checks(const struct runner_finding *finding, FILE *out) {
    fprintf(out, "      and %u more failed check%s", finding->more, finding->more == 1 ? "" : "s");
    if (finding->next[0] != '\0') {
        fputs(", next: ", out);
        report_escape_plain(out, finding->next);
    }
    fputc('\n', out);
}

static void one_finding(const struct runner_result *result, const struct runner_finding *finding,
                        const struct style *style, FILE *out) {
    char ranks[128];
    runner_rank_list(&finding->ranks, ranks, sizeof(ranks));
    fprintf(out, "    %s%s%s%s", style->bold, ranks, style->off, ranks[0] == '\0' ? "" : ": ");
    report_escape_plain(out, finding->message);
    if (finding->line != 0) {
        fprintf(out, " %s(", style->dim);
        report_escape_plain(out, finding->file);
        fprintf(out, ":%d)%s", finding->line, style->off);
    }
    fputc('\n', out);
    if (finding->expected[0] != '\0') {
        value("expected", style->good, finding->expected, style, out);
        value("got", style->bad, finding->got, style, out);
    }
    if (!quoted_before(result, finding))
        quote_requirements(style, requirements_of(result, finding), out);
    if (finding->more > 0)
        more_checks(finding, out);
}

static bool quotes_any(const struct runner_result *result) {
    for (int i = 0; i < result->finding_count; i++)
        if (is_about_one(&result->findings[i]))
            return true;
    return false;
}

static void show_places(const struct runner_result *result, const struct style *style, FILE *out) {
    char ranks[128];
    for (int i = 0; i < result->place_count; i++) {
        const struct runner_place *place = &result->places[i];
        runner_rank_list(&place->ranks, ranks, sizeof(ranks));
        fprintf(out, "    %slast seen: %s%s: %s", style->dim, ranks, style->off, place->state);
        if (place->checkpoint[0] != '\0') {
            fputs(", checkpoint \"", out);
            report_escape_plain(out, place->checkpoint);
            fputc('"', out);
        }
        if (place->line[0] != '\0') {
            fputs(", last line ", out);
            report_escape_plain(out, place->line);
        }
        if (place->point[0] != '\0') {
            fputs(", last point ", out);
            report_escape_plain(out, place->point);
        }
        fputc('\n', out);
    }
}

static void output_line(const char *text, size_t length, const struct style *style, FILE *out) {
    char line[400];
    snprintf(line, sizeof(line), "%.*s", length > 390 ? 390 : (int)length, text);
    fprintf(out, "    %s|%s ", style->dim, style->off);
    report_escape_plain(out, line);
    fputc('\n', out);
}

/* What the ranks printed: the first lines, where a sanitizer says what it found, and the last,
 * where a crash shows. The JSON report has more of it. */
static void show_output(const struct runner_result *result, const struct style *style, FILE *out) {
    const int first = 30, last = 15;
    int lines = 0, number = 0;
    if (result->output == NULL)
        return;
    for (const char *at = result->output; *at != '\0'; at++)
        lines += *at == '\n' || at[1] == '\0';
    fprintf(out, "    %sthe ranks printed:%s\n", style->dim, style->off);
    for (const char *at = result->output; *at != '\0'; number++) {
        size_t length = strcspn(at, "\n");
        if (number < first || number >= lines - last)
            output_line(at, length, style, out);
        else if (number == first)
            fprintf(out, "    %s| ... %d lines left out%s\n", style->dim, lines - first - last,
                    style->off);
        at += length + (at[length] == '\n');
    }
}

/* A line for each rank, or for the case as a whole. */
static void show_leaks(const struct runner_result *result, const struct style *style, FILE *out) {
    if (result->leaks == NULL)
        return;
    fprintf(out, "    %sleft behind, in full:%s\n", style->dim, style->off);
    for (const char *at = result->leaks; *at != '\0';) {
        const size_t length = strcspn(at, "\n");
        char *line = strndup(at, length);
        fprintf(out, "    %s|%s ", style->dim, style->off);
        report_escape_plain(out, line);
        fputc('\n', out);
        free(line);
        at += length + (at[length] == '\n');
    }
}

void report_findings(const struct runner *runner, const struct runner_result *result, bool color,
                     FILE *out) {
    const struct style *style = color ? &colored : &plain;
    for (int i = 0; i < result->finding_count; i++)
        one_finding(result, &result->findings[i], style, out);
    if (result->findings_left_out > 0)
        fprintf(out, "    and %d findings more\n", result->findings_left_out);
    if (result->finding_count == 0 && result->reason != NULL) {
        fputs("    ", out);
        report_escape_plain(out, result->reason);
        fputc('\n', out);
    }
    if (!quotes_any(result))
        quote_requirements(style, result->entry->test->requirements, out);
    show_leaks(result, style, out);
    show_places(result, style, out);
    show_output(result, style, out);
    fprintf(out, "    %sreplay:%s ", style->dim, style->off);
    report_replay(runner, result, out);
    fputc('\n', out);
}

static void word(const char *text, FILE *out) {
    bool plain_word = text[0] != '\0';
    for (const char *at = text; *at != '\0'; at++)
        plain_word =
            plain_word && (isalnum((unsigned char)*at) || strchr("_./-+:,=@%", *at) != NULL);
    if (plain_word) {
        fputs(text, out);
        return;
    }
    fputc('\'', out);
    for (const char *at = text; *at != '\0'; at++)
        fputs(*at == '\'' ? "'\\''" : (char[2]){*at, '\0'}, out);
    fputc('\'', out);
}

/* Without the path to where we are. */
static const char *shortened(const char *program) {
    char directory[512];
    if (getcwd(directory, sizeof(directory)) == NULL)
        return program;
    size_t length = strlen(directory);
    if (strncmp(program, directory, length) == 0 && program[length] == '/')
        return program + length + 1;
    return program;
}

void report_replay(const struct runner *runner, const struct runner_result *result, FILE *out) {
    const struct runner_options *options = &runner->options;
    if (claim_has_other_limits(options->timeout_scale))
        fprintf(out, "SYMMEM_TIMEOUT_SCALE=%g ", options->timeout_scale);
    word(shortened(options->program), out);
    fputs(" --backend ", out);
    word(options->backend, out);
    fprintf(out, " --ranks %d", options->ranks);
    if (options->mode == TK_MODE_THREAD)
        fputs(" --rank-mode thread", out);
    if (options->launcher != NULL) {
        fputs(" --launcher ", out);
        word(options->launcher, out);
    }
    if (options->timeout_s != 0)
        fprintf(out, " --timeout %u", options->timeout_s);
    fprintf(out, " --seed %llu --filter ",
            (unsigned long long)runner_repeat_seed(options->seed, result->repeat));
    word(result->entry->test->name, out);
}
