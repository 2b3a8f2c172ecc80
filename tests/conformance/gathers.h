/* SPDX-License-Identifier: BSD-3-Clause */
/* Every way to gather, run at any place and checked byte by byte. */
#ifndef SYMMEM_CONFORMANCE_GATHERS_H
#define SYMMEM_CONFORMANCE_GATHERS_H

#include "case_help.h"
#include "move_help.h"

typedef symmem_status (*gather_fn)(symmem_handle *handle, const DLTensor *input,
                                   const DLTensor *out, int32_t channel, uint32_t timeout_ms,
                                   symmem_stream *stream);

/* Where the input is: in the block or elsewhere, in either where out is not, or a part of out. */
enum gather_from { FROM_BLOCK, FROM_FAR, FROM_BLOCK_BEHIND, FROM_FAR_BEHIND, FROM_OUT };

struct gather_way {
    const char *name;
    gather_fn call;
    enum gather_from from;
    bool to_block;
    bool staged; /* through the block, at the handle's place */
};

static const struct gather_way gather_ways[] = {
    {"pull", symmem_all_gather_out, FROM_BLOCK, false, false},
    {"push", symmem_all_gather_out, FROM_FAR, true, false},
    {"in place", symmem_all_gather_out, FROM_OUT, true, false},
};
static const struct gather_way low_contention_ways[] = {
    {"low-contention", symmem_low_contention_all_gather_out, FROM_BLOCK, false, false},
    {"staged", symmem_low_contention_all_gather_out, FROM_FAR_BEHIND, false, true},
};
static const struct gather_way multimem_ways[] = {
    {"multimem", symmem_multimem_all_gather_out, FROM_FAR, true, false},
    {"multimem in the block", symmem_multimem_all_gather_out, FROM_BLOCK_BEHIND, true, false},
    {"multimem in place", symmem_multimem_all_gather_out, FROM_OUT, true, false},
};
static const struct gather_way ce_ways[] = {
    {"copy engine", symmem_low_contention_all_gather_ce_multicast_out, FROM_FAR, true, false},
    {"copy engine in the block", symmem_low_contention_all_gather_ce_multicast_out,
     FROM_BLOCK_BEHIND, true, false},
    {"copy engine in place", symmem_low_contention_all_gather_ce_multicast_out, FROM_OUT, true,
     false},
};

static inline void places_clear(struct places *p) {
    area_clear(&p->own);
    area_clear(&p->far);
}

static inline void places_upload(struct tk *t, const struct places *p) {
    area_upload(t, &p->own);
    area_upload(t, &p->far);
}

static inline bool places_check(struct tk *t, const struct places *p, const char *what) {
    tk_checkpoint(t, "%s", what);
    bool own = area_check(t, &p->own, "the block"), far = area_check(t, &p->far, "other memory");
    return own && far;
}

/* On a handle of its own. */
static inline struct places *places_on(struct tk *t, symmem_group *group) {
    return places_begin(t, tk_handle(t, AREA_BYTES, group));
}

/* From and to these bytes of the areas; nothing else is written. */
static inline void gather_once(struct tk *t, struct places *p, const struct gather_way *way,
                               symmem_dtype dtype, size_t count, size_t in_at, size_t out_at,
                               uint32_t generation) {
    size_t bytes = count * symmem_dtype_size(dtype);
    struct area *out = way->to_block ? &p->own : &p->far;
    struct area *in = way->from == FROM_FAR || way->from == FROM_FAR_BEHIND ? &p->far : &p->own;
    if (way->from == FROM_OUT)
        in_at = out_at + (size_t)p->rank * bytes;
    else if (way->from != FROM_BLOCK && way->from != FROM_FAR)
        in_at += AREA_BYTES - 4096;
    places_clear(p);
    move_fill(in->expected + in_at, bytes, p->rank, generation);
    places_upload(t, p);
    bool held = TK_OK(t, way->call(p->handle, FLAT(in->at + in_at, dtype, count),
                                   FLAT(out->at + out_at, dtype, count * (size_t)p->size),
                                   (int32_t)generation % 3, p->limit_ms, NULL));
    for (int32_t r = 0; r < p->size; r++)
        move_fill(out->expected + out_at + (size_t)r * bytes, bytes, r, generation);
    if (way->staged)
        move_fill(p->own.expected, bytes, p->rank, generation);
    held = places_check(t, p, way->name) && held;
    TK_CHECK_MSG(t, held, "%s of %zu %s from byte %zu to %zu", way->name, count,
                 symmem_dtype_name(dtype), in_at, out_at);
}

/* In a dtype and at places drawn from *state, which fit the areas. */
static inline void gather_drawn(struct tk *t, struct places *p, const struct gather_way *way,
                                uint64_t *state, size_t count, uint32_t generation) {
    symmem_dtype dtype = draw(state, SYMMEM_DTYPE_COUNT);
    if (count * symmem_dtype_size(dtype) * (size_t)p->size + 512 > AREA_BYTES)
        dtype = SYMMEM_UINT8;
    size_t width = symmem_dtype_size(dtype), in_at = draw(state, 40) * width;
    gather_once(t, p, way, dtype, count, in_at, draw(state, 40) * width, generation);
}

#endif
