/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reach->quiet over an engine whose call for that waits for one rank or for all, and knows no
 * limit. What is put to each rank is counted, so that nothing is waited for that is there, and what
 * is under way to a rank that has ended is left alone.
 */
#ifndef SYMMEM_KIT_QUIET_H
#define SYMMEM_KIT_QUIET_H

#include <symmem/backend.h>

#include "helper.h"

typedef struct symmem_kit_traffic symmem_kit_traffic;

/* How an engine completes what this rank has put to those ranks of the context. 0, or an error. In
 * the helper's thread, where it may wait for ever; `engine` stays until the process ends then. */
typedef int (*symmem_kit_flush_fn)(void *engine, const int32_t *ranks, int count);

typedef struct symmem_kit_quiet {
    symmem_kit_helper *helper;
    symmem_kit_flush_fn flush;
    void *engine;                     /* flush's */
    void (*progress)(void *instance); /* lets peers in while this rank waits; NULL: no need */
    void *instance;                   /* progress's */
} symmem_kit_quiet;

/* Of an engine's ranks; those of this host are watched, so that the end of one is known whatever
 * call finds it. OK on all ranks or on none. *traffic_p is NULL, or memory of the caller's for it.
 */
symmem_status symmem_kit_traffic_open(const symmem_host *host, const symmem_exchange *exchange,
                                      symmem_kit_traffic **traffic_p);
size_t symmem_kit_traffic_bytes(int32_t ranks);
/* The same without watching; NULL without memory. */
symmem_kit_traffic *symmem_kit_traffic_new(int32_t ranks);
/* Watches the rank's process by a descriptor of pidfd_open, which is the traffic's from then on. */
void symmem_kit_traffic_watch(symmem_kit_traffic *traffic, int32_t rank, int pidfd);
/* What is under way is counted on, and no rank watched any more. */
void symmem_kit_traffic_unwatch(symmem_kit_traffic *traffic);
void symmem_kit_traffic_free(symmem_kit_traffic *traffic);
/* Something was begun whose end the engine tells, and it has ended. */
void symmem_kit_traffic_begin(symmem_kit_traffic *traffic, int32_t rank);
void symmem_kit_traffic_end(symmem_kit_traffic *traffic, int32_t rank);
/* Something was put to that rank of the context, which is there after a flush. After the engine's
 * call. */
void symmem_kit_traffic_put(symmem_kit_traffic *traffic, int32_t rank);
/* Whether something is under way, to a rank that lives, whose end the engine tells. */
bool symmem_kit_traffic_has_pending(const symmem_kit_traffic *traffic);
/* Whether a rank has ended to which something is under way. */
bool symmem_kit_traffic_has_lost(const symmem_kit_traffic *traffic);
/* Whether the process of a rank that is watched has ended. */
bool symmem_kit_traffic_sees_end(const symmem_kit_traffic *traffic);
/* As reach->quiet. TIMEOUT and POISONED by host->fail; *error_p is flush's, if that is not 0, and
 * the status BACKEND. */
symmem_status symmem_kit_quiet_run(const symmem_kit_quiet *quiet, symmem_kit_traffic *traffic,
                                   const symmem_host *host, const symmem_peers *peers,
                                   const symmem_exec *exec, int *error_p);

#endif
