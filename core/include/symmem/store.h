/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store: a small key-value service through which ranks find each other.
 *
 * The library has a store of files in a directory, for processes of one host; one over TCP, which
 * rank 0 serves, for any; and one in memory, for threads. Anything else (a job's own store) is
 * plugged in through symmem_store_ops.
 * [SM-STORE]
 */
#ifndef SYMMEM_STORE_H
#define SYMMEM_STORE_H

#include <symmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Longest key, the terminating zero not counted. Keys use A-Z a-z 0-9 . _ - / : only. */
#define SYMMEM_STORE_KEY_MAX 200
/* Longest value in bytes. */
#define SYMMEM_STORE_VALUE_MAX (1u << 20)

/*
 * A store implementation. Every entry may be called from several threads at once. Times are in
 * milliseconds; 0 means no limit. No entry may wait past its limit; expiry is SYMMEM_TIMEOUT.
 * A value is visible to other ranks completely or not at all. [SM-STORE]
 */
typedef struct symmem_store_ops {
    size_t size; /* sizeof(symmem_store_ops) of the implementer */
    /* Sets key to a copy of the bytes, replacing an older value; wakes waiters of that key. */
    symmem_status (*set)(void *self, const char *key, const void *value, size_t bytes,
                         uint32_t timeout_ms);
    /*
     * Copies at most capacity bytes and sets *bytes_p to the value's full size. An absent key is
     * SYMMEM_NOT_FOUND without waiting; a value larger than capacity is SYMMEM_OUT_OF_RANGE with
     * *bytes_p set and nothing copied.
     */
    symmem_status (*get)(void *self, const char *key, void *value, size_t capacity, size_t *bytes_p,
                         uint32_t timeout_ms);
    /* Returns once the key exists. Must sleep, not poll without pause. */
    symmem_status (*wait)(void *self, const char *key, uint32_t timeout_ms);
    /* Adds delta to the signed 64-bit counter at key (absent counts as 0), atomically. */
    symmem_status (*add)(void *self, const char *key, int64_t delta, int64_t *value_p,
                         uint32_t timeout_ms);
    /* Removes key. An absent key is SYMMEM_OK. */
    symmem_status (*remove)(void *self, const char *key, uint32_t timeout_ms);
    /* Gives the implementation's resources back. Called once, no other call after it. */
    void (*close)(void *self);
} symmem_store_ops;

/*
 * Local. A directory of files at `path`, created with mode 0700 if absent. All processes of the
 * job name the same path and run as the same user. No other user may change what is there. So these
 * are refused: a directory or a file of another user, a directory that the group or others may
 * write to, a file that is open to them, and a symbolic link to the directory. [SM-STORE-12, -13]
 * The ranks map the file "notify" of the directory: a process of the same user that shortens it
 * ends them by SIGBUS. One that removes the directory does not. The caller removes the directory
 * when the job is over. A child of fork inherits the store, and may use and close it if no other
 * thread was in a call on it at the fork. Errors: INVALID_ARGUMENT (no path, or not a directory),
 * PATH_TOO_LONG, PERMISSION (see above, or not writable), NO_SPACE, LIMIT (descriptors), SYSTEM
 * (what it would lie in is not there).
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_store_open_file(const char *path,
                                                               symmem_store **store_p);
/*
 * Collective over the ranks of the world, which all open the store at one address; local for files.
 * Blocks until the store is reached, at most timeout_ms. The caller gives *store_p back with
 * symmem_store_close. Any thread.
 *   file:/path            symmem_store_open_file
 *   tcp://host:port/word  rank 0 serves there. The word, which may be left out, tells jobs apart
 *                         that might use one port; without it what the launcher says of the job
 *   pmix:                 rank 0 serves at a free port, and PMIx (mpirun, srun) tells the others
 *   torchrun:             the same, and torchrun's agent tells the others
 * Rank 0 serves from a thread of the library's, which blocks all signals but those of its own
 * faults. It need not be the first to come.
 * symmem_store_close of that rank waits until the others have closed theirs or ended, at most 10 s.
 * Calls go by the machine's clock. Any client that knows the nonce is trusted, and nothing is
 * encrypted: the network must belong to the job. [SM-STORE-14 to -27] Errors: INVALID_ARGUMENT (no
 * address; PMIx has other ranks than these), NOT_FOUND (no such host), BUSY (rank 0: the port is
 * another program's), TIMEOUT (rank 0 does not serve there by then), AUTH (another job's store is
 * there), CORRUPT (something that is no such store), UNSUPPORTED (no PMIx, no agent), LIMIT,
 * SYSTEM. Later calls: PEER_LOST, when rank 0 has ended.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_store_open(const char *address, int32_t rank,
                                                          int32_t world_size, uint32_t timeout_ms,
                                                          symmem_store **store_p);
/* Local. A store in this process's heap, for ranks that are threads. Share the one pointer. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_store_open_memory(symmem_store **store_p);
/*
 * Local. Wraps a foreign implementation. `ops` must outlive the store; `self` is handed to every
 * entry. A table shorter than this header's, or with an entry missing, is SYMMEM_ABI.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_store_open_custom(const symmem_store_ops *ops,
                                                                 void *self,
                                                                 symmem_store **store_p);
/* Local. NULL is allowed. No context or group may still use the store. */
SYMMEM_API void symmem_store_close(symmem_store *store);

/*
 * Local or one-sided, as in symmem_store_ops, from any number of threads. Keys and sizes are
 * checked here, for every store. A store knows no context: SYMMEM_TIMEOUT_DEFAULT is no more than
 * the number that it is, 49 days. Errors: INVALID_ARGUMENT (key, size, NULL), TIMEOUT; of get
 * NOT_FOUND, OUT_OF_RANGE with *bytes_p set, and CORRUPT (what is there can be no value); of add
 * MISMATCH, from the library's stores (the value is not of 8 bytes); those of the file system.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_store_set(symmem_store *store, const char *key,
                                                         const void *value, size_t bytes,
                                                         uint32_t timeout_ms);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_store_get(symmem_store *store, const char *key,
                                                         void *value, size_t capacity,
                                                         size_t *bytes_p, uint32_t timeout_ms);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_store_wait(symmem_store *store, const char *key,
                                                          uint32_t timeout_ms);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_store_add(symmem_store *store, const char *key,
                                                         int64_t delta, int64_t *value_p,
                                                         uint32_t timeout_ms);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_store_remove(symmem_store *store, const char *key,
                                                            uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
