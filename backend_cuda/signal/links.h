/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a rank's device has NVLink to its peers'. */
#ifndef SYMMEM_BACKEND_CUDA_LINKS_H
#define SYMMEM_BACKEND_CUDA_LINKS_H

#include "cuda_internal.h"

cuda_links cuda_links_find(const cuda_instance *instance, const symmem_peers *peers);
/* Tells all others if all of them are linked with this one. In stream order. */
CUresult cuda_links_tell(const cuda_instance *instance, const symmem_peers *peers, cuda_links links,
                         CUstream native);

#endif
