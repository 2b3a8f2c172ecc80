/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of a collective on the device, and the bytes that each step accesses. Three users
 * compute the same plan: the host, which starts a kernel for each step of a large collective; the
 * one block that runs all steps of a small one; and the unit test, which runs all ranks on the CPU.
 * Plain C.
 *
 * Between two barriers no rank writes what another one reads or writes. Each step is complete, on
 * its rank, before the next one begins.
 */
#ifndef SYMMEM_KERNELS_CUDA_COLLECTIVE_PLAN_H
#define SYMMEM_KERNELS_CUDA_COLLECTIVE_PLAN_H

#include <stdbool.h>

#include "cuda/signal.h"

#define SYMMEM_CUDA_SHARD_UNIT 64
/* The sizes up to which LL is used, in bytes: for an all-reduce of two ranks with chunks and
 * without, and for what two ranks move. */
#define SYMMEM_CUDA_LL_MAX_BYTES ((size_t)8 << 20)
#define SYMMEM_CUDA_LL_MAX_BYTES_WITHOUT_CHUNKS ((size_t)16 << 20)
#define SYMMEM_CUDA_LL_MAX_MOVED_BYTES ((size_t)4 << 20)
#define SYMMEM_CUDA_LL_SHORT_WARPS 768         /* warps that may use short rounds */
#define SYMMEM_CUDA_LL_WARPS_SHARED_DEVICE 768 /* of each of two ranks that share a device */
#define SYMMEM_CUDA_CHUNKS_MAX_BYTES ((size_t)32 << 30) /* units are counted by 32 bits */

typedef enum symmem_cuda_form {
    SYMMEM_CUDA_NOTHING, /* no elements: only a barrier */
    SYMMEM_CUDA_ONE_SHOT,
    SYMMEM_CUDA_ONE_SHOT_COPY,
    SYMMEM_CUDA_IN_PLACE, /* two-shot */
    SYMMEM_CUDA_COPY_IN_PLACE,
    SYMMEM_CUDA_TWO_SHOT, /* into a separate out, keeping the inputs */
    SYMMEM_CUDA_TWO_SHOT_COPY,
    SYMMEM_CUDA_REDUCE_SCATTER, /* reduce-scatter, and the low-contention pull */
    SYMMEM_CUDA_PUSH_SCATTER,
    SYMMEM_CUDA_GATHER_PULL,
    SYMMEM_CUDA_GATHER_PUSH,
    SYMMEM_CUDA_BROADCAST,
    SYMMEM_CUDA_ALL_TO_ALL,
} symmem_cuda_form;

/* One collective of one rank. Tables of pointers are the device's. */
typedef struct symmem_cuda_job {
    int32_t form;
    int32_t op;
    int32_t rank;
    int32_t world_size;
    int32_t root;
    int32_t checking; /* the first barrier compares the ranks' calls */
    size_t element;   /* bytes */
    size_t count;     /* elements, as in symmem_collective; so are the next fields */
    size_t offset;
    size_t in_row;
    size_t out_row;
    const char *in;
    char *out;
    void *const *buffers;
    void *const *signals;
    size_t split_table_at; /* in a rank's signal state: the channel's split table */
    size_t buffer_bytes;   /* of each rank's buffer; */
    size_t out_bytes;      /* of out, in an all-to-all; split tables must stay within both */
} symmem_cuda_job;

typedef enum symmem_cuda_step_kind {
    SYMMEM_CUDA_SYNC,
    SYMMEM_CUDA_AGREE, /* on splits; includes a barrier */
    SYMMEM_CUDA_MOVE,
    SYMMEM_CUDA_SWAP, /* exchanges bytes at `out` and in this rank's buffer */
    SYMMEM_CUDA_REDUCE,
} symmem_cuda_step_kind;

/* The data of a MOVE. p takes the value of each rank, and every rank begins with another one. */
typedef enum symmem_cuda_route {
    SYMMEM_CUDA_IN_TO_OWN,
    SYMMEM_CUDA_OWN_TO_OUT,
    SYMMEM_CUDA_GATHER,        /* p's elements to chunk p of out */
    SYMMEM_CUDA_GATHER_SHARDS, /* p's shard to its offset in out, except this rank's */
    SYMMEM_CUDA_PUSH,          /* `in` to chunk `rank` of p's buffer */
    SYMMEM_CUDA_SCATTER,       /* part p of `in` to chunk `rank` of p's buffer */
    SYMMEM_CUDA_FROM_ROOT,
    SYMMEM_CUDA_FETCH_PARTS, /* all-to-all */
} symmem_cuda_route;

/* Where a REDUCE stores its results. These are bits. */
enum { SYMMEM_CUDA_TO_OUT = 1, SYMMEM_CUDA_TO_OWN = 2, SYMMEM_CUDA_TO_ALL = 4 };

