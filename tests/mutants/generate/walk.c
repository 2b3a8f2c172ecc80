/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mutants of a syntax tree. libclang says where each node lies; the operator of an expression
 * is what stands between its operands. What a macro expands to is left out, for it has no place of
 * its own in the file.
 */
#include "generate.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CHILDREN 512

/* The function that is looked at. */
struct walk {
    const struct scope *scope;
    struct mutant_list *list;
    CXTranslationUnit unit;
    CXFile file;
    const char *text; /* of the whole file */
    size_t size;
    char path[1024];
    char function[256];
    CXType result;
    int loops; /* around the node */
};

struct span {
    size_t start, end;
    unsigned line;
};

struct children {
    CXCursor nodes[MOST_CHILDREN];
    int count;
};

static enum CXChildVisitResult keep_child(CXCursor node, CXCursor parent, CXClientData data) {
    struct children *children = data;
    (void)parent;
    if (children->count == MOST_CHILDREN)
        return CXChildVisit_Break; /* a table, whose numbers are no code */
    children->nodes[children->count++] = node;
    return CXChildVisit_Continue;
}

/* To be freed. */
static struct children *children_of(CXCursor node) {
    struct children *children = or_die(malloc(sizeof *children));
    children->count = 0;
    clang_visitChildren(node, keep_child, children);
    return children;
}

/* --- places -------------------------------------------------------------------------- */

/* Where the node begins and ends in the file; of what comes from a macro, the macro's own use. */
static bool find_span(const struct walk *walk, CXCursor node, struct span *span) {
    CXSourceRange range = clang_getCursorExtent(node);
    CXFile first, last;
    unsigned start, end;
    clang_getExpansionLocation(clang_getRangeStart(range), &first, &span->line, NULL, &start);
    clang_getExpansionLocation(clang_getRangeEnd(range), &last, NULL, NULL, &end);
    span->start = start;
    span->end = end;
    return first != NULL && last != NULL && clang_File_isEqual(first, walk->file) &&
           clang_File_isEqual(last, walk->file) && start < end && end <= walk->size;
}

/* Whether the node's first token is a macro's. */
static bool is_from_macro(CXCursor node) {
    CXSourceLocation start = clang_getRangeStart(clang_getCursorExtent(node));
    CXFile used, written;
    unsigned used_at, written_at;
    clang_getExpansionLocation(start, &used, NULL, NULL, &used_at);
    clang_getSpellingLocation(start, &written, NULL, NULL, &written_at);
    return used == NULL || written == NULL || !clang_File_isEqual(used, written) ||
           used_at != written_at;
}

static bool span_is(const struct walk *walk, struct span span, const char *text) {
    return span.end - span.start == strlen(text) &&
           memcmp(walk->text + span.start, text, strlen(text)) == 0;
}

static bool begins(const struct walk *walk, struct span span, const char *text) {
    return span.end - span.start >= strlen(text) &&
           memcmp(walk->text + span.start, text, strlen(text)) == 0;
}

/* --- what is changed ------------------------------------------------------------------ */

static void replace(struct walk *walk, struct span span, const char *operator_name,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));

static void replace(struct walk *walk, struct span span, const char *operator_name,
                    const char *format, ...) {
    char *text = NULL;
    va_list values;
    va_start(values, format);
    if (vasprintf(&text, format, values) < 0)
        or_die(NULL);
    va_end(values);
    if (!span_is(walk, span, text)) {
        const struct change change = {
            operator_name, walk->path, walk->function, span.line, span.start, span.end, text};
        list_add(walk->list, &change);
    }
    free(text);
}

static void negate(struct walk *walk, struct span span, const char *operator_name) {
    replace(walk, span, operator_name, "!(%.*s)", (int)(span.end - span.start),
            walk->text + span.start);
}

struct swap {
    const char *old, *operator_name, *first, *second; /* second may be NULL */
};

