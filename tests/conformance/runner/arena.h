/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory through which the ranks of a case and the controller talk: one anonymous shared
 * mapping, made before the first fork, so that results survive whatever a rank does to itself. It
 * is not believed blindly: a backend that runs wild may write here too, so there are guards.
 */
#ifndef SYMMEM_RUNNER_ARENA_H
#define SYMMEM_RUNNER_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lateness.h"

#define ARENA_MAX_RANKS 1024
#define ARENA_LARGEST_PAGE 65536
#define ARENA_SLOTS 64
#define ARENA_THREADS 4096
/* How long devices may take to open before that counts as the case's time. */
#define ARENA_OPENING_MS 120000

enum arena_state {
    ARENA_IDLE = 0,
    ARENA_OPENING, /* its device, the first time in its process, by kit_warm_up */
    ARENA_WARM,    /* with an engine that all ranks start together, by kit_warm_up */
    ARENA_PROLOGUE,
    ARENA_BODY,
    ARENA_BODY_DONE,
    ARENA_EPILOGUE,
    ARENA_DONE,
    ARENA_STATE_COUNT
};

/* A word or two that any thread of a rank writes and the controller reads: never torn into
 * something without an end, and no race. */
struct arena_word {
    _Atomic uint64_t parts[4];
};

struct arena_rank {
    uint64_t guard;                      /* by the controller; changed by code that runs over it */
    _Atomic uint32_t state;              /* by the rank */
    _Atomic uint64_t gone_ns;            /* by the controller: when its process was reaped */
    _Atomic uint32_t checks;             /* by the rank */
    _Atomic uint32_t failed;             /* 1 if claimed, 2 if the record below is complete */
    _Atomic uint32_t failures;           /* all of them, also the ones not recorded */
    _Atomic uint32_t late_failures;      /* of them those that time explains */
    _Atomic uint32_t following_failures; /* and those that follow from another rank's */
    _Atomic uint32_t unresolved;         /* the same for its text */
    _Atomic uint32_t death_expected;     /* by any rank */
    _Atomic uint32_t in_barrier;         /* waits in the out-of-band barrier */
    _Atomic int32_t process_id;
    _Atomic uint64_t arrived; /* out-of-band barriers entered */
    _Atomic uint64_t slots[ARENA_SLOTS];
    struct arena_word last_point; /* that the rank passed; empty: none yet */
    struct arena_word last_file;  /* and line of the case that it came to; empty: none yet */
    _Atomic uint32_t last_line;
    int line;
    int32_t secondary; /* the record tells of another rank's end, not of an own fault */
    char file[64];
    char requirement[32];
    char message[512];  /* what was checked, if the next two are there; else all there is to say */
    char expected[160]; /* empty unless the check compared two values */
    char got[400];
    _Atomic uint32_t failed_next; /* as `failed`, for the failed check after that */
    char next[320];               /* where, and what it was */
    char checkpoint[128];
    char unresolved_text[256];
    char leak[8192];
    char held[512];      /* names of files and sockets that it held, one a line */
    char inherited[512]; /* those that it held from the start: the report, a log */
};

/* What the probe child found out about the backend. */
struct arena_probe {
    int32_t ok;
    int32_t device_count;
    int32_t device_type;
    uint64_t capabilities;
    char name[64];
    char description[256]; /* the backend's own line; empty if it cannot be had */
    char runs_on[256];     /* what its probe found, versions mostly; empty if it does not say */
    char reason[512];
};

struct arena {
    struct arena_probe probe; /* pages of its own, which are read-only once filled */
    _Alignas(ARENA_LARGEST_PAGE) uint64_t guard;
    _Atomic uint32_t world_size;
    _Atomic uint32_t epoch; /* futex: changes when a waiter may go on */
    _Atomic uint32_t reached[ARENA_STATE_COUNT];
    _Atomic uint32_t prologue_failed;
    _Atomic uint64_t arrivals;   /* out-of-band barriers, all ranks together */
    struct lateness_ring delays; /* of ranks' threads that could run and did not, see delay.c */
    char note[160];              /* shown beside a pass; read when all ranks have ended */
    struct arena_rank ranks[ARENA_MAX_RANKS];
    _Atomic uint64_t
        threads[ARENA_THREADS]; /* what delay.c knows of each; kept from case to case */
    uint64_t last_guard;
};

/* Memory for so many bytes that a process gets by its descriptor; -1: there is none. */
int arena_descriptor(size_t bytes);
/* In that memory; with -1 only this process and those that it forks have it. NULL if there is none.
 */
struct arena *arena_create(int fd);
void arena_destroy(struct arena *arena);
/* From now on the probe's answer can only be read, by this process and those it starts. */
void arena_seal_probe(struct arena *arena);
/* Clears everything but the probe for a case of world_size ranks. No rank may be running. */
void arena_reset(struct arena *arena, int world_size, uint64_t guard);
/* After the ranks have ended: ends all texts, and says whether the guards are as arena_reset left
 * them. If not, nothing in here is worth reading. */
bool arena_check(struct arena *arena, int world_size, uint64_t guard);

/* The rank enters `state` and wakes who waits for it. */
/* What this thread does every millisecond while it waits here; NULL: nothing. */
typedef void (*arena_serve_fn)(void *arg);
void arena_serve(arena_serve_fn serve, void *arg);
/* Does it; false: nothing. */
bool arena_serve_once(void);
void arena_enter(struct arena *arena, int rank, enum arena_state state);
/* Waits until every rank has entered `state` or a later one, or is gone; false after timeout_ms. */
bool arena_meet(struct arena *arena, enum arena_state state, uint32_t timeout_ms);

enum arena_wait { ARENA_MET, ARENA_EXPIRED, ARENA_RANK_ENDED };
/* The out-of-band barrier. *ended_p: the rank that ended without being expected to. */
enum arena_wait arena_barrier(struct arena *arena, int rank, uint32_t timeout_ms, int *ended_p);
/* Waits until the controller has seen the end of `rank`. */
bool arena_wait_gone(struct arena *arena, int rank, uint32_t timeout_ms);
uint64_t arena_gone_ns(struct arena *arena, int rank); /* 0: not yet */
/* By the controller. */
void arena_set_gone(struct arena *arena, int rank);

/* Keeps the first 31 bytes. */
void arena_put_word(struct arena_word *word, const char *text);
void arena_get_word(struct arena_word *word, char text[static 32]);

uint64_t arena_now_ns(void);

#endif
