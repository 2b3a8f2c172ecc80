/* SPDX-License-Identifier: BSD-3-Clause */
#include "resources.h"

#include <dirent.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "kit_internal.h"

#define ORDINARY_USER 65534

static bool is_dots(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int count_listed(const char *path) {
    DIR *directory = opendir(path);
    struct dirent *entry;
    int count = 0;
    if (directory == NULL)
        return -1;
    while ((entry = readdir(directory)) != NULL)
        count += !is_dots(entry->d_name);
    closedir(directory);
    return count;
}

int resources_descriptors(void) {
    int count = count_listed("/proc/self/fd");
    return count < 0 ? count : count - 1; /* the directory's own */
}

int resources_threads(void) {
    return count_listed("/proc/self/task");
}

uint64_t resources_heap_bytes(void) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33) && KIT_OWNS_ALLOCATION
    return mallinfo2().uordblks;
#else
    return 0; /* a sanitizer's heap, which looks for leaks itself, or another C library's */
#endif
}

uint64_t resources_address_space_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;
    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu", &pages) != 1)
        pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

int resources_shared_mappings(void) {
    struct tk_mappings found;
    return tk_shared_mappings(&found) ? found.own + found.librarys : -1;
}

uint64_t resources_shared_bytes(void) {
    struct tk_mappings found;
    (void)tk_shared_mappings(&found);
    return found.bytes;
}

/* Calls fn for each entry below, depth first. */
static int walk(const char *path, int (*fn)(const char *path)) {
    DIR *directory = opendir(path);
    struct dirent *entry;
    int sum = 0;
    if (directory == NULL)
        return -1;
    while ((entry = readdir(directory)) != NULL) {
        char below[4096];
        int length = snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
        if (is_dots(entry->d_name) || length < 0 || length >= (int)sizeof(below))
            continue;
        sum += fn(below);
        if (entry->d_type == DT_DIR) {
            int inside = walk(below, fn);
            sum += inside > 0 ? inside : 0;
        }
    }
    closedir(directory);
    return sum;
}

static int one(const char *path) {
    (void)path;
    return 1;
}

static int is_for_others(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0 && (status.st_mode & 077) != 0;
}

int resources_count_entries(const char *path) {
    return walk(path, one);
}

int resources_entries_for_others(const char *path) {
    int below = walk(path, is_for_others);
    return below < 0 ? below : below + is_for_others(path);
}

bool resources_remove_directory(const char *path) {
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (!is_dots(entry->d_name))
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory != NULL)
        closedir(directory);
    return rmdir(path) == 0;
}

static const char *watched(int index) {
    const char *temporary = getenv("TMPDIR");
    if (index == 0)
        return "/dev/shm";
    return temporary != NULL && temporary[0] == '/' ? temporary : "/tmp";
}

/* Where others make names too, those that come are not known to be a rank's. */
static bool is_private(int index) {
    const char *setting = getenv("SYMMEM_PRIVATE_SHM");
    return index != 0 || (setting != NULL && strcmp(setting, "1") == 0);
}

static uint64_t hash_name(int index, const char *name) {
    uint64_t hash = UINT64_C(14695981039346656037) + (uint64_t)index;
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint8_t)*name) * UINT64_C(1099511628211);
    return hash;
}

void resources_take_names(struct resources_names *names) {
    names->count = 0;
    for (int index = 0; index < 2; index++) {
        DIR *directory = opendir(watched(index));
        struct dirent *entry;
        while (directory != NULL && (entry = readdir(directory)) != NULL)
            if (names->count < RESOURCES_NAMES_MAX)
                names->hashes[names->count++] = hash_name(index, entry->d_name);
        if (directory != NULL)
            closedir(directory);
    }
}

static bool is_known(const struct resources_names *names, uint64_t hash) {
    for (int i = 0; i < names->count; i++)
        if (names->hashes[i] == hash)
            return true;
    return names->count == RESOURCES_NAMES_MAX; /* the snapshot is cut: no accusation */
}

static bool is_suspect(int index, const char *name) {
    char path[4096];
    struct stat status;
    int length = snprintf(path, sizeof(path), "%s/%s", watched(index), name);
    return is_private(index) && length > 0 && length < (int)sizeof(path) &&
           lstat(path, &status) == 0;
}

static int new_names(const struct resources_names *before, char *first, size_t capacity) {
    int count = 0;
    for (int index = 0; index < 2; index++) {
        DIR *directory = opendir(watched(index));
        struct dirent *entry;
        while (directory != NULL && (entry = readdir(directory)) != NULL) {
            if (is_dots(entry->d_name) || is_known(before, hash_name(index, entry->d_name)) ||
                !is_suspect(index, entry->d_name))
                continue;
            if (count++ == 0)
                snprintf(first, capacity, "%s/%s", watched(index), entry->d_name);
        }
        if (directory != NULL)
            closedir(directory);
    }
    return count;
}

int resources_new_names(const struct resources_names *before, char *first, size_t capacity) {
    const struct timespec pause = {0, 25000000};
    int count = 0;
    first[0] = '\0';
    for (int attempt = 0; attempt < 20; attempt++) {
        count = new_names(before, first, capacity);
        if (count == 0)
            break;
        (void)nanosleep(&pause, NULL);
    }
    return count;
}

/* --- identity ----------------------------------------------------------------------------------
 * By system call, not by libc: libc would change all threads of the process. The saved user id
 * stays, which is the way back. */

bool resources_become_ordinary(struct resources_identity *saved) {
    saved->changed = geteuid() == 0;
    saved->death_signal = 0;
    if (!saved->changed)
        return true;
    (void)prctl(PR_GET_PDEATHSIG, &saved->death_signal);
    return syscall(SYS_setresuid, ORDINARY_USER, ORDINARY_USER, 0) == 0;
}

bool resources_become_again(const struct resources_identity *saved) {
    if (!saved->changed)
        return true;
    if (syscall(SYS_setresuid, 0, 0, 0) != 0)
        return false;
    /* The kernel forgets both with a change of identity. */
    (void)prctl(PR_SET_DUMPABLE, 1);
    return prctl(PR_SET_PDEATHSIG, saved->death_signal) == 0;
}
