/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What symmem calls of PMIx, as the PMIx standard has it since version 2. Declared here, so that a
 * build needs no header of PMIx; where there is one, store_pmix.c compares.
 */
#ifndef SYMMEM_CORE_STORE_PMIX_ABI_H
#define SYMMEM_CORE_STORE_PMIX_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SM_PMIX_LIBRARY "libpmix.so.2"
#define SM_PMIX_SUCCESS 0
#define SM_PMIX_ERR_TIMEOUT (-24)
#define SM_PMIX_ERR_NOT_FOUND (-46)
#define SM_PMIX_RANK_WILDCARD (UINT32_MAX - 1)
#define SM_PMIX_GLOBAL 3
#define SM_PMIX_STRING 3
#define SM_PMIX_INT 6
#define SM_PMIX_UINT32 14
#define SM_PMIX_JOB_SIZE "pmix.job.size"
#define SM_PMIX_LOCAL_SIZE "pmix.local.size"
#define SM_PMIX_TIMEOUT "pmix.timeout"

typedef struct sm_pmix_proc {
    char namespace_name[256];
    uint32_t rank;
} sm_pmix_proc;

typedef struct sm_pmix_value {
    uint16_t type;
    union {
        char *string;
        int integer;
        uint32_t uint32;
        void *largest[3];
    } data;
} sm_pmix_value;

typedef struct sm_pmix_info {
    char key[512];
    uint32_t flags;
    sm_pmix_value value;
} sm_pmix_info;

typedef struct sm_pmix_calls {
    int (*init)(sm_pmix_proc *self, sm_pmix_info *info, size_t count);
    int (*finalize)(const sm_pmix_info *info, size_t count);
    int (*put)(uint8_t scope, const char *key, sm_pmix_value *value);
    int (*commit)(void);
    int (*get)(const sm_pmix_proc *of, const char *key, const sm_pmix_info *info, size_t count,
               sm_pmix_value **value_p);
    const char *(*error_string)(int status);
} sm_pmix_calls;

#endif
