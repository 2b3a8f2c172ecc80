/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file store: a directory with one file a key. A value is written to a temporary file and
 * renamed, so a reader sees all of it or the one before. Waiters sleep on words of a small shared
 * file ("notify"), one word for all keys with the same hash; a short tick covers a writer that
 * was killed between rename and wake.
 *
 * File names: "k" and the key with '/' as '%', "t" and a random number while being written,
 * "notify", "lock". add takes the lock file; a set and an add of one key at the same time leave
 * either value.
 *
 * Nothing is believed, mapped or locked that another user could have put there or could change: a
 * file that is shortened ends those who map it, a lock that is kept stops all.
 *
 * A process that has run out of descriptors must still be able to tell its peers that it has.
 * Therefore the store keeps as many in reserve as one of its calls needs at a time.
 */
#include "base/fork.h"
#include "base/rights.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WORD_COUNT 1024u
#define NOTIFY_BYTES (WORD_COUNT * sizeof(uint32_t))
#define NAME_BYTES (SYMMEM_STORE_KEY_MAX + 2)
#define TICK_MS 50u
#define BACKOFF_FIRST_NS 20000u
#define BACKOFF_LAST_NS 1000000u
#define RIGHTS_LOOKS 20 /* of the longest backoff */

#define RESERVE 2 /* add: the lock and the value */

typedef struct file_store {
    int directory;
    _Atomic uint32_t *words;
    sm_fork_lock reserve_lock;
    int reserve[RESERVE]; /* further descriptors of the directory; -1: lent */
} file_store;

/* --- descriptors ------------------------------------------------------------------------------ */

static int *reserved(file_store *store, bool lent) {
    for (int i = 0; i < RESERVE; i++)
        if ((store->reserve[i] < 0) == lent)
            return &store->reserve[i];
    return NULL;
}

/* With mode 0600, which it has at least from its name on, or as soon as it is opened: a umask may
 * take the owner's rights from what is made, and another rank may see it before they are back. */
