/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much memory may be taken, looked at before each piece of it: others take theirs meanwhile.
 * Where a control group leaves little, ranks look and take one after the other, by a lock of its
 * folder. So none of them is ended for what another took; what a program takes by itself nobody can
 * know.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "shm.h"

/* Taken without another look where no control group has a limit. */
#define MOST_GRANTED ((uint64_t)64 << 20)
/* What was granted counts for so long. */
#define GRANTED_NS 20000000u
/* For so long a process without a limit counts as one. */
#define UNLIMITED_NS 1000000000u
/* Who waits longer for the lock goes on without: its holder may be stopped. And does not wait again
 * for so long. */
#define LOCK_NS 300000000u
#define IN_VAIN_NS 10000000000u
/* What is never given away: the processes' own heaps grow, too. */
#define SPARE_BYTES ((uint64_t)1 << 20)
/* What a file, its mappings and their descriptions need of the kernel. */
#define OBJECT_BYTES 8192u
/* Parts of memory to be had for one of the kernel's own: a list of its pages, and tables of them
 * for each rank that will map them. */
#define PARTS 512u

/* Bytes of memory that can be had without swapping, UINT64_MAX if that is not known. */
static uint64_t available_bytes(const char *root, char path[PATH_MAX]) {
    if (snprintf(path, PATH_MAX, "%s/proc/meminfo", root) >= PATH_MAX)
        return UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    uint64_t available = UINT64_MAX;
    char line[128];
    while (fgets(line, sizeof line, file)) {
        unsigned long long kibibytes;
        if (sscanf(line, "MemAvailable: %llu kB", &kibibytes) == 1) {
            available = (uint64_t)kibibytes * 1024;
            break;
        }
    }
    fclose(file);
    return available;
}

/* --- one look ----------------------------------------------------------------------- */

static uint64_t ranks(const shm_taking *taking) {
    return (uint64_t)taking->instance->world_size;
}

static uint64_t spare_bytes(const shm_taking *taking) {
    return SPARE_BYTES + 2 * ranks(taking) * SHM_LEAST_PIECE;
}

/* What has to be left for that much. */
static uint64_t needed(const shm_taking *taking, uint64_t bytes) {
    return bytes + bytes / PARTS * (1 + ranks(taking)) + OBJECT_BYTES + spare_bytes(taking);
}

/* The other way round, in whole pages. */
static uint64_t usable(const shm_taking *taking, uint64_t left) {
    const uint64_t fixed = OBJECT_BYTES + spare_bytes(taking),
                   page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t bytes = left < fixed ? 0 : (left - fixed) / (PARTS + 1 + ranks(taking)) * PARTS;
    return bytes / page * page;
}

/* Asking takes some hundred microseconds, most often for nothing. */
static void ask_groups(shm_taking *taking, uint64_t wanted) {
    shm_instance *instance = taking->instance;
    const uint64_t now_ns = shm_now_ns(NULL);
    if (now_ns < atomic_load_explicit(&instance->unlimited_until_ns, memory_order_relaxed)) {
        shm_room_set(&taking->room, UINT64_MAX);
        return;
    }
    if (!shm_cgroup_memory(instance->root, wanted, &taking->room))
        atomic_store_explicit(&instance->unlimited_until_ns, now_ns + UNLIMITED_NS,
                              memory_order_relaxed);
}

static void look(shm_taking *taking, uint64_t wanted) {
    ask_groups(taking, wanted);
    const uint64_t available = available_bytes(taking->instance->root, taking->room.path);
    if (available < taking->room.left)
        shm_room_set(&taking->room, available);
}

/* --- one after the other ------------------------------------------------------------ */

static bool is_group(const shm_taking *taking) {
    return taking->room.where[0] != '\0';
}

/* Whether pieces that all ranks take at this moment may be too much together. */
static bool is_tight(const shm_taking *taking, uint64_t wanted) {
    return is_group(taking) && taking->room.left < wanted + 4 * ranks(taking) * SHM_MOST_PIECE;
}

/* The folder's lock can be held by all who see it. */
typedef enum holder { OWN_USERS, ANOTHERS, UNKNOWN } holder;

/* A process that cannot be seen from here is none of this user's ranks in this place. */
static holder owner_of(shm_taking *taking, long pid) {
    char *path = taking->room.path;
    struct stat about;
    const int bytes = snprintf(path, PATH_MAX, "%s/proc/%ld", taking->instance->root, pid);
    const bool is_own =
        bytes < PATH_MAX && pid > 0 && stat(path, &about) == 0 && about.st_uid == geteuid();
    return is_own ? OWN_USERS : ANOTHERS;
}

