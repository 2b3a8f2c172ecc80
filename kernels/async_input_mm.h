/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of async_input_mm, the backend entry `matmul` with signals. On the CPU
 * backend_shm_emul/matmul.c waits and cpu/matmul.h multiplies. With CUDA cuda/product.cu waits and
 * backend_cuda/product/product.c enqueues.
 *
 * What        out = a x b. a arrives in signal_count chunks of m / signal_count rows each.
 * Order       Chunk (signal_pivot + i) mod signal_count for i = 0, 1, ... An early chunk waits for
 *             the chunks before it. A device with many processors may process it earlier.
 * Before      Chunk c is read once signals[c] is not 0. The read is a system-wide acquire, so it
 *             sees everything written before symmem_stream_write_value32 or a release store set the
 *             word. b and out are ready in stream order.
 * After       The words are unchanged. The caller resets them to 0 before using them again.
 * Deadline    One for all chunks, counted from the moment the operation begins to run. TIMEOUT
 *             names the missing chunk. The rows of that chunk and of later ones are not written.
 *             Nothing is poisoned, because no peer is known here.
 * Failure     After a failed product no further product is made and no chunk is waited for. That
 *             includes waits that already run on the device.
 * Checked     by the core, before anything is enqueued: shapes, dtypes (no scales), layouts,
 *             overlaps, the pivot, that m is a multiple of signal_count, and that the words are
 *             uint32 aligned to 4 bytes.
 * Bound       symmem/matmul.h.
 * Source      PyTorch symm_mem::_async_input_mm, which supports bfloat16, chunks of a multiple of
 *             128 rows and one kind of GPU, and has no deadline.
 */
#ifndef SYMMEM_KERNELS_ASYNC_INPUT_MM_H
#define SYMMEM_KERNELS_ASYNC_INPUT_MM_H
#endif
