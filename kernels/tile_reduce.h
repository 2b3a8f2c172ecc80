/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of tile_reduce and multi_root_tile_reduce. The core composes them of a backend's barrier
 * and reduce_tile entries (core/ops/composed/tile.c), so a backend with these implements nothing
 * more.
 *
 * What        Each root gets the reduction of one tile of all ranks: rows of elements that follow
 *             each other, at one distance in the buffers and at another in out_tile.
 * Steps       Barrier. A root reduces its tile. Barrier.
 * Rows        Rows without a gap, in the buffers as in out_tile, come to reduce_tile as one row.
 * Checked     by the core, before anything is written: channel, dtype and op supported, tiles in
 *             the handle's block, shapes, rows, roots, overlaps. By the first barrier: number,
 *             places, shapes, rows and roots of the tiles.
 * Before      First barrier: every rank's tiles are ready.
 * After       Last barrier: tiles may be written again.
 * Limits      as those of all_gather_v.h.
 * Aliasing    out_tile is this rank's own tile, or shares no element with a tile of any rank.
 * Determined  rank order, reference/reduce.h: the bits of an all-reduce.
 * Failure     out_tile is undefined, except after MISMATCH. On a stream the backend skips the steps
 *             after a failed one, see symmem_exec.
 * Source      PyTorch symm_mem::tile_reduce and multi_root_tile_reduce on NVSHMEM, which have sums
 *             only, want a symmetric out_tile on every rank, and do not look at overlaps.
 */
#ifndef SYMMEM_KERNELS_TILE_REDUCE_H
#define SYMMEM_KERNELS_TILE_REDUCE_H
#endif