typedef struct symmem_cuda_step {
    int32_t kind;
    int32_t route;
    bool first;    /* no barrier came before */
    bool from_own; /* REDUCE: source k is the k-th of the parts in this rank's buffer */
    int32_t to;    /* REDUCE */
    size_t at;     /* byte offset in `in` and `out`; other addresses use `offset` */
    size_t offset; /* byte offset in the buffers */
    size_t count;  /* elements; GATHER_SHARDS: of all shards */
    size_t row;    /* REDUCE: elements of a row of out, and from row to row of a source */
    size_t row_step;
} symmem_cuda_step;

/* --- split tables, which ranks publish in an all-to-all ---------------------------- */

/* Returns rank's split table, in words of 64 bits. Word p, up to world_size - 1, is where its part
 * for p begins, in bytes from its buffer. The next word is where the last part ends. Two words with
 * the check result follow, as in cpu/all_to_all.c. The rest, for the rank itself only, is where p's
 * part begins in out, in bytes. */
SYMMEM_CUDA_BOTH const uint64_t *symmem_cuda_split_table(const symmem_cuda_job *job, int32_t rank) {
    return (const uint64_t *)(const void *)((const char *)job->signals[rank] + job->split_table_at);
}

/* Returns the bytes that `rank` has for this one. */
SYMMEM_CUDA_BOTH uint64_t symmem_cuda_split_bytes(const symmem_cuda_job *job, int32_t rank) {
    const uint64_t *split_table = symmem_cuda_split_table(job, rank);
    return split_table[job->rank + 1] - split_table[job->rank];
}

SYMMEM_CUDA_BOTH const uint64_t *symmem_cuda_out_spaces(const symmem_cuda_job *job) {
    return symmem_cuda_split_table(job, job->rank) + job->world_size + 3;
}

SYMMEM_CUDA_BOTH uint64_t symmem_cuda_out_space(const symmem_cuda_job *job, int32_t rank) {
    return symmem_cuda_out_spaces(job)[rank + 1] - symmem_cuda_out_spaces(job)[rank];
}

/* One copy of an all-to-all: its address in rank p's buffer and its address in out. */
typedef struct symmem_cuda_fetch {
    uint64_t from, to, bytes;
    int32_t can_be;
} symmem_cuda_fetch;

/* Reads the table once and validates it, because peers can write to every split table. */
SYMMEM_CUDA_BOTH symmem_cuda_fetch symmem_cuda_fetch_of(const symmem_cuda_job *job, int32_t p) {
    const volatile uint64_t *split_table = symmem_cuda_split_table(job, p),
                            *rooms = symmem_cuda_out_spaces(job);
    const uint64_t from = split_table[job->rank], from_end = split_table[job->rank + 1];
    const uint64_t to = rooms[p], to_end = rooms[p + 1];
    symmem_cuda_fetch fetch = {from, to, 0, 0};
    if (from > from_end || from_end > job->buffer_bytes || to > to_end || to_end > job->out_bytes ||
        (from_end - from) % job->element != 0 || to % job->element != 0)
        return fetch;
    const uint64_t part = from_end - from, room = to_end - to;
    fetch.bytes = part < room ? part : room;
    fetch.can_be = 1;
    return fetch;
}

/* Returns the first rank whose split is invalid, or world_size if all are valid. */
SYMMEM_CUDA_BOTH int32_t symmem_cuda_invalid_split(const symmem_cuda_job *job) {
    int32_t rank = 0;
    while (rank < job->world_size && symmem_cuda_fetch_of(job, rank).can_be)
        rank++;
    return rank;
}

/* Returns the first rank whose split does not match this rank's out, or world_size if all match. */
SYMMEM_CUDA_BOTH int32_t symmem_cuda_wrong_split(const symmem_cuda_job *job) {
    int32_t rank = 0;
    while (rank < job->world_size &&
           symmem_cuda_split_bytes(job, rank) == symmem_cuda_out_space(job, rank))
        rank++;
    return rank;
}

/* Writes the check result to this rank's table, before a barrier. */
SYMMEM_CUDA_BOTH void symmem_cuda_publish_split_check(const symmem_cuda_job *job) {
    uint64_t *check = (uint64_t *)(void *)((char *)job->signals[job->rank] + job->split_table_at) +
                      job->world_size + 1;
    int32_t rank = symmem_cuda_wrong_split(job);
    bool differs = rank < job->world_size;
    check[0] = differs ? (uint64_t)rank + 1 : 0;
    check[1] = differs ? symmem_cuda_out_space(job, rank) / job->element : 0;
}

/* A pair of ranks whose splits differ, as this rank sees it. */
typedef struct symmem_cuda_split_mismatch {
    int32_t rank; /* -1: none */
    int32_t own_matter;
    uint64_t own, other; /* elements */
    int32_t corrupt; /* `rank` published an invalid result, which perhaps no other rank has seen */
} symmem_cuda_split_mismatch;

