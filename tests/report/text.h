/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of reports: any bytes, made harmless for a format; lists of ranks. */
#ifndef SYMMEM_REPORT_TEXT_H
#define SYMMEM_REPORT_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* XML and HTML: entities; control characters that XML forbids become '?', bad UTF-8 too. */
void report_escape_xml(FILE *out, const char *text);
/* A JSON string with its quotes (YAML accepts it too). */
void report_escape_json(FILE *out, const char *text);
/* For a terminal or a line of a log: nothing in it moves the cursor or ends the line. */
void report_escape_plain(FILE *out, const char *text);

/* As fprintf, but that each text is escaped. They know %s, %.Ns, %d, %lld, %.Nf, %g and %%. */
void report_xml(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void report_json(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void report_plain(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ascending numbers as "rank 3" or "ranks 0-2,5"; empty for none. */
void report_rank_list(const int *ranks, int count, char *text, size_t capacity);

#endif