/* Longer ones first. */
static const struct swap swaps[] = {
    {"<<=", "assignment", ">>=", "="}, {">>=", "assignment", "<<=", "="},
    {"+=", "assignment", "-=", "="},   {"-=", "assignment", "+=", "="},
    {"*=", "assignment", "/=", "="},   {"/=", "assignment", "*=", "="},
    {"%=", "assignment", "/=", "="},   {"|=", "assignment", "&=", "="},
    {"&=", "assignment", "|=", "="},   {"^=", "assignment", "|=", "="},
    {"<<", "shift", ">>", NULL},       {">>", "shift", "<<", NULL},
    {"<=", "relational", "<", ">"},    {">=", "relational", ">", "<"},
    {"==", "relational", "!=", NULL},  {"!=", "relational", "==", NULL},
    {"<", "relational", "<=", ">="},   {">", "relational", ">=", "<="},
    {"&&", "logical", "||", NULL},     {"||", "logical", "&&", NULL},
    {"+", "arithmetic", "-", NULL},    {"-", "arithmetic", "+", NULL},
    {"*", "arithmetic", "/", NULL},    {"/", "arithmetic", "*", NULL},
    {"%", "arithmetic", "/", NULL},    {"&", "bitwise", "|", NULL},
    {"|", "bitwise", "&", NULL},       {"^", "bitwise", "|", NULL},
};

/* The operator between two operands, behind closing parentheses, blanks and comments. */
static bool find_operator(const struct walk *walk, struct span left, struct span right,
                          struct span *span) {
    size_t at = left.end;
    while (at < right.start) {
        if (isspace((unsigned char)walk->text[at]) || walk->text[at] == ')') {
            at++;
        } else if (walk->text[at] == '/' && walk->text[at + 1] == '*') {
            for (at += 2; at < right.start && memcmp(walk->text + at, "*/", 2) != 0;)
                at++;
            at += 2;
        } else {
            break;
        }
    }
    *span = (struct span){at, at, left.line};
    while (span->end < right.start && strchr("<>=!+-*/%&|^", walk->text[span->end]) != NULL)
        span->end++;
    for (size_t i = left.end; i < at; i++)
        span->line += walk->text[i] == '\n';
    return span->end > span->start;
}

static const struct swap *find_swap(const struct walk *walk, struct span span) {
    for (size_t i = 0; i < sizeof swaps / sizeof swaps[0]; i++)
        if (span_is(walk, span, swaps[i].old))
            return &swaps[i];
    return NULL;
}

static bool find_binary(const struct walk *walk, const struct children *children, struct span *left,
                        struct span *right, struct span *sign) {
    return children->count == 2 && find_span(walk, children->nodes[0], left) &&
           find_span(walk, children->nodes[1], right) && left->end <= right->start &&
           find_operator(walk, *left, *right, sign);
}

static void binary(struct walk *walk, const struct children *children) {
    struct span left, right, sign;
    const struct swap *swap;
    if (!find_binary(walk, children, &left, &right, &sign))
        return;
    swap = find_swap(walk, sign);
    if (swap == NULL)
        return;
    replace(walk, sign, swap->operator_name, "%s", swap->first);
    if (swap->second != NULL)
        replace(walk, sign, swap->operator_name, "%s", swap->second);
    if (strcmp(swap->operator_name, "logical") == 0) { /* one of the two alone */
        replace(walk, left, "condition", swap->old[0] == '&' ? "1" : "0");
        replace(walk, right, "condition", swap->old[0] == '&' ? "1" : "0");
    }
}

/* Before the operand, or behind it. */
static void unary(struct walk *walk, CXCursor node, const struct children *children) {
    struct span whole, operand, sign;
    if (children->count != 1 || is_from_macro(node) || !find_span(walk, node, &whole) ||
        !find_span(walk, children->nodes[0], &operand))
        return;
    sign = whole;
    if (operand.start > whole.start)
        sign.end = sign.start + 1 +
                   (walk->text[whole.start + 1] == walk->text[whole.start] &&
                    strchr("+-", walk->text[whole.start]) != NULL);
    else
        sign.start = sign.end - 2;
    if (span_is(walk, sign, "++"))
        replace(walk, sign, "increment", "--");
    else if (span_is(walk, sign, "--"))
        replace(walk, sign, "increment", "++");
    else if (span_is(walk, sign, "!"))
        replace(walk, sign, "logical", "!!");
    else if (span_is(walk, sign, "~"))
        replace(walk, sign, "bitwise", "%s", "");
    else if (span_is(walk, sign, "-"))
        replace(walk, sign, "arithmetic", "%s", "");
}

