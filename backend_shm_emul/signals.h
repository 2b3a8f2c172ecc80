/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals and the barrier. */
#ifndef SYMMEM_BACKEND_SHM_SIGNALS_H
#define SYMMEM_BACKEND_SHM_SIGNALS_H

#include "shm.h"

typedef _Atomic uint32_t shm_word;

/* Sleepers on this many channels are woken when the state is poisoned. The others find out at their
 * next tick. */
#define SHM_WAKE_CHANNELS 256

/* The start of each rank's signal state. All zero at first. signals.c describes the rest. */
typedef struct shm_signal_header {
    shm_word sleepers; /* threads of this rank that sleep in the kernel, on any word */
    shm_word poisoned;
    /* processor on which this rank last began to wait, plus 1; 0: it never waited */
    shm_word processor;
    shm_word no_yield_waits; /* in this many future waits the rank does not yield to others */
    shm_word slept[SHM_WAKE_CHANNELS / 32]; /* bit c: a thread has slept on channel c */
    uint32_t reserved[4];                   /* to the next cache line */
} shm_signal_header;

typedef enum shm_seen { SHM_READY, SHM_MISSING, SHM_BROKEN } shm_seen;

/* A wait for one rank, or for each in order. */
typedef struct shm_wait shm_wait;
struct shm_wait {
    const symmem_peers *peers;
    const char *operation;
    int32_t channel;
    int32_t rank; /* -1: all but this rank */
    bool own_too; /* with -1: this rank, too */
    uint32_t epoch;
    int32_t core_count; /* that this process may run on */
    uint32_t timeout_ms;
    uint64_t start_ns; /* 0: the clock is read when the wait does not end at once */
    /* the word that changes when `rank` is ready */
    shm_word *(*word)(const shm_wait *wait, int32_t rank);
    /* Takes what is waited for, if it is there. Otherwise *value_p gets the word's value. */
    shm_seen (*attempt)(const shm_wait *wait, int32_t rank, uint32_t *value_p);
    /* Looks without taking. */
    bool (*peek)(const shm_wait *wait, int32_t rank);
};

/* Prepares a barrier of all ranks on a channel, for a barrier operation or as part of a
 * collective. */
void shm_sync_prepare(const shm_instance *instance, const symmem_peers *peers,
                      const char *operation, int32_t channel, uint32_t timeout_ms, shm_wait *wait);
/* Release, then acquire. Compares calls if *id is one. A failure's *fault_p is complete but not yet
 * reported. */
symmem_status shm_sync(shm_wait *wait, const symmem_call_id *id, symmem_fault *fault_p);
/* The tables of counted signals: how many of each rank have come to the owner, how many the owner
 * has given each rank, and how many of those that came its waits have taken. */
typedef enum shm_count { SHM_CAME, SHM_GIVEN, SHM_TAKEN } shm_count;
shm_word *shm_count_word(const symmem_peers *peers, shm_count which, int32_t owner, int32_t channel,
                         int32_t rank);
/* The beginning of an operation of signals. Fails if the failpoint fails, or if the state is
 * poisoned. */
symmem_status shm_signal_before(const shm_wait *wait, const char *name, symmem_fault *fault_p);
/* Its end: reports a failure, and returns the status. */
symmem_status shm_signal_finish(const shm_wait *wait, const char *name, symmem_status status,
                                const symmem_fault *fault, symmem_error_record *record_p);
/* Returns the SYMMEM_CPU_SPLIT_TABLE_WORDS words of rank `owner` for the collective on the
 * channel. */
uint64_t *shm_split_table(const symmem_peers *peers, int32_t owner, int32_t channel);
/* Returns rank `owner`'s eager buffer for the next barrier on the channel. It has
 * shm_eager_bytes(channel) bytes, which may be 0. */
void *shm_eager_buffer(const symmem_peers *peers, int32_t owner, int32_t channel);
size_t shm_eager_bytes(int32_t channel);

size_t shm_signal_bytes(void *instance, int32_t world_size, int32_t channel_count,
                        size_t block_bytes);
symmem_status shm_peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                             void **pads_dev_p);
void shm_peers_close(void *instance, symmem_peers *peers);
symmem_status shm_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                          const symmem_exec *exec);
symmem_status shm_put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                             int32_t channel, const symmem_exec *exec);
symmem_status shm_wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                              int32_t channel, const symmem_exec *exec);
symmem_status shm_signal_reset(void *instance, const symmem_peers *peers);
void shm_signal_poison(void *instance, const symmem_peers *peers);

#endif
