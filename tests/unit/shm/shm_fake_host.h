/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stand-in for the core, to drive the emulation's table directly: hosts that fail on request, and
 * small worlds whose ranks are threads (one mapping) or processes (descriptors inherited by fork).
 */
#ifndef SHM_FAKE_HOST_H
#define SHM_FAKE_HOST_H

#include <pthread.h>
#include <stdatomic.h>
#include <symmem/backend.h>

#define FAKE_MAX_RANKS 128

typedef struct fake_host {
    symmem_host host;
    pthread_mutex_t lock; /* guards the records below */
    symmem_status status; /* of the latest fail */
    uint64_t expected;
    uint64_t actual;
    char text[256];
    char notice[256];
    symmem_fault fault; /* the latest */
    atomic_int fail_count;
    atomic_int notice_count;
    atomic_int fault_count;
    atomic_bool poisoned;
    atomic_bool gone[FAKE_MAX_RANKS];
    /* If set, 1 is written there when a lost rank is asked after: what it did last. */
    _Atomic uint32_t *last_deed;
    /* The point `fail_name` answers `fail_status`, at its visit number fail_visit (from 0). */
    const char *_Atomic fail_name;
    symmem_status fail_status;
    atomic_int fail_visit;
} fake_host;

typedef struct fake_world fake_world;

typedef struct fake_rank {
    fake_world *world;
    fake_host host;
    void *instance;
    symmem_memory buffer;
    symmem_memory signal;
    symmem_memory peer_buffer[FAKE_MAX_RANKS];
    symmem_memory peer_signal[FAKE_MAX_RANKS];
    void *buffers[FAKE_MAX_RANKS];
    void *signals[FAKE_MAX_RANKS];
    int32_t global_ranks[FAKE_MAX_RANKS];
    symmem_peers peers;
} fake_rank;

struct fake_world {
    int32_t size;
    int32_t channels;
    size_t bytes;
    symmem_share buffer_shares[FAKE_MAX_RANKS];
    symmem_share signal_shares[FAKE_MAX_RANKS];
    fake_rank *ranks;
};

extern const symmem_backend *backend; /* the emulation's */

void fake_host_init(fake_host *host);
/* Forgets poison, lost peers and failures. */
void fake_host_clear(fake_host *host);
/* An instance for rank 0 of 1; ends the program if there is none. */
void *fake_open(fake_host *host);

/* Ends the program when anything fails: that is no test's business. */
fake_world *fake_world_open(int32_t size, int32_t channels, size_t bytes);
/* The same by a clock of its own, see unit_clock.h, as are fake_now_ms and fake_sleep_us until the
 * world is closed; for ranks that are threads. */
fake_world *fake_world_open_timed(int32_t size, int32_t channels, size_t bytes);
void fake_world_close(fake_world *world);
/* WORLD_TEST("what is checked", size, channels, bytes) { ... }, in such a `world`; TIMED_TEST with
 * a clock of its own. */
#define WORLD_TEST(case_name, ...) FAKE_TEST_(case_name, __COUNTER__, fake_world_open(__VA_ARGS__))
#define TIMED_TEST(case_name, ...)                                                                 \
    FAKE_TEST_(case_name, __COUNTER__, fake_world_open_timed(__VA_ARGS__))
#define FAKE_TEST_(case_name, place, opened) FAKE_PLACED_TEST_(case_name, place, opened)
#define FAKE_PLACED_TEST_(case_name, place, opened)                                                \
    static void in_world_##place(fake_world *world);                                               \
    TEST(case_name) {                                                                              \
        fake_world *world = opened;                                                                \
        in_world_##place(world);                                                                   \
        fake_world_close(world);                                                                   \
    }                                                                                              \
    static void in_world_##place(fake_world *world)
/* All ranks: signal state and hosts as at the start. */
void fake_world_reset(fake_world *world);

/* Runs fn on every rank at once; the number of ranks for which it did not return 0. */
int fake_run_threads(fake_world *world, int (*fn)(fake_rank *rank));
/* The same with a process per rank, that imports everything through descriptors. A rank killed by
 * SIGKILL counts as failed. */
int fake_run_processes(fake_world *world, int (*fn)(fake_rank *rank));

/* The signal operations with a plain exec. */
symmem_status fake_barrier(fake_rank *rank, int32_t channel, uint32_t timeout_ms, void *stream);
symmem_status fake_put(fake_rank *rank, int32_t dst, int32_t channel, uint32_t timeout_ms,
                       void *stream);
symmem_status fake_wait(fake_rank *rank, int32_t src, int32_t channel, uint32_t timeout_ms,
                        void *stream);

uint64_t fake_now_ms(void);
void fake_sleep_us(unsigned microseconds);
/* Entries of /proc/self/fd and /proc/self/maps, for leak checks. */
int fake_count_descriptors(void);
int fake_count_shared_mappings(void);
int fake_count_threads(void);
/* Whether no more than `most` threads are left: one that was joined may be listed a moment longer.
 */
bool fake_threads_settle(int most);

#endif