/* n + 1, and 0; of 0 only 1. */
static void constant(struct walk *walk, CXCursor node) {
    struct span span;
    unsigned long long value;
    char *end;
    if (is_from_macro(node) || !find_span(walk, node, &span) ||
        !isdigit((unsigned char)walk->text[span.start]))
        return;
    value = strtoull(walk->text + span.start, &end, 0);
    if (end <= walk->text + span.start || end > walk->text + span.end)
        return;
    replace(walk, span, "constant", "%llu%.*s", value + 1, (int)(walk->text + span.end - end), end);
    if (value != 0)
        replace(walk, span, "constant", "0%.*s", (int)(walk->text + span.end - end), end);
}

static void memory_order(struct walk *walk, CXCursor node) {
    struct span span;
    if (find_span(walk, node, &span) && begins(walk, span, "memory_order_"))
        replace(walk, span, "order", "memory_order_relaxed");
}

/* --- conditions ----------------------------------------------------------------------- */

/* True if reversing the operator negates the condition: one mutant for both is enough. */
static bool has_turned_operator(const struct walk *walk, CXCursor node) {
    struct children *children = children_of(node);
    struct span left, right, sign, whole;
    const struct swap *swap = NULL;
    bool has;
    if (find_binary(walk, children, &left, &right, &sign))
        swap = find_swap(walk, sign);
    has = (swap != NULL && strcmp(swap->operator_name, "relational") == 0) ||
          (clang_getCursorKind(node) == CXCursor_UnaryOperator && find_span(walk, node, &whole) &&
           begins(walk, whole, "!")) ||
          (clang_getCursorKind(node) == CXCursor_UnexposedExpr && children->count == 1 &&
           has_turned_operator(walk, children->nodes[0]));
    free(children);
    return has;
}

static void condition(struct walk *walk, CXCursor node, bool may_be_true, bool may_be_false) {
    struct span span;
    if (!find_span(walk, node, &span))
        return;
    if (!has_turned_operator(walk, node))
        negate(walk, span, "condition");
    if (may_be_true)
        replace(walk, span, "condition", "1");
    if (may_be_false)
        replace(walk, span, "condition", "0");
}

/* Between the semicolons in "for (...;...;...)". */
static bool find_for_condition(const struct walk *walk, CXCursor node, struct span *whole) {
    size_t semicolons[2];
    int depth = 0, count = 0;
    if (is_from_macro(node) || !find_span(walk, node, whole))
        return false;
    for (size_t at = whole->start; at < whole->end && count < 2; at++) {
        depth += walk->text[at] == '(';
        depth -= walk->text[at] == ')';
        if (walk->text[at] == ';' && depth == 1)
            semicolons[count++] = at;
    }
    if (count < 2)
        return false;
    whole->start = semicolons[0] + 1;
    whole->end = semicolons[1];
    while (whole->start < whole->end && isspace((unsigned char)walk->text[whole->start]))
        whole->start++;
    return whole->start < whole->end;
}

/* Loops without an end would only show that tests have limits. */
static void for_condition(struct walk *walk, CXCursor node) {
    struct span span;
    if (find_for_condition(walk, node, &span))
        replace(walk, span, "condition", "0");
}

/* --- statements ----------------------------------------------------------------------- */

static bool is_assignment(const struct walk *walk, CXCursor node) {
    struct children *children = children_of(node);
    struct span left, right, sign;
    bool is = find_binary(walk, children, &left, &right, &sign) && span_is(walk, sign, "=");
    free(children);
    return is;
}

static bool is_step(const struct walk *walk, CXCursor node) {
    struct span span;
    return find_span(walk, node, &span) && span.end - span.start > 2 &&
           (begins(walk, span, "++") || begins(walk, span, "--") ||
            memcmp(walk->text + span.end - 2, "++", 2) == 0 ||
            memcmp(walk->text + span.end - 2, "--", 2) == 0);
}

static bool is_removable(const struct walk *walk, CXCursor node) {
    switch (clang_getCursorKind(node)) {
    case CXCursor_CallExpr:
    case CXCursor_CompoundAssignOperator:
        return true;
    case CXCursor_CStyleCastExpr: /* (void)call() */
        return clang_getCursorType(node).kind == CXType_Void;
    case CXCursor_BinaryOperator:
        return is_assignment(walk, node);
    case CXCursor_UnaryOperator:
        return is_step(walk, node);
    default:
        return false;
    }
}

