/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the backend calls of NVSHMEM, whose own header for the host is C++'s. calls.cpp compares the
 * two.
 */
#ifndef SYMMEM_NVSHMEM_CALLS_H
#define SYMMEM_NVSHMEM_CALLS_H

#include <assert.h> /* the next ones have C++'s static_assert and bool */
#include <stdbool.h>

#include <device_host/nvshmem_types.h>
#include <device_host_transport/nvshmem_constants.h>
#include <non_abi/nvshmem_version.h>
#include <non_abi/nvshmemx_error.h>

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

#define CALLS_WITH_UNIQUEID 8u /* nvshmemx_hostlib_init_attr's flag */

void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch);
int nvshmemx_init_status(void);
int nvshmemx_get_uniqueid(nvshmemx_uniqueid_t *id);
int nvshmemx_set_attr_uniqueid_args(const int rank, const int ranks, const nvshmemx_uniqueid_t *id,
                                    nvshmemx_init_attr_t *attr);
int nvshmemx_hostlib_init_attr(unsigned int flags, nvshmemx_init_attr_t *attr);
void nvshmemx_hostlib_finalize(void);
int nvshmem_my_pe(void);
int nvshmem_n_pes(void);
void *nvshmem_malloc(size_t bytes);
void *nvshmem_ptr(const void *symmetric, int pe);
void nvshmemx_putmem_on_stream(void *to, const void *from, size_t bytes, int pe,
                               struct CUstream_st *stream);
void nvshmemx_getmem_on_stream(void *to, const void *from, size_t bytes, int pe,
                               struct CUstream_st *stream);
void nvshmemx_uint32_p_on_stream(uint32_t *to, const uint32_t value, int pe,
                                 struct CUstream_st *stream);
void nvshmemx_quiet_on_stream(struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