SYMMEM_CUDA_BOTH symmem_cuda_split_mismatch
symmem_cuda_find_split_mismatch(const symmem_cuda_job *job) {
    symmem_cuda_split_mismatch found = {-1, 0, 0, 0, 0};
    for (int32_t rank = 0; rank < job->world_size && !found.own_matter; rank++) {
        const volatile uint64_t *check = symmem_cuda_split_table(job, rank) + job->world_size + 1;
        const uint64_t word = check[0];
        if (word == 0)
            continue;
        const uint64_t *own = symmem_cuda_split_table(job, job->rank);
        symmem_cuda_split_mismatch seen = {rank, 0, 0, 0, 0};
        if (word > (uint64_t)job->world_size) {
            seen.corrupt = 1;
            seen.own = word;
            return seen;
        }
        int32_t blamed = (int32_t)word - 1;
        if (rank == job->rank) {
            seen.rank = blamed;
            seen.own = check[1];
            seen.other = symmem_cuda_split_bytes(job, blamed) / job->element;
        } else if (blamed == job->rank) {
            seen.own = (own[rank + 1] - own[rank]) / job->element;
            seen.other = check[1];
        }
        seen.own_matter = rank == job->rank || blamed == job->rank;
        if (seen.own_matter || found.rank < 0)
            found = seen;
    }
    return found;
}

/* --- shards: what each rank reduces for all ranks in a two-shot -------------------- */

SYMMEM_CUDA_BOTH size_t symmem_cuda_least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Returns where `rank`'s shard of `count` elements begins. Shards are whole lines. The last ones
 * may be shorter or empty. */
SYMMEM_CUDA_CALLED size_t symmem_cuda_shard(const symmem_cuda_job *job, size_t count,
                                            int32_t rank) {
    size_t ranks = (size_t)job->world_size, line = SYMMEM_CUDA_SHARD_UNIT / job->element;
    size_t shard = count / ranks + (count % ranks != 0);
    shard = (shard + line - 1) / line * line;
    if (rank > 0 && shard > count / (size_t)rank)
        return count;
    return (size_t)rank * shard;
}

/* --- steps -------------------------------------------------------------------------- */

/* Returns the elements that travel through the buffers at a time. */
SYMMEM_CUDA_BOTH size_t symmem_cuda_piece(const symmem_cuda_job *job) {
    bool passes = job->form == SYMMEM_CUDA_ONE_SHOT_COPY || job->form == SYMMEM_CUDA_TWO_SHOT_COPY;
    return passes ? symmem_cuda_least(job->in_row, job->count) : job->count;
}

SYMMEM_CUDA_BOTH symmem_cuda_step symmem_cuda_move_step(const symmem_cuda_job *job, int32_t route,
                                                        size_t count) {
    symmem_cuda_step step = {SYMMEM_CUDA_MOVE, route, false, false, 0, 0, job->offset, count, 0, 0};
    return step;
}

/* Reduces `count` elements starting at `begin`, in one row. */
SYMMEM_CUDA_BOTH symmem_cuda_step symmem_cuda_reduce_step(const symmem_cuda_job *job, size_t begin,
                                                          size_t count, int32_t to) {
    size_t at = begin * job->element;
    symmem_cuda_step step = {SYMMEM_CUDA_REDUCE, 0,     false, false, to, at,
                             job->offset + at,   count, count, count};
    return step;
}

/* Reduces this rank's shard of `count` elements. */
SYMMEM_CUDA_BOTH symmem_cuda_step symmem_cuda_shard_step(const symmem_cuda_job *job, size_t count,
                                                         int32_t to) {
    size_t begin = symmem_cuda_shard(job, count, job->rank);
    return symmem_cuda_reduce_step(job, begin, symmem_cuda_shard(job, count, job->rank + 1) - begin,
                                   to);
}

/* Returns the step with out and in advanced to the elements at `begin`. */
SYMMEM_CUDA_BOTH symmem_cuda_step symmem_cuda_step_from(const symmem_cuda_job *job,
                                                        symmem_cuda_step step, size_t elements) {
    step.at += elements * job->element;
    return step;
}

SYMMEM_CUDA_BOTH symmem_cuda_step symmem_cuda_scatter_step(const symmem_cuda_job *job) {
    symmem_cuda_step step = symmem_cuda_reduce_step(job, 0, job->count, SYMMEM_CUDA_TO_OUT);
    step.offset += (size_t)job->rank * job->out_row * job->element;
    step.row = job->out_row;
    step.row_step = job->in_row;
    return step;
}

/* Reduces the parts that were pushed to this rank. */
SYMMEM_CUDA_BOTH symmem_cuda_step symmem_cuda_parts_step(const symmem_cuda_job *job) {
    symmem_cuda_step step = symmem_cuda_reduce_step(job, 0, job->count, SYMMEM_CUDA_TO_OUT);
    step.from_own = true;
    return step;
}

/* Returns the index-th step that is no barrier. In a form by pieces the index counts within the
 * piece. */
