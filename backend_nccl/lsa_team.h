/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's LSA teams (load/store accessible): runs of ranks that have pointers to each other's
 * memory, all of one size. */
#ifndef SYMMEM_BACKEND_NCCL_LSA_TEAM_H
#define SYMMEM_BACKEND_NCCL_LSA_TEAM_H

#include "nccl_internal.h"

/* Returns what NCCL says about a communicator of all ranks. A context is current. Local. */
symmem_status nccl_lsa_team_of(const cuda_instance *instance, ncclComm_t handle,
                               const symmem_exchange *exchange, nccl_lsa_team *lsa_team);
/* Finds the ranks that a communicator for windows can have, from a communicator of all ranks.
 * Collective: all ranks get one answer. */
symmem_status nccl_lsa_team_find(cuda_instance *instance, const nccl_comm *comm,
                                 const symmem_exchange *exchange, nccl_lsa_team *lsa_team);

#endif
