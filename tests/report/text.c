/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes, made harmless for a format: a message may quote what a broken backend wrote. */
#include "text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the well-formed UTF-8 sequence at `text`, 0 if it is none. */
static size_t utf8_length(const unsigned char *text) {
    size_t length = text[0] < 0x80                       ? 1
                    : text[0] >= 0xc2 && text[0] <= 0xdf ? 2
                    : text[0] >= 0xe0 && text[0] <= 0xef ? 3
                    : text[0] >= 0xf0 && text[0] <= 0xf4 ? 4
                                                         : 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if (length == 3 &&
        ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
         (text[0] == 0xef && text[1] == 0xbf && text[2] >= 0xbe)))
        return 0; /* too long a form, a surrogate, or no character of XML */
    if (length == 4 && ((text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f)))
        return 0;
    return length;
}

void report_escape_xml(FILE *out, const char *text) {
    const unsigned char *at = (const unsigned char *)(text == NULL ? "" : text);
    while (*at != '\0') {
        size_t length = utf8_length(at);
        if (*at == '<')
            fputs("&lt;", out);
        else if (*at == '>')
            fputs("&gt;", out);
        else if (*at == '&')
            fputs("&amp;", out);
        else if (*at == '"')
            fputs("&quot;", out);
        else if (*at == '\n' || *at == '\t')
            fprintf(out, "&#%d;", *at); /* a plain one in an attribute would become a blank */
        else if (length == 0 || *at < 0x20 || *at == 0x7f)
            fputc('?', out);
        else
            fwrite(at, 1, length, out);
        at += length == 0 ? 1 : length;
    }
}

void report_escape_json(FILE *out, const char *text) {
    const unsigned char *at = (const unsigned char *)(text == NULL ? "" : text);
    fputc('"', out);
    while (*at != '\0') {
        size_t length = utf8_length(at);
        if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if (*at == '\n')
            fputs("\\n", out);
        else if (length == 0)
            fputc('?', out);
        else if (*at < 0x20 || *at == 0x7f)
            fprintf(out, "\\u%04x", *at);
        else
            fwrite(at, 1, length, out);
        at += length == 0 ? 1 : length;
    }
    fputc('"', out);
}

void report_escape_plain(FILE *out, const char *text) {
    const unsigned char *at = (const unsigned char *)(text == NULL ? "" : text);
    while (*at != '\0') {
        size_t length = utf8_length(at);
        /* U+0080 to U+009F are control characters too. */
        bool control = *at < 0x20 || *at == 0x7f || (*at == 0xc2 && at[1] < 0xa0);
        if (length == 0 || control)
            fputc(*at == '\n' || *at == '\t' ? ' ' : '?', out);
        else
            fwrite(at, 1, length, out);
        at += length == 0 ? 1 : length;
    }
}

/* --- as fprintf ------------------------------------------------------------------------ */

typedef void escape_fn(FILE *out, const char *text);

static void print_text(FILE *out, escape_fn *escape, int precision, const char *text) {
    char part[64];
    if (precision >= 0)
        snprintf(part, sizeof(part), "%.*s", precision, text);
    escape(out, precision >= 0 ? part : text);
}

static void print(FILE *out, escape_fn *escape, const char *format, va_list arguments) {
    for (const char *at; (at = strchr(format, '%')) != NULL; format = at + (*at == 'l' ? 3 : 1)) {
        int precision = -1;
        fwrite(format, 1, (size_t)(at - format), out);
        if (*++at == '.')
            for (precision = 0, at++; *at >= '0' && *at <= '9'; at++)
                precision = precision * 10 + *at - '0';
        if (*at == 's')
            print_text(out, escape, precision, va_arg(arguments, const char *));
        else if (*at == 'd')
            fprintf(out, "%d", va_arg(arguments, int));
        else if (*at == 'f')
            fprintf(out, "%.*f", precision, va_arg(arguments, double));
        else if (*at == 'g')
            fprintf(out, "%g", va_arg(arguments, double));
        else if (*at == 'l')
            fprintf(out, "%lld", va_arg(arguments, long long));
        else if (*at == '%')
            fputc('%', out);
        else
            abort(); /* none of ours */
    }
    fputs(format, out);
}

#define AS_FPRINTF(name, escape)                                                                   \
    void name(FILE *out, const char *format, ...) {                                                \
        va_list arguments;                                                                         \
        va_start(arguments, format);                                                               \
        print(out, escape, format, arguments);                                                     \
        va_end(arguments);                                                                         \
    }
AS_FPRINTF(report_xml, report_escape_xml)
AS_FPRINTF(report_json, report_escape_json)
AS_FPRINTF(report_plain, report_escape_plain)

void report_rank_list(const int *ranks, int count, char *text, size_t capacity) {
    const char *separator = count == 1 ? "rank " : "ranks ";
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < count && used < capacity; i++) {
        int first = i;
        while (i + 1 < count && ranks[i + 1] == ranks[i] + 1)
            i++;
        used += (size_t)snprintf(text + used, capacity - used, "%s%d", separator, ranks[first]);
        if (i > first && used < capacity)
            used += (size_t)snprintf(text + used, capacity - used, "%s%d",
                                     i == first + 1 ? "," : "-", ranks[i]);
        separator = ",";
    }
}
