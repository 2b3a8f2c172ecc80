/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The suite's command line: any arguments, any pattern. What is accepted lies within the limits
 * that the usage text names; lists of patterns and of requirements end.
 */
#include "fuzz.h"
#include "runner.h"

/* What the runner is generated with, empty here. */
const struct spec_requirement spec_requirements[] = {{"SM-NONE-01", "none", "0", true}};
const int spec_requirement_count = 1;

#define ARGUMENTS 12
#define ARGUMENT_BYTES 80

static const char *const words[] = {
    "--backend", "--ranks",       "--rank-mode", "--filter",  "--list",     "--format",
    "--output",  "--seed",        "--repeat",    "--timeout", "--no-large", "--no-color",
    "--trace",   "--check-trace", "--verbose",   "--help",    "--",         "-",
    "--r",       "--ranks=",      "--seed=0x10", "process",   "thread",     "json",
    "1",         "1024",          "1025",        "-1",        "0x",         "99999999999999999999",
    "*",         "a*,b?",         "[",           "--filter=", "tap"};
#define WORDS (sizeof(words) / sizeof(words[0]))

static void any_argument(fuzz_input *in, char *text) {
    char tail[ARGUMENT_BYTES];
    uint8_t form = fuzz_u8(in);
    snprintf(text, ARGUMENT_BYTES, "%s", words[form % WORDS]);
    if (form < 192)
        return;
    size_t used = form < 224 ? strlen(text) : 0;
    fuzz_text(in, tail, sizeof(tail));
    snprintf(text + used, ARGUMENT_BYTES - used, "%s", tail);
}

static void check_accepted(const struct runner_options *options) {
    FUZZ_CHECK(options->backend != NULL);
    FUZZ_CHECK(options->ranks >= 1 && options->ranks <= ARENA_MAX_RANKS);
    FUZZ_CHECK(options->mode == TK_MODE_PROCESS || options->mode == TK_MODE_THREAD);
    FUZZ_CHECK((int)options->format >= FORMAT_TEXT && (int)options->format <= FORMAT_HTML);
    FUZZ_CHECK(options->repeat >= 1 && options->repeat <= 1000000);
    FUZZ_CHECK(options->timeout_s <= 86400);
    FUZZ_CHECK(options->timeout_scale >= 0.01 && options->timeout_scale <= 1000.0);
}

static void walk_lists(fuzz_input *in) {
    char list[256], id[24];
    fuzz_text(in, list, sizeof(list));
    const char *at = list;
    size_t left = strlen(list) + 1;
    while (runner_next_id(&at, id, sizeof(id))) {
        FUZZ_CHECK(strlen(id) < sizeof(id) && at > list && (size_t)(at - list) < left);
        FUZZ_CHECK(strpbrk(id, ", ") == NULL && id[0] != '\0');
    }
    (void)runner_matches(list, "alloc_basic");
    FUZZ_CHECK(runner_find_requirement(list) == NULL || strcmp(list, "SM-NONE-01") == 0);
    /* Escapes: whatever a test says, the report stays a string of one line. */
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    FUZZ_CHECK(out != NULL);
    report_escape_json(out, list);
    fputc('\n', out);
    report_escape_xml(out, list);
    FUZZ_CHECK(fclose(out) == 0);
    char *second = strchr(text, '\n');
    FUZZ_CHECK(second != NULL && text[0] == '"' && second > text + 1 && second[-1] == '"');
    for (const char *c = text; c < second; c++)
        FUZZ_CHECK((unsigned char)*c >= 0x20);
    FUZZ_CHECK(strpbrk(second, "<>\"") == NULL);
    free(text);
}

void fuzz_one(fuzz_input *in) {
    FILE *nowhere = fopen("/dev/null", "w");
    char texts[ARGUMENTS][ARGUMENT_BYTES], scale[ARGUMENT_BYTES];
    char *arguments[ARGUMENTS + 1];
    struct runner_options options;
    FUZZ_CHECK(nowhere != NULL);
    fuzz_text(in, scale, sizeof(scale));
    setenv("SYMMEM_TIMEOUT_SCALE", fuzz_below(in, 4) > 0 ? "2.5" : scale, 1);
    int count = 1 + (int)fuzz_below(in, ARGUMENTS);
    for (int i = 0; i < count; i++) {
        any_argument(in, texts[i]);
        arguments[i] = texts[i];
    }
    arguments[count] = NULL;
    FILE *terminal = stderr; /* every refusal is explained there, getopt's too */
    stderr = nowhere;
    bool accepted = runner_parse_options(count, arguments, &options);
    stderr = terminal;
    fclose(nowhere);
    if (accepted)
        check_accepted(&options);
    unsetenv("SYMMEM_TIMEOUT_SCALE");
    walk_lists(in);
}
