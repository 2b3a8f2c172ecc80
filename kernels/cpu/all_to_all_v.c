/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank publishes two words for each of its parts: where the part begins, in bytes from its
 * buffer, and how many rows it has. It publishes them through the eager buffers, as many experts at
 * a time as fit there, or one expert at a time through the split tables. So any number of parts
 * needs no memory. What travels in one piece is published once, otherwise once for the check and
 * once more for the moves.
 *
 * The first words of a split table hold the result of its rank's check: a symmem_split_fault, the
 * number allowed and the number found.
 */
#include "all_to_all_v.h"
#include "cpu/collectives.h"

#include "cpu/move.h"

#define CHECK_WORDS 4
#define PART_WORDS 2 /* begin, rows */

typedef struct exchange {
    const symmem_collective *call;
    symmem_cpu_comm *comm;
    size_t ranks, row_bytes;
    size_t piece; /* experts published at a time */
    bool eager;
    bool once; /* all experts are one piece, published by now */
    const uint64_t *published[SYMMEM_MAX_WORLD_SIZE]; /* each rank's parts, after a barrier */
    /* Where the next part from each rank goes. Only where out is ordered by ranks. */
    uint64_t place[SYMMEM_MAX_WORLD_SIZE];
} exchange;

typedef struct split_check {
    symmem_split_fault fault;
    uint64_t allowed, found;
} split_check;

