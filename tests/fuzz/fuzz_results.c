/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Result files of symmem-report: any bytes are a file that is used or refused, and the page that
 * comes of it can be written. What was refused leaves nothing behind but its mention.
 */
#include "fuzz.h"
#include "read.h"

#include <stdlib.h>
#include <string.h>

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct page page = {.title = "fuzz"};
    struct reader reader = {.page = &page, .root = "/root"};
    char *text = malloc(size + 1), *written = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&written, &bytes);
    bool used;

    FUZZ_CHECK(text != NULL && out != NULL);
    fuzz_begin();
    memcpy(text, data, size);
    text[size] = '\0';
    FUZZ_CHECK(page_keep(&page, text) != NULL);
    add_requirements(&page);
    used = read_bytes(&reader, "input", text, size);
    FUZZ_CHECK(used == (page.problem_count == 0));
    FUZZ_CHECK(used || (page.run_count == 0 && page.mutant_count == 0 && page.defect_count == 0 &&
                        page.coverage_count == 0));
    FUZZ_CHECK(page_index(&page));
    page_write(&page, out);
    FUZZ_CHECK(fclose(out) == 0);
    /* Everything from outside is escaped: the page has the one script of its own. */
    FUZZ_CHECK(strstr(written, "<script>") != NULL);
    FUZZ_CHECK(strstr(strstr(written, "<script>") + 1, "<script>") == NULL);
    free(written);
    read_end(&reader);
    page_free(&page);
    return 0;
}
