/* SPDX-License-Identifier: BSD-3-Clause */
/* The frame of the page: head, headline, navigation, foot, and the small pieces of HTML. */
#include "page.h"

void html_heads(FILE *out, const char *names) {
    for (size_t length; *names != '\0'; names += length + (names[length] != '\0')) {
        length = strcspn(names, "|");
        fprintf(out, "<th scope=\"col\">%.*s</th>", (int)length, names);
    }
}

void html_prose(FILE *out, const char *element, const char *text) {
    bool code = false;
    char *copy = strdup(text), *at = copy;
    fprintf(out, "<%s>", element);
    while (at != NULL) {
        char *end = strchr(at, '`');
        /* One without its partner is a character like any other. */
        bool turns = end != NULL && (code || strchr(end + 1, '`') != NULL);
        if (turns)
            *end = '\0';
        report_escape_xml(out, at);
        if (!turns)
            break;
        code = !code;
        fputs(code ? "<code>" : "</code>", out);
        at = end + 1;
    }
    free(copy);
    fprintf(out, "</%s>", element);
}

void html_share(FILE *out, int part, int whole) {
    double percent = page_percent(part, whole);
    if (whole == 0) {
        fputs("<td class=\"none\">none</td>", out);
        return;
    }
    /* Never rounded up to 100: what is missing must show. */
    if (part < whole && percent > 99.9)
        percent = 99.9;
    fprintf(out,
            "<td class=\"share\"><span class=\"bar\"><i style=\"width:%.1f%%\"></i></span> %.1f%% "
            "<small>%d of %d</small></td>",
            percent, percent, part, whole);
}

const char *html_class(enum page_status status) {
    static const char *const names[PAGE_STATUS_COUNT] = {
        "passed", "skipped", "unresolved", "failed", "error", "planned", "norun",
    };
    return names[status];
}

/* --- headline ------------------------------------------------------------------------ */

static void tile(FILE *out, const char *anchor, const char *kind, const char *value,
                 const char *label) {
    report_xml(out, "<li class=\"tile %s\"><a href=\"#%s\"><b>%s</b><span>%s</span></a></li>\n",
               kind, anchor, value, label);
}

struct headline {
    int requirements, held, reworded, violated, unresolved, untested;
};

static struct headline count_requirements(const struct page *page) {
    struct headline count = {0};
    for (int i = 0; i < page->requirement_count; i++) {
        struct page_verdict all;
        if (page->requirements[i].withdrawn)
            continue;
        all = page_judge_all(page, i);
        count.requirements++;
        count.held += page_is_held(&all);
        count.reworded += all.status == PAGE_PASSED && all.stale;
        count.violated += all.status == PAGE_FAILED || all.status == PAGE_ERROR;
        count.unresolved += all.status == PAGE_UNRESOLVED;
    }
    count.untested =
        count.requirements - count.held - count.reworded - count.violated - count.unresolved;
    return count;
}

static void requirement_tiles(const struct headline *count, FILE *out) {
    char value[64];
    snprintf(value, sizeof(value), "%d of %d", count->held, count->requirements);
    tile(out, "requirements", count->held == count->requirements ? "good" : "", value,
         "requirements held wherever they were tested");
    if (count->reworded > 0) {
        snprintf(value, sizeof(value), "%d", count->reworded);
        tile(out, "requirements", "warn", value, "requirements held in another wording only");
    }
    snprintf(value, sizeof(value), "%d", count->violated + count->unresolved);
    tile(out, "failures", count->violated + count->unresolved > 0 ? "bad" : "good", value,
         "requirements violated or unresolved");
    snprintf(value, sizeof(value), "%d", count->untested);
    tile(out, "requirements", count->untested > 0 ? "warn" : "good", value,
         "requirements that no run here tested");
}

static void other_tiles(const struct page *page, FILE *out) {
    char value[64];
    if (page->mutant_count > 0) {
        snprintf(value, sizeof(value), "%d of %d", page_killed(page), page->mutant_count);
        tile(out, "mutants", page_killed(page) == page->mutant_count ? "good" : "bad", value,
             "broken backends caught by the suite");
    }
    if (page->defect_count > 0) {
        char label[120];
        snprintf(value, sizeof(value), "%d of %d", page_defects_with(page, "covered"),
                 page->defect_count);
        snprintf(label, sizeof(label),
                 "known defects of the field covered; %d cannot be expressed here, %d open",
                 page_defects_with(page, "not-expressible"), page_defects_with(page, "open"));
        tile(out, "museum", page_defects_with(page, "open") > 0 ? "bad" : "good", value, label);
    }
    if (page->coverage_count > 0) {
        struct page_coverage sum;
        page_sum_coverage(page, &sum);
        snprintf(value, sizeof(value), "%.1f%%", page_percent(sum.lines_hit, sum.lines));
        tile(out, "coverage", "", value, "of the lines were run by tests");
    }
}

static void headline(const struct page *page, FILE *out) {
    struct headline count = count_requirements(page);
    char when[64] = "";
    struct tm parts;
    if (gmtime_r(&page->made, &parts) != NULL)
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M UTC", &parts);
    report_xml(out,
               "<header>\n<h1>%s</h1>\n<p>What each requirement of the specification was found to "
               "be worth, in %d run%s of "
               "the conformance suite. Made %s.</p>\n<ul class=\"tiles\">\n",
               page->title, page->run_count, page->run_count == 1 ? "" : "s", when);
    requirement_tiles(&count, out);
    other_tiles(page, out);
    fputs("</ul>\n", out);
    if (page->no_memory)
        fputs("<p class=\"note bad\">This page is incomplete: memory ran out.</p>\n", out);
    for (int i = 0; i < page->problem_count; i++)
        report_xml(out, "<p class=\"note bad\">Left out: <code>%s</code>: %s</p>\n",
                   page->problems[i].source, page->problems[i].message);
    fputs("</header>\n", out);
}

static void navigation(const struct page *page, FILE *out) {
    fputs("<nav aria-label=\"Sections\"><a href=\"#runs\">Runs</a> <a "
          "href=\"#failures\">Failures</a> "
          "<a href=\"#requirements\">Requirements</a>",
          out);
    if (page->mutant_count > 0)
        fputs(" <a href=\"#mutants\">Mutants</a>", out);
    if (page->defect_count > 0)
        fputs(" <a href=\"#museum\">Museum</a>", out);
    if (page->coverage_count > 0)
        fputs(" <a href=\"#coverage\">Coverage</a>", out);
    fputs("</nav>\n", out);
}

void page_write(const struct page *page, FILE *out) {
    report_xml(out,
               "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
               "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
               "<meta name=\"color-scheme\" content=\"light dark\">\n<title>%s</title>\n",
               page->title);
    fprintf(out,
            "<style>\n%s</style>\n</head>\n<body>\n"
            "<a class=\"jump\" href=\"#requirements\">To the requirements</a>\n",
            page_css);
    headline(page, out);
    navigation(page, out);
    fputs("<main>\n", out);
    page_write_runs(page, out);
    page_write_bad(page, out);
    page_write_matrix(page, out);
    page_write_mutants(page, out);
    page_write_defects(page, out);
    page_write_coverage(page, out);
    fprintf(out, "</main>\n<script>\n%s</script>\n</body>\n</html>\n", page_js);
}
