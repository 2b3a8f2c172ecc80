/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of world->open that all ranks take together. */
#ifndef SYMMEM_KIT_COLLECTIVE_H
#define SYMMEM_KIT_COLLECTIVE_H

#include <symmem/backend.h>

#include "helper.h"

/* What each rank says, in the order of ranks, for the caller to free. NULL unless OK, which all
 * ranks get or none. `stage` names the step in error records. */
symmem_status symmem_kit_gather(const symmem_host *host, const symmem_exchange *exchange,
                                const void *own, size_t bytes, const char *stage, void **all_p);
/* Has the helper make a call of the engine's that ends when all ranks have made it. Until a little
 * before the exchange's deadline, or until a rank has ended: TIMEOUT or PEER_LOST by host->fail; or
 * until one has failed and does not come any more: that rank's status. The call then goes on, with
 * `arg`. Not yet agreed, which is next on every rank. */
symmem_status symmem_kit_together(const symmem_host *host, const symmem_exchange *exchange,
                                  symmem_kit_helper *helper, symmem_kit_task_fn task, void *arg,
                                  const char *step);

#endif
