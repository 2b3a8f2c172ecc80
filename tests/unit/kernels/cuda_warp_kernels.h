/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of few ranks and those that do the same for any, in blocks of whole warps. */
#ifndef UNIT_CUDA_WARP_KERNELS_H
#define UNIT_CUDA_WARP_KERNELS_H

#include <cstdint>

enum warp_kernel {
    WARP_BARRIER,
    WARP_NEAR_BARRIER,
    WARP_COLLECTIVE,
    WARP_BYTES,
    WARP_LINES, // long and short, of 2, 4 and 8 ranks
    WARP_LAST_LINES = WARP_LINES + 5,
    WARP_DEALT, // long and short, of two ranks
    WARP_MOVES = WARP_DEALT + 2,
    WARP_CHUNKS = WARP_MOVES + 2,
    WARP_CHUNKED_MOVES,
    WARP_BLOCKS_OF_TWO,
    WARP_BLOCKS,
    WARP_WIDE,
    WARP_SPLITS,
};

// Returns when it has ended. One at a time in a process; four warps at most.
void warp_launch(warp_kernel kernel, unsigned int blocks, unsigned int warps, const void *args);

// Is called once, when the threads of the next launch are made and before they begin.
void warp_when_ready(void (*function)());

// From the look-th one on that a kernel of this process takes at it, the word is 1.
void warp_trap(uint32_t *word, uint32_t look);

#endif
