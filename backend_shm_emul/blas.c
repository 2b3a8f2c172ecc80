/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CBLAS, if the machine has one. It is loaded when the first product runs, so that a process that
 * multiplies nothing gets none of its threads. The user sets their number (OPENBLAS_NUM_THREADS and
 * the like).
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/float_mode.h"
#include "blas.h"

/* Sanitizers do not see what a library reads and writes. They see everything that the portable
 * loops do. */
#ifdef __has_feature
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define PORTABLE_UNLESS_REQUESTED
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define PORTABLE_UNLESS_REQUESTED
#endif

/* SYMMEM_SHM_BLAS is a library's name or path, or 0 for none. */
static const char *const names[] = {"libopenblas.so.0", "libcblas.so.3", "libblas.so.3",
                                    "libopenblas.so",   "libcblas.so",   "libblas.so"};

static bool find_entries(void *library, symmem_cpu_blas *blas) {
    void *sgemm = dlsym(library, "cblas_sgemm"), *dgemm = dlsym(library, "cblas_dgemm");
    /* ISO C has no cast between object and function pointers. */
    memcpy(&blas->sgemm, &sgemm, sizeof sgemm);
    memcpy(&blas->dgemm, &dgemm, sizeof dgemm);
    return sgemm != NULL && dgemm != NULL;
}

/* A library with both functions is never closed, because threads of its own may run its code. */
static bool load(const char *name, symmem_cpu_blas *blas) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return false;
    if (find_entries(library, blas))
        return true;
    dlclose(library);
    return false;
}

static bool load_any(const symmem_host *host, symmem_cpu_blas *blas) {
#ifdef PORTABLE_UNLESS_REQUESTED
    return false;
#endif
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (load(names[i], blas))
            return true;
    host->notice(host, "no CBLAS found: matrix products use plain loops");
    return false;
}

/* A library that is requested by name is loaded now. If that fails, the backend does not open. */
symmem_status shm_blas_read_setting(shm_instance *instance) {
    const char *wanted = secure_getenv("SYMMEM_SHM_BLAS");
    if (wanted == NULL || *wanted == '\0')
        return SYMMEM_OK;
    instance->blas_asked = true;
    if (strcmp(wanted, "0") == 0)
        return SYMMEM_OK;
    (void)dlerror();
    /* A library's threads keep the mode that is set when it is loaded. */
    const uint64_t mode = symmem_cpu_float_begin();
    instance->blas_found = load(wanted, &instance->blas);
    symmem_cpu_float_end(mode);
    if (instance->blas_found)
        return SYMMEM_OK;
    const char *why = dlerror();
    return instance->host->fail(instance->host, SYMMEM_INVALID_ARGUMENT, 0, "set_backend",
                                "SYMMEM_SHM_BLAS=%.60s: %.120s", wanted,
                                why != NULL ? why : "no CBLAS");
}

const symmem_cpu_blas *shm_blas(shm_instance *instance) {
    pthread_mutex_lock(&instance->blas_lock);
    if (!instance->blas_asked) {
        instance->blas_found = load_any(instance->host, &instance->blas);
        instance->blas_asked = true;
    }
    pthread_mutex_unlock(&instance->blas_lock);
    return instance->blas_found ? &instance->blas : NULL;
}
