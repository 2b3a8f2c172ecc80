/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file store's descriptors, and the checks of its files. A process that has run out of
 * descriptors must still be able to tell its peers so. The store therefore keeps a reserve of as
 * many descriptors as one of its calls needs at a time.
 */
#include "base/rights.h"
#include "store/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* --- descriptors ------------------------------------------------------------------------------ */

static int *reserved(sm_file_store *store, bool lent) {
    for (int i = 0; i < SM_FILE_RESERVE; i++)
        if ((store->reserve[i] < 0) == lent)
            return &store->reserve[i];
    return NULL;
}

/* With mode 0600, which it has at least from its name on, or as soon as it is opened: a umask may
 * take the owner's rights from what is made, and another rank may see it before they are back. */
int sm_file_open_once(const sm_file_store *store, const char *name, int flags) {
    const bool is_nameless = (flags & O_TMPFILE) == O_TMPFILE;
    const bool is_made = is_nameless || (flags & O_CREAT) != 0;
    int fd = openat(store->directory, name, flags | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EACCES && !is_nameless) { /* its maker may have given them by now */
        (void)sm_rights_give_at(store->directory, name, 0600);
        fd = openat(store->directory, name, flags | O_CLOEXEC, 0600);
    }
    const int error = fd >= 0 && is_made ? sm_rights_give(fd, 0600) : 0;
    if (error == 0)
        return fd;
    close(fd);
    if ((flags & O_EXCL) != 0 && !is_nameless)
        (void)unlinkat(store->directory, name, 0);
    errno = error;
    return -1;
}

int sm_file_open(sm_file_store *store, const char *name, int flags) {
    int fd = sm_file_open_once(store, name, flags);
    if (fd >= 0 || errno != EMFILE)
        return fd;
    pthread_mutex_lock(&store->reserve_lock.mutex);
    int *spare = reserved(store, false);
    if (spare != NULL) {
        close(*spare);
        *spare = -1;
        fd = sm_file_open_once(store, name, flags);
        int error = errno;
        if (fd < 0) /* the name, or another thread was quicker */
            *spare = fcntl(store->directory, F_DUPFD_CLOEXEC, 0);
        errno = error;
    }
    pthread_mutex_unlock(&store->reserve_lock.mutex);
    return fd;
}

/* Making the descriptor one of the directory needs no new one. */
void sm_file_close(sm_file_store *store, int fd) {
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

symmem_status sm_file_open_reserve(sm_file_store *store) {
    for (int i = 0; i < SM_FILE_RESERVE; i++) {
        store->reserve[i] = fcntl(store->directory, F_DUPFD_CLOEXEC, 0);
        if (store->reserve[i] < 0)
            return sm_fail_errno(errno, "store_open_file", "", "no descriptor for the reserve");
    }
    return SYMMEM_OK;
}

void sm_file_close_reserve(sm_file_store *store) {
    for (int i = 0; i < SM_FILE_RESERVE; i++)
        if (store->reserve[i] >= 0)
            close(store->reserve[i]);
    sm_fork_lock_close(&store->reserve_lock);
}

/* --- whose files they are --------------------------------------------------------------------- */

symmem_status sm_file_check_owner(const struct stat *about, mode_t forbidden, const char *operation,
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

symmem_status sm_file_check(int fd, const char *name, const char *operation) {
    struct stat about;
    if (fstat(fd, &about) != 0)
        return sm_fail_errno(errno, operation, name, "cannot look at a file of the store");
    if (!S_ISREG(about.st_mode))
        return sm_fail(SYMMEM_CORRUPT, operation, name, "the store's %s is no file", name);
    return sm_file_check_owner(&about, 0077, operation, name, name);
}

int sm_file_check_length(size_t bytes) {
    uint64_t limit;
    return sm_file_limit(&limit) && bytes > limit ? EFBIG : 0;
}
