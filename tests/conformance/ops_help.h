/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of collectives share. All data goes through symmem_copy, so that it may lie in the
 * memory of any device. All state is the caller's.
 */
#ifndef SYMMEM_CONFORMANCE_OPS_HELP_H
#define SYMMEM_CONFORMANCE_OPS_HELP_H

#include <symmem/ops.h>

#include "sync_help.h"

#define COLLECTIVES (SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_DIRECT_ACCESS)

/* A tensor with its shape. Do not copy: dl points into it. */
struct ops_tensor {
    DLTensor dl;
    int64_t shape[4];
};

/* A flat one. */
const DLTensor *ops_flat(struct ops_tensor *tensor, void *data, symmem_dtype dtype, size_t count);
/* Of up to 4 dimensions. */
const DLTensor *ops_shaped(struct ops_tensor *tensor, void *data, symmem_dtype dtype, int32_t ndim,
                           const int64_t *shape);
/* The same, of a tensor that lives as long as the block around it. */
#define FLAT(data_, dtype_, count_)                                                                \
    ops_flat(&(struct ops_tensor){.shape = {0}}, data_, dtype_, count_)
#define SHAPED(data_, dtype_, ndim_, shape_)                                                       \
    ops_shaped(&(struct ops_tensor){.shape = {0}}, data_, dtype_, ndim_, shape_)

/* Gives a tensor its wrong member number i and says what it is and how it has to be refused; NULL:
 * there are no more. `takes_form`: ndim, shape and strides are among them. [SM-COLL-02] */
const char *ops_wrong_member(struct tk *t, DLTensor *dl, int i, bool takes_form,
                             symmem_status *expected_p);
/* One after the other in `tensor_`, a DLTensor that `call_` is made with. */
#define OPS_WRONG_MEMBERS(t, tensor_, takes_form, call_)                                           \
    do {                                                                                           \
        const DLTensor right_ = (tensor_);                                                         \
        symmem_status wanted_ = SYMMEM_OK, got_;                                                   \
        const char *wrong_;                                                                        \
        for (int i_ = 0;                                                                           \
             (wrong_ = ops_wrong_member((t), &(tensor_), i_, (takes_form), &wanted_)) != NULL;     \
             i_++) {                                                                               \
            got_ = (call_);                                                                        \
            TK_CHECK_MSG((t), got_ == wanted_, "%s with %s: %s", #call_, wrong_,                   \
                         symmem_status_name(got_));                                                \
            (tensor_) = right_;                                                                    \
        }                                                                                          \
    } while (0)

/* The rank's own memory behind the handle's pointer. */
char *ops_own(struct tk *t, symmem_handle *handle);

bool ops_is_float(symmem_dtype dtype);
bool ops_is_unsigned(symmem_dtype dtype);
/* A whole number of few bits, exact in every dtype; of any bits for integers. */
void ops_encode(void *to, symmem_dtype dtype, int64_t value);
/* Element i of what `rank` puts in: small numbers whose sums are exact in every dtype and depend on
 * rank, place and generation. */
void ops_fill(void *host, symmem_dtype dtype, size_t count, int32_t rank, uint32_t generation);

/* To and from memory of the device. Required to succeed. */
void ops_upload(struct tk *t, void *device, const void *host, size_t bytes);
void ops_download(struct tk *t, void *host, const void *device, size_t bytes);

/* One check: `count` elements are bit for bit as expected, two NaNs being equal. */
bool ops_expect(struct tk *t, const void *expected, const void *actual, symmem_dtype dtype,
                size_t count, const char *what);

/* Whether a failpoint is the active backend's own, and such that a failure there is one: what a
 * step of its may be made to fail by, whatever backend it is. */
bool ops_own_step(struct tk *t, const char *point);

#endif