static void jump(struct walk *walk, CXCursor node, bool is_break) {
    struct span span;
    if (!find_span(walk, node, &span))
        return;
    replace(walk, span, "jump", "%s", "");
    if (!is_break)
        replace(walk, span, "jump", "break");
    else if (walk->loops > 0)
        replace(walk, span, "jump", "continue");
}

static void returned_enum(struct walk *walk, struct span span) {
    if (span_is(walk, span, "SYMMEM_OK")) {
        replace(walk, span, "return", "SYMMEM_INVALID_ARGUMENT");
    } else if (begins(walk, span, "SYMMEM_")) {
        replace(walk, span, "return", "SYMMEM_OK");
        replace(walk, span, "return", "%s",
                span_is(walk, span, "SYMMEM_INVALID_ARGUMENT") ? "SYMMEM_UNSUPPORTED"
                                                               : "SYMMEM_INVALID_ARGUMENT");
    } else {
        replace(walk, span, "return", "0"); /* SYMMEM_OK, or the first of another list */
    }
}

static void returned(struct walk *walk, CXCursor node) {
    struct children *children = children_of(node);
    CXType type = clang_getCanonicalType(walk->result);
    struct span span;
    if (children->count == 1 && find_span(walk, children->nodes[0], &span))
        switch (type.kind) {
        case CXType_Bool:
            replace(walk, span, "return", "true");
            replace(walk, span, "return", "false");
            break;
        case CXType_Pointer:
            replace(walk, span, "return", "NULL");
            break;
        case CXType_Enum:
            returned_enum(walk, span);
            break;
        case CXType_Record:
        case CXType_Vector:
        case CXType_ExtVector:
            break;
        default:
            replace(walk, span, "return", span_is(walk, span, "0") ? "1" : "0");
        }
    free(children);
}

/* What a macro expands to has no semicolon of its own behind it. */
static bool ends_with_semicolon(const struct walk *walk, struct span span) {
    while (span.end < walk->size && isspace((unsigned char)walk->text[span.end]))
        span.end++;
    return span.end < walk->size && walk->text[span.end] == ';';
}

static void statement(struct walk *walk, CXCursor node) {
    enum CXCursorKind kind = clang_getCursorKind(node);
    struct span span;
    if (is_from_macro(node))
        return;
    if (kind == CXCursor_BreakStmt || kind == CXCursor_ContinueStmt)
        jump(walk, node, kind == CXCursor_BreakStmt);
    else if (kind == CXCursor_ReturnStmt)
        returned(walk, node);
    else if (is_removable(walk, node) && find_span(walk, node, &span) &&
             ends_with_semicolon(walk, span))
        replace(walk, span, "statement", "(void)0");
}

/* --- the walk ------------------------------------------------------------------------- */

static void visit(struct walk *walk, CXCursor node);

static void visit_from(struct walk *walk, const struct children *children, int first) {
    for (int i = first; i < children->count; i++)
        visit(walk, children->nodes[i]);
}

/* Sizes of arrays are no code, nor are tables that are made once. */
static void visit_variable(struct walk *walk, CXCursor node) {
    CXCursor initial = clang_Cursor_getVarDeclInitializer(node);
    if (!clang_Cursor_isNull(initial) && clang_Cursor_getStorageClass(node) != CX_SC_Static)
        visit(walk, initial);
}

/* {0} is an idiom, no number. */
static void visit_list(struct walk *walk, const struct children *children) {
    struct span span;
    if (children->count == 1 && find_span(walk, children->nodes[0], &span) &&
        span_is(walk, span, "0"))
        return;
    visit_from(walk, children, 0);
}

static void visit_loop(struct walk *walk, const struct children *children, CXCursor body) {
    statement(walk, body);
    walk->loops++;
    visit_from(walk, children, 0);
    walk->loops--;
}

static void visit_branches(struct walk *walk, const struct children *children) {
    if (children->count > 0)
        condition(walk, children->nodes[0], true, true);
    for (int i = 1; i < children->count; i++)
        statement(walk, children->nodes[i]);
    visit_from(walk, children, 0);
}

