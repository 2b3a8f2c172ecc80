/* SPDX-License-Identifier: BSD-3-Clause */
/* The runs: who ran what where, and what each came to. */
#include "page.h"

static bool many_commits(const struct page *page) {
    for (int i = 1; i < page->run_count; i++)
        if (strcmp(page->runs[i].commit, page->runs[0].commit) != 0)
            return true;
    return false;
}

void page_limits(const struct page_run *run, FILE *out) {
    if (claim_has_other_limits(run->timeout_scale))
        fprintf(out, "<br><b class=\"limits\">limits x %g</b>", run->timeout_scale);
}

/* Which runs cannot tell what "within a second" was to them. */
static void note_unknown_limits(const struct page *page, FILE *out) {
    const char *separator = "";
    char letter[8];
    int count = 0;
    for (int i = 0; i < page->run_count; i++)
        count += page->runs[i].timeout_scale <= 0.0;
    if (count == 0)
        return;
    fprintf(out, "<p class=\"note\">Run%s ", count == 1 ? "" : "s");
    for (int i = 0; i < page->run_count; i++) {
        if (page->runs[i].timeout_scale > 0.0)
            continue;
        page_run_letter(i, letter, sizeof(letter));
        fprintf(out, "%s%s", separator, letter);
        separator = ", ";
    }
    fprintf(out,
            " did not record whether %s time limits were stretched, and with them what the "
            "specification promises within a time.</p>\n",
            count == 1 ? "its" : "their");
}

/* "Name: text" on a line of its own; nothing if there is no text. */
static void fact(FILE *out, const char *name, const char *text) {
    if (text[0] != '\0')
        report_xml(out, "<dt>%s</dt><dd>%s</dd>", name, text);
}

/* A list of words in place of "A,B" or "A+B". */
static void words(FILE *out, const char *name, const char *list) {
    const char *separator = "";
    if (list[0] == '\0')
        return;
    fprintf(out, "<dt>%s</dt><dd>", name);
    while (*list != '\0') {
        char word[64];
        size_t length = strcspn(list, ",+ ");
        snprintf(word, sizeof(word), "%.*s", (int)length, list);
        fputs(length > 0 ? separator : "", out);
        report_escape_xml(out, word);
        separator = length > 0 ? ", " : separator;
        list += length + (list[length] != '\0');
    }
    fputs("</dd>", out);
}

static void more_of(const struct page_run *run, const char *letter, FILE *out) {
    char number[16];
    fprintf(out, "<details><summary>more about run %s</summary><dl>", letter);
    words(out, "capabilities", run->capabilities);
    fact(out, "profile", run->profile);
    fact(out, "build", run->build);
    fact(out, "system", run->system);
    fact(out, "processor", run->processor);
    if (run->processors > 0) {
        snprintf(number, sizeof(number), "%d", run->processors);
        fact(out, "processors", number);
    }
    fact(out, "accelerators", run->accelerators);
    fact(out, "driver", run->driver);
    fact(out, "filter", strcmp(run->filter, "*") == 0 ? "" : run->filter);
    fact(out, "seed", run->seed);
    fact(out, "commit", run->commit);
    fact(out, "started", run->started);
    fputs("</dl>", out);
    if (run->claim[0] != '\0')
        report_xml(out, "<pre>%s</pre>", run->claim);
    fputs("</details>\n", out);
}

static void machine(const struct page_run *run, FILE *out) {
    const char *name = run->accelerators[0] != '\0' ? run->accelerators : run->processor;
    report_xml(out, "<td class=\"machine\">%s%s<small>%s</small></td>", name,
               name[0] != '\0' ? " " : "", run->arch);
}

static void count_cell(FILE *out, int count, const char *kind) {
    if (count == 0)
        fputs("<td class=\"n none\">0</td>", out);
    else
        fprintf(out, "<td class=\"n %s\">%d</td>", kind, count);
}

static void requirement_cells(const struct page *page, int run, FILE *out) {
    int held = 0, reworded = 0, bad = 0, all = 0;
    for (int i = 0; i < page->requirement_count; i++) {
        struct page_verdict verdict;
        if (page->requirements[i].withdrawn)
            continue;
        verdict = page_judge(page, i, run);
        all++;
        held += page_is_held(&verdict);
        reworded += verdict.status == PAGE_PASSED && verdict.stale;
        bad += page_is_bad(verdict.status);
    }
    count_cell(out, held, "");
    count_cell(out, reworded, "");
    count_cell(out, bad, "failed");
    count_cell(out, all - held - reworded - bad, "");
}

static void case_cells(const struct page_run *run, FILE *out) {
    int counts[PAGE_STATUS_COUNT] = {0};
    for (int i = 0; i < run->result_count; i++)
        counts[run->results[i].status]++;
    count_cell(out, counts[PAGE_PASSED], "");
    count_cell(out, counts[PAGE_FAILED], "failed");
    count_cell(out, counts[PAGE_ERROR], "error");
    count_cell(out, counts[PAGE_UNRESOLVED], "unresolved");
    count_cell(out, counts[PAGE_SKIPPED], "skipped");
    count_cell(out, counts[PAGE_NOT_PLANNED], "planned");
}

