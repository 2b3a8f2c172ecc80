/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every move and multimem operation as one thing that can be loaded, run and checked, for the tests
 * of what holds for all of them. All state is the caller's.
 */
#ifndef SYMMEM_CONFORMANCE_MOVE_OPS_H
#define SYMMEM_CONFORMANCE_MOVE_OPS_H

#include "move_help.h"

enum mover_kind {
    MOVER_PULL,
    MOVER_PUSH,
    MOVER_BROADCAST,
    MOVER_ALL_TO_ALL,
    MOVER_LOW_CONTENTION,
    MOVER_STAGED,
    MOVER_KINDS, /* from here on through multicast */
    MOVER_MULTIMEM_ALL_REDUCE = MOVER_KINDS,
    MOVER_MULTIMEM_ONE_SHOT,
    MOVER_MULTIMEM_REDUCE,
    MOVER_MULTIMEM_ALL_GATHER,
    MOVER_CE_MULTICAST,
    MOVER_ALL_KINDS
};

#define MOVER_MAX_RANKS 4
#define MOVER_COUNT 96 /* int32 elements of an input, divisible by 2, 3 and 4 */

struct mover {
    enum mover_kind kind;
    symmem_handle *handle;
    int32_t rank, size, channel;
    uint32_t limit_ms;
    char *in, *out;
};

/* Memory on the group for all kinds at once. Collective. */
struct mover_memory {
    symmem_handle *handle;
    char *own; /* in the block: an input, then an output */
    char *far;
};
void mover_memory_init(struct tk *t, struct mover_memory *memory, symmem_group *group);

void mover_init(struct tk *t, struct mover *mover, const struct mover_memory *memory,
                enum mover_kind kind, int32_t channel);
const char *mover_name(const struct mover *mover);
/* The input of that generation, and canaries in the output. In place: the one is the other. */
void mover_load(struct tk *t, const struct mover *mover, uint32_t generation);
/* The input only: of what is not in place nobody may look at it any more. */
bool mover_in_place(const struct mover *mover);
void mover_overwrite(struct tk *t, const struct mover *mover);
symmem_status mover_run(const struct mover *mover, uint32_t limit_ms, symmem_stream *stream);
bool mover_expect(struct tk *t, const struct mover *mover, uint32_t generation, const char *what);
/* The output is as mover_load left it. */
bool mover_untouched(struct tk *t, const struct mover *mover, uint32_t generation,
                     const char *what);

#endif