static void visit_children(struct walk *walk, CXCursor node, const struct children *children) {
    int last = children->count - 1;
    switch (clang_getCursorKind(node)) {
    case CXCursor_StaticAssert:
    case CXCursor_EnumDecl:
    case CXCursor_StructDecl:
    case CXCursor_UnionDecl:
        return;
    case CXCursor_VarDecl:
        visit_variable(walk, node);
        return;
    case CXCursor_InitListExpr:
        visit_list(walk, children);
        return;
    case CXCursor_CompoundStmt:
        for (int i = 0; i <= last; i++)
            statement(walk, children->nodes[i]);
        break;
    case CXCursor_IfStmt:
        if (!is_from_macro(node)) {
            visit_branches(walk, children);
            return;
        }
        break;
    case CXCursor_ConditionalOperator:
        if (last >= 0)
            condition(walk, children->nodes[0], true, true);
        break;
    case CXCursor_WhileStmt:
        if (last >= 1 && !is_from_macro(node)) {
            condition(walk, children->nodes[0], false, true);
            visit_loop(walk, children, children->nodes[last]);
            return;
        }
        break;
    case CXCursor_DoStmt:
        if (last >= 1 && !is_from_macro(node)) {
            condition(walk, children->nodes[1], false, true);
            visit_loop(walk, children, children->nodes[0]);
            return;
        }
        break;
    case CXCursor_ForStmt:
        for_condition(walk, node);
        if (last >= 0) {
            visit_loop(walk, children, children->nodes[last]);
            return;
        }
        break;
    case CXCursor_CaseStmt: /* the label is a name */
        if (last >= 0)
            statement(walk, children->nodes[last]);
        visit_from(walk, children, 1);
        return;
    case CXCursor_DefaultStmt:
    case CXCursor_LabelStmt:
        if (last >= 0)
            statement(walk, children->nodes[last]);
        break;
    case CXCursor_BinaryOperator:
    case CXCursor_CompoundAssignOperator:
        binary(walk, children);
        break;
    case CXCursor_UnaryOperator:
        unary(walk, node, children);
        break;
    case CXCursor_IntegerLiteral:
        constant(walk, node);
        return;
    case CXCursor_DeclRefExpr:
        memory_order(walk, node);
        return;
    default:
        break;
    }
    visit_from(walk, children, 0);
}

static void visit(struct walk *walk, CXCursor node) {
    struct children *children = children_of(node);
    visit_children(walk, node, children);
    free(children);
}

/* --- functions ------------------------------------------------------------------------ */

const char *scope_path(const struct scope *scope, const char *path) {
    size_t length = strlen(scope->root);
    if (strncmp(path, scope->root, length) != 0 || path[length] != '/')
        return NULL;
    path += length + 1;
    for (int i = 0; i < scope->prefix_count; i++)
        if (strncmp(path, scope->prefixes[i], strlen(scope->prefixes[i])) == 0)
            return path;
    return NULL;
}

/* False: the function is none of those that are looked at. */
static bool enter(struct walk *walk, CXCursor function) {
    CXString name;
    char *real;
    const char *path = NULL;
    clang_getExpansionLocation(clang_getCursorLocation(function), &walk->file, NULL, NULL, NULL);
    if (walk->file == NULL)
        return false;
    name = clang_getFileName(walk->file);
    real = realpath(clang_getCString(name), NULL);
    clang_disposeString(name);
    if (real != NULL)
        path = scope_path(walk->scope, real);
    if (path != NULL)
        snprintf(walk->path, sizeof walk->path, "%s", path);
    free(real);
    walk->text = path != NULL ? clang_getFileContents(walk->unit, walk->file, &walk->size) : NULL;
    return walk->text != NULL;
}

static enum CXChildVisitResult visit_function(CXCursor node, CXCursor parent, CXClientData data) {
    struct walk *walk = data;
    (void)parent;
    if (clang_getCursorKind(node) == CXCursor_FunctionDecl && clang_isCursorDefinition(node) &&
        enter(walk, node)) {
        CXString name = clang_getCursorSpelling(node);
        snprintf(walk->function, sizeof walk->function, "%s", clang_getCString(name));
        clang_disposeString(name);
        walk->result = clang_getCursorResultType(node);
        visit(walk, node);
    }
    return CXChildVisit_Continue;
}

void walk_unit(CXTranslationUnit unit, const struct scope *scope, struct mutant_list *list) {
    struct walk walk = {.scope = scope, .list = list, .unit = unit};
    clang_visitChildren(clang_getTranslationUnitCursor(unit), visit_function, &walk);
}
