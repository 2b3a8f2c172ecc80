/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of matrices that are cut from larger ones. See ops.h for what holds for all; tensors
 * need not be contiguous here. [SM-TILE]
 *
 * These need SYMMEM_CAP_TILES. A tile is a tensor of two dimensions. The elements of a row follow
 * each other, and each row begins behind the one before, at any distance. An input tile is
 * symmetric: it lies in the handle's block, with the same shape, strides and place on every rank.
 * Its elements are reduced in rank order: the bits of an all-reduce. All dtypes and operations work
 * that symmem_reduce_supported names. Input tiles stay as they are, and so do elements between the
 * rows of out_tile.
 *
 * out_tile is looked at on a root only; others may pass NULL. It has the dtype and shape of the
 * tile that the rank is the root of, any distance of the rows, and lies anywhere that the rank's
 * device can reach. It is this rank's own tile, in place, or shares no element with any rank's
 * tile.
 *
 * Errors: those of ops.h; INVALID_ARGUMENT also for rows as they must not be, and an out_tile of
 * another shape. With check_collectives MISMATCH on every rank, with nothing written, where ranks
 * differ in any of this. If a step fails, the handle is poisoned on every rank.
 */
#ifndef SYMMEM_OPS_TILE_H
#define SYMMEM_OPS_TILE_H

#include <symmem/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Collective. On the root out_tile gets the reduction of the ranks' tiles. OUT_OF_RANGE for a root
 * outside the group. PyTorch: tile_reduce, which has sums only. Contract: kernels/tile_reduce.h. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_tile_reduce(
    symmem_handle *handle, const DLTensor *in_tile, symmem_reduce_op op, int32_t root,
    const DLTensor *out_tile, int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

/*
 * Collective. The same for tile_count tiles at once: that of in_tiles[i] goes to rank roots[i]. The
 * tiles are of one dtype, and of any shapes. They may overlap. No rank is a root twice; one that is
 * none takes part all the same. The arrays are read during the call only, and may be NULL if
 * tile_count is 0. OUT_OF_RANGE for a root outside the group and a negative tile_count. PyTorch:
 * multi_root_tile_reduce, which has sums only. Contract: kernels/tile_reduce.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_multi_root_tile_reduce(
    symmem_handle *handle, int32_t tile_count, const DLTensor *const *in_tiles,
    const int32_t *roots, symmem_reduce_op op, const DLTensor *out_tile, int32_t channel,
    uint32_t timeout_ms, symmem_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
