/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walking failpoints: each scenario is run once to see which points each rank passes, then again
 * for each of these points on each rank, with that rank failing, coming late or being killed there.
 * Nothing is known of a backend's points but what it passes.
 *
 * A full walk takes minutes. Without SYMMEM_SUITE_LONG=1 each case takes as many steps as its
 * budget allows, chosen by the seed, and says how many that were.
 */
#ifndef SYMMEM_CONFORMANCE_WALK_H
#define SYMMEM_CONFORMANCE_WALK_H

#include <errno.h>

#include "kit.h"

#define WALK_LIMIT_MS 8000u /* that only a broken library reaches */
#define WALK_INJECTED SYMMEM_LIMIT
#define WALK_CHANNEL 1
#define WALK_WORDS 16

/* What a rank's failure at a point means for the ranks. */
enum walk_outcome {
    WALK_AGREED,  /* every rank fails with the same status, which names the rank */
    WALK_LOCAL,   /* the rank's own: the others succeed */
    WALK_SIGNALS, /* the rank's own: who waits for it gets POISONED, the others succeed */
};

/* One run of a scenario on one rank. All that is not NULL is given back afterwards. */
struct walk_run {
    struct tk *t;
    int number;             /* the same on all ranks, different for each run of the case */
    uint32_t limit_ms;      /* of each call */
    bool multicast;         /* allowed in the context */
    symmem_store *store;    /* NULL: the case's */
    const char *socket_dir; /* NULL: sockets without a file */
    symmem_context *context;
    symmem_group *group;
    void *memory;
    symmem_handle *handle;
    symmem_stream *stream;
    symmem_graph *graph;
    symmem_pool *pool;
    void *block;                 /* of the pool */
    int stage;                   /* how far the steps have come, for scenarios of several calls */
    symmem_error_record failure; /* of act, where later calls have changed the thread's record */
};

struct walk_scenario {
    const char *name;
    uint64_t needs; /* SYMMEM_CAP_ bits */
    enum walk_outcome outcome;
    int32_t from;   /* the first rank that takes part */
    bool multicast; /* may fail without failing the step: then no rank has it */
    /* Of each call where a rank fails, because others may wait for it; 0: WALK_LIMIT_MS. */
    uint32_t vain_ms;
    bool ends; /* act ends the context */
    /* Comes to where the walk begins. Must succeed. */
    void (*prepare)(struct walk_run *run);
    /* The walk. Called again after a failure, it takes up where it failed, or begins anew. */
    symmem_status (*act)(struct walk_run *run);
};

extern const struct walk_scenario walk_scenarios[];
extern const int walk_scenario_count;
const struct walk_scenario *walk_find(const char *name);

#define WALK_ERRNO 4000 /* of no system call */
/* Notes the first call behind which errno is another one. */
void walk_look_at_errno(const char *call);
/* One check: there was none on this thread since the last check. */
void walk_expect_errno(struct tk *t);

/* In act: a call whose failure is the step's. */
#define WALK_STEP(call)                                                                            \
    do {                                                                                           \
        errno = WALK_ERRNO;                                                                        \
        symmem_status status_ = (call);                                                            \
        walk_look_at_errno(#call);                                                                 \
        if (status_ != SYMMEM_OK)                                                                  \
            return status_;                                                                        \
    } while (0)

/* --- walk_collectives.c: scenarios of walk_scenarios.c ------------------------------ */

/* Some words of this rank's memory, where no other rank writes. */
DLTensor walk_words(const struct walk_run *run, int64_t *count);
symmem_status walk_collective(struct walk_run *run);
symmem_status walk_composed(struct walk_run *run);
/* What walk_fused multiplies. */
void walk_fill_ones(struct walk_run *run);
symmem_status walk_fused(struct walk_run *run);

/* --- walk_run.c: one run ------------------------------------------------------------ */

symmem_context_options walk_options(const struct walk_run *run);
/* A store of the run's own, in a folder of that name and its number. */
void walk_open_store(struct walk_run *run, const char *name);
/* The context and what the scenario prepares. */
void walk_begin(struct walk_run *run, const struct walk_scenario *scenario);
/* Shows that everything works, see work_after.h; group NULL: on a new one. */
void walk_works(struct walk_run *run, symmem_group *group);
/* The same on a new group of all but `lost`. */
void walk_survivors_work(struct walk_run *run, int32_t lost);
void walk_give_back(struct walk_run *run);
/* A group of the case's ranks, but for `without` (-1: all). */
symmem_group *walk_group(struct walk_run *run, const char *what, int32_t without);

/* --- walk_memory.c ------------------------------------------------------------------ */

void walk_shortages(struct tk *t);
void walk_points_of_one(struct tk *t);

/* --- walk_points.c: what the core passes -------------------------------------------- */

/* The core's points, in the table of SPEC.md. */
struct walk_point {
    const char *name;
    bool observes;      /* its status is ignored */
    uint64_t needs;     /* SYMMEM_CAP_ bits without which it is not passed */
    bool rare;          /* may not be passed, for reasons that no capability tells */
    const char *unless; /* a point that is passed in its place */
};
extern const struct walk_point walk_core_points[];
extern const int walk_core_point_count;
/* NULL: not one of the core's. */
const struct walk_point *walk_core_point(const char *name);
bool walk_observes(const char *name);

/* --- walk.c, walk_kill.c ------------------------------------------------------------ */

/* Steps to be taken by a case. */
struct walk_list {
    int total;                            /* over all ranks */
    int first[SYMMEM_MAX_WORLD_SIZE + 1]; /* of each rank's */
    int *order;                           /* a permutation; steps are numbered by rank */
    int taken;                            /* so many of them are walked */
    bool multicast;                       /* the run had it */
};
/* Runs the scenario once while recording; the same list on every rank. `apart`: in a process of its
 * own, for drivers of devices do not work in what is forked after they were used; list->multicast
 * is then not known. */
void walk_list_make(struct tk *t, const struct walk_scenario *scenario, int *number, int budget,
                    bool apart, struct walk_list *list);
void walk_list_free(struct walk_list *list);
/* The rank whose step `index` is. */
int32_t walk_list_rank(const struct walk_list *list, int index);
/* On that rank: the point and which of its passes. */
const char *walk_list_point(struct tk *t, const struct walk_list *list, int index, int *nth_p);
/* Each rank's name is every rank's; collective. */
void walk_show_name(struct tk *t, const char *name);
void walk_read_name(struct tk *t, int32_t rank, char name[32]);
/* All ranks wait for each other; false if a rank has failed a check. */
bool walk_all_good(struct tk *t);

/* The cases. */
void walk_faults(struct tk *t, const char *scenario);
void walk_kills(struct tk *t, const char *scenario);

#endif
