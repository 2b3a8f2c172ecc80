/* SPDX-License-Identifier: BSD-3-Clause */
/* Multicast at rendezvous. */
#ifndef SYMMEM_CORE_RENDEZVOUS_RENDEZVOUS_MULTICAST_H
#define SYMMEM_CORE_RENDEZVOUS_RENDEZVOUS_MULTICAST_H

#include "rendezvous/rendezvous.h"

/* Decides before metadata whether this rank can do multicast, and makes the object on rank 0. Never
 * fails. */
void sm_multicast_offer(sm_rendezvous *rendezvous);
/* Joins the multicast object and binds this rank's memory to it. Collective. Fails only if the
 * exchange itself failed. */
symmem_status sm_multicast_join(sm_rendezvous *rendezvous, int fd);
/* After the commit: goes without multicast if a rank has not bound its memory. */
void sm_multicast_settle(sm_rendezvous *rendezvous);
void sm_multicast_release(sm_link *link);

#endif
