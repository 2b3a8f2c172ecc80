/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine under a run, as far as the kernel tells. No host name: results are shown around. */
#include "runner.h"

#include <glob.h>
#include <sys/utsname.h>

#ifndef SYMMEM_COMMIT
#define SYMMEM_COMMIT "unknown"
#endif
#ifndef SYMMEM_VERSION
#define SYMMEM_VERSION "unknown"
#endif

const char *runner_commit(void) {
    return SYMMEM_COMMIT;
}

const char *runner_version(void) {
    return SYMMEM_VERSION;
}

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

/* gcc has a macro for each sanitizer, clang a question. */
#ifdef __has_feature
#define HAS_SANITIZER(name) __has_feature(name##_sanitizer)
#else
#define HAS_SANITIZER(name) 0
#endif

const char *runner_build(void) {
    return COMPILER
#if defined(__SANITIZE_ADDRESS__) || HAS_SANITIZER(address)
        ", AddressSanitizer"
#endif
#if defined(__SANITIZE_THREAD__) || HAS_SANITIZER(thread)
        ", ThreadSanitizer"
#endif
#if HAS_SANITIZER(memory)
        ", MemorySanitizer"
#endif
#ifdef SYMMEM_COVERAGE_BUILD
        ", counting lines"
#endif
        ;
}

/* The text after "key" and a colon in a file of such lines; empty if there is none. */
static void find_line(const char *path, const char *key, char *value, size_t capacity) {
    FILE *file = fopen(path, "re");
    char line[512];
    value[0] = '\0';
    while (file != NULL && value[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        char *text = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || text == NULL)
            continue;
        text += 1 + strspn(text + 1, " \t");
        snprintf(value, capacity, "%.*s", (int)strcspn(text, "\n"), text);
    }
    if (file != NULL)
        fclose(file);
}

/* "8 x NVIDIA X", or the models one after the other if they differ. */
static void find_accelerators(char *text, size_t capacity) {
    char first[96] = "", model[96];
    size_t used = 0;
    glob_t found;
    text[0] = '\0';
    if (glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &found) != 0)
        return;
    size_t count = found.gl_pathc;
    for (size_t i = 0; i < count; i++) {
        find_line(found.gl_pathv[i], "Model", model, sizeof(model));
        if (i == 0)
            memcpy(first, model, sizeof(first));
        if (i > 0 && strcmp(first, model) == 0)
            continue;
        if (used < capacity)
            used +=
                (size_t)snprintf(text + used, capacity - used, "%s%s", i == 0 ? "" : ", ", model);
    }
    if (count > 1 && strchr(text, ',') == NULL)
        snprintf(text, capacity, "%zu x %s", count, first);
    globfree(&found);
}

void report_machine_read(struct report_machine *machine) {
    struct utsname names = {.sysname = "unknown", .machine = "unknown"};
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    memset(machine, 0, sizeof(*machine));
    uname(&names);
    snprintf(machine->arch, sizeof(machine->arch), "%s", names.machine);
    snprintf(machine->system, sizeof(machine->system), "%s %s", names.sysname, names.release);
    find_line("/proc/cpuinfo", "model name", machine->processor, sizeof(machine->processor));
    find_line("/proc/driver/nvidia/version", "NVRM version", machine->driver,
              sizeof(machine->driver));
    find_accelerators(machine->accelerators, sizeof(machine->accelerators));
    machine->processors = sysconf(_SC_NPROCESSORS_ONLN);
    machine->memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}
