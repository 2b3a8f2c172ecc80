/* SPDX-License-Identifier: BSD-3-Clause */
#include "claim.h"

#include <string.h>

enum standing {
    IN_FULL,
    IN_PART,
    NOT_DECIDED,
    LEAKED,
    FAILED,
    NOT_DECLARED,
    NOT_RUN,
    STANDING_COUNT
};

static enum standing standing_of(const struct claim_profile *profile) {
    if (!profile->declared)
        return NOT_DECLARED;
    if (profile->failed > profile->leaked)
        return FAILED;
    if (profile->undecided > 0)
        return NOT_DECIDED;
    if (profile->leaked > 0)
        return LEAKED;
    if (profile->passed == 0)
        return NOT_RUN;
    return profile->left_out > 0 ? IN_PART : IN_FULL;
}

const char *claim_standing(const struct claim_profile *profile) {
    static const char *const words[STANDING_COUNT] = {
        [IN_FULL] = "in full",           [IN_PART] = "in part", [NOT_DECIDED] = "not decided",
        [LEAKED] = "but for SM-LIFE-01", [FAILED] = "failed",   [NOT_DECLARED] = "not declared",
        [NOT_RUN] = "not run",
    };
    return words[standing_of(profile)];
}

/* The profile that stands in the way of a claim; -1: none. */
static int obstacle(const struct claim *claim) {
    for (int i = 0; i < claim->profile_count; i++) {
        enum standing standing = standing_of(&claim->profiles[i]);
        if (i == 0 ? standing != IN_FULL : standing == FAILED || standing == LEAKED)
            return i;
    }
    return -1;
}

bool claim_has(const struct claim *claim, int index) {
    return standing_of(&claim->profiles[index]) == IN_FULL && obstacle(claim) < 0;
}

/* --- in words ----------------------------------------------------------------------- */

static void write_detail(FILE *out, const struct claim_profile *profile) {
    enum standing standing = standing_of(profile);
    int ran = profile->passed + profile->failed + profile->undecided;
    if (standing == IN_FULL)
        fprintf(out, " (%d)", profile->passed);
    else if (standing == IN_PART)
        fprintf(out, " (%d, %d left out)", profile->passed, profile->left_out);
    else if (standing == FAILED || standing == LEAKED)
        fprintf(out, " (%d of %d)", profile->failed, ran);
    else if (standing == NOT_DECIDED)
        fprintf(out, " (%d of %d)", profile->undecided, ran);
}

static void write_standing(FILE *out, const char *title, enum standing wanted,
                           const struct claim *claim) {
    int count = 0;
    for (int i = 0; i < claim->profile_count; i++) {
        if (standing_of(&claim->profiles[i]) != wanted)
            continue;
        fprintf(out, "%s%s", count++ == 0 ? title : ", ", claim->profiles[i].name);
        write_detail(out, &claim->profiles[i]);
    }
    if (count > 0)
        fputc('\n', out);
}

static bool declares(const struct claim *claim, const char *capability) {
    const char *at = claim->capabilities;
    size_t length;
    for (; *at != '\0'; at += length + (at[length] != '\0')) {
        length = strcspn(at, "+, ");
        if (length == strlen(capability) && strncmp(at, capability, length) == 0)
            return true;
    }
    return false;
}

/* What is declared, but cannot be claimed: SPEC.md, "Profiles". */
static void write_unshown(FILE *out, const struct claim *claim) {
    static const char *const unshown[] = {"CROSS_HOST", "WRAP_STREAM", "COLLECTIVES_APART"};
    int count = 0;
    for (size_t i = 0; i < sizeof(unshown) / sizeof(unshown[0]); i++)
        if (declares(claim, unshown[i]))
            fprintf(out, "%s%s", count++ == 0 ? "declared, but not shown by any test: " : "+",
                    unshown[i]);
    if (count > 0)
        fputc('\n', out);
}

static void write_no_claim(FILE *out, const struct claim_profile *against) {
    static const char *const why[STANDING_COUNT] = {
        [IN_PART] = "was run in part only",
        [NOT_DECIDED] = "is not decided",
        [FAILED] = "failed",
        [LEAKED] = "passed but for SM-LIFE-01",
        [NOT_DECLARED] = "is not declared",
        [NOT_RUN] = "was not run",
    };
    fprintf(out, "claim: none, because profile %s %s\n", against->name, why[standing_of(against)]);
}

static void write_sentence(FILE *out, const struct claim *claim) {
    const char *separator = "";
    int against = obstacle(claim);
    if (against >= 0) {
        write_no_claim(out, &claim->profiles[against]);
        return;
    }
    fprintf(out, "claim: backend %s conforms to ", claim->backend);
    for (int i = 0; i < claim->profile_count; i++)
        if (claim_has(claim, i)) {
            fprintf(out, "%s%s", separator, claim->profiles[i].name);
            separator = ", ";
        }
    fprintf(out, " with %d ranks as %s on %s", claim->ranks,
            claim->threads ? "threads" : "processes", claim->arch);
    if (claim_has_other_limits(claim->timeout_scale))
        fprintf(out, ", with limits x %g", claim->timeout_scale);
    if (strstr(claim->build, "ThreadSanitizer") != NULL)
        fputs(" under ThreadSanitizer", out);
    else if (claim->threads)
        fputs("; a run under ThreadSanitizer belongs to it", out);
    fputc('\n', out);
}

bool claim_has_other_limits(double timeout_scale) {
    return timeout_scale > 0.0 && (timeout_scale < 1.0 || timeout_scale > 1.0);
}

void claim_write(const struct claim *claim, FILE *out) {
    write_standing(out, "profiles passed in full: ", IN_FULL, claim);
    write_standing(out, "profiles passed in part: ", IN_PART, claim);
    write_standing(out, "profiles passed but for SM-LIFE-01: ", LEAKED, claim);
    write_standing(out, "profiles failed: ", FAILED, claim);
    write_standing(out, "profiles not decided: ", NOT_DECIDED, claim);
    write_standing(out, "profiles not declared: ", NOT_DECLARED, claim);
    write_unshown(out, claim);
    write_sentence(out, claim);
}
