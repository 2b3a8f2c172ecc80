/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The owner's rights to what this process makes, which a umask may take from it at the making. The
 * umask is the whole process's, so it is not changed, not for a moment: what it took is given back.
 */
#include "base/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the owner, who is this user, and alone may do anything, lacks some of them. */
static bool lacks(const struct stat *about, mode_t rights) {
    return about->st_uid == geteuid() && (about->st_mode & 0077) == 0 &&
           (about->st_mode & rights) != rights;
}

int sm_rights_give(int fd, mode_t rights) {
    struct stat about;
    if (fstat(fd, &about) != 0)
        return errno;
    return lacks(&about, rights) && fchmod(fd, rights) != 0 ? errno : 0;
}

bool sm_rights_lack(int directory, const char *name, mode_t rights) {
    struct stat about;
    return fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISLNK(about.st_mode) &&
           lacks(&about, rights);
}

int sm_rights_give_at(int directory, const char *name, mode_t rights) {
    if (!sm_rights_lack(directory, name, rights))
        return 0;
    return fchmodat(directory, name, rights, AT_SYMLINK_NOFOLLOW) != 0 ? errno : 0;
}
