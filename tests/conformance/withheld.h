/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank stays away from something that waits for it: no rank may pass, and every rank that waits
 * must get TIMEOUT within its limit, naming that rank and no other.
 *
 * A limit for each withheld rank would take minutes with many ranks. So several objects are tried
 * at once, each with another rank withheld and each by a thread of its own.
 */
#ifndef SYMMEM_CONFORMANCE_WITHHELD_H
#define SYMMEM_CONFORMANCE_WITHHELD_H

#include "sync_help.h"

/* So many objects at once; in large worlds fewer. */
#define WITHHELD_BATCH 16

/*
 * Objects of odd index are on a group in mirrored order. The mirror maps odd ranks to odd ones and
 * itself back, so that trials on one object after the other withhold each group rank and each world
 * rank once.
 */
static inline int32_t withheld_mirror(int32_t size, int32_t index, int32_t rank) {
    if (index % 2 == 0)
        return rank;
    return size % 2 != 0 ? size - 1 - rank : (size - rank) % size;
}

/* One object, as one rank sees it. */
struct withheld {
    struct tk *t;
    int32_t index, size, rank; /* own rank and size are the group's */
    int32_t absent;            /* group rank; -1: this rank does not wait */
    uint32_t limit_ms;
    int32_t channel;
    symmem_group *group;
    void *memory;
    symmem_handle *handle;
    symmem_stream *stream;
    symmem_graph *graph;
    symmem_status status;
    symmem_error_record record;
    uint64_t begin_ms, took_ms;
};

/* `run` may be called in any thread and makes no check. The others are called by all ranks of the
 * object's group, in the ranks' own threads. NULL: nothing to do. */
struct withheld_kind {
    const char *operation; /* as in the record; NULL: has none */
    bool own_group;        /* calls on one group run in order: each object needs its own */
    bool ranks_unknown;    /* the call knows no ranks, so that its record names none */
    void (*make)(struct withheld *w); /* after group is set */
    void (*arm)(struct withheld *w);  /* before each trial: afterwards `run` has to wait */
    symmem_status (*run)(struct withheld *w);
    void (*mend)(struct withheld *w); /* after each trial: everything works again, and is seen to */
    void (*end)(struct withheld *w);
};

/* Every rank once is withheld from all others. */
void withhold_each(struct tk *t, const struct withheld_kind *kind);
/* Some ranks only: the first, the last, and those at the ends of the missing set's words. */
void withhold_some(struct tk *t, const struct withheld_kind *kind);
/* For what has one peer: every rank once is withheld from some other, in large groups with several
 * at a time, and in groups of one from itself. */
void withhold_peers(struct tk *t, const struct withheld_kind *kind);

/* WITHHOLD(each, t, .operation = "barrier", ...): the same of a kind that is used once. */
#define WITHHOLD(which, t, ...) withhold_##which(t, &(const struct withheld_kind){__VA_ARGS__})

/* `make` and `end` of a kind that waits at a handle. A large world with little time makes its
 * objects many times over: each of them gives its memory back. */
void withheld_make_handle(struct withheld *w);
void withheld_end_handle(struct withheld *w);

#endif