static uint64_t add_capped(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* --- this rank's parts -------------------------------------------------------------- */

/* Gets the part of that number. *end_p is where the parts before it end. */
static split_check take_own(const symmem_splits *splits, size_t number, uint64_t *end_p,
                            uint64_t *begin_p, uint64_t *rows_p) {
    const int64_t rows = splits->in[number];
    uint64_t begin = *end_p;
    const bool placed = splits->in_offsets != NULL;
    *begin_p = *rows_p = 0;
    if (rows < 0)
        return (split_check){SYMMEM_SPLIT_NEGATIVE, 0, (uint64_t)rows};
    if (rows == 0)
        return (split_check){SYMMEM_SPLIT_OK, 0, 0};
    if (placed) {
        const int64_t offset = splits->in_offsets[number];
        begin = (uint64_t)offset;
        if (offset < 0)
            return (split_check){SYMMEM_SPLIT_OFFSET_NEGATIVE, 0, begin};
        if (begin < *end_p)
            return (split_check){SYMMEM_SPLIT_OFFSET_ORDER, *end_p, begin};
    }
    *end_p = begin + (uint64_t)rows; /* both are less than 2^63 */
    if (*end_p > splits->in_rows)
        return (split_check){placed ? SYMMEM_SPLIT_OFFSET_BEYOND : SYMMEM_SPLIT_BEYOND,
                             splits->in_rows, *end_p};
    *begin_p = begin;
    *rows_p = (uint64_t)rows;
    return (split_check){SYMMEM_SPLIT_OK, 0, 0};
}

static split_check check_own(const exchange *x) {
    const symmem_splits *splits = &x->call->splits;
    split_check check = {SYMMEM_SPLIT_OK, 0, 0};
    uint64_t end = 0, begin = 0, rows = 0;
    for (size_t i = 0; i < x->ranks * splits->experts && check.fault == SYMMEM_SPLIT_OK; i++)
        check = take_own(splits, i, &end, &begin, &rows);
    return check;
}

static uint64_t *own_words(const exchange *x) {
    return x->eager ? x->comm->eager_buffer(x->comm, x->comm->rank)
                    : x->comm->split_table(x->comm, x->comm->rank) + CHECK_WORDS;
}

/* The experts of a piece. */
typedef struct range {
    size_t first, end;
} range;

static range piece_from(const exchange *x, size_t first) {
    const size_t left = x->call->splits.experts - first;
    return (range){first, first + (left < x->piece ? left : x->piece)};
}

/* Publishes parts without rows if the splits are wrong. If the program changes them
 * meanwhile, the peers find parts that cannot be. */
static void publish(const exchange *x, const range *piece, bool valid) {
    const symmem_collective *call = x->call;
    const size_t experts = call->splits.experts;
    const uint64_t base =
        call->in != NULL
            ? (uint64_t)((const char *)call->in - symmem_cpu_at(x->comm, x->comm->rank, 0))
            : 0;
    uint64_t *words = own_words(x);
    uint64_t end = 0, begin = 0, rows = 0;
    for (size_t i = 0; i < x->ranks * experts; i++) {
        const size_t expert = call->splits.by_experts ? i / x->ranks : i % experts;
        const size_t rank = call->splits.by_experts ? i % x->ranks : i / experts;
        if (valid)
            (void)take_own(&call->splits, i, &end, &begin, &rows);
        if (expert < piece->first || expert >= piece->end)
            continue;
        uint64_t *part = words + PART_WORDS * ((expert - piece->first) * x->ranks + rank);
        part[0] = base + begin * x->row_bytes;
        part[1] = rows;
    }
}

static symmem_status publish_and_meet(exchange *x, const range *piece, bool valid) {
    symmem_cpu_comm *comm = x->comm;
    publish(x, piece, valid);
    for (int32_t rank = 0; rank < comm->world_size; rank++)
        x->published[rank] =
            x->eager ? comm->eager_buffer(comm, rank) : comm->split_table(comm, rank) + CHECK_WORDS;
    return comm->barrier(comm);
}

/* All ranks must have read a split table before the next piece is written there. */
static symmem_status end_piece(const exchange *x, const range *piece) {
    const bool last = piece->end == x->call->splits.experts;
    return x->eager || last ? SYMMEM_OK : x->comm->barrier(x->comm);
}

/* --- the parts that come to this rank ----------------------------------------------- */

typedef struct arriving {
    uint64_t begin, rows;
} arriving;

/* Reads the words once, because a peer may overwrite them at any moment. */
static arriving part_from(const exchange *x, const range *piece, size_t rank, size_t expert) {
    const size_t own = (size_t)x->comm->rank;
    const uint64_t *words =
        x->published[rank] + PART_WORDS * ((expert - piece->first) * x->ranks + own);
    return (arriving){__atomic_load_n(&words[0], __ATOMIC_RELAXED),
                      __atomic_load_n(&words[1], __ATOMIC_RELAXED)};
}

/* Rows of out that an expert takes. */
static uint64_t aligned_rows(const exchange *x, uint64_t rows) {
    const uint64_t align = x->call->splits.align;
    if (align == 0)
        return rows;
    if (rows == 0)
        return align;
    const uint64_t beyond = rows % align;
    return beyond == 0 ? rows : add_capped(rows, align - beyond);
}

/* Counts the rows of a piece. Where out is ordered by ranks, place[rank] is the number from that
 * rank so far. Otherwise *at_p is where the next expert begins, and *end_p where the last part with
 * rows ends. */
static void count_rows(exchange *x, const range *piece, uint64_t *at_p, uint64_t *end_p) {
    for (size_t expert = piece->first; expert < piece->end; expert++) {
        uint64_t sum = 0;
        for (size_t rank = 0; rank < x->ranks; rank++) {
            const uint64_t rows = part_from(x, piece, rank, expert).rows;
            x->place[rank] = add_capped(x->place[rank], rows);
            sum = add_capped(sum, rows);
        }
        if (sum > 0)
            *end_p = add_capped(*at_p, sum);
        *at_p = add_capped(*at_p, aligned_rows(x, sum));
    }
}

/* The numbers of rows become the places of each rank's first part. */
static void place_ranks(exchange *x) {
    uint64_t at = 0;
    for (size_t rank = 0; rank < x->ranks; rank++) {
        const uint64_t rows = x->place[rank];
        x->place[rank] = at;
        at = add_capped(at, rows);
    }
}

static symmem_status corrupt_part(const exchange *x, size_t rank, uint64_t value) {
    symmem_cpu_comm *comm = x->comm;
    return comm->corrupt != NULL ? comm->corrupt(comm, (int32_t)rank, value) : SYMMEM_CORRUPT;
}

/* Moves a part to row `at` of out. */
static symmem_status move_part(const exchange *x, const range *piece, size_t rank, size_t expert,
                               uint64_t at, uint64_t *rows_p) {
    const symmem_collective *call = x->call;
    const symmem_splits *splits = &call->splits;
    const arriving part = part_from(x, piece, rank, expert);
    const size_t parts = x->ranks * splits->experts;
    const size_t number =
        symmem_split_index(!splits->by_experts, x->ranks, splits->experts, rank, expert);
    if (part.rows > 0) {
        const uint64_t left =
            part.begin <= x->comm->buffer_bytes ? x->comm->buffer_bytes - part.begin : 0;
        if (at > splits->out_rows || part.rows > splits->out_rows - at ||
            part.begin % symmem_cpu_width(call) != 0 ||
            (x->row_bytes > 0 && part.rows > left / x->row_bytes))
            return corrupt_part(x, rank, part.rows);
        symmem_cpu_move((char *)call->out + at * x->row_bytes,
                        symmem_cpu_at(x->comm, (int32_t)rank, part.begin),
                        part.rows * x->row_bytes);
    }
    splits->out[number] = (int64_t)part.rows;
    splits->out[parts + number] = (int64_t)at;
    *rows_p = part.rows;
    return SYMMEM_OK;
}

/* *at_p: where the piece's first expert begins, if out is ordered by experts. */
static symmem_status move_piece(exchange *x, const range *piece, uint64_t *at_p) {
    const bool by_ranks = x->call->splits.by_experts;
    for (size_t expert = piece->first; expert < piece->end; expert++) {
        uint64_t sum = 0, rows = 0;
        for (size_t rank = 0; rank < x->ranks; rank++) {
            const uint64_t at = by_ranks ? x->place[rank] : add_capped(*at_p, sum);
            const symmem_status status = move_part(x, piece, rank, expert, at, &rows);
            if (status != SYMMEM_OK)
                return status;
            x->place[rank] = add_capped(at, rows);
            sum = add_capped(sum, rows);
        }
        *at_p = add_capped(*at_p, aligned_rows(x, sum));
    }
    return SYMMEM_OK;
}

/* --- the operation ------------------------------------------------------------------ */

/* Every rank's parts are counted by those that get them. */
static symmem_status check_all(exchange *x, split_check *check_p) {
    *check_p = check_own(x);
    const bool valid = check_p->fault == SYMMEM_SPLIT_OK;
    uint64_t at = 0, end = 0;
    memset(x->place, 0, x->ranks * sizeof x->place[0]);
    for (size_t first = 0; first < x->call->splits.experts; first += x->piece) {
        const range piece = piece_from(x, first);
        symmem_status status = publish_and_meet(x, &piece, valid);
        if (status == SYMMEM_OK)
            count_rows(x, &piece, &at, &end);
        if (status == SYMMEM_OK)
            status = end_piece(x, &piece);
        if (status != SYMMEM_OK)
            return status;
    }
    place_ranks(x);
    if (valid && end > x->call->splits.out_rows)
        *check_p = (split_check){SYMMEM_SPLIT_OUT, x->call->splits.out_rows, end};
    return SYMMEM_OK;
}

/* Every rank finds the first rank whose check has failed. */
static symmem_status find_failed_check(const exchange *x) {
    symmem_cpu_comm *comm = x->comm;
    for (int32_t rank = 0; rank < comm->world_size; rank++) {
        const uint64_t *words = comm->split_table(comm, rank);
        const uint64_t fault = __atomic_load_n(&words[0], __ATOMIC_RELAXED);
        if (fault == SYMMEM_SPLIT_OK)
            continue;
        if (fault >= SYMMEM_SPLIT_FAULT_COUNT)
            return corrupt_part(x, (size_t)rank, fault);
        const uint64_t allowed = __atomic_load_n(&words[1], __ATOMIC_RELAXED);
        const uint64_t found = __atomic_load_n(&words[2], __ATOMIC_RELAXED);
        /* All ranks must have read the words before the next operation writes them. */
        symmem_status status = comm->barrier(comm);
        if (status != SYMMEM_OK)
            return status;
        status = symmem_split_status((symmem_split_fault)fault);
        return comm->wrong_splits != NULL
                   ? comm->wrong_splits(comm, rank, status,
                                        symmem_split_stage((symmem_split_fault)fault), allowed,
                                        found)
                   : status;
    }
    return SYMMEM_OK;
}

static symmem_status agree_on_splits(const exchange *x, const split_check *check) {
    uint64_t *words = x->comm->split_table(x->comm, x->comm->rank);
    words[0] = (uint64_t)check->fault;
    words[1] = check->allowed;
    words[2] = check->found;
    symmem_status status = x->comm->barrier(x->comm);
    return status == SYMMEM_OK ? find_failed_check(x) : status;
}

static symmem_status move_all(exchange *x) {
    uint64_t at = 0;
    for (size_t first = 0; first < x->call->splits.experts; first += x->piece) {
        const range piece = piece_from(x, first);
        symmem_status status = x->once ? SYMMEM_OK : publish_and_meet(x, &piece, true);
        if (status == SYMMEM_OK)
            status = move_piece(x, &piece, &at);
        if (status == SYMMEM_OK)
            status = end_piece(x, &piece);
        if (status != SYMMEM_OK)
            return status;
    }
    return SYMMEM_OK;
}

symmem_status symmem_cpu_all_to_all_v(const symmem_collective *call, symmem_cpu_comm *comm) {
    exchange x; /* large, and filled where it is used */
    x.call = call;
    x.comm = comm;
    x.ranks = (size_t)comm->world_size;
    x.row_bytes = call->in_row * symmem_cpu_width(call);
    const size_t expert_bytes = PART_WORDS * x.ranks * sizeof(uint64_t);
    x.eager = comm->eager_bytes >= expert_bytes;
    x.piece = x.eager ? comm->eager_bytes / expert_bytes : 1;
    x.once = call->splits.experts <= x.piece;
    split_check check;
    symmem_status status = check_all(&x, &check);
    if (status == SYMMEM_OK)
        status = agree_on_splits(&x, &check);
    if (status == SYMMEM_OK)
        status = move_all(&x);
    return status == SYMMEM_OK ? comm->barrier(comm) : status;
}
