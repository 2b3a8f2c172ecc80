/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators. */
#ifndef SYMMEM_BACKEND_NCCL_COMM_H
#define SYMMEM_BACKEND_NCCL_COMM_H

#include "nccl_internal.h"

/* A communicator for windows never runs a kernel of NCCL's. */
typedef enum nccl_comm_use { NCCL_FOR_WINDOWS, NCCL_FOR_COLLECTIVES } nccl_comm_use;
/* Collective: all ranks get a communicator, or none. One for windows is of the LSA team, which is
 * determined if it is not known. Others are of all ranks, and `lsa_team` is NULL. */
symmem_status nccl_comm_make(cuda_instance *instance, const symmem_exchange *exchange,
                             int32_t device, nccl_comm_use use, nccl_lsa_team *lsa_team,
                             nccl_comm **comm_p);
/* A collective NCCL call may fail because a peer died. NCCL notices when the peer's sockets close;
 * our liveness check only when the process is fully gone, its device's context included. So the
 * peers are polled for this long, and as long as one is ending, within the deadline. The error is
 * PEER_LOST if one is gone. */
#define NCCL_LOSS_MS 400
bool nccl_may_be_loss(ncclResult_t result);
symmem_status nccl_comm_failed(const cuda_instance *instance, ncclResult_t result,
                               const symmem_exchange *exchange, const char *what);
/* Returns an earlier deadline for long waits, which leaves time to tell the other ranks the result.
 * 0: none. */
uint64_t nccl_deadline(uint64_t deadline_ns);
/* Waits for what NCCL does in the background. */
symmem_status nccl_comm_wait(const cuda_instance *instance, ncclComm_t handle,
                             const symmem_exchange *exchange, const char *what);
/* Gives up one use; the last one frees everything. It waits for no peer's call. It waits for NCCL
 * and the driver, which may wait for a peer's kernel, at most three seconds and within the deadline
 * of this thread's public call. It does not wait at all while it collects finished work. */
void nccl_comm_leave(cuda_instance *instance, nccl_comm *comm);
/* The same, but not after until_ns; 0: no such limit. */
void nccl_comm_leave_by(cuda_instance *instance, nccl_comm *comm, uint64_t until_ns);
/* The same, without waiting. */
void nccl_comm_drop(cuda_instance *instance, nccl_comm *comm);
/* What giving up the last use does. */
void nccl_comm_end(cuda_instance *instance, nccl_comm *comm);
/* The context is current. Undoes a registration. */
void nccl_window_end(cuda_instance *instance, nccl_window *window);

#endif
