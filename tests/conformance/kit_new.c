/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The C++ operators new and delete. They stand before the C++ library's as malloc does before the C
 * library's. Otherwise that library would ask for all blocks of a backend in C++, and where a
 * backend has it inside, the backend would ask for all blocks of the libraries beneath. If there is
 * no memory, the C++ library's own operator is called: it calls the program's handler, and throws.
 */
#include "kit_internal.h"

#if KIT_OWNS_ALLOCATION

#include <dlfcn.h>

#define EXPORTED __attribute__((visibility("default")))

/* The operator that the caller would have got without the runner's. That of arrays calls that of
 * one object, which would find the runner's as its caller, so it is left out. */
static void *real_of(const char *name, const void *caller) {
    Dl_info info;
    if (dladdr(caller, &info) == 0 || info.dli_fname == NULL)
        return NULL;
    void *object = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    void *found = object == NULL ? NULL : dlsym(object, name);
    if (object != NULL)
        dlclose(object); /* it stays: its code is being run */
    return found;
}

#define NEW(new_, suffix, block, parameters, ...)                                                  \
    EXPORTED void *new_##suffix parameters;                                                        \
    EXPORTED void *new_##suffix parameters {                                                       \
        const void *caller = __builtin_return_address(0);                                          \
        void *(*real)parameters;                                                                   \
        void *at = block;                                                                          \
        kit_heap_remember(at, bytes, caller);                                                      \
        if (at != NULL)                                                                            \
            return at;                                                                             \
        void *found = real_of("_Znw" #suffix, caller);                                             \
        memcpy(&real, &found, sizeof(real));                                                       \
        if (found == NULL)                                                                         \
            abort(); /* no C++ library, so nothing that would catch what is thrown */              \
        return real(__VA_ARGS__);                                                                  \
    }
#define DELETE(name, parameters)                                                                   \
    EXPORTED void name parameters;                                                                 \
    EXPORTED void name parameters {                                                                \
        free(block);                                                                               \
    }
#define PLAIN kit_heap_take(0, bytes)
#define ALIGNED kit_heap_take(alignment, bytes)
/* The operators of one object, or those of arrays. */
#define OPERATORS(new_, delete_)                                                                   \
    NEW(new_, m, PLAIN, (size_t bytes), bytes)                                                     \
    NEW(new_, mRKSt9nothrow_t, PLAIN, (size_t bytes, const void *nothrow), bytes, nothrow)         \
    NEW(new_, mSt11align_val_t, ALIGNED, (size_t bytes, size_t alignment), bytes, alignment)       \
    NEW(new_, mSt11align_val_tRKSt9nothrow_t, ALIGNED,                                             \
        (size_t bytes, size_t alignment, const void *nothrow), bytes, alignment, nothrow)          \
    DELETE(delete_##Pv, (void *block))                                                             \
    DELETE(delete_##Pvm, (void *block, size_t bytes))                                              \
    DELETE(delete_##PvRKSt9nothrow_t, (void *block, const void *nothrow))                          \
    DELETE(delete_##PvSt11align_val_t, (void *block, size_t alignment))                            \
    DELETE(delete_##PvmSt11align_val_t, (void *block, size_t bytes, size_t alignment))             \
    DELETE(delete_##PvSt11align_val_tRKSt9nothrow_t,                                               \
           (void *block, size_t alignment, const void *nothrow))
OPERATORS(_Znw, _Zdl)
OPERATORS(_Zna, _Zda)

#endif
