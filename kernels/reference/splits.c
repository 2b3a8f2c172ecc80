/* SPDX-License-Identifier: BSD-3-Clause */
#include "splits.h"

#include <string.h>

static size_t number_of(const symmem_reference_splits *shape, bool by_experts, size_t rank,
                        size_t expert) {
    return by_experts ? expert * shape->ranks + rank : rank * shape->experts + expert;
}

/* The row of the input at which the part begins. */
static uint64_t begin_of(const symmem_reference_rank *rank, size_t number) {
    uint64_t begin = 0;
    if (rank->in_offsets != NULL)
        return (uint64_t)rank->in_offsets[number];
    for (size_t i = 0; i < number; i++)
        begin += (uint64_t)rank->in_splits[i];
    return begin;
}

/* How many rows `from` has for expert `expert` of rank `to`. */
static uint64_t rows_of(const symmem_reference_splits *shape, const symmem_reference_rank *from,
                        size_t to, size_t expert) {
    return (uint64_t)from->in_splits[number_of(shape, shape->by_experts, to, expert)];
}

/* --- checks --------------------------------------------------------------------------------- */

static symmem_reference_fault check_input(const symmem_reference_splits *shape,
                                          const symmem_reference_rank *rank) {
    uint64_t end = 0;
    for (size_t i = 0; i < shape->ranks * shape->experts; i++) {
        const int64_t rows = rank->in_splits[i];
        if (rows < 0)
            return (symmem_reference_fault){SYMMEM_SPLIT_NEGATIVE, 0, 0, (uint64_t)rows};
        if (rows == 0)
            continue;
        if (rank->in_offsets != NULL) {
            const int64_t offset = rank->in_offsets[i];
            if (offset < 0)
                return (symmem_reference_fault){SYMMEM_SPLIT_OFFSET_NEGATIVE, 0, 0,
                                                (uint64_t)offset};
            if ((uint64_t)offset < end)
                return (symmem_reference_fault){SYMMEM_SPLIT_OFFSET_ORDER, 0, end,
                                                (uint64_t)offset};
            end = (uint64_t)offset;
        }
        end += (uint64_t)rows;
        if (end > rank->in_rows)
            return (symmem_reference_fault){rank->in_offsets != NULL ? SYMMEM_SPLIT_OFFSET_BEYOND
                                                                     : SYMMEM_SPLIT_BEYOND,
                                            0, rank->in_rows, end};
    }
    return (symmem_reference_fault){SYMMEM_SPLIT_OK, 0, 0, 0};
}

/* --- places --------------------------------------------------------------------------------- */

/* Visits the parts that come to `own` in the order of their numbers, and says at which row of out
 * each begins. */
typedef struct walk {
    const symmem_reference_splits *shape;
    const symmem_reference_rank *ranks;
    const bool *sends; /* NULL: all do */
    size_t own, number;
    size_t from, expert; /* of this part */
    uint64_t rows, at;
    uint64_t row_begin; /* of the expert, where parts are ordered by experts */
} walk;

static bool walk_next(walk *w) {
    const symmem_reference_splits *shape = w->shape;
    if (w->number == shape->ranks * shape->experts)
        return false;
    const bool by_experts = !shape->by_experts;
    const size_t row = by_experts ? shape->ranks : shape->experts;
    if (w->number > 0)
        w->at += w->rows;
    if (w->number > 0 && w->number % row == 0 && shape->align > 0) {
        while ((w->at - w->row_begin) % shape->align != 0 || w->at == w->row_begin)
            w->at++;
    }
    if (w->number % row == 0)
        w->row_begin = w->at;
    w->from = by_experts ? w->number % row : w->number / row;
    w->expert = by_experts ? w->number / row : w->number % row;
    const bool sends = w->sends == NULL || w->sends[w->from];
    w->rows = sends ? rows_of(shape, &w->ranks[w->from], w->own, w->expert) : 0;
    w->number++;
    return true;
}

symmem_reference_fault symmem_reference_check_splits(const symmem_reference_splits *shape,
                                                     const symmem_reference_rank *ranks) {
    bool sends[SYMMEM_MAX_WORLD_SIZE];
    for (size_t r = 0; r < shape->ranks; r++)
        sends[r] = check_input(shape, &ranks[r]).fault == SYMMEM_SPLIT_OK;
    for (size_t r = 0; r < shape->ranks; r++) {
        symmem_reference_fault found = check_input(shape, &ranks[r]);
        walk w = {.shape = shape, .ranks = ranks, .sends = sends, .own = r};
        uint64_t end = 0;
        while (walk_next(&w))
            if (w.rows > 0)
                end = w.at + w.rows;
        if (found.fault == SYMMEM_SPLIT_OK && end > ranks[r].out_rows)
            found = (symmem_reference_fault){SYMMEM_SPLIT_OUT, 0, ranks[r].out_rows, end};
        found.rank = r;
        if (found.fault != SYMMEM_SPLIT_OK)
            return found;
    }
    return (symmem_reference_fault){SYMMEM_SPLIT_OK, 0, 0, 0};
}

void symmem_reference_all_to_all_v(const symmem_reference_splits *shape,
                                   const symmem_reference_rank *ranks, size_t own, void *out,
                                   int64_t *out_splits_offsets) {
    walk w = {.shape = shape, .ranks = ranks, .own = own};
    while (walk_next(&w)) {
        const symmem_reference_rank *from = &ranks[w.from];
        const uint64_t begin = begin_of(from, number_of(shape, shape->by_experts, own, w.expert));
        out_splits_offsets[w.number - 1] = (int64_t)w.rows;
        out_splits_offsets[shape->ranks * shape->experts + w.number - 1] = (int64_t)w.at;
        if (w.rows > 0)
            memcpy((char *)out + w.at * shape->row_bytes,
                   (const char *)from->in + begin * shape->row_bytes, w.rows * shape->row_bytes);
    }
}
