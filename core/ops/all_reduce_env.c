/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of symmem_all_reduce from the environment, as symmem-bench --tune prints it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ops/reduce.h"
#include "ops/all_reduce_env.h"
#include "ops/all_reduce.h"

#define NAME "SYMMEM_ALL_REDUCE_TABLE"

/* Decimal digits at *text_p, which is moved behind them. strtoull alone also takes blanks and
 * signs.
 */
static bool take_number(const char **text_p, uint64_t *value_p) {
    uint64_t value = 0;
    const char *at = *text_p;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = 10 * value + digit;
    }
    if (at == *text_p)
        return false;
    *text_p = at;
    *value_p = value;
    return true;
}

static bool take_word(const char **text_p, const char *word) {
    size_t length = strlen(word);
    if (strncmp(*text_p, word, length) != 0)
        return false;
    *text_p += length;
    return true;
}

static bool take_algorithm(const char **text_p, symmem_all_reduce_algorithm *algorithm_p) {
    bool one_shot = take_word(text_p, "one_shot");
    *algorithm_p = one_shot ? SYMMEM_ALL_REDUCE_ONE_SHOT : SYMMEM_ALL_REDUCE_TWO_SHOT;
    return one_shot || take_word(text_p, "two_shot");
}

/* SYMMETRIC:MAX_WORLD_SIZE:MAX_BYTES:ALGORITHM */
static bool take_entry(const char **text_p, symmem_all_reduce_entry *entry) {
    uint64_t symmetric = 1, world = 0;
    bool both = take_word(text_p, "-1");
    if ((!both && !take_number(text_p, &symmetric)) || !take_word(text_p, ":") ||
        !take_number(text_p, &world) || !take_word(text_p, ":") || symmetric > 1 ||
        world > INT32_MAX)
        return false;
    entry->symmetric = both ? -1 : (int32_t)symmetric;
    entry->max_world_size = (int32_t)world;
    entry->max_bytes = UINT64_MAX;
    return (take_word(text_p, "any") || take_number(text_p, &entry->max_bytes)) &&
           take_word(text_p, ":") && take_algorithm(text_p, &entry->algorithm);
}

symmem_status sm_all_reduce_env(symmem_context *context) {
    symmem_all_reduce_entry entries[SYMMEM_ALL_REDUCE_MAX_ENTRIES];
    const char *text = getenv(NAME);
    int32_t count = 0;
    if (text == NULL || *text == '\0')
        return SYMMEM_OK;
    for (const char *at = text;; count++) {
        if (count == SYMMEM_ALL_REDUCE_MAX_ENTRIES)
            return sm_fail(SYMMEM_OUT_OF_RANGE, "init", "environment",
                           NAME " has more than %d entries", SYMMEM_ALL_REDUCE_MAX_ENTRIES);
        if (!take_entry(&at, &entries[count]) || (*at != ',' && *at != '\0'))
            return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "environment",
                           NAME ": entry %d is malformed, at \"%.32s\"", (int)count, at);
        if (*at++ == '\0')
            break;
    }
    return sm_all_reduce_set(context, "init", entries, count + 1);
}
