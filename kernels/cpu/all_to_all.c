/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank's split table. Word [p] is where its part for rank p begins, in bytes from its buffer.
 * Word [world_size] is where the last part ends. While checking, two words follow with the result
 * of this rank's check. The first is 0, or 1 + the rank whose part for this rank has an unexpected
 * length. The second is the expected length in elements.
 */
#include "cpu/collectives.h"

#include "cpu/move.h"

static void publish_splits(const symmem_collective *call, const symmem_cpu_comm *comm) {
    uint64_t *split_table = comm->split_table(comm, comm->rank);
    size_t width = symmem_cpu_width(call);
    split_table[0] = 0;
    if (call->in != NULL)
        split_table[0] = (uint64_t)((const char *)call->in - symmem_cpu_at(comm, comm->rank, 0));
    for (int32_t rank = 0; rank < comm->world_size; rank++)
        split_table[rank + 1] = split_table[rank] + call->in_splits[rank] * width;
}

/* The part that `rank` has for this rank, in bytes. */
typedef struct part {
    uint64_t at, bytes;
} part;

/* Reads the part once and validates it, because a peer may overwrite its table at any moment. */
static bool read_part(const symmem_collective *call, const symmem_cpu_comm *comm, int32_t rank,
                      part *part_p) {
    const uint64_t *split_table = comm->split_table(comm, rank);
    uint64_t begin = __atomic_load_n(&split_table[comm->rank], __ATOMIC_RELAXED);
    uint64_t end = __atomic_load_n(&split_table[comm->rank + 1], __ATOMIC_RELAXED);
    *part_p = (part){begin, end - begin};
    return begin <= end && end <= comm->buffer_bytes && part_p->bytes % symmem_cpu_width(call) == 0;
}

static uint64_t elements_of(const symmem_collective *call, const symmem_cpu_comm *comm,
                            int32_t rank) {
    part found;
    bool can_be = read_part(call, comm, rank, &found);
    return can_be ? found.bytes / symmem_cpu_width(call) : UINT64_MAX;
}

static symmem_status corrupt(symmem_cpu_comm *comm, int32_t rank, uint64_t value) {
    return comm->corrupt != NULL ? comm->corrupt(comm, rank, value) : SYMMEM_CORRUPT;
}

/* --- agreement ---------------------------------------------------------------------- */

static uint64_t *split_check_of(const symmem_cpu_comm *comm, int32_t rank) {
    return comm->split_table(comm, rank) + comm->world_size + 1;
}

static symmem_status publish_split_check(const symmem_collective *call, symmem_cpu_comm *comm) {
    uint64_t *check = split_check_of(comm, comm->rank);
    int32_t rank = 0;
    part theirs;
    for (; rank < comm->world_size; rank++) {
        if (!read_part(call, comm, rank, &theirs))
            return corrupt(comm, rank, theirs.at);
        if (theirs.bytes / symmem_cpu_width(call) != call->out_splits[rank])
            break;
    }
    bool differs = rank < comm->world_size;
    check[0] = differs ? (uint64_t)rank + 1 : 0;
    check[1] = differs ? call->out_splits[rank] : 0;
    return SYMMEM_OK;
}

/* A pair of ranks whose splits differ, as this rank sees it. */
typedef struct split_mismatch {
    int32_t rank;
    uint64_t own, other;
    int32_t rating; /* 0: none; 1: between other ranks; 2: this rank is involved */
} split_mismatch;

/* Sets *corrupt_p to the rank whose check result is invalid, or to -1. */
static split_mismatch find_split_mismatch(const symmem_collective *call,
                                          const symmem_cpu_comm *comm, int32_t *corrupt_p) {
    split_mismatch found = {.rank = -1};
    *corrupt_p = -1;
    for (int32_t rank = 0; rank < comm->world_size && found.rating < 2; rank++) {
        const uint64_t *check = split_check_of(comm, rank);
        uint64_t word = __atomic_load_n(&check[0], __ATOMIC_RELAXED);
        if (word == 0)
            continue;
        if (word > (uint64_t)comm->world_size) {
            *corrupt_p = rank;
            break;
        }
        int32_t blamed = (int32_t)word - 1;
        if (rank == comm->rank)
            found = (split_mismatch){blamed, check[1], elements_of(call, comm, blamed), 2};
        else if (blamed == comm->rank)
            found = (split_mismatch){rank, call->in_splits[rank], check[1], 2};
        else if (found.rating == 0)
            found = (split_mismatch){rank, 0, 0, 1};
    }
    return found;
}

/* Every rank reaches the same conclusion. */
static symmem_status agree(const symmem_collective *call, symmem_cpu_comm *comm) {
    symmem_status status = publish_split_check(call, comm);
    if (status == SYMMEM_OK)
        status = comm->barrier(comm);
    if (status != SYMMEM_OK)
        return status;
    int32_t broken;
    split_mismatch found = find_split_mismatch(call, comm, &broken);
    if (broken >= 0)
        return corrupt(comm, broken, *split_check_of(comm, broken));
    if (found.rating == 0)
        return SYMMEM_OK;
    /* All ranks must have read the tables before the next operation writes them. */
    status = comm->barrier(comm);
    return status == SYMMEM_OK ? comm->mismatch(comm, found.rank, found.own, found.other) : status;
}

/* --- moving ------------------------------------------------------------------------- */

static symmem_status fetch_parts(const symmem_collective *call, symmem_cpu_comm *comm) {
    size_t width = symmem_cpu_width(call);
    size_t at = 0;
    for (int32_t rank = 0; rank < comm->rank; rank++)
        at += call->out_splits[rank];
    for (int32_t step = 0; step < comm->world_size; step++) {
        int32_t rank = symmem_cpu_peer_at_step(comm, step);
        if (rank == 0)
            at = 0;
        part theirs;
        size_t room = call->out_splits[rank] * width;
        if (!read_part(call, comm, rank, &theirs) || (comm->checking && theirs.bytes != room))
            return corrupt(comm, rank, theirs.at);
        if (room > 0) /* without elements out may be NULL */
            symmem_cpu_move((char *)call->out + at * width, symmem_cpu_at(comm, rank, theirs.at),
                            theirs.bytes < room ? (size_t)theirs.bytes : room);
        at += call->out_splits[rank];
    }
    return SYMMEM_OK;
}

symmem_status symmem_cpu_all_to_all(const symmem_collective *call, symmem_cpu_comm *comm) {
    publish_splits(call, comm);
    symmem_status status = comm->barrier(comm);
    if (status == SYMMEM_OK && comm->checking)
        status = agree(call, comm);
    if (status == SYMMEM_OK)
        status = fetch_parts(call, comm);
    return status == SYMMEM_OK ? comm->barrier(comm) : status;
}