static int open_once(const file_store *store, const char *name, int flags) {
    int fd = openat(store->directory, name, flags | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EACCES) { /* its maker may have given them back by now */
        (void)sm_rights_give_at(store->directory, name, 0600);
        fd = openat(store->directory, name, flags | O_CLOEXEC, 0600);
    }
    const int error = fd >= 0 && (flags & O_CREAT) != 0 ? sm_rights_give(fd, 0600) : 0;
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

/* As openat in the store's directory, if need be on a descriptor of the reserve. */
static int open_file(file_store *store, const char *name, int flags) {
    int fd = open_once(store, name, flags);
    if (fd >= 0 || errno != EMFILE)
        return fd;
    pthread_mutex_lock(&store->reserve_lock.mutex);
    int *spare = reserved(store, false);
    if (spare != NULL) {
        close(*spare);
        *spare = -1;
        fd = open_once(store, name, flags);
        int error = errno;
        if (fd < 0) /* the name, or another thread was quicker */
            *spare = fcntl(store->directory, F_DUPFD_CLOEXEC, 0);
        errno = error;
    }
    pthread_mutex_unlock(&store->reserve_lock.mutex);
    return fd;
}

/* Fills up the reserve first: making the descriptor one of the directory needs no new one. */
static void close_file(file_store *store, int fd) {
    pthread_mutex_lock(&store->reserve_lock.mutex);
    int *spare = reserved(store, true);
    if (spare != NULL) {
        (void)dup3(store->directory, fd, O_CLOEXEC);
        *spare = fd;
    } else {
        close(fd);
    }
    pthread_mutex_unlock(&store->reserve_lock.mutex);
}

static symmem_status open_reserve(file_store *store) {
    for (int i = 0; i < RESERVE; i++) {
        store->reserve[i] = fcntl(store->directory, F_DUPFD_CLOEXEC, 0);
        if (store->reserve[i] < 0)
            return sm_fail_errno(errno, "store_open_file", "", "no descriptor for the reserve");
    }
    return SYMMEM_OK;
}

static void close_reserve(file_store *store) {
    for (int i = 0; i < RESERVE; i++)
        if (store->reserve[i] >= 0)
            close(store->reserve[i]);
    sm_fork_lock_close(&store->reserve_lock);
}

/* --- whose files they are --------------------------------------------------------------------- */

/* Whether only this user may do what the `forbidden` bits of a mode permit. */
static symmem_status check_owner(const struct stat *about, mode_t forbidden, const char *operation,
                                 const char *stage, const char *what) {
    if (about->st_uid != geteuid())
        return sm_fail(SYMMEM_PERMISSION, operation, stage,
                       "%.120s belongs to user %u, this process to user %u", what,
                       (unsigned)about->st_uid, (unsigned)geteuid());
    if ((about->st_mode & forbidden) != 0)
        return sm_fail(SYMMEM_PERMISSION, operation, stage,
                       "others than its owner have rights to %.120s: mode %04o, not %04o", what,
                       (unsigned)(about->st_mode & 07777),
                       (unsigned)(about->st_mode & 07777 & ~forbidden));
    return SYMMEM_OK;
}

/* The store makes its files with mode 0600: a reader, too, could lock them. */
static symmem_status check_file(int fd, const char *name, const char *operation) {
    struct stat about;
    if (fstat(fd, &about) != 0)
        return sm_fail_errno(errno, operation, name, "cannot look at a file of the store");
    if (!S_ISREG(about.st_mode))
        return sm_fail(SYMMEM_CORRUPT, operation, name, "the store's %s is no file", name);
    return check_owner(&about, 0077, operation, name, name);
}

/* --- the calls -------------------------------------------------------------------------------- */

static void name_of_key(const char *key, char name[NAME_BYTES]) {
    size_t i = 0;
    name[i++] = 'k';
    for (; *key != '\0'; key++)
        name[i++] = *key == '/' ? '%' : *key;
    name[i] = '\0';
}

static _Atomic uint32_t *word_of_key(const file_store *store, const char *key) {
    return &store->words[sm_hash(key, strlen(key), SM_HASH_SEED) % WORD_COUNT];
}

static void notify(const file_store *store, const char *key) {
    _Atomic uint32_t *word = word_of_key(store, key);
    atomic_fetch_add_explicit(word, 1, memory_order_release); /* pairs with: file_wait's load */
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    sm_clock_changed();
}

/* 0, or an errno: beyond its limit the kernel would end the process instead. */
static int check_length(size_t bytes) {
    uint64_t limit;
    return sm_file_limit(&limit) && bytes > limit ? EFBIG : 0;
}

static symmem_status write_whole(int fd, const void *value, size_t bytes, const char *operation) {
    const int too_long = check_length(bytes);
    if (too_long != 0)
        return sm_fail_errno(too_long, operation, "", "cannot write a value of %zu bytes", bytes);
    for (size_t done = 0; done < bytes;) {
        ssize_t wrote = write(fd, (const char *)value + done, bytes - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return sm_fail_errno(errno, operation, "", "cannot write a value");
        done += (size_t)wrote;
    }
    return SYMMEM_OK;
}

static symmem_status replace(file_store *store, const char *key, const void *value, size_t bytes,
                             const char *operation) {
    uint64_t number;
    symmem_status status = sm_random(&number, sizeof(number));
    if (status != SYMMEM_OK)
        return status;
    char temporary[32], name[NAME_BYTES];
    snprintf(temporary, sizeof(temporary), "t%016llx", (unsigned long long)number);
    name_of_key(key, name);
    int fd = open_file(store, temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return sm_fail_errno(errno, operation, "", "cannot create a file in the store");
    status = write_whole(fd, value, bytes, operation);
    close_file(store, fd);
    if (status == SYMMEM_OK && renameat(store->directory, temporary, store->directory, name) != 0)
        status = sm_fail_errno(errno, operation, "", "cannot name a value %.120s", key);
    if (status != SYMMEM_OK) {
        unlinkat(store->directory, temporary, 0);
        return status;
    }
    notify(store, key);
    return SYMMEM_OK;
}

static symmem_status file_set(void *self, const char *key, const void *value, size_t bytes,
                              uint32_t timeout_ms) {
    (void)timeout_ms; /* local file operations only */
    return replace(self, key, value, bytes, "store_set");
}

static symmem_status read_whole(int fd, void *value, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(fd, (char *)value + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return sm_fail_errno(errno, "store_get", "", "cannot read a value");
        if (got == 0)
            return sm_fail(SYMMEM_CORRUPT, "store_get", "", "a value's file was cut short");
        done += (size_t)got;
    }
    return SYMMEM_OK;
}

static symmem_status read_open(int fd, const char *key, void *value, size_t capacity,
                               size_t *bytes_p) {
    struct stat about;
    if (fstat(fd, &about) != 0)
        return sm_fail_errno(errno, "store_get", "", "cannot look at a value");
    if (!S_ISREG(about.st_mode))
        return sm_fail(SYMMEM_CORRUPT, "store_get", "", "what has a value's name is no file");
    symmem_status status = check_owner(&about, 0077, "store_get", "", key);
    if (status != SYMMEM_OK)
        return status;
    size_t bytes = (size_t)about.st_size;
    if (bytes > capacity) {
        *bytes_p = bytes;
        return sm_fail(SYMMEM_OUT_OF_RANGE, "store_get", "", "the value has %zu bytes, not %zu",
                       bytes, capacity);
    }
    status = read_whole(fd, value, bytes);
    if (status == SYMMEM_OK)
        *bytes_p = bytes;
    return status;
}

static symmem_status file_get(void *self, const char *key, void *value, size_t capacity,
                              size_t *bytes_p, uint32_t timeout_ms) {
    (void)timeout_ms;
    file_store *store = self;
    char name[NAME_BYTES];
    name_of_key(key, name);
    /* Not to be led elsewhere by a link, nor kept waiting by a pipe without a writer. */
    int fd = open_file(store, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return sm_fail(SYMMEM_NOT_FOUND, "store_get", "", "no key %.200s", key);
    if (fd < 0 && (errno == ELOOP || errno == ENXIO)) /* a link, a socket */
        return sm_fail(SYMMEM_CORRUPT, "store_get", "", "key %.120s has no file", key);
    if (fd < 0)
        return sm_fail_errno(errno, "store_get", "", "cannot open key %.120s", key);
    symmem_status status = read_open(fd, key, value, capacity, bytes_p);
    close_file(store, fd);
    return status;
}

static symmem_status file_wait(void *self, const char *key, uint32_t timeout_ms) {
    const file_store *store = self;
    uint64_t deadline_ns = sm_deadline_ns(timeout_ms);
    char name[NAME_BYTES];
    name_of_key(key, name);
    _Atomic uint32_t *word = word_of_key(store, key);
    for (;;) {
        /* Before the look at the file: a key that comes after it changes the word. */
        uint32_t seen = atomic_load_explicit(word, memory_order_acquire); /* pairs with: notify */
        if (faccessat(store->directory, name, F_OK, 0) == 0)
            return SYMMEM_OK;
        if (errno != ENOENT)
            return sm_fail_errno(errno, "store_wait", "", "cannot look for key %.120s", key);
        uint32_t sleep_ms = sm_remaining_ms(deadline_ns, TICK_MS);
        if (sleep_ms == 0)
            return sm_store_expired("store_wait", key);
        sm_futex_wait(word, seen, sleep_ms * 1000000ull);
    }
}

/* Never a blocking flock: a stopped holder must not hold others past their deadline. */
static symmem_status take_lock(int fd, const char *key, uint64_t deadline_ns) {
    uint64_t backoff_ns = BACKOFF_FIRST_NS;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return sm_fail_errno(errno, "store_add", "", "cannot lock the store");
        if (sm_expired(deadline_ns))
            return sm_store_expired("store_add", key);
        sm_sleep_ns(backoff_ns);
        backoff_ns = backoff_ns * 2 < BACKOFF_LAST_NS ? backoff_ns * 2 : BACKOFF_LAST_NS;
    }
    return SYMMEM_OK;
}

/* A descriptor of its own for each call: flock excludes open files, not processes or threads. */
static symmem_status lock(file_store *store, const char *key, uint64_t deadline_ns, int *fd_p) {
    int fd = open_file(store, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return sm_fail_errno(errno, "store_add", "", "cannot open the store's lock");
    symmem_status status = check_file(fd, "lock", "store_add");
    if (status == SYMMEM_OK)
        status = take_lock(fd, key, deadline_ns);
    if (status == SYMMEM_OK)
        *fd_p = fd;
    else
        close_file(store, fd);
    return status;
}

static symmem_status add_locked(file_store *store, const char *key, int64_t delta,
                                int64_t *value_p) {
    /* Read into a copy: a missing key is no failure here and must leave no record. */
    uint64_t value = 0;
    size_t bytes = 0;
    symmem_status status;
    {
        SM_ATTEMPT(reading);
        status = file_get(store, key, &value, sizeof(value), &bytes, 0);
        if (status != SYMMEM_NOT_FOUND)
            (void)sm_error_raise(&reading.error);
    }
    if (status == SYMMEM_OUT_OF_RANGE || (status == SYMMEM_OK && bytes != sizeof(value)))
        return sm_fail(SYMMEM_MISMATCH, "store_add", "", "key %.200s is not a counter", key);
    if (status != SYMMEM_OK && status != SYMMEM_NOT_FOUND)
        return status;
    value += (uint64_t)delta;
    status = replace(store, key, &value, sizeof(value), "store_add");
    if (status == SYMMEM_OK)
        *value_p = (int64_t)value;
    return status;
}

static symmem_status file_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                              uint32_t timeout_ms) {
    file_store *store = self;
    int fd = -1;
    symmem_status status = lock(store, key, sm_deadline_ns(timeout_ms), &fd);
    if (status != SYMMEM_OK)
        return status;
    status = add_locked(store, key, delta, value_p);
    flock(fd, LOCK_UN); /* not left to close: a child forked meanwhile holds the same open file */
    close_file(store, fd);
    return status;
}

static symmem_status file_remove(void *self, const char *key, uint32_t timeout_ms) {
    (void)timeout_ms;
    const file_store *store = self;
    char name[NAME_BYTES];
    name_of_key(key, name);
    if (unlinkat(store->directory, name, 0) != 0 && errno != ENOENT)
        return sm_fail_errno(errno, "store_remove", "", "cannot remove key %.120s", key);
    return SYMMEM_OK;
}

static void file_close(void *self) {
    file_store *store = self;
    if (store->words != NULL)
        munmap(store->words, NOTIFY_BYTES);
    if (store->directory >= 0)
        close(store->directory);
    close_reserve(store);
    free(store);
}

static const symmem_store_ops file_ops = {
    .size = sizeof(file_ops),
    .set = file_set,
    .get = file_get,
    .wait = file_wait,
    .add = file_add,
    .remove = file_remove,
    .close = file_close,
};

/* Without the slashes at its end: behind one a link is followed whatever the flags say. */
static symmem_status copy_path(const char *path, char copy[PATH_MAX]) {
    size_t bytes = strnlen(path, PATH_MAX);
    if (bytes == PATH_MAX)
        return sm_fail(SYMMEM_PATH_TOO_LONG, "store_open_file", "directory",
                       "a path of more than %zu bytes: %.100s", bytes - 1, path);
    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    memcpy(copy, path, bytes);
    copy[bytes] = '\0';
    return SYMMEM_OK;
}

static symmem_status fail_directory(int error, const char *path) {
    struct stat about = {.st_mode = 0};
    if (error != ENOTDIR)
        return sm_fail_errno(error, "store_open_file", "directory", "cannot open %.120s", path);
    (void)lstat(path, &about);
    if (S_ISLNK(about.st_mode))
        return sm_fail(SYMMEM_PERMISSION, "store_open_file", "directory",
                       "%.120s is a symbolic link: name the directory itself", path);
    return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_open_file", "directory",
                   "%.120s is not a directory", path);
}

/* 0 or an errno; it may be there already. Then another rank may have just made it and be about to
 * give its owner back what a umask took. */
static int make_directory(const char *path) {
    if (mkdir(path, 0700) == 0)
        return sm_rights_give_at(AT_FDCWD, path, 0700);
    if (errno != EEXIST)
        return errno;
    for (int i = 0; i < RIGHTS_LOOKS && sm_rights_lack(AT_FDCWD, path, 0700); i++)
        sm_sleep_ns(BACKOFF_LAST_NS);
    return 0;
}

static symmem_status open_directory(file_store *store, const char *given) {
    char path[PATH_MAX];
    symmem_status status = copy_path(given, path);
    if (status != SYMMEM_OK)
        return status;
    const int error = make_directory(path);
    if (error != 0)
        return sm_fail_errno(error, "store_open_file", "directory", "cannot create %.120s", path);
    store->directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (store->directory < 0)
        return fail_directory(errno, path);
    struct stat about;
    if (fstat(store->directory, &about) != 0)
        return sm_fail_errno(errno, "store_open_file", "directory", "cannot look at %.120s", path);
    status = check_owner(&about, 0022, "store_open_file", "directory", path);
    if (status == SYMMEM_OK && faccessat(store->directory, ".", W_OK | X_OK, AT_EACCESS) != 0)
        status =
            sm_fail_errno(errno, "store_open_file", "directory", "cannot write to %.120s", path);
    return status;
}

/* Any number of openers at once: allocation only ever extends and keeps what is there. */
static symmem_status map_notify(file_store *store, int fd) {
    struct stat about;
    const bool is_there = fstat(fd, &about) == 0 && about.st_size >= (off_t)NOTIFY_BYTES;
    int error = is_there ? 0 : check_length(NOTIFY_BYTES);
    while (error == 0 && (error = posix_fallocate(fd, 0, (off_t)NOTIFY_BYTES)) == EINTR)
        error = 0;
    if (error != 0)
        return sm_fail_errno(error, "store_open_file", "notify", "cannot size the notify file");
    void *words = mmap(NULL, NOTIFY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED)
        return sm_fail_errno(errno, "store_open_file", "notify", "cannot map the file");
    store->words = words;
    return SYMMEM_OK;
}

static symmem_status open_notify(file_store *store) {
    int fd = open_once(store, "notify", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return sm_fail_errno(errno, "store_open_file", "notify", "cannot open the notify file");
    symmem_status status = check_file(fd, "notify", "store_open_file");
    if (status == SYMMEM_OK)
        status = map_notify(store, fd);
    close(fd);
    return status;
}

symmem_status symmem_store_open_file(const char *path, symmem_store **store_p) {
    SM_PUBLIC_CALL;
    if (path == NULL || path[0] == '\0' || store_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_open_file", "", "no path");
    file_store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "store_open_file", "", "no memory for the store");
    store->directory = -1;
    store->reserve[0] = store->reserve[1] = -1;
    (void)sm_fork_lock_open(&store->reserve_lock, false);
    symmem_status status = open_directory(store, path);
    if (status == SYMMEM_OK)
        status = open_notify(store);
    if (status == SYMMEM_OK)
        status = open_reserve(store);
    if (status == SYMMEM_OK)
        status = sm_store_wrap(&file_ops, store, store_p);
    if (status != SYMMEM_OK)
        file_close(store);
    return status;
}
