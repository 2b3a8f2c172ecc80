/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Result files of symmem-report: any bytes are a file that is used or refused, and the page that
 * comes of it can be written. What was refused leaves nothing behind but its mention.
 */
#include "fuzz.h"
#include "read.h"

static struct page_requirement requirements[] = {
    {.id = "SM-A-01", .text = "A `thing` MUST be.", .digest = "0123456789abcdef", .chapter = "A"},
    {.id = "SM-B-01", .text = "(withdrawn)", .digest = "", .chapter = "B", .withdrawn = true},
};

static void add_requirements(struct page *page) {
    for (size_t i = 0; i < sizeof(requirements) / sizeof(requirements[0]); i++) {
        struct page_requirement *added =
            PAGE_ADD(page, page->requirements, page->requirement_count);

        FUZZ_CHECK(added != NULL);
        *added = requirements[i];
    }
}

/* What `write` writes, with a NUL behind it; to be freed. */
static char *written(const struct page *page, void (*write)(const struct page *, FILE *)) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    FUZZ_CHECK(out != NULL);
    write(page, out);
    FUZZ_CHECK(fclose(out) == 0);
    FUZZ_CHECK(strlen(text) == bytes);
    return text;
}

static void write_json(const struct page *page, FILE *out) {
    page_write_json(&page->runs[0], out);
}

static void write_tap(const struct page *page, FILE *out) {
    page_write_tap(page, &page->runs[0], out);
}

static void write_junit(const struct page *page, FILE *out) {
    page_write_junit(&page->runs[0], out);
}

/* Everything from outside is escaped: the page has the one script of its own. */
static void check_page(const struct page *page) {
    char *html = written(page, page_write);

    FUZZ_CHECK(strstr(html, "<script>") != NULL);
    FUZZ_CHECK(strstr(strstr(html, "<script>") + 1, "<script>") == NULL);
    free(html);
}

static void check_run(const struct page *page) {
    char *json = written(page, write_json), *junit = written(page, write_junit);
    cJSON *tree = cJSON_ParseWithOpts(json, NULL, true);

    FUZZ_CHECK(tree != NULL);
    FUZZ_CHECK(strstr(junit, "<script>") == NULL);
    cJSON_Delete(tree);
    free(json);
    free(junit);
    free(written(page, write_tap));
}

void fuzz_one(fuzz_input *in) {
    const size_t size = in->left;
    struct page page = {.title = "fuzz"};
    struct reader reader = {.page = &page, .root = "/root"};
    char *text = malloc(size + 1);
    bool used;

    FUZZ_CHECK(text != NULL);
    fuzz_take(in, text, size);
    text[size] = '\0';
    FUZZ_CHECK(page_keep(&page, text) != NULL);
    add_requirements(&page);
    used = read_bytes(&reader, "input", text, size);
    FUZZ_CHECK(used == (page.problem_count == 0));
    FUZZ_CHECK(used || (page.run_count == 0 && page.mutant_count == 0 && page.defect_count == 0 &&
                        page.coverage_count == 0));
    FUZZ_CHECK(page_index(&page));
    check_page(&page);
    if (page.run_count > 0)
        check_run(&page);
    read_end(&reader);
    page_free(&page);
}
