/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank's board: at [p] where its part for rank p begins, in bytes from its buffer, at
 * [world_size] where the last one ends; then, while checking, its verdict: 0, or 1 + the rank whose
 * part for it is not of the length that it expects, and that length in elements.
 */
#include "all_to_all.h"

#include "cpu/move.h"

static void show_parts(const symmem_collective *call, const symmem_cpu_team *team) {
    uint64_t *board = team->board(team, team->rank);
    size_t width = symmem_cpu_width(call);
    board[0] = 0;
    if (call->in != NULL)
        board[0] = (uint64_t)((const char *)call->in - symmem_cpu_at(team, team->rank, 0));
    for (int32_t rank = 0; rank < team->world_size; rank++)
        board[rank + 1] = board[rank] + call->in_splits[rank] * width;
}

/* What `rank` has for this one, in bytes. */
typedef struct part {
    uint64_t at, bytes;
} part;

/* Read once, and held to what can be: a peer may write there at any moment whatever it likes. */
static bool read_part(const symmem_collective *call, const symmem_cpu_team *team, int32_t rank,
                      part *part_p) {
    const uint64_t *board = team->board(team, rank);
    uint64_t begin = __atomic_load_n(&board[team->rank], __ATOMIC_RELAXED);
    uint64_t end = __atomic_load_n(&board[team->rank + 1], __ATOMIC_RELAXED);
    *part_p = (part){begin, end - begin};
    return begin <= end && end <= team->buffer_bytes && part_p->bytes % symmem_cpu_width(call) == 0;
}

static uint64_t elements_of(const symmem_collective *call, const symmem_cpu_team *team,
                            int32_t rank) {
    part found;
    bool can_be = read_part(call, team, rank, &found);
    return can_be ? found.bytes / symmem_cpu_width(call) : UINT64_MAX;
}

static symmem_status corrupt(symmem_cpu_team *team, int32_t rank, uint64_t value) {
    return team->corrupt != NULL ? team->corrupt(team, rank, value) : SYMMEM_CORRUPT;
}

/* --- agreement ---------------------------------------------------------------------- */

static uint64_t *verdict_of(const symmem_cpu_team *team, int32_t rank) {
    return team->board(team, rank) + team->world_size + 1;
}

static symmem_status show_verdict(const symmem_collective *call, symmem_cpu_team *team) {
    uint64_t *verdict = verdict_of(team, team->rank);
    int32_t rank = 0;
    part theirs;
    for (; rank < team->world_size; rank++) {
        if (!read_part(call, team, rank, &theirs))
            return corrupt(team, rank, theirs.at);
        if (theirs.bytes / symmem_cpu_width(call) != call->out_splits[rank])
            break;
    }
    bool differs = rank < team->world_size;
    verdict[0] = differs ? (uint64_t)rank + 1 : 0;
    verdict[1] = differs ? call->out_splits[rank] : 0;
    return SYMMEM_OK;
}

/* A pair whose splits differ, as this rank sees it. */
typedef struct dispute {
    int32_t rank;
    uint64_t own, other;
    int32_t rating; /* 0: there is none; 1: of others; 2: this rank's own */
} dispute;

/* `corrupt_p`: the rank whose verdict cannot be, or -1. */
static dispute find_dispute(const symmem_collective *call, const symmem_cpu_team *team,
                            int32_t *corrupt_p) {
    dispute found = {.rank = -1};
    *corrupt_p = -1;
    for (int32_t rank = 0; rank < team->world_size && found.rating < 2; rank++) {
        const uint64_t *verdict = verdict_of(team, rank);
        uint64_t word = __atomic_load_n(&verdict[0], __ATOMIC_RELAXED);
        if (word == 0)
            continue;
        if (word > (uint64_t)team->world_size) {
            *corrupt_p = rank;
            break;
        }
        int32_t blamed = (int32_t)word - 1;
        if (rank == team->rank)
            found = (dispute){blamed, verdict[1], elements_of(call, team, blamed), 2};
        else if (blamed == team->rank)
            found = (dispute){rank, call->in_splits[rank], verdict[1], 2};
        else if (found.rating == 0)
            found = (dispute){rank, 0, 0, 1};
    }
    return found;
}

/* Every rank comes to the same conclusion. */
static symmem_status agree(const symmem_collective *call, symmem_cpu_team *team) {
    symmem_status status = show_verdict(call, team);
    if (status == SYMMEM_OK)
        status = team->meet(team);
    if (status != SYMMEM_OK)
        return status;
    int32_t broken;
    dispute found = find_dispute(call, team, &broken);
    if (broken >= 0)
        return corrupt(team, broken, *verdict_of(team, broken));
    if (found.rating == 0)
        return SYMMEM_OK;
    /* Before the next operation writes the boards, all have read them. */
    status = team->meet(team);
    return status == SYMMEM_OK ? team->mismatch(team, found.rank, found.own, found.other) : status;
}

/* --- moving ------------------------------------------------------------------------- */

static symmem_status fetch_parts(const symmem_collective *call, symmem_cpu_team *team) {
    size_t width = symmem_cpu_width(call);
    size_t at = 0;
    for (int32_t rank = 0; rank < team->rank; rank++)
        at += call->out_splits[rank];
    for (int32_t step = 0; step < team->world_size; step++) {
        int32_t rank = symmem_cpu_turn(team, step);
        if (rank == 0)
            at = 0;
        part theirs;
        size_t room = call->out_splits[rank] * width;
        if (!read_part(call, team, rank, &theirs) || (team->checking && theirs.bytes != room))
            return corrupt(team, rank, theirs.at);
        if (room > 0) /* without any out may be NULL */
            symmem_cpu_move((char *)call->out + at * width, symmem_cpu_at(team, rank, theirs.at),
                            theirs.bytes < room ? (size_t)theirs.bytes : room);
        at += call->out_splits[rank];
    }
    return SYMMEM_OK;
}

symmem_status symmem_cpu_all_to_all(const symmem_collective *call, symmem_cpu_team *team) {
    show_parts(call, team);
    symmem_status status = team->meet(team);
    if (status == SYMMEM_OK && team->checking)
        status = agree(call, team);
    if (status == SYMMEM_OK)
        status = fetch_parts(call, team);
    return status == SYMMEM_OK ? team->meet(team) : status;
}
