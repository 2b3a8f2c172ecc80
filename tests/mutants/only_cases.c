/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded into a test program it makes CUnit run only those cases whose names one of the globs in
 * UNIT_CASES fits, which are separated by '@'; the others pass at once. For the mutants, each of
 * which few cases kill. A program in which none of the globs fits a name fails, for a row whose
 * case was renamed would never kill its mutant.
 */
#include <CUnit/CUnit.h>
#include <CUnit/TestDB.h>
#include <dlfcn.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef CU_pTest add_test(CU_pSuite suite, const char *name, CU_TestFunc function);

static bool has_cases, has_wanted;

static void nothing(void) {}

__attribute__((destructor)) static void expect_some(void) {
    if (!has_cases || has_wanted)
        return;
    fprintf(stderr, "no case here is named as \"%s\"\n", getenv("UNIT_CASES"));
    _exit(EXIT_FAILURE);
}

/* Not into what the cases start. stdbuf puts its own library behind the one that was there. */
static void stay_here(void) {
    const char *loaded = getenv("LD_PRELOAD"), *next = loaded != NULL ? strchr(loaded, ':') : NULL;
    if (loaded == NULL || strstr(loaded, "only_cases") == NULL)
        return;
    if (next != NULL)
        setenv("LD_PRELOAD", next + 1, 1);
    else
        unsetenv("LD_PRELOAD");
}

static bool is_wanted(const char *name, const char *globs) {
    char glob[128];
    for (;;) {
        const size_t length = strcspn(globs, "@");
        if (length < sizeof glob) {
            memcpy(glob, globs, length);
            glob[length] = '\0';
            if (fnmatch(glob, name, 0) == 0)
                return true;
        }
        if (globs[length] == '\0')
            return false;
        globs += length + 1;
    }
}

__attribute__((visibility("default"))) CU_pTest CU_add_test(CU_pSuite suite, const char *name,
                                                            CU_TestFunc function) {
    const char *globs = getenv("UNIT_CASES");
    add_test *next = (add_test *)dlsym(RTLD_NEXT, "CU_add_test");
    if (next == NULL)
        abort();
    stay_here();
    const bool wanted = globs == NULL || is_wanted(name, globs);
    has_cases = true;
    has_wanted = has_wanted || wanted;
    return next(suite, name, wanted ? function : nothing);
}
