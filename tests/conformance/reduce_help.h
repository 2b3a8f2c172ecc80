/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of reductions share: inputs that every rank can tell of all ranks, memory with
 * marks around it, and each form of all-reduce behind one call that checks all there is to check.
 */
#ifndef SYMMEM_CONFORMANCE_REDUCE_HELP_H
#define SYMMEM_CONFORMANCE_REDUCE_HELP_H

#include "ops_help.h"
#include "reference/reduce.h"

/* --- data ----------------------------------------------------------------------------------- */

/* Element i of what `rank` puts in. Integers: any bits. Floats: of like size, so that each addition
 * rounds and their order shows; one in 32 is a zero, an infinity, a NaN or the like. */
void reduce_fill(void *host, symmem_dtype dtype, size_t count, int32_t rank, uint32_t generation);

/* One reduction on the host. */
struct reduce_data {
    symmem_dtype dtype;
    symmem_reduce_op op;
    size_t count, bytes; /* of one rank's input */
    char *inputs;        /* of all ranks, one after the other */
    char *expected;      /* what the scalar reference makes of them */
};

void reduce_data_begin(struct tk *t, struct reduce_data *data, symmem_dtype dtype,
                       symmem_reduce_op op, size_t count, int32_t ranks, uint32_t generation);
void reduce_data_end(struct reduce_data *data);

/* Pair `index` of dtype and op that can be reduced, in some order; there are reduce_pair_count. */
void reduce_pair(int index, symmem_dtype *dtype_p, symmem_reduce_op *op_p);
int reduce_pair_count(void);

/* --- memory --------------------------------------------------------------------------------- */

#define REDUCE_MARK 0xEE
#define REDUCE_MARGIN 64

/* `bytes` bytes of the device with marks on both sides: upload and compare. The place behind the
 * marks is `at`. data NULL: marks there, too. */
void reduce_lay(struct tk *t, char *at, const void *data, size_t bytes);
bool reduce_expect_laid(struct tk *t, const char *at, const void *expected, symmem_dtype dtype,
                        size_t count, const char *what);

/* A handle inside its allocation, and as much memory elsewhere, twice. */
struct reduce_desk {
    symmem_handle *handle;
    char *own;         /* the handle's place */
    char *input, *out; /* elsewhere */
    size_t room;       /* bytes of each, margins included */
    int32_t rank, size;
    int32_t channel;
    uint32_t limit_ms;
    symmem_stream *stream; /* NULL: none */
    uint32_t generation;   /* of the next data */
    uint64_t digest;       /* of all results */
};

/* Collective; room for `bytes` bytes of data at up to 64 bytes behind each place. */
struct reduce_desk reduce_desk_begin(struct tk *t, symmem_group *group, size_t bytes);
/* For loops over all pairs: on large groups, where each rank computes what all ranks have, only
 * some, from a place that the seed chooses. */
int reduce_step(const struct reduce_desk *desk);
int reduce_first_pair(const struct tk *t, const struct reduce_desk *desk);
/* Checks that all ranks of the case had the same results so far. Collective, with the out-of-band
 * barrier. */
void reduce_expect_same_digest(struct tk *t, const struct reduce_desk *desk);

/* --- all-reduce ----------------------------------------------------------------------------- */

enum reduce_form {
    FORM_ONE_SHOT_OUT,
    FORM_ONE_SHOT_COPY_OUT,
    FORM_ONE_SHOT,
    FORM_ONE_SHOT_COPY,
    FORM_TWO_SHOT,
    FORM_TWO_SHOT_OUT,
    FORM_CHOSEN_IN_PLACE,
    FORM_CHOSEN_OUT,
    FORM_CHOSEN_PRIVATE,
    FORM_CHOSEN_PRIVATE_IN_PLACE,
    FORM_CHOSEN_TO_SYMMETRIC,
    FORM_COUNT
};

struct reduce_call {
    enum reduce_form form;
    symmem_dtype dtype;
    symmem_reduce_op op;
    size_t count;
    size_t at; /* elements behind each place */
};

/* Collective. One all-reduce of new data: result, input and marks as they must be. */
void reduce_check(struct tk *t, struct reduce_desk *desk, const struct reduce_call *call);

#endif
