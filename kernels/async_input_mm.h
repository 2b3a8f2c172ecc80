/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of async_input_mm: a backend's entry matmul with signals. CPU: backend_shm_emul/matmul.c
 * waits, cpu/matmul.h multiplies. CUDA: cuda/product.cu waits, backend_cuda/product/product.c
 * enqueues.
 *
 * What        out = a x b, a coming in signal_count chunks of m / signal_count rows each.
 * Order       chunk (signal_pivot + i) mod signal_count for i = 0, 1, ...; one that is there early
 *             waits for those before it, on devices with many processors perhaps not.
 * Before      chunk c is read once signals[c] is not 0: acquire, system-wide, so that what was
 *             written before symmem_stream_write_value32 or a release store set it is seen. b and
 *             out are ready in stream order.
 * After       the words are as they were: who wants to use them again sets them to 0.
 * Deadline    one for all chunks, from the moment the operation begins to run. TIMEOUT names the
 *             chunk; neither its rows nor those of later chunks are written. It poisons nothing: no
 *             peer is known here.
 * Failure     of a product: none is made after it, and no chunk is waited for any more, those
 *             neither that are waited for on the device already.
 * Checked     by the core, before anything is enqueued: shapes, dtypes (no scales), layouts,
 *             overlaps, pivot, m a multiple of signal_count, words of uint32 aligned to 4 bytes.
 * Bound       symmem/matmul.h.
 * Source      PyTorch symm_mem::_async_input_mm, for bfloat16, chunks of a multiple of 128 rows and
 *             one kind of GPU, without a deadline.
 */
#ifndef SYMMEM_KERNELS_ASYNC_INPUT_MM_H
#define SYMMEM_KERNELS_ASYNC_INPUT_MM_H
#endif
