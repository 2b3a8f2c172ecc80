/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of the file store. store_file.c has the calls, store_file_fds.c the descriptors and the
 * checks of owner and mode, store_file_notify.c the words that tell of changes. */
#ifndef SYMMEM_CORE_STORE_FILE_H
#define SYMMEM_CORE_STORE_FILE_H

#include "base/fork.h"
#include "store/store.h"

#include <sys/stat.h>

#define SM_FILE_RESERVE 2 /* add: the lock and the value */

typedef struct sm_absent_key sm_absent_key;

typedef struct sm_file_store {
    int directory;
    _Atomic uint32_t *words;
    sm_fork_lock reserve_lock;
    int reserve[SM_FILE_RESERVE]; /* further descriptors of the directory; -1: lent */
    sm_fork_lock absent_lock;     /* over all below */
    sm_absent_key *absent;        /* NULL: absent keys are not remembered */
    struct stat notify;           /* the file that is mapped */
    uint64_t next_check_ns;       /* whether it is still there */
    bool is_in_place;             /* as of the last check */
} sm_file_store;

/* --- store_file_fds.c --- */
/* As openat in the store's directory, if need be on a descriptor of the reserve. What it makes has
 * mode 0600; what it makes with O_EXCL is gone if it fails. */
int sm_file_open(sm_file_store *store, const char *name, int flags);
/* The same without the reserve. */
int sm_file_open_once(const sm_file_store *store, const char *name, int flags);
/* Fills up the reserve first. */
void sm_file_close(sm_file_store *store, int fd);
symmem_status sm_file_open_reserve(sm_file_store *store);
void sm_file_close_reserve(sm_file_store *store);
/* Whether only this user may do what the `forbidden` bits of a mode permit. */
symmem_status sm_file_check_owner(const struct stat *about, mode_t forbidden, const char *operation,
                                  const char *stage, const char *what);
/* The store makes its files with mode 0600: a reader, too, could lock them. */
symmem_status sm_file_check(int fd, const char *name, const char *operation);
/* 0, or an errno: beyond its limit the kernel would end the process instead. */
int sm_file_check_length(size_t bytes);

/* --- store_file_notify.c --- */
symmem_status sm_file_open_notify(sm_file_store *store);
void sm_file_close_notify(sm_file_store *store);
/* The beginning and the end of a change that may give the key a value. */
void sm_file_begin_change(const sm_file_store *store, const char *key);
void sm_file_end_change(const sm_file_store *store, const char *key);
/* The change has made no name, or one was removed. */
void sm_file_uncount(const sm_file_store *store, const char *key);

/* A look at whether a key is there. */
typedef struct sm_file_look {
    _Atomic uint32_t *word; /* changes when a key of its hash may have got a value */
    uint32_t seen;
} sm_file_look;
/* Called before the look. */
sm_file_look sm_file_begin_look(const sm_file_store *store, const char *key);
/* Called after the look, if the key was absent. */
void sm_file_note_absent(sm_file_store *store, const char *key, const sm_file_look *look);
/* Whether no key of its hash is there, or no change of one has begun since an earlier look at which
 * it was absent. */
bool sm_file_is_absent(sm_file_store *store, const char *key);

#endif
