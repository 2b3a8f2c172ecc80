/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts came to together, for people. */
#include "merge.h"

#include <string.h>

static void tell_if_bad(const cJSON *result, FILE *out) {
    const char *status = json_text(result, "status");

    if (strcmp(status, "passed") == 0 || strcmp(status, "skipped") == 0)
        return;
    fprintf(out, "%s: ", status);
    report_escape_plain(out, json_text(result, "test"));
    fputs(": ", out);
    report_escape_plain(out, json_text(result, "reason"));
    fputc('\n', out);
}

void merge_tell(const struct merge *merge, FILE *out) {
    const struct merge_counts *counts = &merge->counts;
    const cJSON *result;

    for (int i = 0; i < merge->count; i++)
        cJSON_ArrayForEach(result, merge_results(&merge->parts[i])) tell_if_bad(result, out);
    claim_write(&merge->claim, out);
    fprintf(out, "%ld passed, %ld failed, %ld skipped\n", counts->passed,
            counts->failed + counts->errors + counts->unresolved, counts->skipped);
}
