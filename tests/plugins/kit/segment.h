/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that is a file which ranks of one host map: of memfd_create, shm_open, or a driver's. With
 * it the group memory is a few lines, see ../memfd_mini. There are no failpoints in it: a backend
 * that wants some has them around these calls, under its own name.
 */
#ifndef SYMMEM_KIT_SEGMENT_H
#define SYMMEM_KIT_SEGMENT_H

#include <symmem/backend.h>

/* host->fail with the status that stands for this errno: LIMIT, OUT_OF_MEMORY, NO_SPACE, SYSTEM.
 * `operation` is the public call without symmem_, `step` what failed within it, in words or as the
 * function's name: symmem_kit_fail_errno(host, errno, "alloc", "memfd_create"). */
symmem_status symmem_kit_fail_errno(const symmem_host *host, int error, const char *operation,
                                    const char *step);
/* Makes an empty file `bytes` long, in whole pages that are all there, for this user alone, and
 * maps it. It cannot be shortened any more if it takes seals, for which memfd_create needs
 * MFD_ALLOW_SEALING. Fills *memory; priv is the descriptor, which stays the caller's on failure.
 * NO_SPACE for more than half of the machine's memory: a file of memfd_create has no limit of its
 * own, so the kernel may end processes before it refuses. Half is what /dev/shm has by default.
 */
symmem_status symmem_kit_segment_make(const symmem_host *host, int fd, int32_t device, size_t bytes,
                                      symmem_memory *memory);
/* memory->release: unmaps, and closes the descriptor of own memory. */
void symmem_kit_segment_release(void *instance, symmem_memory *memory);
/* The bodies of memory->share and memory->map, and memory->unshare. */
symmem_status symmem_kit_segment_share(const symmem_host *host, const symmem_memory *memory,
                                       symmem_share *share);
void symmem_kit_segment_unshare(void *instance, symmem_share *share);
symmem_status symmem_kit_segment_map(const symmem_host *host, int32_t device,
                                     const symmem_share *share, size_t bytes,
                                     symmem_memory *memory);

#endif
