/* SPDX-License-Identifier: BSD-3-Clause */
/* The owner's rights to files, whatever the umask. */
#ifndef SYMMEM_CORE_RIGHTS_H
#define SYMMEM_CORE_RIGHTS_H

#include <stdbool.h>
#include <sys/types.h>

/* Gives the owner of a file `rights`. The file belongs to this user, and no other user has any
 * right to it. Returns 0 or an errno. */
int sm_rights_give(int fd, mode_t rights);
int sm_rights_give_at(int directory, const char *name, mode_t rights);
/* Whether that would give any. */
bool sm_rights_lack(int directory, const char *name, mode_t rights);

#endif
