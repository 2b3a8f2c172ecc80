/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of moves and multimem operations share. All state is the caller's. */
#ifndef SYMMEM_CONFORMANCE_MOVE_HELP_H
#define SYMMEM_CONFORMANCE_MOVE_HELP_H

#include "ops_help.h"

#define CANARY 0xE7
#define AREA_BYTES 16384u

/* A piece of the device's memory, and what every byte of it should be. */
struct area {
    char *at;
    size_t bytes;
    uint8_t expected[AREA_BYTES];
};

static inline void area_init(struct area *area, char *at, size_t bytes) {
    area->at = at;
    area->bytes = bytes < AREA_BYTES ? bytes : AREA_BYTES;
}

/* Canaries everywhere, until the next upload in the model only. */
static inline void area_clear(struct area *area) {
    memset(area->expected, CANARY, area->bytes);
}

static inline void area_upload(struct tk *t, const struct area *area) {
    ops_upload(t, area->at, area->expected, area->bytes);
}

static inline bool area_check(struct tk *t, const struct area *area, const char *what) {
    uint8_t found[AREA_BYTES];
    size_t wrong = 0;
    ops_download(t, found, area->at, area->bytes);
    while (wrong < area->bytes && found[wrong] == area->expected[wrong])
        wrong++;
    return TK_CHECK_MSG(t, wrong == area->bytes, "%s: byte %zu is 0x%02x, not 0x%02x", what, wrong,
                        wrong < area->bytes ? found[wrong] : 0u,
                        wrong < area->bytes ? area->expected[wrong] : 0u);
}

/* One rank's memory: in the handle's block, and elsewhere. */
struct places {
    symmem_handle *handle;
    int32_t rank, size;
    uint32_t limit_ms;
    struct area own, far;
};

/* Of a handle of AREA_BYTES. Canaries are in the models only, until the next upload. */
static inline struct places *places_begin(struct tk *t, symmem_handle *handle) {
    struct places *p = tk_scratch(t, sizeof *p);
    symmem_handle_info info = info_of(t, handle);
    p->handle = handle;
    p->rank = info.rank;
    p->size = info.world_size;
    p->limit_ms = LONG_MS;
    area_init(&p->own, ops_own(t, handle), AREA_BYTES);
    area_init(&p->far, tk_alloc(t, AREA_BYTES), AREA_BYTES);
    area_clear(&p->own);
    area_clear(&p->far);
    return p;
}

/* Bytes that tell rank, generation and place. */
static inline void move_fill(uint8_t *to, size_t bytes, int32_t rank, uint32_t generation) {
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(word_of(rank, generation, i / 4 + 1) >> (i % 4 * 8));
}

/* Whether the last record is of that call. */
static inline bool recorded_as(const char *operation) {
    return strcmp(last_record().operation, operation) == 0;
}

/* The same on all ranks, unlike tk_random. */
static inline uint32_t draw(uint64_t *state, uint32_t below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % below);
}

#endif