SYMMEM_CUDA_BOTH symmem_cuda_step symmem_cuda_work(const symmem_cuda_job *job, size_t piece,
                                                   int32_t index) {
    size_t whole = symmem_cuda_piece(job), begin = piece * whole;
    size_t count = symmem_cuda_least(whole, job->count - begin);
    switch (job->form) {
    case SYMMEM_CUDA_ONE_SHOT:
        return symmem_cuda_reduce_step(job, 0, count, SYMMEM_CUDA_TO_OUT);
    case SYMMEM_CUDA_ONE_SHOT_COPY:
        return symmem_cuda_step_from(
            job,
            index == 0 ? symmem_cuda_move_step(job, SYMMEM_CUDA_IN_TO_OWN, count)
                       : symmem_cuda_reduce_step(job, 0, count, SYMMEM_CUDA_TO_OUT),
            begin);
    case SYMMEM_CUDA_IN_PLACE:
        return symmem_cuda_shard_step(job, count, SYMMEM_CUDA_TO_ALL);
    case SYMMEM_CUDA_COPY_IN_PLACE:
        return index == 0 ? symmem_cuda_move_step(job, SYMMEM_CUDA_IN_TO_OWN, count)
                          : symmem_cuda_shard_step(job, count, SYMMEM_CUDA_TO_ALL);
    case SYMMEM_CUDA_TWO_SHOT: { /* this rank's shard of the input waits at its offset in out */
        symmem_cuda_step step = symmem_cuda_shard_step(job, count, SYMMEM_CUDA_TO_OWN);
        if (index == 2)
            return symmem_cuda_move_step(job, SYMMEM_CUDA_GATHER_SHARDS, count);
        if (index != 1)
            step.kind = index == 0 ? SYMMEM_CUDA_MOVE : SYMMEM_CUDA_SWAP;
        step.route = SYMMEM_CUDA_OWN_TO_OUT;
        return step;
    }
    case SYMMEM_CUDA_TWO_SHOT_COPY: {
        symmem_cuda_step step =
            symmem_cuda_shard_step(job, count, SYMMEM_CUDA_TO_OUT | SYMMEM_CUDA_TO_OWN);
        if (index != 1)
            step = symmem_cuda_move_step(
                job, index == 0 ? SYMMEM_CUDA_IN_TO_OWN : SYMMEM_CUDA_GATHER_SHARDS, count);
        return symmem_cuda_step_from(job, step, begin);
    }
    case SYMMEM_CUDA_REDUCE_SCATTER:
        return symmem_cuda_scatter_step(job);
    case SYMMEM_CUDA_PUSH_SCATTER:
        return index == 0 ? symmem_cuda_move_step(job, SYMMEM_CUDA_SCATTER, count)
                          : symmem_cuda_parts_step(job);
    case SYMMEM_CUDA_GATHER_PULL:
        return symmem_cuda_move_step(job, SYMMEM_CUDA_GATHER, count);
    case SYMMEM_CUDA_GATHER_PUSH:
        return symmem_cuda_move_step(job, SYMMEM_CUDA_PUSH, count);
    case SYMMEM_CUDA_BROADCAST:
        return symmem_cuda_move_step(job, SYMMEM_CUDA_FROM_ROOT, count);
    default:
        return symmem_cuda_move_step(job, SYMMEM_CUDA_FETCH_PARTS, count);
    }
}

/* What a form does, in order. */
typedef enum symmem_cuda_planned {
    SYMMEM_CUDA_END,
    SYMMEM_CUDA_EACH_PIECE, /* what is before it runs once, the rest once for each piece */
    SYMMEM_CUDA_BARRIER,
    /* Only if ranks compare their calls: */
    SYMMEM_CUDA_COMPARE, /* a barrier that prevents all writes before the comparison */
    SYMMEM_CUDA_SPLITS,  /* the agreement on splits */
    /* Steps of the form, by their index: */
    SYMMEM_CUDA_STEP_0,
    SYMMEM_CUDA_STEP_1,
    SYMMEM_CUDA_STEP_2,
    SYMMEM_CUDA_STEP_3
} symmem_cuda_planned;

