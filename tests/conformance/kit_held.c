/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names of files and sockets that a rank holds. The runner looks after the case whether they still
 * exist. That finds names in places where others make names too: only this rank's are in the list.
 */
#include "kit_internal.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

static bool is_noted(const char *list, const char *path) {
    size_t length = strlen(path);
    for (const char *at = strstr(list, path); at != NULL; at = strstr(at + 1, path))
        if ((at == list || at[-1] == '\n') && (at[length] == '\n' || at[length] == '\0'))
            return true;
    return false;
}

static void note(const struct kit_setup *setup, struct arena_rank *slot, const char *path) {
    size_t used = strlen(slot->held);
    size_t length = strlen(path);
    /* What is in the scratch directory is looked at anyway. */
    if (path[0] != '/' || strncmp(path, setup->scratch_dir, strlen(setup->scratch_dir)) == 0 ||
        strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/memfd:", 7) == 0 ||
        strstr(path, " (deleted)") != NULL || is_noted(slot->held, path) ||
        is_noted(slot->inherited, path) || used + length + 2 > sizeof(slot->held))
        return;
    memcpy(slot->held + used, path, length);
    memcpy(slot->held + used + length, "\n", 2);
}

/* By its entry: where ranks are threads it may be another one's, which closes it at this moment,
 * and fstat of it would be a race to ThreadSanitizer. */
static void note_descriptor(const struct kit_setup *setup, struct arena_rank *slot, int directory,
                            const char *number, const char *link) {
    union {
        struct sockaddr any;
        struct sockaddr_un path;
    } address = {0};
    socklen_t length = sizeof(address);
    struct stat info;
    char name[sizeof(address.path.sun_path) + 1] = "";
    if (fstatat(directory, number, &info, 0) != 0)
        return;
    if (S_ISREG(info.st_mode))
        note(setup, slot, link);
    if (!S_ISSOCK(info.st_mode) ||
        syscall(SYS_getsockname, atoi(number), &address.any, &length) != 0 ||
        address.any.sa_family != AF_UNIX || length <= sizeof(sa_family_t))
        return;
    memcpy(name, address.path.sun_path, sizeof(address.path.sun_path));
    note(setup, slot, name);
}

static void note_descriptors(const struct kit_setup *setup, struct arena_rank *slot) {
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char link[256] = "";
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(directory) ||
            readlinkat(dirfd(directory), entry->d_name, link, sizeof(link) - 1) < 0)
            continue;
        note_descriptor(setup, slot, dirfd(directory), entry->d_name, link);
    }
    if (directory != NULL)
        closedir(directory);
}

/* Shared mappings only, for libraries are mapped privately. */
static void note_mappings(const struct kit_setup *setup, struct arena_rank *slot) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        char rights[8] = "";
        char *path = strchr(line, '/');
        line[strcspn(line, "\n")] = '\0';
        if (path != NULL && sscanf(line, "%*s %7s", rights) == 1 && rights[3] == 's')
            note(setup, slot, path);
    }
    if (maps != NULL)
        fclose(maps);
}

void kit_note_held(const struct kit_setup *setup) {
    struct arena_rank *slot = &setup->arena->ranks[setup->rank];
    /* To ThreadSanitizer a look at a descriptor that another rank opens meanwhile is a race. */
    if ((setup->test->flags & TK_MAY_LEAK) != 0 || KIT_THREAD_SANITIZER)
        return;
    note_descriptors(setup, slot);
    note_mappings(setup, slot);
}

void kit_note_inherited(const struct kit_setup *setup) {
    struct arena_rank *slot = &setup->arena->ranks[setup->rank];
    kit_note_held(setup);
    memcpy(slot->inherited, slot->held, sizeof(slot->held));
    slot->held[0] = '\0';
}
