/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for a library that uses a backend or symmem, and keeps what it likes. */
#include <stdbool.h>
#include <stdlib.h>

bool selfcheck_user_keeps(size_t bytes) __attribute__((visibility("default")));
extern bool selfcheck_reserve(bool all_back);

bool selfcheck_user_keeps(size_t bytes) {
    static void *volatile kept;
    kept = malloc(bytes);
    return kept != NULL && selfcheck_reserve(true);
}
