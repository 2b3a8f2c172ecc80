/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts came to together, for people. */
#include "merge.h"

void merge_tell(const struct page_run *whole, FILE *out) {
    struct page_counts counts = page_count(whole);
    struct claim claim = page_claim(whole);
    for (int i = 0; i < whole->result_count; i++) {
        const struct page_result *result = &whole->results[i];
        if (page_is_bad(result->status))
            report_plain(out, "%s: %s: %s\n", page_status_name(result->status), result->test,
                         result->reason);
    }
    claim_write(&claim, out);
    fprintf(out, "%d passed, %d failed, %d skipped\n", counts.passed,
            counts.failed + counts.errors + counts.unresolved, counts.skipped);
}
