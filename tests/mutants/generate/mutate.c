/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mutate --build FOLDER [--root FOLDER] [--seed S] PREFIX...: lists mutants of the C
 * files below the prefixes, and of the headers there that hold functions. README.md says which.
 * FOLDER has the compile_commands.json that tells how each file is compiled.
 */
#include "generate.h"

#include <clang-c/CXCompilationDatabase.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ARGUMENTS 256

struct options {
    const char *build;
    char *root;
    uint64_t seed;
};

static _Noreturn void usage(void) {
    fputs("usage: mutate --build FOLDER [--root FOLDER] [--seed S] PREFIX...\n", stderr);
    exit(2);
}

static uint64_t number(const char *text) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || text[0] == '-')
        usage();
    return value;
}

static void read_options(int argc, char **argv, struct options *options) {
    static const struct option known[] = {{"build", required_argument, NULL, 'b'},
                                          {"root", required_argument, NULL, 'r'},
                                          {"seed", required_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
    const char *root = ".";
    int id;
    *options = (struct options){.seed = 1};
    while ((id = getopt_long(argc, argv, "", known, NULL)) != -1)
        switch (id) {
        case 'b':
            options->build = optarg;
            break;
        case 'r':
            root = optarg;
            break;
        case 's':
            options->seed = number(optarg);
            break;
        default:
            usage();
        }
    options->root = realpath(root, NULL);
    if (options->build == NULL || options->root == NULL || optind == argc)
        usage();
}

/* Only what the syntax depends on: another compiler's warnings and tuning say nothing to clang. */
static int keep_arguments(CXCompileCommand command, char **kept) {
    static const char *const wanted[] = {"-I",       "-D",       "-U",    "-std",
                                         "-isystem", "-include", "-mavx", "-mf16c"};
    unsigned count = clang_CompileCommand_getNumArgs(command);
    int kept_count = 0;
    for (unsigned i = 0; i < count && kept_count < MOST_ARGUMENTS - 1; i++) {
        CXString text = clang_CompileCommand_getArg(command, i);
        const char *argument = clang_getCString(text);
        for (size_t k = 0; k < sizeof wanted / sizeof wanted[0]; k++) {
            if (strncmp(argument, wanted[k], strlen(wanted[k])) != 0)
                continue;
            kept[kept_count++] = or_die(strdup(argument));
            if (argument[1] != 'm' && strcmp(argument, wanted[k]) == 0 &&
                i + 1 < count) { /* its value comes by itself */
                CXString value = clang_CompileCommand_getArg(command, ++i);
                kept[kept_count++] = or_die(strdup(clang_getCString(value)));
                clang_disposeString(value);
            }
            break;
        }
        clang_disposeString(text);
    }
    return kept_count;
}

/* What cannot be parsed would silently have no mutants. */
static bool is_parsed(CXTranslationUnit unit, const char *path) {
    bool good = unit != NULL;
    for (unsigned i = 0; good && i < clang_getNumDiagnostics(unit); i++) {
        CXDiagnostic diagnostic = clang_getDiagnostic(unit, i);
        if (clang_getDiagnosticSeverity(diagnostic) >= CXDiagnostic_Error) {
            CXString text =
                clang_formatDiagnostic(diagnostic, clang_defaultDiagnosticDisplayOptions());
            fprintf(stderr, "mutate: %s\n", clang_getCString(text));
            clang_disposeString(text);
            good = false;
        }
        clang_disposeDiagnostic(diagnostic);
    }
    if (!good)
        fprintf(stderr, "mutate: %s cannot be parsed\n", path);
    return good;
}

static bool list_file(CXIndex index, CXCompileCommand command, const char *path,
                      const struct scope *scope, struct mutant_list *list) {
    char *arguments[MOST_ARGUMENTS];
    int count = keep_arguments(command, arguments);
    CXTranslationUnit unit = clang_parseTranslationUnit(index, path, (const char *const *)arguments,
                                                        count, NULL, 0, CXTranslationUnit_None);
    bool good = is_parsed(unit, path);
    if (good)
        walk_unit(unit, scope, list);
    clang_disposeTranslationUnit(unit);
    while (count > 0)
        free(arguments[--count]);
    return good;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The files of the database that the scope has, in the order of their names: numbers of mutants
 * must not depend on the database's order. */
static size_t find_files(CXCompileCommands commands, const struct scope *scope, char **files) {
    unsigned all = clang_CompileCommands_getSize(commands);
    size_t count = 0;
    for (unsigned i = 0; i < all; i++) {
        CXString name =
            clang_CompileCommand_getFilename(clang_CompileCommands_getCommand(commands, i));
        char *path = realpath(clang_getCString(name), NULL);
        clang_disposeString(name);
        if (path != NULL && scope_path(scope, path) != NULL)
            files[count++] = path;
        else
            free(path);
    }
    qsort(files, count, sizeof *files, by_name);
    return count;
}

static bool list_all(CXCompilationDatabase database, const struct scope *scope,
                     struct mutant_list *list) {
    CXCompileCommands all = clang_CompilationDatabase_getAllCompileCommands(database);
    char **files = or_die(calloc(clang_CompileCommands_getSize(all) + 1u, sizeof *files));
    size_t count = find_files(all, scope, files);
    CXIndex index = clang_createIndex(0, 0);
    bool good = count > 0;
    if (!good)
        fputs("mutate: the build compiles no file below these prefixes\n", stderr);
    for (size_t i = 0; i < count && good; i++) {
        CXCompileCommands of_file;
        if (i > 0 && strcmp(files[i], files[i - 1]) == 0)
            continue; /* compiled more than once */
        of_file = clang_CompilationDatabase_getCompileCommands(database, files[i]);
        good =
            list_file(index, clang_CompileCommands_getCommand(of_file, 0), files[i], scope, list);
        clang_CompileCommands_dispose(of_file);
    }
    while (count > 0)
        free(files[--count]);
    free(files);
    clang_disposeIndex(index);
    clang_CompileCommands_dispose(all);
    return good;
}

int main(int argc, char **argv) {
    struct options options;
    struct mutant_list list = {0};
    CXCompilationDatabase_Error error;
    CXCompilationDatabase database;
    bool good;
    read_options(argc, argv, &options);
    struct scope scope = {options.root, argv + optind, argc - optind};
    database = clang_CompilationDatabase_fromDirectory(options.build, &error);
    if (error != CXCompilationDatabase_NoError) {
        fprintf(stderr, "mutate: no compile_commands.json in %s\n", options.build);
        return 1;
    }
    good = list_all(database, &scope, &list);
    clang_CompilationDatabase_dispose(database);
    if (good) {
        list_draw(&list, options.seed);
        good = list_print(&list, options.root);
    }
    list_free(&list);
    free(options.root);
    return good ? 0 : 1;
}
