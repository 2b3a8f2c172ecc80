/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The process manager of an engine that starts by PMI-1, as MPICH does, where no launcher is one:
 * a thread in rank 0's process, which ranks of one host reach by a socket. There is one of a
 * process.
 */
#ifndef SYMMEM_KIT_PMI_H
#define SYMMEM_KIT_PMI_H

#include <symmem/backend.h>

/* Collective, in engine->introduce. Where a launcher has named a process manager to some rank it
 * does nothing. Else the environment has one afterwards, until symmem_kit_pmi_started. */
symmem_status symmem_kit_pmi_open(const symmem_host *host, const symmem_exchange *exchange,
                                  int32_t rank, int32_t ranks);
/* In engine->start, whether that failed or not. */
void symmem_kit_pmi_started(void);
/* In engine->end, behind the engine's own: on rank 0 waits until the other ranks have left, for 2 s
 * at most. */
void symmem_kit_pmi_end(void);

#endif
