/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between two sockets of this process. */
#ifndef SYMMEM_TESTS_IPC_PAIR_H
#define SYMMEM_TESTS_IPC_PAIR_H

#include "session_ranks.h"

static inline sm_ipc_tag tag_for(uint64_t sequence, int32_t source) {
    sm_ipc_tag tag;
    memset(&tag, 0, sizeof(tag));
    memset(tag.nonce, 7, sizeof(tag.nonce));
    tag.group = 42;
    tag.sequence = sequence;
    tag.source = source;
    tag.kind = 1;
    return tag;
}

static inline symmem_status send_to(sm_ipc *from, sm_ipc *to, const sm_ipc_tag *tag, const int *fds,
                                    int count) {
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint32_t bytes;
    sm_ipc_address(to, address, &bytes);
    return sm_ipc_send(from, address, bytes, tag, fds, count, 50);
}

static inline bool got_one(sm_ipc *ipc, const sm_ipc_tag *want) {
    int got[SM_IPC_MAX_FDS], count = 0;
    int32_t source = -1;
    if (sm_ipc_recv(ipc, want, &source, got, &count, 30) != SYMMEM_OK)
        return false;
    for (int i = 0; i < count; i++)
        close(got[i]);
    return count == 1;
}

#endif
