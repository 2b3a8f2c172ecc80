/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file store is a directory with one file a key. A value is written to a file without a name,
 * which is then linked to the key's name. A reader thus sees a whole value or none, and a writer
 * that is killed leaves no other file. If the key has a value already, or the file system has no
 * files without a name, the file gets a temporary name and is renamed.
 *
 * File names: "k" and the key with '/' as '%', "t" and a random number for a value not in place
 * yet, "notify", "lock". add takes the lock file. A set and an add of one key at the same time
 * leave either value.
 *
 * The store does not map, lock or believe a file that another user could have made or could
 * change. A file that is shortened ends the processes that map it, and a lock that is kept stops
 * all ranks.
 *
 * The kernel has one lock for a directory. It is taken to make, rename or remove a name, and to
 * look for a name that is absent. A set of a new key takes it once. A look for a key that is known
 * to be absent does not take it (see store_file_notify.c).
 */
#include "base/rights.h"
#include "store/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define NAME_BYTES (SYMMEM_STORE_KEY_MAX + 2)
#define TICK_MS 50u
#define BACKOFF_FIRST_NS 20000u
#define BACKOFF_LAST_NS 1000000u
#define RIGHTS_LOOKS 20 /* of the longest backoff */

/* --- the calls -------------------------------------------------------------------------------- */

static void name_of_key(const char *key, char name[NAME_BYTES]) {
    size_t i = 0;
    name[i++] = 'k';
    for (; *key != '\0'; key++)
        name[i++] = *key == '/' ? '%' : *key;
    name[i] = '\0';
}