/* Returns the schedule of a form, which ends with SYMMEM_CUDA_END. */
SYMMEM_CUDA_BOTH const unsigned char *symmem_cuda_schedule(int32_t form) {
    static const unsigned char nothing[] = {SYMMEM_CUDA_EACH_PIECE, SYMMEM_CUDA_BARRIER,
                                            SYMMEM_CUDA_END};
    static const unsigned char copy_first[] = {
        SYMMEM_CUDA_COMPARE, SYMMEM_CUDA_EACH_PIECE, SYMMEM_CUDA_STEP_0, SYMMEM_CUDA_BARRIER,
        SYMMEM_CUDA_STEP_1,  SYMMEM_CUDA_BARRIER,    SYMMEM_CUDA_END};
    static const unsigned char two_shot[] = {
        SYMMEM_CUDA_EACH_PIECE, SYMMEM_CUDA_BARRIER, SYMMEM_CUDA_STEP_0,
        SYMMEM_CUDA_STEP_1,     SYMMEM_CUDA_BARRIER, SYMMEM_CUDA_STEP_2,
        SYMMEM_CUDA_BARRIER,    SYMMEM_CUDA_STEP_3,  SYMMEM_CUDA_END};
    static const unsigned char two_shot_copy[] = {
        SYMMEM_CUDA_COMPARE, SYMMEM_CUDA_EACH_PIECE, SYMMEM_CUDA_STEP_0,
        SYMMEM_CUDA_BARRIER, SYMMEM_CUDA_STEP_1,     SYMMEM_CUDA_BARRIER,
        SYMMEM_CUDA_STEP_2,  SYMMEM_CUDA_BARRIER,    SYMMEM_CUDA_END};
    static const unsigned char push_scatter[] = {SYMMEM_CUDA_EACH_PIECE, SYMMEM_CUDA_BARRIER,
                                                 SYMMEM_CUDA_STEP_0,     SYMMEM_CUDA_BARRIER,
                                                 SYMMEM_CUDA_STEP_1,     SYMMEM_CUDA_END};
    static const unsigned char all_to_all[] = {SYMMEM_CUDA_EACH_PIECE, SYMMEM_CUDA_BARRIER,
                                               SYMMEM_CUDA_SPLITS,     SYMMEM_CUDA_STEP_0,
                                               SYMMEM_CUDA_BARRIER,    SYMMEM_CUDA_END};
    static const unsigned char one_step[] = {SYMMEM_CUDA_EACH_PIECE, SYMMEM_CUDA_BARRIER,
                                             SYMMEM_CUDA_STEP_0, SYMMEM_CUDA_BARRIER,
                                             SYMMEM_CUDA_END};
    switch (form) {
    case SYMMEM_CUDA_NOTHING:
        return nothing;
    case SYMMEM_CUDA_ONE_SHOT_COPY:
    case SYMMEM_CUDA_COPY_IN_PLACE:
        return copy_first;
    case SYMMEM_CUDA_TWO_SHOT:
        return two_shot;
    case SYMMEM_CUDA_TWO_SHOT_COPY:
        return two_shot_copy;
    case SYMMEM_CUDA_PUSH_SCATTER:
        return push_scatter;
    case SYMMEM_CUDA_ALL_TO_ALL:
        return all_to_all;
    default:
        return one_step;
    }
}

/* True for a form of one step between two barriers. */
SYMMEM_CUDA_BOTH bool symmem_cuda_has_one_step(int32_t form) {
    const unsigned char *schedule = symmem_cuda_schedule(form);
    return schedule[1] == SYMMEM_CUDA_BARRIER && schedule[2] == SYMMEM_CUDA_STEP_0 &&
           schedule[3] == SYMMEM_CUDA_BARRIER && schedule[4] == SYMMEM_CUDA_END;
}

/* The position in a job. All zero at the start. */
typedef struct symmem_cuda_cursor {
    size_t piece;
    int32_t at; /* in the schedule */
    bool met;
} symmem_cuda_cursor;

SYMMEM_CUDA_BOTH bool symmem_cuda_another_piece(const symmem_cuda_job *job,
                                                symmem_cuda_cursor *place) {
    size_t whole = symmem_cuda_piece(job);
    size_t pieces = whole == 0 ? 1 : job->count / whole + (job->count % whole != 0);
    const unsigned char *schedule = symmem_cuda_schedule(job->form);
    if (++place->piece >= pieces)
        return false;
    place->at = 0;
    while (schedule[place->at++] != SYMMEM_CUDA_EACH_PIECE)
        ;
    return true;
}

/* Gets the next step. Returns false after the last one. */
SYMMEM_CUDA_CALLED bool symmem_cuda_next(const symmem_cuda_job *job, symmem_cuda_cursor *place,
                                         symmem_cuda_step *step) {
    const unsigned char *schedule = symmem_cuda_schedule(job->form);
    unsigned char phase;
    do {
        if (schedule[place->at] == SYMMEM_CUDA_END && !symmem_cuda_another_piece(job, place))
            return false;
        phase = schedule[place->at++];
    } while (phase == SYMMEM_CUDA_EACH_PIECE ||
             ((phase == SYMMEM_CUDA_COMPARE || phase == SYMMEM_CUDA_SPLITS) && !job->checking));
    if (phase >= SYMMEM_CUDA_STEP_0) {
        *step = symmem_cuda_work(job, place->piece, phase - SYMMEM_CUDA_STEP_0);
    } else {
        *step = symmem_cuda_move_step(job, 0, 0);
        step->kind = phase == SYMMEM_CUDA_SPLITS ? SYMMEM_CUDA_AGREE : SYMMEM_CUDA_SYNC;
    }
    step->first = !place->met;
    place->met = place->met || step->kind == SYMMEM_CUDA_SYNC;
    return true;
}

/* --- LL ---------------------------------------------------------------------------- */

/* What a rank pushes to the others' signal state, what it adds to theirs, and where the results
 * go. */
