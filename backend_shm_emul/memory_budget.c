/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much memory may be allocated. It is checked before each piece, because others allocate
 * meanwhile. If a control group has little left, ranks check and allocate one after the other, by a
 * lock on its folder. So no rank is ended for what another one allocated. What a program allocates
 * by itself is unknown.
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

#include "memory_budget.h"
#include "cgroup.h"
#include "wait.h"

/* Granted without another check if no control group has a limit. */
#define MAX_GRANTED ((uint64_t)64 << 20)
/* How long a grant is valid. */
#define GRANTED_NS 20000000u
/* How long a process without a limit is assumed to have none. */
#define UNLIMITED_NS 1000000000u
/* A rank that waits longer for the lock continues without it, because its holder may be stopped.
 * LOCK_RETRY_NS: how long the rank then does not wait again. */
#define LOCK_NS 300000000u
#define LOCK_RETRY_NS 10000000000u
/* Never granted, because the processes' heaps grow too. */
#define SPARE_BYTES ((uint64_t)1 << 20)
/* What a file, its mappings and their descriptions need of the kernel. */
#define OBJECT_BYTES 8192u
/* One part in PARTS of the memory is for the kernel's own: a list of its pages, and page tables for
 * each rank that will map them. */
#define PARTS 512u

/* Returns the bytes of memory available without swapping, or UINT64_MAX if that is not known. */
static uint64_t available_bytes(const char *root, char path[PATH_MAX]) {
    (void)snprintf(path, PATH_MAX, "%s/proc/meminfo", root);
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

/* --- one check --------------------------------------------------------------------- */

static uint64_t ranks(const shm_reservation *reservation) {
    return (uint64_t)reservation->instance->world_size;
}

static uint64_t spare_bytes(const shm_reservation *reservation) {
    return SPARE_BYTES + 2 * ranks(reservation) * SHM_MIN_PIECE;
}

/* Returns the bytes that must be left to allocate `bytes`. */
static uint64_t needed_bytes(const shm_reservation *reservation, uint64_t bytes) {
    return bytes + bytes / PARTS * (1 + ranks(reservation)) + OBJECT_BYTES +
           spare_bytes(reservation);
}

/* The inverse, in whole pages. */
static uint64_t usable_bytes(const shm_reservation *reservation, uint64_t left) {
    const uint64_t fixed = OBJECT_BYTES + spare_bytes(reservation),
                   page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t bytes =
        left < fixed ? 0 : (left - fixed) / (PARTS + 1 + ranks(reservation)) * PARTS;
    return bytes / page * page;
}

/* Rarely queried, because a query takes some hundred microseconds and most often finds no limit. */
static void query_cgroups(shm_reservation *reservation, uint64_t wanted) {
    shm_instance *instance = reservation->instance;
    const uint64_t now_ns = shm_now_ns(NULL);
    if (now_ns < atomic_load_explicit(&instance->unlimited_until_ns, memory_order_relaxed)) {
        shm_memory_left_set(&reservation->memory, UINT64_MAX);
        return;
    }
    if (!shm_cgroup_memory(instance->root, wanted, &reservation->memory))
        atomic_store_explicit(&instance->unlimited_until_ns, now_ns + UNLIMITED_NS,
                              memory_order_relaxed);
}

static void refresh(shm_reservation *reservation, uint64_t wanted) {
    query_cgroups(reservation, wanted);
    const uint64_t available =
        available_bytes(reservation->instance->root, reservation->memory.path);
    if (available < reservation->memory.left)
        shm_memory_left_set(&reservation->memory, available);
}

/* --- one rank after the other ------------------------------------------------------ */

static bool is_group(const shm_reservation *reservation) {
    return reservation->memory.where[0] != '\0';
}

/* Returns whether the pieces that all ranks may allocate at this moment could be too much
 * together. */
static bool is_scarce(const shm_reservation *reservation, uint64_t wanted) {
    return is_group(reservation) &&
           reservation->memory.left < wanted + 4 * ranks(reservation) * SHM_MAX_PIECE;
}

/* Every process that sees the folder can hold its lock. */
typedef enum holder { OWN_USERS, OTHER_USERS, UNKNOWN } holder;

/* A process that cannot be seen from here is no rank of this user here. */
static holder user_of_process(shm_reservation *reservation, long pid) {
    char *path = reservation->memory.path;
    struct stat about;
    (void)snprintf(path, PATH_MAX, "%s/proc/%ld", reservation->instance->root, pid);
    const bool is_own = pid > 0 && stat(path, &about) == 0 && about.st_uid == geteuid();
    return is_own ? OWN_USERS : OTHER_USERS;
}

static holder holder_of(shm_reservation *reservation, int fd) {
    char line[256], *path = reservation->memory.path;
    struct stat about;
    if (fstat(fd, &about) != 0)
        return UNKNOWN;
    (void)snprintf(path, PATH_MAX, "%s/proc/locks", reservation->instance->root);
    FILE *locks = fopen(path, "re");
    if (!locks)
        return UNKNOWN;
    holder found = OTHER_USERS; /* a holder that is not listed is in another pid namespace */
    while (found == OTHER_USERS && fgets(line, sizeof line, locks)) {
        unsigned major_id = 0, minor_id = 0;
        unsigned long long inode = 0;
        long pid = 0;
        if (sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%llu", &pid, &major_id, &minor_id, &inode) ==
                4 &&
            major_id == major(about.st_dev) && minor_id == minor(about.st_dev) &&
            inode == about.st_ino)
            found = user_of_process(reservation, pid);
    }
    fclose(locks);
    return found;
}

/* Returns false if another user holds the lock, or if the wait took too long. */
static bool wait_for_lock(shm_reservation *reservation, int fd) {
    const struct timespec turn = {0, 200000};
    const uint64_t end_ns = shm_now_ns(NULL) + LOCK_NS;
    for (uint64_t tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (shm_now_ns(NULL) >= end_ns)
            return false;
        /* Checked twice, because the lock may be released between two checks. */
        if (tries % 16 == 0 && holder_of(reservation, fd) == OTHER_USERS &&
            flock(fd, LOCK_EX | LOCK_NB) != 0 && holder_of(reservation, fd) == OTHER_USERS)
            return flock(fd, LOCK_EX | LOCK_NB) == 0;
        nanosleep(&turn, NULL);
    }
    return true;
}

static void lock_group(shm_reservation *reservation) {
    _Atomic uint64_t *until_ns = &reservation->instance->lockless_until_ns;
    if (shm_now_ns(NULL) < atomic_load_explicit(until_ns, memory_order_relaxed))
        return;
    const int fd = open(reservation->memory.where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (wait_for_lock(reservation, fd)) {
        reservation->lock_fd = fd;
        return;
    }
    close(fd);
    atomic_store_explicit(until_ns, shm_now_ns(NULL) + LOCK_RETRY_NS, memory_order_relaxed);
}

static void unlock_group(shm_reservation *reservation) {
    if (reservation->lock_fd >= 0) {
        /* a child of fork may hold the open file, too */
        (void)flock(reservation->lock_fd, LOCK_UN);
        close(reservation->lock_fd);
    }
    reservation->lock_fd = -1;
}

/* --- an allocation ----------------------------------------------------------------- */

void shm_reservation_begin(shm_reservation *reservation, shm_instance *instance, uint64_t bytes) {
    reservation->instance = instance;
    reservation->lock_fd = -1;
    reservation->granted = 0;
    reservation->until_ns = 0;
    /* Reuses an earlier grant, if it suffices and is still valid. */
    pthread_mutex_lock(&instance->lock);
    if (instance->granted >= bytes) {
        reservation->granted = instance->granted;
        reservation->until_ns = instance->granted_until_ns;
        instance->granted = 0;
    }
    pthread_mutex_unlock(&instance->lock);
}

/* Makes a new grant for some of `bytes`. Returns false if they are not available; memory.left says
 * how many are. */
static bool renew(shm_reservation *reservation, uint64_t bytes) {
    const uint64_t wanted = needed_bytes(reservation, bytes);
    refresh(reservation, wanted);
    if (is_scarce(reservation, wanted)) {
        lock_group(reservation);
        refresh(reservation, wanted); /* others may have allocated since the check */
    }
    if (reservation->memory.left < wanted) {
        reservation->memory.left = usable_bytes(reservation, reservation->memory.left);
        return false;
    }
    const uint64_t share = reservation->memory.left / (2 * ranks(reservation));
    const uint64_t most = is_group(reservation) ? SHM_MAX_PIECE : MAX_GRANTED;
    reservation->granted = share < most ? share : most;
    reservation->until_ns = reservation->lock_fd >= 0 ? 0 : shm_now_ns(NULL) + GRANTED_NS;
    return true;
}

uint64_t shm_reservation_grant(shm_reservation *reservation, uint64_t bytes) {
    const uint64_t least = bytes < SHM_MIN_PIECE ? bytes : SHM_MIN_PIECE;
    const bool holds = reservation->lock_fd >= 0 || shm_now_ns(NULL) < reservation->until_ns;
    if ((!holds || reservation->granted < least) && !renew(reservation, bytes))
        return 0;
    if (reservation->granted >= bytes)
        return bytes;
    return reservation->granted / SHM_MIN_PIECE * SHM_MIN_PIECE;
}

void shm_reservation_took(shm_reservation *reservation, uint64_t bytes) {
    reservation->granted -= bytes;
    if (reservation->lock_fd >= 0)
        reservation->granted = 0;
    unlock_group(reservation);
}

void shm_reservation_end(shm_reservation *reservation) {
    unlock_group(reservation);
    pthread_mutex_lock(&reservation->instance->lock);
    reservation->instance->granted = reservation->granted;
    reservation->instance->granted_until_ns = reservation->until_ns;
    pthread_mutex_unlock(&reservation->instance->lock);
}
