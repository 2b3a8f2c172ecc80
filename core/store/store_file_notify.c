/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank learns of changes in the file store without a look into its folder. Ranks that look for an
 * absent name and ranks that make a name wait for one lock of the kernel. The holder of that lock
 * may be kept from a processor for long.
 *
 * The file "notify" is mapped by all ranks. It has two words for all keys of one hash. The first
 * counts the changes that have ended, the second those that have begun. A change is a call that may
 * give a key a value. Waiters sleep on the first word. A rank that finds a key absent need not look
 * again while the second word equals what the first one was before that look. A rank that is killed
 * during a change leaves the words unequal for good, and all ranks then look for the keys of that
 * hash each time.
 *
 * A third word counts the keys of one hash that are there. It is at least their number: a rank
 * counts a key before it makes it, and counts it no more once it has removed it. While the word is
 * 0 no rank needs to look for a key even once. In a large world each rank waits for keys of all
 * others, and looks whether keys that have been removed are there again. This holds if the folder
 * had no key when the file was made, which its maker says in a last word.
 *
 * This needs memory that all ranks share, so it is used on local file systems only, and only while
 * the mapped file is still in the folder.
 */
#include "store/store_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define WORD_COUNT 1024u
#define COUNT_COUNT 8192u /* of a world's keys few have a hash in common */
/* The words: changes that have ended, changes that have begun, keys that are there, the last one.
 */
#define BEGUN WORD_COUNT
#define THERE (2 * WORD_COUNT)
#define ALL_COUNTED (THERE + COUNT_COUNT)
#define NOTIFY_BYTES ((ALL_COUNTED + 1) * sizeof(uint32_t))
#define ABSENT_COUNT 512u
#define ABSENT_NS 60000000000u /* the words wrap, but not in that time */
#define CHECK_NS 1000000000u
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

struct sm_absent_key {
    uint64_t until_ns; /* 0: none */
    uint32_t ended;    /* before it was looked for */
    char key[SYMMEM_STORE_KEY_MAX + 1];
};

static _Atomic uint32_t *ended_of_key(const sm_file_store *store, const char *key) {
    return &store->words[sm_store_hash(key) % WORD_COUNT];
}

static _Atomic uint32_t *begun_of_key(const sm_file_store *store, const char *key) {
    return ended_of_key(store, key) + BEGUN;
}

static _Atomic uint32_t *count_of_key(const sm_file_store *store, const char *key) {
    return &store->words[THERE + sm_store_hash(key) % COUNT_COUNT];
}

void sm_file_begin_change(const sm_file_store *store, const char *key) {
    /* Sequentially consistent: a rank that sees the name also sees this. */
    const uint32_t before = atomic_fetch_add(count_of_key(store, key), 1);
    if (before > UINT32_MAX / 2) /* long before it is 0 again */
        atomic_store(&store->words[ALL_COUNTED], 0);
    atomic_fetch_add(begun_of_key(store, key), 1);
}

void sm_file_uncount(const sm_file_store *store, const char *key) {
    atomic_fetch_sub(count_of_key(store, key), 1);
}

void sm_file_end_change(const sm_file_store *store, const char *key) {
    _Atomic uint32_t *word = ended_of_key(store, key);
    atomic_fetch_add_explicit(word, 1, memory_order_release); /* pairs with: begin_look's load */
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    sm_clock_changed();
}

sm_file_look sm_file_begin_look(const sm_file_store *store, const char *key) {
    sm_file_look look = {.word = ended_of_key(store, key)};
    look.seen = atomic_load_explicit(look.word, memory_order_acquire); /* pairs with: end_change */
    return look;
}

/* --- what is not there ------------------------------------------------------------------------ */

/* Whether the mapped file is the one that other ranks map. The caller holds the lock. */
static bool is_in_place(sm_file_store *store, uint64_t now_ns) {
    struct stat now;
    if (now_ns < store->next_check_ns)
        return store->is_in_place;
    store->next_check_ns = now_ns + CHECK_NS;
    store->is_in_place = fstatat(store->directory, "notify", &now, AT_SYMLINK_NOFOLLOW) == 0 &&
                         now.st_dev == store->notify.st_dev && now.st_ino == store->notify.st_ino;
    return store->is_in_place;
}

static sm_absent_key *absent_entry_of(const sm_file_store *store, const char *key) {
    return &store->absent[sm_store_hash(key) / WORD_COUNT % ABSENT_COUNT];
}

