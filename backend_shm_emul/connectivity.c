/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links between the emulated devices, as SYMMEM_SHM_NVLINKS says at the query. The value is one
 * number for all pairs, or the whole matrix, with rows separated by ';' and numbers by ','.
 */
#include <stdlib.h>
#include <string.h>

#include "connectivity.h"

#define VARIABLE "SYMMEM_SHM_NVLINKS"
#define MAX_LINKS 1000

/* Reads a number and advances *text_p. */
static bool read_links(const char **text_p, int32_t *links_p) {
    char *end;
    if (**text_p < '0' || **text_p > '9')
        return false;
    unsigned long links = strtoul(*text_p, &end, 10);
    *text_p = end;
    *links_p = (int32_t)links;
    return links <= MAX_LINKS;
}

static bool read_matrix(const char *text, int32_t count, int32_t *matrix) {
    const size_t entries = (size_t)count * (size_t)count;
    for (size_t i = 0; i < entries; i++) {
        if (!read_links(&text, &matrix[i]))
            return false;
        char parting = i + 1 == entries ? '\0' : (i + 1) % (size_t)count == 0 ? ';' : ',';
        if (*text++ != parting)
            return false;
    }
    return true;
}

static bool fill(const char *text, int32_t count, int32_t *matrix) {
    const char *at = text;
    int32_t links;
    if (!read_links(&at, &links) || *at != '\0')
        return read_matrix(text, count, matrix);
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j < count; j++)
            matrix[(size_t)i * (size_t)count + (size_t)j] = i == j ? 0 : links;
    return true;
}

symmem_status shm_connectivity(void *instance, const char *connection, int32_t device_count,
                               int32_t *matrix) {
    const symmem_host *host = ((shm_instance *)instance)->host;
    const char *text = getenv(VARIABLE);
    if (strcmp(connection, "nvlink") != 0)
        return host->fail(host, SYMMEM_NOT_FOUND, 0, "connectivity", "no links of kind '%.40s'",
                          connection);
    if (fill(text ? text : "0", device_count, matrix))
        return SYMMEM_OK;
    return host->fail(host, SYMMEM_INVALID_ARGUMENT, 0, "connectivity",
                      VARIABLE "=%.80s: need a number up to %d, or %d rows of them, parted by ';'",
                      text, MAX_LINKS, (int)device_count);
}
