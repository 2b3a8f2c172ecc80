/* SPDX-License-Identifier: BSD-3-Clause */
/* From a kind of collective to its implementation. */
#include "one_shot_all_reduce.h"

symmem_status symmem_cpu_collective(const symmem_collective *call, symmem_cpu_team *team) {
    switch (call->kind) {
    case SYMMEM_CALL_ONE_SHOT_ALL_REDUCE:
        return symmem_cpu_one_shot_all_reduce(call, team);
    default:
        return SYMMEM_UNSUPPORTED;
    }
}
