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

/* The elements that `rank` has for this one. */
static size_t part_of(const symmem_collective *call, const symmem_cpu_team *team, int32_t rank) {
    const uint64_t *board = team->board(team, rank);
    return (size_t)(board[team->rank + 1] - board[team->rank]) / symmem_cpu_width(call);
}

/* --- agreement ---------------------------------------------------------------------- */

static uint64_t *verdict_of(const symmem_cpu_team *team, int32_t rank) {
    return team->board(team, rank) + team->world_size + 1;
}

static void show_verdict(const symmem_collective *call, const symmem_cpu_team *team) {
    uint64_t *verdict = verdict_of(team, team->rank);
    int32_t rank = 0;
    while (rank < team->world_size && part_of(call, team, rank) == call->out_splits[rank])
        rank++;
    bool differs = rank < team->world_size;
    verdict[0] = differs ? (uint64_t)rank + 1 : 0;
    verdict[1] = differs ? call->out_splits[rank] : 0;
}

/* A pair whose splits differ, as this rank sees it. */
typedef struct dispute {
    int32_t rank;
    uint64_t own, other;
    int32_t rating; /* 0: there is none; 1: of others; 2: this rank's own */
} dispute;

static dispute find_dispute(const symmem_collective *call, const symmem_cpu_team *team) {
    dispute found = {.rank = -1};
    for (int32_t rank = 0; rank < team->world_size && found.rating < 2; rank++) {
        const uint64_t *verdict = verdict_of(team, rank);
        if (verdict[0] == 0)
            continue;
        int32_t blamed = (int32_t)verdict[0] - 1;
        if (rank == team->rank)
            found = (dispute){blamed, verdict[1], part_of(call, team, blamed), 2};
        else if (blamed == team->rank)
            found = (dispute){rank, call->in_splits[rank], verdict[1], 2};
        else if (found.rating == 0)
            found = (dispute){rank, 0, 0, 1};
    }
    return found;
}

/* Every rank comes to the same conclusion. */
static symmem_status agree(const symmem_collective *call, symmem_cpu_team *team) {
    show_verdict(call, team);
    symmem_status status = team->meet(team);
    if (status != SYMMEM_OK)
        return status;
    dispute found = find_dispute(call, team);
    if (found.rating == 0)
        return SYMMEM_OK;
    /* Before the next operation writes the boards, all have read them. */
    status = team->meet(team);
    return status == SYMMEM_OK ? team->mismatch(team, found.rank, found.own, found.other) : status;
}

/* --- moving ------------------------------------------------------------------------- */

static void fetch_parts(const symmem_collective *call, const symmem_cpu_team *team) {
    size_t width = symmem_cpu_width(call);
    size_t at = 0;
    for (int32_t rank = 0; rank < team->rank; rank++)
        at += call->out_splits[rank];
    for (int32_t step = 0; step < team->world_size; step++) {
        int32_t rank = symmem_cpu_turn(team, step);
        if (rank == 0)
            at = 0;
        size_t part = part_of(call, team, rank), room = call->out_splits[rank];
        const char *from = symmem_cpu_at(team, rank, team->board(team, rank)[team->rank]);
        if (room > 0) /* without any out may be NULL */
            symmem_cpu_move((char *)call->out + at * width, from,
                            (part < room ? part : room) * width);
        at += room;
    }
}

symmem_status symmem_cpu_all_to_all(const symmem_collective *call, symmem_cpu_team *team) {
    show_parts(call, team);
    symmem_status status = team->meet(team);
    if (status == SYMMEM_OK && team->checking)
        status = agree(call, team);
    if (status != SYMMEM_OK)
        return status;
    fetch_parts(call, team);
    return team->meet(team);
}
