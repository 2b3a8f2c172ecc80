/* SPDX-License-Identifier: BSD-3-Clause */
/* Environment variables, read strictly: a typo in a rank number must not become rank 0. */
#include "base/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool parse(const char *text, int64_t *value_p) {
    /* strtoll also takes leading blanks and a plus sign; those are typos here. */
    if (text[0] != '-' && (text[0] < '0' || text[0] > '9'))
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        return false;
    *value_p = value;
    return true;
}

symmem_status sm_env_int(const char *const *names, int64_t low, int64_t high, int64_t *value_p) {
    for (; *names != NULL; names++) {
        const char *text = getenv(*names);
        if (text == NULL)
            continue;
        int64_t value;
        if (!parse(text, &value))
            return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "environment",
                           "%s=\"%.64s\" is not a number", *names, text);
        if (value < low || value > high)
            return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "environment",
                           "%s=%lld is not between %lld and %lld", *names, (long long)value,
                           (long long)low, (long long)high);
        *value_p = value;
        return SYMMEM_OK;
    }
    return SYMMEM_NOT_FOUND;
}

symmem_status sm_env_check_flags(const char *const *names) {
    for (; *names != NULL; names++) {
        const char *text = getenv(*names);
        if (text != NULL && *text != '\0' && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
            return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "environment",
                           "%s=\"%.64s\" is neither 0 nor 1", *names, text);
    }
    return SYMMEM_OK;
}

bool sm_env_flag(const char *name, bool fallback) {
    const char *text = getenv(name);
    if (text == NULL)
        return fallback;
    if (strcmp(text, "1") == 0)
        return true;
    if (strcmp(text, "0") == 0)
        return false;
    return fallback;
}
