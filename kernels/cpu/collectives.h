/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU implementation of each kind of collective. Their contracts are the headers one folder up;
 * symmem_cpu_collective in comm.h calls the one of a kind. */
#ifndef SYMMEM_KERNELS_CPU_COLLECTIVES_H
#define SYMMEM_KERNELS_CPU_COLLECTIVES_H

#include "comm.h"

#ifdef __cplusplus
extern "C" {
#endif

symmem_status symmem_cpu_all_gather(const symmem_collective *call, symmem_cpu_comm *comm);
symmem_status symmem_cpu_all_to_all(const symmem_collective *call, symmem_cpu_comm *comm);
symmem_status symmem_cpu_all_to_all_v(const symmem_collective *call, symmem_cpu_comm *comm);
symmem_status symmem_cpu_broadcast(const symmem_collective *call, symmem_cpu_comm *comm);
symmem_status symmem_cpu_low_contention_reduce_scatter(const symmem_collective *call,
                                                       symmem_cpu_comm *comm);
symmem_status symmem_cpu_multimem_all_gather(const symmem_collective *call, symmem_cpu_comm *comm);
symmem_status symmem_cpu_multimem_all_reduce(const symmem_collective *call, symmem_cpu_comm *comm);
symmem_status symmem_cpu_multimem_one_shot(const symmem_collective *call, symmem_cpu_comm *comm);
symmem_status symmem_cpu_one_shot_all_reduce(const symmem_collective *call, symmem_cpu_comm *comm);
symmem_status symmem_cpu_reduce_scatter(const symmem_collective *call, symmem_cpu_comm *comm);
symmem_status symmem_cpu_two_shot_all_reduce(const symmem_collective *call, symmem_cpu_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