void sm_file_note_absent(sm_file_store *store, const char *key, const sm_file_look *look) {
    if (store->absent == NULL)
        return;
    pthread_mutex_lock(&store->absent_lock.mutex);
    sm_absent_key *entry = absent_entry_of(store, key);
    entry->until_ns = sm_now_ns() + ABSENT_NS;
    entry->ended = look->seen;
    sm_copy_text(entry->key, sizeof(entry->key), key);
    pthread_mutex_unlock(&store->absent_lock.mutex);
}

bool sm_file_is_absent(sm_file_store *store, const char *key) {
    if (store->absent == NULL)
        return false;
    const uint64_t now_ns = sm_now_ns();
    pthread_mutex_lock(&store->absent_lock.mutex);
    const sm_absent_key *entry = absent_entry_of(store, key);
    const uint32_t begun = atomic_load(begun_of_key(store, key));
    const bool has_none_now =
        atomic_load(count_of_key(store, key)) == 0 && atomic_load(&store->words[ALL_COUNTED]) != 0;
    const bool had_none =
        now_ns < entry->until_ns && entry->ended == begun && strcmp(entry->key, key) == 0;
    const bool is_absent = (has_none_now || had_none) && is_in_place(store, now_ns);
    pthread_mutex_unlock(&store->absent_lock.mutex);
    return is_absent;
}

/* Whether all ranks that map a file of this file system share its memory. */
static bool is_of_this_host(int fd) {
    struct statfs about;
    if (fstatfs(fd, &about) != 0)
        return false;
    switch ((unsigned long)about.f_type) {
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
        return true;
    default:
        return false;
    }
}

/* --- the file --------------------------------------------------------------------------------- */

/* Any number of openers at once: allocation only ever extends and keeps what is there. */
static symmem_status map_notify(sm_file_store *store, int fd) {
    struct stat about;
    const bool is_there = fstat(fd, &about) == 0 && about.st_size >= (off_t)NOTIFY_BYTES;
    int error = is_there ? 0 : sm_file_check_length(NOTIFY_BYTES);
    while (error == 0 && (error = posix_fallocate(fd, 0, (off_t)NOTIFY_BYTES)) == EINTR)
        error = 0;
    if (error != 0)
        return sm_fail_errno(error, "store_open_file", "notify", "cannot size the notify file");
    void *words = mmap(NULL, NOTIFY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED)
        return sm_fail_errno(errno, "store_open_file", "notify", "cannot map the file");
    store->words = words;
    /* Without this memory the store looks for each key each time. */
    if (is_of_this_host(fd) && fstat(fd, &store->notify) == 0)
        store->absent = calloc(ABSENT_COUNT, sizeof(store->absent[0]));
    return SYMMEM_OK;
}

/* Whether the folder certainly has no key. */
static bool is_without_keys(const sm_file_store *store) {
    const int fd = openat(store->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (listing == NULL) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool has_none = true;
    for (const struct dirent *entry; has_none && (entry = readdir(listing)) != NULL;)
        has_none = entry->d_name[0] != 'k';
    closedir(listing);
    return has_none;
}

/* Makes the file of a folder without keys. It gets its name when it is complete: a rank that has it
 * may set keys at once. Where that fails, the file is made without the word that all are counted.
 */
static void make_counting_all(const sm_file_store *store) {
    const uint32_t counts = 1;
    char path[32];
    const int fd = is_without_keys(store) ? sm_file_open_once(store, ".", O_RDWR | O_TMPFILE) : -1;
    if (fd < 0)
        return;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (sm_file_check_length(NOTIFY_BYTES) == 0 &&
        posix_fallocate(fd, 0, (off_t)NOTIFY_BYTES) == 0 &&
        pwrite(fd, &counts, sizeof(counts), ALL_COUNTED * sizeof(counts)) == sizeof(counts))
        (void)linkat(AT_FDCWD, path, store->directory, "notify", AT_SYMLINK_FOLLOW);
    close(fd);
}

symmem_status sm_file_open_notify(sm_file_store *store) {
    const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK;
    int fd = sm_file_open_once(store, "notify", flags);
    if (fd < 0 && errno == ENOENT)
        make_counting_all(store);
    if (fd < 0)
        fd = sm_file_open_once(store, "notify", flags | O_CREAT);
    if (fd < 0)
        return sm_fail_errno(errno, "store_open_file", "notify", "cannot open the notify file");
    symmem_status status = sm_file_check(fd, "notify", "store_open_file");
    if (status == SYMMEM_OK)
        status = map_notify(store, fd);
    close(fd);
    return status;
}

void sm_file_close_notify(sm_file_store *store) {
    if (store->words != NULL)
        munmap(store->words, NOTIFY_BYTES);
    free(store->absent);
    sm_fork_lock_close(&store->absent_lock);
}
