/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The process manager of an engine that starts by PMIx, as Open MPI does, where no launcher is one:
 * a child of rank 0's process, for ranks of one host. There is one of a process. The program is
 * ../pmix_server, which the plug-in has beside itself as symmem-pmix-server.
 */
#ifndef SYMMEM_KIT_PMIX_H
#define SYMMEM_KIT_PMIX_H

#include <stdbool.h>
#include <symmem/backend.h>

/* Collective, in engine->introduce. Where a launcher has named a process manager to some rank it
 * does nothing, and neither where there is no such program. Else the environment has one
 * afterwards, until symmem_kit_pmix_started. `in_plugin` is any address in the plug-in. */
symmem_status symmem_kit_pmix_open(const symmem_host *host, const symmem_exchange *exchange,
                                   int32_t rank, int32_t ranks, const void *in_plugin);
/* In engine->start. A rank that is up outlives the process manager, which ends with rank 0. */
void symmem_kit_pmix_started(bool is_up);
/* In engine->end, behind the engine's own: on rank 0 waits until the others have left, for 2 s at
 * most, unless not all ranks leave in order. */
void symmem_kit_pmix_end(bool in_order);

#endif