static void line(FILE *out, const char *before, const char *text, const char *behind) {
    if (text[0] != '\0')
        report_xml(out, "<br><small>%s%s%s</small>", before, text, behind);
}

static void run_row(const struct page *page, int number, FILE *out) {
    const struct page_run *run = &page->runs[number];
    char letter[8];
    page_run_letter(number, letter, sizeof(letter));
    report_xml(out,
               "<tr id=\"run-%s\"><th scope=\"row\" class=\"letter\">%s</th>"
               "<td class=\"backend\"><b>%s</b>",
               letter, letter, run->backend);
    line(out, "", run->description, "");
    line(out, "on ", run->runs_on, "");
    line(out, "", run->build, "");
    line(out, "part ", run->part, " of a run");
    if (run->parts > 0)
        fprintf(out, "<br><small>in %d part%s</small>", run->parts, run->parts == 1 ? "" : "s");
    line(out, "", run->source, "");
    page_limits(run, out);
    if (run->missing > 0)
        fprintf(out, "<p class=\"note bad\">cut short: %d planned cases did not run</p>",
                run->missing);
    report_xml(out, "</td><td>%d %s%s</td>", run->ranks, run->rank_mode, page_plural(run));
    machine(run, out);
    report_xml(out, "<td><code>%.10s</code><br><small class=\"date\">%.10s</small></td>",
               run->commit, run->started);
    requirement_cells(page, number, out);
    case_cells(run, out);
    fprintf(out, "<td class=\"n\">%s%.1f s</td></tr>\n",
            run->parts > 1 ? "<small>the longest took</small><br>" : "", run->seconds);
}

void page_write_runs(const struct page *page, FILE *out) {
    static const char *const heads[] = {"run", "backend", "ranks", "machine", "commit"};
    char letter[8];
    fputs("<section id=\"runs\"><h2>Runs</h2>\n", out);
    if (page->run_count == 0) {
        fputs("<p>No run is in this report.</p></section>\n", out);
        return;
    }
    if (many_commits(page))
        fputs("<p class=\"note\">These runs are of different commits. A requirement whose wording "
              "has changed since a run is marked there.</p>\n",
              out);
    note_unknown_limits(page, out);
    fputs("<div class=\"scroll\"><table class=\"runs\" aria-label=\"Runs\">\n<thead>\n<tr>", out);
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
        fprintf(out, "<th rowspan=\"2\" scope=\"col\">%s</th>", heads[i]);
    fputs("<th colspan=\"4\" scope=\"colgroup\">requirements</th><th colspan=\"6\" "
          "scope=\"colgroup\">cases</th><th rowspan=\"2\" scope=\"col\">time</th></tr>\n<tr>",
          out);
    html_heads(out, "held|other wording|violated|untested|passed|failed|error|unresolved|skipped|"
                    "not planned");
    fputs("</tr>\n</thead>\n<tbody>\n", out);
    for (int i = 0; i < page->run_count; i++)
        run_row(page, i, out);
    fputs("</tbody></table></div>\n", out);
    for (int i = 0; i < page->run_count; i++) {
        page_run_letter(i, letter, sizeof(letter));
        more_of(&page->runs[i], letter, out);
    }
    fputs("</section>\n", out);
}

/* --- what went wrong ----------------------------------------------------------------- */

static void bad_case(const char *letter, const struct page_result *result, FILE *out) {
    report_xml(out,
               "<article class=\"bad\"><h3><span class=\"s %s\">%s</span> <code>%s</code> "
               "<small>run <a href=\"#run-%s\">%s</a>, %d rank%s, %.2f s</small></h3>\n<p>%s</p>",
               html_class(result->status), page_status_name(result->status), result->test, letter,
               letter, result->ranks, result->ranks == 1 ? "" : "s", result->seconds,
               result->reason);
    if (result->detail[0] != '\0')
        report_xml(out,
                   "\n<details open><summary>everything that is known of it</summary>"
                   "<pre>%s</pre></details>",
                   result->detail);
    fputs("</article>\n", out);
}

void page_write_bad(const struct page *page, FILE *out) {
    char letter[8];
    int count = 0;
    fputs("<section id=\"failures\"><h2>Failures</h2>\n", out);
    for (int run = 0; run < page->run_count; run++) {
        page_run_letter(run, letter, sizeof(letter));
        for (int i = 0; i < page->runs[run].result_count; i++)
            if (page_is_bad(page->runs[run].results[i].status)) {
                bad_case(letter, &page->runs[run].results[i], out);
                count++;
            }
    }
    if (count == 0)
        fputs(page->run_count == 0 ? "<p>Nothing was run.</p>\n"
                                   : "<p>None: no case failed, crashed, hung or stayed "
                                     "unresolved.</p>\n",
              out);
    fputs("</section>\n", out);
}
