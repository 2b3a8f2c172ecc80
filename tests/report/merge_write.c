/* SPDX-License-Identifier: BSD-3-Clause */
/* The results of the whole, in the runner's format: what the parts have alike, and in place of what
 * is each part's own that of all. */
#include "merge.h"

#include <stdlib.h>
#include <string.h>

/* --- JSON ------------------------------------------------------------------------------- */

static void write_number(double number, FILE *out) {
    double whole = (double)(long long)(number < 9e15 && number > -9e15 ? number : 0.0);

    fprintf(out, number < whole || number > whole ? "%.6f" : "%.0f", number);
}

static void write_value(const cJSON *item, FILE *out);

static void write_elements(const cJSON *item, const char *between, FILE *out) {
    const char *separator = "";
    const cJSON *element;

    cJSON_ArrayForEach(element, item) {
        fputs(separator, out);
        if (cJSON_IsObject(item)) {
            report_escape_json(out, element->string);
            fputs(": ", out);
        }
        write_value(element, out);
        separator = between;
    }
}

/* On one line. */
static void write_value(const cJSON *item, FILE *out) {
    bool object = cJSON_IsObject(item);

    if (cJSON_IsString(item)) {
        report_escape_json(out, item->valuestring);
    } else if (cJSON_IsNumber(item)) {
        write_number(item->valuedouble, out);
    } else if (object || cJSON_IsArray(item)) {
        fputc(object ? '{' : '[', out);
        write_elements(item, ", ", out);
        fputc(object ? '}' : ']', out);
    } else {
        fputs(cJSON_IsTrue(item) ? "true" : cJSON_IsFalse(item) ? "false" : "null", out);
    }
}

/* What is long with a line for each element, as the runner has it. */
static void write_top(const cJSON *item, FILE *out) {
    bool object = cJSON_IsObject(item);

    if (strcmp(item->string, "specification") != 0 && !cJSON_IsObject(item->child)) {
        write_value(item, out);
        return;
    }
    fputs(object ? "{\n    " : "[\n    ", out);
    write_elements(item, ",\n    ", out);
    fputc(object ? '}' : ']', out);
}

/* --- of all parts ----------------------------------------------------------------------- */

static void write_part_count(const struct merge *merge, FILE *out) {
    fprintf(out, "%d", merge->count);
}

/* The text says so by its order. */
static void write_started(const struct merge *merge, FILE *out) {
    const char *earliest = json_text(merge->parts[0].tree, "started");

    for (int i = 1; i < merge->count; i++)
        if (strcmp(json_text(merge->parts[i].tree, "started"), earliest) < 0)
            earliest = json_text(merge->parts[i].tree, "started");
    report_escape_json(out, earliest);
}

static void write_seconds(const struct merge *merge, FILE *out) {
    double longest = 0.0;

    for (int i = 0; i < merge->count; i++)
        if (json_number(merge->parts[i].tree, "seconds", 0.0) > longest)
            longest = json_number(merge->parts[i].tree, "seconds", 0.0);
    fprintf(out, "%.3f", longest);
}

static void write_claim(const struct merge *merge, FILE *out) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);

    if (memory != NULL) {
        claim_write(&merge->claim, memory);
        fclose(memory);
    }
    report_escape_json(out, page_keep(merge->reader->page, text));
}

static void write_profiles(const struct merge *merge, FILE *out) {
    fputc('[', out);
    for (int i = 0; i < merge->claim.profile_count; i++) {
        const struct claim_profile *profile = &merge->claim.profiles[i];

        fputs(i == 0 ? "\n    {\"name\": " : ",\n    {\"name\": ", out);
        report_escape_json(out, profile->name);
        fprintf(out,
                ", \"standing\": \"%s\", \"passed\": %d, \"failed\": %d, \"undecided\": %d, "
                "\"left_out\": %d, \"claimed\": %s}",
                claim_standing(profile), profile->passed, profile->failed, profile->undecided,
                profile->left_out, claim_has(&merge->claim, i) ? "true" : "false");
    }
    fputc(']', out);
}

static void write_planned(const struct merge *merge, FILE *out) {
    fprintf(out, "%ld", merge->counts.planned);
}

/* Of the results that come next in the parts; -1: there is none. */
static int next_round(const struct merge *merge, const cJSON *const next[]) {
    int round = -1;

    for (int i = 0; i < merge->count; i++)
        if (next[i] != NULL && (round < 0 || json_count(next[i], "repeat", 0) < round))
            round = json_count(next[i], "repeat", 0);
    return round;
}

/* In a round the cases of the plan were dealt to the parts in turn, and so they are collected. */
static void write_results(const struct merge *merge, FILE *out) {
    const cJSON **next =
        page_keep(merge->reader->page, calloc((size_t)merge->count, sizeof(const cJSON *)));
    const char *separator = "";
    int round;

    for (int i = 0; next != NULL && i < merge->count; i++)
        next[i] = merge_results(&merge->parts[i])->child;
    fputc('[', out);
    while (next != NULL && (round = next_round(merge, next)) >= 0)
        for (int i = 0; i < merge->count; i++)
            if (next[i] != NULL && json_count(next[i], "repeat", 0) == round) {
                fprintf(out, "%s\n    ", separator);
                write_value(next[i], out);
                separator = ",";
                next[i] = next[i]->next;
            }
    fputs("\n  ]", out);
}

static void write_summary(const struct merge *merge, FILE *out) {
    const struct merge_counts *counts = &merge->counts;

    fprintf(out,
            "{\"passed\": %ld, \"failed\": %ld, \"skipped\": %ld, \"errors\": %ld, "
            "\"unresolved\": %ld}",
            counts->passed, counts->failed, counts->skipped, counts->errors, counts->unresolved);
}

static const struct {
    const char *key, *written;
    void (*write)(const struct merge *merge, FILE *out);
} own_keys[] = {
    {"part", "parts", write_part_count},      {"started", "started", write_started},
    {"seconds", "seconds", write_seconds},    {"claim", "claim", write_claim},
    {"profiles", "profiles", write_profiles}, {"planned", "planned", write_planned},
    {"results", "results", write_results},    {"summary", "summary", write_summary},
};
#define OWN_KEYS ((int)(sizeof(own_keys) / sizeof(own_keys[0])))

static int find_own(const char *key) {
    int i = 0;

    while (i < OWN_KEYS && strcmp(own_keys[i].key, key) != 0)
        i++;
    return i;
}

bool merge_is_own(const char *key) {
    return find_own(key) < OWN_KEYS;
}

void merge_write(const struct merge *merge, FILE *out) {
    const char *separator = "{\n  ";
    const cJSON *item;

    cJSON_ArrayForEach(item, merge->parts[0].tree) {
        int own = find_own(item->string);

        fputs(separator, out);
        report_escape_json(out, own < OWN_KEYS ? own_keys[own].written : item->string);
        fputs(": ", out);
        if (own < OWN_KEYS)
            own_keys[own].write(merge, out);
        else
            write_top(item, out);
        separator = ",\n  ";
    }
    fputs("\n}\n", out);
}
