/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives that compute something else, elsewhere, or at the wrong time. */
#include "decorator.h"

#include <string.h>

static bool do_nothing(symmem_collective *call, int32_t *channel, symmem_exec *exec) {
    (void)call, (void)channel, (void)exec;
    return false;
}

ON_COLLECTIVE(drop_tail, call->count = call->count / 8 * 8)
ON_COLLECTIVE(ignore_offset, call->offset = 0)
ON_COLLECTIVE(ignore_timeout, exec->timeout_ms = 0)
ON_COLLECTIVE(sum_for_average, if (call->op == SYMMEM_AVG) call->op = SYMMEM_SUM)
ON_COLLECTIVE(max_for_min, if (call->op == SYMMEM_MIN) call->op = SYMMEM_MAX)
ON_COLLECTIVE(float16_for_bfloat16,
              if (call->dtype == SYMMEM_BFLOAT16) call->dtype = SYMMEM_FLOAT16)
ON_COLLECTIVE(on_channel_0, *channel = 0)

/* --- what peers write before or behind -------------------------------------------- */

#define MOST 4096

/* One block's, which is all that the test has. */
static _Thread_local char kept[MOST];
static _Thread_local size_t kept_bytes;

static void keep_block(const symmem_peers *peers) {
    kept_bytes = peers->buffer_bytes < MOST ? peers->buffer_bytes : MOST;
    memcpy(kept, peers->buffers[peers->rank], kept_bytes);
}

ON_SIGNAL(keep_before, keep_block(call->peers))

static symmem_status forget_writes(void *instance, const symmem_peers *peers, int32_t channel,
                                   const symmem_collective *call, const symmem_exec *exec) {
    memcpy(peers->buffers[peers->rank], kept, kept_bytes);
    return real->collective(instance, peers, channel, call, exec);
}

static symmem_status keep_results(void *instance, const symmem_peers *peers, int32_t channel,
                                  const symmem_collective *call, const symmem_exec *exec) {
    symmem_status status = real->collective(instance, peers, channel, call, exec);
    keep_block(peers);
    return status;
}

static void write_results(symmem_status status, const symmem_peers *peers) {
    (void)status;
    memcpy(peers->buffers[peers->rank], kept, kept_bytes);
}

const struct mutant collective_mutants[] = {
    {"collective_does_nothing", .collective = do_nothing},
    {"collective_drops_tail", .collective = drop_tail},
    {"collective_ignores_offset", .collective = ignore_offset},
    {"collective_ignores_timeout", .collective = ignore_timeout},
    {"collective_avg_is_sum", .collective = sum_for_average},
    {"collective_min_is_max", .collective = max_for_min},
    {"collective_bfloat16_as_float16", .collective = float16_for_bfloat16},
    {"collective_on_one_channel", .collective = on_channel_0},
    {"collective_misses_peers_writes", .entries.collective = forget_writes, .on = ON_BARRIER,
     .before = keep_before},
    {"collective_writes_late", .entries.collective = keep_results, .on = ON_BARRIER,
     .after = write_results},
    {.name = NULL},
};