typedef struct symmem_cuda_pushed {
    const char *src;
    const char *own; /* equals src, unless each rank reduces a part */
    char *dst;
} symmem_cuda_pushed;

/* What each of two ranks moves: to the peer, from it, and within its own memory. */
typedef struct symmem_cuda_exchange {
    const char *push;
    char *pull;
    const char *own_from;
    char *own_to;
    size_t push_bytes, pull_bytes, own_bytes;
} symmem_cuda_exchange;

SYMMEM_CUDA_BOTH bool symmem_cuda_is_all_reduce(int32_t form) {
    return form >= SYMMEM_CUDA_ONE_SHOT && form <= SYMMEM_CUDA_TWO_SHOT_COPY;
}

SYMMEM_CUDA_BOTH bool symmem_cuda_is_gather(int32_t form) {
    return form == SYMMEM_CUDA_GATHER_PULL || form == SYMMEM_CUDA_GATHER_PUSH;
}

/* True if the fast per-block reductions have code for exactly this many ranks. */
SYMMEM_CUDA_BOTH bool symmem_cuda_has_fast_kernel(int32_t ranks) {
    return ranks == 2 || ranks == 4 || ranks == 8;
}

/* The LL parameters, computed from values that are the same on all ranks. */
typedef struct symmem_cuda_ll_choice {
    uint32_t warps; /* 0: LL is not used */
    uint32_t units; /* of a round: SYMMEM_CUDA_ROUND_UNITS or SYMMEM_CUDA_SHORT_UNITS */
} symmem_cuda_ll_choice;

/* True for a reduce-scatter whose parts are each contiguous. */
SYMMEM_CUDA_BOTH bool symmem_cuda_is_whole_scatter(const symmem_cuda_job *job) {
    return (job->form == SYMMEM_CUDA_REDUCE_SCATTER || job->form == SYMMEM_CUDA_PUSH_SCATTER) &&
           job->out_row == job->count;
}

SYMMEM_CUDA_BOTH bool symmem_cuda_is_move(int32_t form) {
    return symmem_cuda_is_gather(form) || form == SYMMEM_CUDA_BROADCAST ||
           form == SYMMEM_CUDA_ALL_TO_ALL;
}

/* For two ranks. `words`, for an all-to-all, are those that collective_job.h fills. */
SYMMEM_CUDA_BOTH symmem_cuda_exchange symmem_cuda_exchange_of(const symmem_cuda_job *job,
                                                              const uint64_t *words) {
    char *buffer = (char *)job->buffers[job->rank], *own = buffer + job->offset;
    const size_t bytes = job->count * job->element;
    const int32_t rank = job->rank, peer = 1 - job->rank;
    symmem_cuda_exchange moved = {NULL, NULL, NULL, NULL, 0, 0, 0};
    if (job->form == SYMMEM_CUDA_BROADCAST) {
        moved.push = own;
        moved.pull = own;
        moved.push_bytes = rank == job->root ? bytes : 0;
        moved.pull_bytes = bytes - moved.push_bytes;
    } else if (job->form == SYMMEM_CUDA_ALL_TO_ALL) {
        /* after the ends of the parts and the check result */
        const uint64_t *rooms = words + 2 + 3;
        moved.push = buffer + words[peer];
        moved.push_bytes = words[peer + 1] - words[peer];
        moved.pull = job->out + rooms[peer];
        moved.pull_bytes = rooms[peer + 1] - rooms[peer];
        moved.own_from = buffer + words[rank];
        moved.own_to = job->out + rooms[rank];
        moved.own_bytes =
            symmem_cuda_least(words[rank + 1] - words[rank], rooms[rank + 1] - rooms[rank]);
    } else {
        char *dst = job->out != NULL ? job->out : own;
        moved.push = job->in != NULL ? job->in : own;
        moved.own_from = moved.push;
        moved.pull = dst + (size_t)peer * bytes;
        moved.own_to = dst + (size_t)rank * bytes;
        moved.push_bytes = moved.pull_bytes = moved.own_bytes = bytes;
    }
    return moved;
}

/* The conditions that choose an algorithm. They are the same on all ranks. */
typedef struct symmem_cuda_terms {
    size_t block_bytes; /* of the memory that the handle shares */
    size_t pair_bytes;  /* the most that a rank has for another one */
    int32_t channel;
    bool share_device; /* ranks share a device */
} symmem_cuda_terms;

/* True for two ranks that each have a device. */
SYMMEM_CUDA_BOTH bool symmem_cuda_are_a_pair(const symmem_cuda_job *job,
                                             const symmem_cuda_terms *terms) {
    return job->world_size == 2 && terms->channel == 0 && !terms->share_device;
}

