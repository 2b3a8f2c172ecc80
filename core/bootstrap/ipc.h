/* SPDX-License-Identifier: BSD-3-Clause */
/* Authenticated messages with descriptors (ipc.c, ipc_socket.c). */
#ifndef SYMMEM_CORE_IPC_H
#define SYMMEM_CORE_IPC_H

#include "bootstrap/liveness.h"

typedef struct sm_ipc sm_ipc;
#define SM_IPC_MAX_FDS 250 /* in one message */

typedef struct sm_ipc_tag {
    uint8_t nonce[16]; /* secret of the session */
    uint64_t group;    /* session id */
    uint64_t sequence;
    int32_t source; /* group rank of the sender */
    uint32_t kind;
} sm_ipc_tag;

/* Creates and binds. `directory` NULL: an abstract name. Otherwise a file of mode 0600 with a
 * random name there; PATH_TOO_LONG, PERMISSION, EXISTS (someone else's file). `name` NULL: random;
 * not NULL: that file name, for tests. */
symmem_status sm_ipc_create(const char *directory, const char *name, sm_ipc **ipc_p);
void sm_ipc_destroy(sm_ipc *ipc); /* unlinks a file of its own */
/* Unlinks what killed processes of this user and host left in the directory, but for what others
 * may still have to see of their ends. `liveness` NULL: no store is known. Never fails.
 * (ipc_sweep.c) */
void sm_ipc_sweep(const char *directory, sm_liveness *liveness);
/* The same of those that take the host to have that boot id, as in a container. */
void sm_ipc_sweep_of(const char *directory, uint64_t boot_id, sm_liveness *liveness);
/* What names begin with. A directory may be shared by hosts, and only a socket's own knows whether
 * it is in use. */
#define SM_IPC_PREFIX_BYTES 16 /* the zero included */
void sm_ipc_prefix(char prefix[SM_IPC_PREFIX_BYTES]);
/* The address for the peers, *bytes_p of it. */
void sm_ipc_address(const sm_ipc *ipc, uint8_t address[SM_IPC_ADDRESS_MAX], uint32_t *bytes_p);
int sm_ipc_descriptor(const sm_ipc *ipc); /* for poll */
/* Around a fork: nobody opens or closes a socket meanwhile. */
void sm_ipc_lock_all(void);
void sm_ipc_unlock_all(void);
/* In the child: closes the parent's sockets, which otherwise would seem to live as long as it. */
void sm_ipc_forget_all(void);
/* One message with `count` descriptors (-1 entries allowed). Retries a full queue until the
 * deadline or `step_ms` (0: none): TIMEOUT, or LIMIT with ETOOMANYREFS. A vanished peer socket:
 * PEER_LOST. A socket of another user under its name: PERMISSION. */
symmem_status sm_ipc_send(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                          const sm_ipc_tag *tag, const int *fds, int count, uint32_t step_ms);
/* The next authentic message whose nonce, group, sequence and kind are those of *want; source -1
 * in *want: any. Others are dropped, their descriptors closed (a later sequence is kept for later).
 * *source_p, *count_p filled; fds_p has room for SM_IPC_MAX_FDS. TIMEOUT after step_ms. LIMIT: no
 * descriptors are left to take a message's; *source_p tells whose, if it was a wanted one. */
symmem_status sm_ipc_recv(sm_ipc *ipc, const sm_ipc_tag *want, int32_t *source_p, int *fds_p,
                          int *count_p, uint32_t step_ms);

/* Why a peer has given a session up, and that a rank of another group takes this one for its own:
 * the kinds of their tags. A note waits in the socket until somebody looks, and goes with it. */
enum { SM_IPC_GAVE_UP = 5, SM_IPC_CONTRADICTS = 6 };
#define SM_IPC_NOTE_BYTES 576
typedef struct sm_ipc_notes {
    uint8_t nonce[16]; /* of those that are for this socket */
    bool any;
    int32_t first; /* whose came first, and what it says */
    uint8_t bytes[SM_IPC_NOTE_BYTES];
    uint64_t sources[SYMMEM_MAX_WORLD_SIZE / 64];
    bool is_contradicted; /* and by what; the source is in the world's numbers, not the group's */
    uint8_t contradiction[SM_IPC_NOTE_BYTES];
    /* Why a handle was spoiled, which gives up no session: the last one, and whose. */
    bool is_remarked;
    int32_t remarked_by;
    uint8_t remark[SM_IPC_NOTE_BYTES];
} sm_ipc_notes;
enum { SM_IPC_REMARK = 7 }; /* the kind of its tag */
/* One try, no record. False: it did not go off. */
bool sm_ipc_send_note(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                      const sm_ipc_tag *tag, const uint8_t note[SM_IPC_NOTE_BYTES]);
/* The one that is there is over. */
void sm_ipc_forget_remark(sm_ipc *ipc);
/* Forgets those that came before. */
void sm_ipc_expect_notes(sm_ipc *ipc, const uint8_t nonce[16]);
/* What has come by now. `members`: a tag of the session's that no message has; NULL before there is
 * one. Never waits, leaves the record alone. */
const sm_ipc_notes *sm_ipc_notes_of(sm_ipc *ipc, const sm_ipc_tag *members);
/* What has been taken of them so far. */
const sm_ipc_notes *sm_ipc_notes_heard(const sm_ipc *ipc);

#endif