static holder holder_of(shm_taking *taking, int fd) {
    char line[256], *path = taking->room.path;
    struct stat about;
    if (fstat(fd, &about) != 0 ||
        snprintf(path, PATH_MAX, "%s/proc/locks", taking->instance->root) >= PATH_MAX)
        return UNKNOWN;
    FILE *locks = fopen(path, "re");
    if (!locks)
        return UNKNOWN;
    holder found = ANOTHERS; /* one that is not listed is held from another pid namespace */
    while (found == ANOTHERS && fgets(line, sizeof line, locks)) {
        unsigned major_id = 0, minor_id = 0;
        unsigned long long inode = 0;
        long pid = 0;
        if (sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%llu", &pid, &major_id, &minor_id, &inode) ==
                4 &&
            major_id == major(about.st_dev) && minor_id == minor(about.st_dev) &&
            inode == about.st_ino)
            found = owner_of(taking, pid);
    }
    fclose(locks);
    return found;
}

/* False: it is held, and is not to be waited for. */
static bool wait_for_lock(shm_taking *taking, int fd) {
    const struct timespec turn = {0, 200000};
    const uint64_t end_ns = shm_now_ns(NULL) + LOCK_NS;
    for (uint64_t tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (shm_now_ns(NULL) >= end_ns)
            return false;
        /* It may be given back between two looks: asked twice. */
        if (tries % 16 == 0 && holder_of(taking, fd) == ANOTHERS &&
            flock(fd, LOCK_EX | LOCK_NB) != 0 && holder_of(taking, fd) == ANOTHERS)
            return flock(fd, LOCK_EX | LOCK_NB) == 0;
        nanosleep(&turn, NULL);
    }
    return true;
}

static void lock_group(shm_taking *taking) {
    _Atomic uint64_t *until_ns = &taking->instance->lockless_until_ns;
    if (shm_now_ns(NULL) < atomic_load_explicit(until_ns, memory_order_relaxed))
        return;
    const int fd = open(taking->room.where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (wait_for_lock(taking, fd)) {
        taking->lock_fd = fd;
        return;
    }
    close(fd);
    atomic_store_explicit(until_ns, shm_now_ns(NULL) + IN_VAIN_NS, memory_order_relaxed);
}

static void unlock_group(shm_taking *taking) {
    if (taking->lock_fd >= 0) {
        (void)flock(taking->lock_fd, LOCK_UN); /* a child of fork may hold the open file, too */
        close(taking->lock_fd);
    }
    taking->lock_fd = -1;
}

/* --- an allocation ------------------------------------------------------------------ */

void shm_taking_begin(shm_taking *taking, shm_instance *instance, uint64_t bytes) {
    taking->instance = instance;
    taking->lock_fd = -1;
    taking->granted = 0;
    taking->until_ns = 0;
    /* What an earlier one left, if that is enough and not too old. */
    pthread_mutex_lock(&instance->lock);
    if (instance->granted >= bytes) {
        taking->granted = instance->granted;
        taking->until_ns = instance->granted_until_ns;
        instance->granted = 0;
    }
    pthread_mutex_unlock(&instance->lock);
}

/* A new grant for some of `bytes`; false: they are not there, but room.left are. */
static bool renew(shm_taking *taking, uint64_t bytes) {
    const uint64_t wanted = needed(taking, bytes);
    look(taking, wanted);
    if (is_tight(taking, wanted)) {
        lock_group(taking);
        look(taking, wanted); /* what was seen was before the others' turns */
    }
    if (taking->room.left < wanted) {
        taking->room.left = usable(taking, taking->room.left);
        return false;
    }
    const uint64_t share = taking->room.left / (2 * ranks(taking));
    const uint64_t most = is_group(taking) ? SHM_MOST_PIECE : MOST_GRANTED;
    taking->granted = share < most ? share : most;
    taking->until_ns = taking->lock_fd >= 0 ? 0 : shm_now_ns(NULL) + GRANTED_NS;
    return true;
}

uint64_t shm_taking_grant(shm_taking *taking, uint64_t bytes) {
    const uint64_t least = bytes < SHM_LEAST_PIECE ? bytes : SHM_LEAST_PIECE;
    const bool holds = taking->lock_fd >= 0 || shm_now_ns(NULL) < taking->until_ns;
    if ((!holds || taking->granted < least) && !renew(taking, bytes))
        return 0;
    if (taking->granted >= bytes)
        return bytes;
    return taking->granted / SHM_LEAST_PIECE * SHM_LEAST_PIECE;
}

void shm_taking_took(shm_taking *taking, uint64_t bytes) {
    taking->granted -= bytes;
    if (taking->lock_fd >= 0)
        taking->granted = 0;
    unlock_group(taking);
}

void shm_taking_end(shm_taking *taking) {
    unlock_group(taking);
    pthread_mutex_lock(&taking->instance->lock);
    taking->instance->granted = taking->granted;
    taking->instance->granted_until_ns = taking->until_ns;
    pthread_mutex_unlock(&taking->instance->lock);
}