static symmem_status write_whole(int fd, const void *value, size_t bytes, const char *operation) {
    const int too_long = sm_file_check_length(bytes);
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

/* A value on its way to its name. */
typedef struct setting {
    sm_file_store *store;
    const char *operation;
    char name[NAME_BYTES];
    char temporary[32];
} setting;

static symmem_status rename_temporary(const setting *to) {
    const int directory = to->store->directory;
    if (renameat(directory, to->temporary, directory, to->name) == 0)
        return SYMMEM_OK;
    const int error = errno;
    (void)unlinkat(directory, to->temporary, 0);
    return sm_fail_errno(error, to->operation, "", "cannot name a value %.120s", to->name + 1);
}

/* *is_done_p false: it cannot be had here, or something went wrong that another try may tell. */
static symmem_status name_it(const setting *to, int fd, bool *is_done_p) {
    const int directory = to->store->directory;
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    *is_done_p = linkat(AT_FDCWD, path, directory, to->name, AT_SYMLINK_FOLLOW) == 0;
    if (*is_done_p || errno != EEXIST ||
        linkat(AT_FDCWD, path, directory, to->temporary, AT_SYMLINK_FOLLOW) != 0)
        return SYMMEM_OK;
    *is_done_p = true;
    return rename_temporary(to);
}

static symmem_status set_nameless(const setting *to, const void *value, size_t bytes,
                                  bool *is_done_p) {
    *is_done_p = false;
    const int fd = sm_file_open(to->store, ".", O_WRONLY | O_TMPFILE);
    if (fd < 0)
        return SYMMEM_OK;
    symmem_status status = write_whole(fd, value, bytes, to->operation);
    if (status == SYMMEM_OK)
        status = name_it(to, fd, is_done_p);
    else
        *is_done_p = true;
    sm_file_close(to->store, fd);
    return status;
}

static symmem_status set_named(const setting *to, const void *value, size_t bytes) {
    const int fd = sm_file_open(to->store, to->temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return sm_fail_errno(errno, to->operation, "", "cannot create a file in the store");
    const symmem_status status = write_whole(fd, value, bytes, to->operation);
    sm_file_close(to->store, fd);
    if (status == SYMMEM_OK)
        return rename_temporary(to);
    (void)unlinkat(to->store->directory, to->temporary, 0);
    return status;
}

static symmem_status replace(sm_file_store *store, const char *key, const void *value, size_t bytes,
                             const char *operation) {
    uint64_t number;
    bool is_done;
    setting to = {.store = store, .operation = operation};
    symmem_status status = sm_random(&number, sizeof(number));
    if (status != SYMMEM_OK)
        return status;
    (void)snprintf(to.temporary, sizeof(to.temporary), "t%016llx", (unsigned long long)number);
    name_of_key(key, to.name);
    sm_file_begin_change(store, key);
    status = set_nameless(&to, value, bytes, &is_done);
    if (!is_done)
        status = set_named(&to, value, bytes);
    if (status != SYMMEM_OK)
        sm_file_uncount(store, key);
    sm_file_end_change(store, key);
    return status;
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
    symmem_status status = sm_file_check_owner(&about, 0077, "store_get", "", key);
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
    sm_file_store *store = self;
    char name[NAME_BYTES];
    if (sm_file_is_absent(store, key))
        return sm_fail(SYMMEM_NOT_FOUND, "store_get", "", "no key %.200s", key);
    const sm_file_look look = sm_file_begin_look(store, key);
    name_of_key(key, name);
    /* Not to be led elsewhere by a link, nor kept waiting by a pipe without a writer. */
    int fd = sm_file_open(store, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        sm_file_note_absent(store, key, &look);
        return sm_fail(SYMMEM_NOT_FOUND, "store_get", "", "no key %.200s", key);
    }
    if (fd < 0 && (errno == ELOOP || errno == ENXIO)) /* a link, a socket */
        return sm_fail(SYMMEM_CORRUPT, "store_get", "", "key %.120s has no file", key);
    if (fd < 0)
        return sm_fail_errno(errno, "store_get", "", "cannot open key %.120s", key);
    symmem_status status = read_open(fd, key, value, capacity, bytes_p);
    sm_file_close(store, fd);
    return status;
}

/* Whether the key is there, or an errno. A link is not followed: a link to nothing is there, too,
 * and must not be noted as absent. */
static int look_for(sm_file_store *store, const char *key, bool *is_there_p) {
    char name[NAME_BYTES];
    struct stat about;
    *is_there_p = false;
    if (sm_file_is_absent(store, key))
        return 0;
    const sm_file_look look = sm_file_begin_look(store, key);
    name_of_key(key, name);
    *is_there_p = fstatat(store->directory, name, &about, AT_SYMLINK_NOFOLLOW) == 0;
    if (!*is_there_p && errno == ENOENT)
        sm_file_note_absent(store, key, &look);
    return *is_there_p || errno == ENOENT ? 0 : errno;
}

static symmem_status file_wait(void *self, const char *key, uint32_t timeout_ms) {
    sm_file_store *store = self;
    uint64_t deadline_ns = sm_deadline_ns(timeout_ms);
    for (;;) {
        /* Before the look: a key that comes after it changes the word. */
        const sm_file_look before = sm_file_begin_look(store, key);
        bool is_there;
        const int error = look_for(store, key, &is_there);
        if (error != 0)
            return sm_fail_errno(error, "store_wait", "", "cannot look for key %.120s", key);
        if (is_there)
            return SYMMEM_OK;
        /* A writer that was killed before it changed the word wakes no waiter. */
        uint32_t sleep_ms = sm_remaining_ms(deadline_ns, TICK_MS);
        if (sleep_ms == 0)
            return sm_store_expired("store_wait", key);
        sm_futex_wait(before.word, before.seen, sleep_ms * 1000000ull);
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
static symmem_status lock(sm_file_store *store, const char *key, uint64_t deadline_ns, int *fd_p) {
    int fd = sm_file_open(store, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return sm_fail_errno(errno, "store_add", "", "cannot open the store's lock");
    symmem_status status = sm_file_check(fd, "lock", "store_add");
    if (status == SYMMEM_OK)
        status = take_lock(fd, key, deadline_ns);
    if (status == SYMMEM_OK)
        *fd_p = fd;
    else
        sm_file_close(store, fd);
    return status;
}

static symmem_status add_locked(sm_file_store *store, const char *key, int64_t delta,
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
    sm_file_store *store = self;
    int fd = -1;
    symmem_status status = lock(store, key, sm_deadline_ns(timeout_ms), &fd);
    if (status != SYMMEM_OK)
        return status;
    status = add_locked(store, key, delta, value_p);
    flock(fd, LOCK_UN); /* not left to close: a child forked meanwhile holds the same open file */
    sm_file_close(store, fd);
    return status;
}

static symmem_status file_remove(void *self, const char *key, uint32_t timeout_ms) {
    (void)timeout_ms;
    sm_file_store *store = self;
    char name[NAME_BYTES];
    if (sm_file_is_absent(store, key))
        return SYMMEM_OK;
    const sm_file_look look = sm_file_begin_look(store, key);
    name_of_key(key, name);
    if (unlinkat(store->directory, name, 0) == 0) {
        sm_file_uncount(store, key);
        return SYMMEM_OK;
    }
    if (errno != ENOENT)
        return sm_fail_errno(errno, "store_remove", "", "cannot remove key %.120s", key);
    sm_file_note_absent(store, key, &look);
    return SYMMEM_OK;
}

static void file_close(void *self) {
    sm_file_store *store = self;
    sm_file_close_notify(store);
    if (store->directory >= 0)
        close(store->directory);
    sm_file_close_reserve(store);
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

static symmem_status open_directory(sm_file_store *store, const char *given) {
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
    status = sm_file_check_owner(&about, 0022, "store_open_file", "directory", path);
    if (status == SYMMEM_OK && faccessat(store->directory, ".", W_OK | X_OK, AT_EACCESS) != 0)
        status =
            sm_fail_errno(errno, "store_open_file", "directory", "cannot write to %.120s", path);
    return status;
}

symmem_status symmem_store_open_file(const char *path, symmem_store **store_p) {
    SM_PUBLIC_CALL;
    if (path == NULL || path[0] == '\0' || store_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_open_file", "", "no path");
    sm_file_store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "store_open_file", "", "no memory for the store");
    store->directory = -1;
    store->reserve[0] = store->reserve[1] = -1;
    (void)sm_fork_lock_open(&store->reserve_lock, false);
    (void)sm_fork_lock_open(&store->absent_lock, false);
    symmem_status status = open_directory(store, path);
    if (status == SYMMEM_OK)
        status = sm_file_open_notify(store);
    if (status == SYMMEM_OK)
        status = sm_file_open_reserve(store);
    if (status == SYMMEM_OK)
        status = sm_store_wrap(&file_ops, store, false, store_p);
    if (status != SYMMEM_OK)
        file_close(store);
    return status;
}
