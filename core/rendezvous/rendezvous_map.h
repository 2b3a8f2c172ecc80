/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory steps of a rendezvous: this rank's signal memory, exports, descriptors, peers'
 * mappings. */
#ifndef SYMMEM_CORE_RENDEZVOUS_RENDEZVOUS_MAP_H
#define SYMMEM_CORE_RENDEZVOUS_RENDEZVOUS_MAP_H

#include "rendezvous/rendezvous.h"

/* Makes this rank's signal memory and exports. */
void sm_rendezvous_prepare(sm_rendezvous *rendezvous);
/* Exchanges the descriptors. Collective. Fails only if the exchange itself failed. */
symmem_status sm_rendezvous_descriptors(sm_rendezvous *rendezvous);
symmem_status sm_rendezvous_map(sm_rendezvous *rendezvous);
void sm_rendezvous_close_exports(sm_rendezvous *rendezvous);
/* Keeps this rank's memory in an engine's heap reserved until the peers, which may have it by now,
 * give it back. */
void sm_rendezvous_lease(sm_rendezvous *rendezvous);
/* Holds the peers' memory and tells them when this rank gives it back. */
void sm_rendezvous_hold(sm_rendezvous *rendezvous);

#endif
