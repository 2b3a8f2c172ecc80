/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Views of buffers and signal pads as DLPack tensors, and the calls that take tensors.
 * [SM-VIEW, SM-FILL]
 */
#ifndef SYMMEM_VIEW_H
#define SYMMEM_VIEW_H

#include <dlpack/dlpack.h>
#include <symmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Local. A contiguous tensor of shape sizes[0..ndim) over rank's memory; storage_offset is in
 * elements of dtype. byte_offset of the tensor is 0: data points at the first element. The tensor
 * holds a reference to the handle; call its deleter once, from any thread, after the context was
 * finalized too. Errors: OUT_OF_RANGE (rank, negative offset or size, end beyond the memory),
 * OVERFLOW, INVALID_ARGUMENT (dtype, ndim outside 0..8), MISALIGNED (the address is no multiple of
 * the element size), UNREACHABLE (no direct access).
 */
/* Relative to the base of the whole allocation; bounds: the whole allocation. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_get_buffer(symmem_handle *handle, int32_t rank,
                                                          int32_t ndim, const int64_t *sizes,
                                                          symmem_dtype dtype,
                                                          int64_t storage_offset,
                                                          DLManagedTensor **tensor_p);
/* Relative to the handle's offset: the peer's twin of the local tensor. Bounds: the block. */
SYMMEM_API SYMMEM_CHECKED symmem_status
symmem_get_remote_tensor(symmem_handle *handle, int32_t rank, int32_t ndim, const int64_t *sizes,
                         symmem_dtype dtype, int64_t storage_offset, DLManagedTensor **tensor_p);
/* Local. The user's signal pad. ndim 0: one dimension with signal_pad_size / element size entries.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_get_signal_pad(symmem_handle *handle, int32_t rank,
                                                              int32_t ndim, const int64_t *sizes,
                                                              symmem_dtype dtype,
                                                              int64_t storage_offset,
                                                              DLManagedTensor **tensor_p);

/*
 * Local. Stream operations on any flat, contiguous uint32 tensor the device can reach, symmetric or
 * not; that is ordinary host memory only with SYMMEM_CAP_HOST_ACCESS. [SM-FILL-04] The memory stays
 * valid as with symmem_copy, the descriptor for the call only. offset and count are in words.
 * Checked in this order, before anything is written: tensor (INVALID_ARGUMENT), offset >= 0, count
 * > 0, value in [0, 2^32), offset + count <= numel (all OUT_OF_RANGE).
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_memset32(symmem_context *context,
                                                        const DLTensor *tensor, int64_t offset,
                                                        int64_t value, int64_t count,
                                                        symmem_stream *stream);
/* Local. One word, which appears whole; all earlier work of the stream is visible system-wide
 * before it (release). */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_write_value32(symmem_context *context,
                                                                    const DLTensor *tensor,
                                                                    int64_t offset, int64_t value,
                                                                    symmem_stream *stream);
/* Local. The same for a tensor of uint64; offset is in words of 8 bytes. UNSUPPORTED without
 * SYMMEM_CAP_VALUES. symmem_wait_value32 and 64 (handle.h) wait for such words. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_write_value64(symmem_context *context,
                                                                    const DLTensor *tensor,
                                                                    int64_t offset, uint64_t value,
                                                                    symmem_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
