/* SPDX-License-Identifier: BSD-3-Clause */
/* What NCCL keeps in this process for an id whose communicator did not come up. */
#ifndef SYMMEM_BACKEND_NCCL_BOOTSTRAP_ROOT_H
#define SYMMEM_BACKEND_NCCL_BOOTSTRAP_ROOT_H

#include "nccl_internal.h"

typedef struct nccl_bootstrap_root nccl_bootstrap_root;
/* Called right after the id was made. NULL: not found, for example because another process has
 * it. */
nccl_bootstrap_root *nccl_bootstrap_root_find(const ncclUniqueId *id);
/* Ends and frees it; NULL is a no-op. A root that cannot be ended now, for lack of a descriptor, is
 * remembered. */
void nccl_bootstrap_root_end(cuda_instance *instance, nccl_bootstrap_root *root);
/* Ends those that were remembered. `keep`: those that still cannot be ended are remembered
 * again. */
void nccl_bootstrap_roots_end(cuda_instance *instance, bool keep);

#endif