/* Returns the number of blocks of a large operation by chunks, or 0 if chunks are not used. */
SYMMEM_CUDA_BOTH uint32_t symmem_cuda_chunk_blocks(const symmem_cuda_job *job,
                                                   const symmem_cuda_terms *terms) {
    const size_t chunks = terms->pair_bytes / SYMMEM_CUDA_CHUNK_BYTES + 1;
    const bool reduces = symmem_cuda_is_all_reduce(job->form);
    const bool for_two = symmem_cuda_is_whole_scatter(job) || symmem_cuda_is_move(job->form);
    const size_t by_lines = reduces ? SYMMEM_CUDA_LL_MAX_BYTES : SYMMEM_CUDA_LL_MAX_MOVED_BYTES;
    if (!(reduces || for_two) || !symmem_cuda_are_a_pair(job, terms) ||
        !symmem_cuda_has_chunks(job->world_size, terms->block_bytes) ||
        terms->pair_bytes <= by_lines || terms->pair_bytes > SYMMEM_CUDA_CHUNKS_MAX_BYTES)
        return 0;
    if (job->form == SYMMEM_CUDA_ALL_TO_ALL && job->checking) /* ranks must agree on splits */
        return 0;
    return (uint32_t)symmem_cuda_least(chunks, SYMMEM_CUDA_CHUNK_BLOCKS);
}

/* Returns the most bytes for which LL is used; 0: never. Every rank sends everything to every rank.
 * For two ranks that is as much as if each reduced half for both, in half the latency. For more
 * ranks it is more, so the limit is two rounds. The same limit holds for two ranks that share a
 * device. All-gathers of more ranks are faster by LL in one short round only, because their kernel
 * is the general one. */
SYMMEM_CUDA_BOTH size_t symmem_cuda_ll_max_bytes(const symmem_cuda_job *job,
                                                 const symmem_cuda_terms *terms, size_t places) {
    const bool reduces = symmem_cuda_is_all_reduce(job->form);
    const bool for_two = symmem_cuda_is_whole_scatter(job) || symmem_cuda_is_move(job->form);
    if (job->form == SYMMEM_CUDA_ALL_TO_ALL && job->checking) /* ranks must agree on splits */
        return 0;
    if (symmem_cuda_are_a_pair(job, terms))
        return for_two    ? SYMMEM_CUDA_LL_MAX_MOVED_BYTES
               : !reduces ? 0
               : symmem_cuda_has_chunks(2, terms->block_bytes)
                   ? SYMMEM_CUDA_LL_MAX_BYTES
                   : SYMMEM_CUDA_LL_MAX_BYTES_WITHOUT_CHUNKS;
    if (reduces || (for_two && job->world_size == 2))
        return 2 * places * SYMMEM_CUDA_ROUND_UNITS * SYMMEM_CUDA_LL_LINE_BYTES;
    return symmem_cuda_is_gather(job->form)
               ? places * SYMMEM_CUDA_SHORT_UNITS * SYMMEM_CUDA_LL_LINE_BYTES
               : 0;
}

SYMMEM_CUDA_BOTH symmem_cuda_ll_choice symmem_cuda_ll_choice_of(const symmem_cuda_job *job,
                                                                const symmem_cuda_terms *terms) {
    const size_t unit = SYMMEM_CUDA_LL_LINE_BYTES, bytes = terms->pair_bytes;
    const size_t warps_there =
        symmem_cuda_ll_warps(job->world_size, terms->block_bytes, terms->channel);
    /* The blocks of both ranks must fit on the device at once. Otherwise each waits for the
     * other. */
    const size_t places = terms->share_device
                              ? symmem_cuda_least(warps_there, SYMMEM_CUDA_LL_WARPS_SHARED_DEVICE)
                              : warps_there;
    const size_t few = symmem_cuda_least(places, SYMMEM_CUDA_LL_SHORT_WARPS);
    const bool is_short = bytes <= few * SYMMEM_CUDA_SHORT_UNITS * unit;
    symmem_cuda_ll_choice rounds = {0, 0};
    if (bytes > symmem_cuda_ll_max_bytes(job, terms, places))
        return rounds;
    rounds.units = is_short ? SYMMEM_CUDA_SHORT_UNITS : SYMMEM_CUDA_ROUND_UNITS;
    const size_t round = rounds.units * unit, warps = bytes / round + (bytes % round != 0);
    rounds.warps = (uint32_t)symmem_cuda_least(warps, places);
    return rounds;
}

/* A reduce-scatter has two ranks. */
SYMMEM_CUDA_BOTH symmem_cuda_pushed symmem_cuda_pushed_of(const symmem_cuda_job *job) {
    char *own = (char *)job->buffers[job->rank] + job->offset;
    const char *src = job->in != NULL ? job->in : own;
    symmem_cuda_pushed pushed = {src, src, job->out != NULL ? job->out : own};
    if (symmem_cuda_is_whole_scatter(job)) {
        pushed.src = src + (size_t)(1 - job->rank) * job->count * job->element;
        pushed.own = src + (size_t)job->rank * job->count * job->element;
    }
    return pushed;
}

/* --- the bytes that a step accesses ------------------------------------------------ */

/* A copy from one address to another. */
typedef struct symmem_cuda_segment {
    char *dst;
    const char *src;
    size_t bytes;
} symmem_cuda_segment;

