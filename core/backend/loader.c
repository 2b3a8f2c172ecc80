/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding and opening a backend's shared object. */
#include "backend/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOM_BESIDE ((size_t)4 << 20) /* for other libraries and for zeros */

/* dlopen says what was wrong in words only. */
static int lack_of_descriptors(void) {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int error = fd < 0 && (errno == EMFILE || errno == ENFILE) ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

/* Whether there is no room for the file and some of what it needs. */
static bool lacks_addresses(const char *path) {
    struct stat about;
    if (stat(path, &about) != 0)
        return false;
    const size_t bytes = (size_t)about.st_size + ROOM_BESIDE;
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return errno == ENOMEM;
    (void)munmap(room, bytes);
    return false;
}

/* 0, or the errno of what the process was short of. */
static int lack_at(const char *path) {
    const int error = lack_of_descriptors();
    return error == 0 && lacks_addresses(path) ? ENOMEM : error;
}

symmem_status sm_load_table(const char *path, const char *operation, void **library_p,
                            const symmem_backend **table_p) {
    if (!*path) /* dlopen would give the program itself */
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "load", "the path is empty");
    /* NODELETE: the table and its code are used for the life of the process. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *reason = dlerror();
        const int lack = lack_at(path);
        if (lack != 0)
            return sm_fail_errno(lack, operation, "load", "%.200s", reason ? reason : path);
        return sm_fail(SYMMEM_LOAD, operation, "load", "%s", reason ? reason : path);
    }
    symmem_backend_entry_fn entry = NULL;
    void *symbol = dlsym(library, SYMMEM_BACKEND_ENTRY);
    if (!symbol) {
        (void)dlclose(library);
        return sm_fail(SYMMEM_LOAD, operation, "load", "%s has no symbol %s", path,
                       SYMMEM_BACKEND_ENTRY);
    }
    memcpy(&entry, &symbol, sizeof(entry)); /* ISO C has no cast from object to function */
    const symmem_backend *table = entry(SYMMEM_BACKEND_ABI);
    if (!table) {
        (void)dlclose(library);
        return sm_fail(SYMMEM_ABI, operation, "load", "%s does not speak backend ABI %u", path,
                       SYMMEM_BACKEND_ABI);
    }
    *library_p = library;
    *table_p = table;
    return SYMMEM_OK;
}

/* True if `directory``below`/libsymmem_backend_`name`.so is there; path is filled then. */
static bool try_directory(const char *directory, int length, const char *below, const char *name,
                          char *path, size_t capacity) {
    int count =
        snprintf(path, capacity, "%.*s%s/libsymmem_backend_%s.so", length, directory, below, name);
    return (size_t)count < capacity && access(path, F_OK) == 0;
}

/* The file that is mapped at `place`, as the kernel knows it; a removed one with " (deleted)". */
static bool mapped_file(uintptr_t place, char path[PATH_MAX]) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return false;
    bool found = false;
    char *line = NULL;
    size_t room = 0;
    while (!found && getline(&line, &room, maps) > 0) {
        uintptr_t begin, end;
        const char *name = strchr(line, '/');
        if (!name || sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2)
            continue;
        found = place - begin < end - begin && strlen(name) < PATH_MAX;
        if (found)
            sm_copy_text(path, PATH_MAX, name);
    }
    free(line);
    (void)fclose(maps);
    return found;
}

/* The directory of the file that contains this code, without the slash at the end. */
static bool own_directory(char directory[PATH_MAX]) {
    static const char anchor = 0;
    Dl_info info;
    memset(&info, 0, sizeof(info));
    (void)dladdr(&anchor, &info);
    /* The linker's name may be relative, to the directory of the start or to one in PATH. */
    if (!info.dli_fname || info.dli_fname[0] != '/' || !realpath(info.dli_fname, directory)) {
        if (!mapped_file((uintptr_t)&anchor, directory))
            return false;
    }
    char *slash = strrchr(directory, '/');
    if (!slash)
        return false;
    *slash = 0;
    return true;
}

symmem_status sm_search_backend(const char *name, const char *operation, char *path,
                                size_t capacity) {
    static const char *const directories[] = {"", "/symmem", "/../lib", "/../lib/symmem"};
    /* Not for programs that run with more rights than their caller. */
    const char *entry = secure_getenv("SYMMEM_BACKEND_PATH");
    while (entry && *entry) {
        size_t length = strcspn(entry, ":");
        if (length > 0 && length < PATH_MAX &&
            try_directory(entry, (int)length, "", name, path, capacity))
            return SYMMEM_OK;
        entry += length;
        if (*entry == ':')
            entry++;
    }
    const char *asked = secure_getenv("SYMMEM_BACKEND_PATH");
    char directory[PATH_MAX] = "";
    if (own_directory(directory)) {
        for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
            if (try_directory(directory, PATH_MAX, directories[i], name, path, capacity))
                return SYMMEM_OK;
        }
    }
    return sm_fail(SYMMEM_NOT_FOUND, operation, "search",
                   "no backend '%s' is registered, and libsymmem_backend_%s.so is neither in "
                   "SYMMEM_BACKEND_PATH (%s) nor in %s, symmem or ../lib[/symmem] seen from there",
                   name, name, asked ? asked : "not set",
                   directory[0] ? directory : "the library's folder, which cannot be told");
}