SYMMEM_CUDA_BOTH char *symmem_cuda_at(const symmem_cuda_job *job, int32_t rank, size_t offset) {
    return (char *)job->buffers[rank] + offset;
}

/* Returns the index-th rank, counted from this rank with wrap-around. It avoids division, which is
 * slow on the device. */
SYMMEM_CUDA_BOTH int32_t symmem_cuda_peer_at_step(const symmem_cuda_job *job, int32_t index) {
    int32_t rank = job->rank + index;
    return rank < job->world_size ? rank : rank - job->world_size;
}

SYMMEM_CUDA_BOTH int32_t symmem_cuda_segments(const symmem_cuda_job *job,
                                              const symmem_cuda_step *step) {
    bool one = step->route == SYMMEM_CUDA_IN_TO_OWN || step->route == SYMMEM_CUDA_OWN_TO_OUT ||
               step->route == SYMMEM_CUDA_FROM_ROOT;
    return one ? 1 : job->world_size;
}

/* Returns the index-th segment of a MOVE. The caller skips a segment whose source is its
 * destination. */
SYMMEM_CUDA_BOTH symmem_cuda_segment symmem_cuda_segment_of(const symmem_cuda_job *job,
                                                            const symmem_cuda_step *step,
                                                            int32_t index) {
    int32_t p = symmem_cuda_peer_at_step(job, index);
    size_t bytes = step->count * job->element, chunk = step->offset + (size_t)job->rank * bytes;
    char *own = symmem_cuda_at(job, job->rank, step->offset);
    symmem_cuda_segment segment = {own, own, bytes};
    switch (step->route) {
    case SYMMEM_CUDA_IN_TO_OWN:
        segment.src = job->in + step->at;
        break;
    case SYMMEM_CUDA_OWN_TO_OUT:
        segment.dst = job->out + step->at;
        break;
    case SYMMEM_CUDA_GATHER:
        segment.dst = job->out + (size_t)p * bytes;
        segment.src = symmem_cuda_at(job, p, step->offset);
        break;
    case SYMMEM_CUDA_GATHER_SHARDS: {
        size_t begin = symmem_cuda_shard(job, step->count, p) * job->element;
        size_t end = symmem_cuda_shard(job, step->count, p + 1) * job->element;
        segment.dst = job->out + step->at + begin;
        segment.src = symmem_cuda_at(job, p, step->offset + begin);
        segment.bytes = p == job->rank ? 0 : end - begin;
        break;
    }
    case SYMMEM_CUDA_PUSH:
        segment.dst = symmem_cuda_at(job, p, chunk);
        segment.src = job->in;
        break;
    case SYMMEM_CUDA_SCATTER: /* backwards, so that no two ranks send to the same one */
        p = symmem_cuda_peer_at_step(job, index == 0 ? 0 : job->world_size - index);
        segment.dst = symmem_cuda_at(job, p, chunk);
        segment.src = job->in + (size_t)p * bytes;
        break;
    case SYMMEM_CUDA_FROM_ROOT:
        segment.src = symmem_cuda_at(job, job->root, step->offset);
        break;
    default: { /* FETCH_PARTS; without checking the smaller of the two counts */
        const symmem_cuda_fetch fetch = symmem_cuda_fetch_of(job, p);
        segment.dst = job->out + (fetch.can_be ? fetch.to : 0);
        segment.src = symmem_cuda_at(job, p, fetch.can_be ? fetch.from : 0);
        segment.bytes = fetch.bytes;
        break;
    }
    }
    return segment;
}

/* Returns source k of a REDUCE. */
SYMMEM_CUDA_BOTH const char *symmem_cuda_source(const symmem_cuda_job *job,
                                                const symmem_cuda_step *step, int32_t k) {
    if (step->from_own)
        return symmem_cuda_at(job, job->rank,
                              step->offset + (size_t)k * step->count * job->element);
    return symmem_cuda_at(job, k, step->offset);
}

/* Returns the number of destinations of a REDUCE: out, this rank's buffer, or all buffers. */
SYMMEM_CUDA_BOTH int32_t symmem_cuda_targets(const symmem_cuda_job *job,
                                             const symmem_cuda_step *step) {
    if (step->to == SYMMEM_CUDA_TO_ALL)
        return job->world_size;
    return step->to == (SYMMEM_CUDA_TO_OUT | SYMMEM_CUDA_TO_OWN) ? 2 : 1;
}

SYMMEM_CUDA_BOTH char *symmem_cuda_target(const symmem_cuda_job *job, const symmem_cuda_step *step,
                                          int32_t index) {
    if (step->to == SYMMEM_CUDA_TO_ALL)
        return symmem_cuda_at(job, symmem_cuda_peer_at_step(job, index), step->offset);
    if (index == 0 && (step->to & SYMMEM_CUDA_TO_OUT) != 0)
        return job->out + step->at;
    return symmem_cuda_at(job, job->rank, step->offset);
}

#endif
