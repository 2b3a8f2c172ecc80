/* SPDX-License-Identifier: BSD-3-Clause */
/* Authenticated messages with descriptors (ipc.c, ipc_socket.c). */
#ifndef SYMMEM_CORE_IPC_H
#define SYMMEM_CORE_IPC_H

#include <stdio.h>

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

/* Creates and binds a socket. If `directory` is NULL it has an abstract name, otherwise a file of
 * mode 0600 in the directory. The file's name is `name`, which only tests give, or random if that
 * is NULL. Answers PATH_TOO_LONG, PERMISSION or EXISTS (another user's file). */
symmem_status sm_ipc_create(const char *directory, const char *name, sm_ipc **ipc_p);
void sm_ipc_destroy(sm_ipc *ipc); /* also unlinks the socket's file */
/* Closes the sockets, so that no peer can connect, and leaves the file to sm_ipc_destroy, the
 * only call that is permitted next. Takes no lock of the directory. */
void sm_ipc_shut(sm_ipc *ipc);
/* Writes the prefix of a host's file names, and of this host's. Hosts may share a directory, and
 * only a socket's own host knows whether the socket is in use. */
#define SM_IPC_PREFIX_BYTES 16 /* the zero included */
static inline void sm_ipc_prefix_of(uint64_t boot_id, char prefix[SM_IPC_PREFIX_BYTES]) {
    (void)snprintf(prefix, SM_IPC_PREFIX_BYTES, "symmem-%08x", (unsigned)boot_id);
}
static inline void sm_ipc_prefix(char prefix[SM_IPC_PREFIX_BYTES]) {
    sm_ipc_prefix_of(sm_boot_id(), prefix);
}
/* Writes the address for the peers, of which *bytes_p bytes count. */
void sm_ipc_address(const sm_ipc *ipc, uint8_t address[SM_IPC_ADDRESS_MAX], uint32_t *bytes_p);
int sm_ipc_descriptor(const sm_ipc *ipc); /* for poll */
/* Held around a fork, so that no thread opens or closes a socket meanwhile. */
void sm_ipc_lock_all(void);
void sm_ipc_unlock_all(void);
/* Closes the parent's sockets in the child. Otherwise they would stay open as long as the child. */
void sm_ipc_forget_all(void);
/* Sends one message with `count` descriptors (-1 entries allowed). While the queue is full it
 * retries until the deadline, or for `step_ms` if that is not 0. Answers TIMEOUT, LIMIT
 * (ETOOMANYREFS), PEER_LOST if the peer's socket is gone, or PERMISSION if the name belongs to
 * another user. */
symmem_status sm_ipc_send(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                          const sm_ipc_tag *tag, const int *fds, int count, uint32_t step_ms);
/* Receives the next authentic message that has the nonce, group, sequence and kind of *want. A
 * source of -1 in *want stands for any rank. A message of a later sequence is kept; all other
 * messages are dropped and their descriptors closed. Sets *source_p and *count_p; fds_p has room
 * for SM_IPC_MAX_FDS. Answers TIMEOUT after step_ms. Answers LIMIT if this process has no
 * descriptors left for a message; *source_p then names its sender, if the message was a wanted
 * one. */
symmem_status sm_ipc_recv(sm_ipc *ipc, const sm_ipc_tag *want, int32_t *source_p, int *fds_p,
                          int *count_p, uint32_t step_ms);

/* The kinds of two notes. With the first a peer says why it gave the session up. The second comes
 * from a rank whose group has the same name and other members. A note waits in the receiver's
 * socket until the receiver looks, and vanishes with the socket. */
enum { SM_IPC_GAVE_UP = 5, SM_IPC_CONTRADICTS = 6 };
#define SM_IPC_NOTE_BYTES 576
typedef struct sm_ipc_notes {
    uint8_t nonce[16]; /* of the notes that are for this socket */
    bool any;
    int32_t first; /* the sender of the first note, and its text */
    uint8_t bytes[SM_IPC_NOTE_BYTES];
    uint64_t sources[SYMMEM_MAX_WORLD_SIZE / 64];
    bool is_contradicted; /* `contradiction` is set; its source is a rank of the world */
    uint8_t contradiction[SM_IPC_NOTE_BYTES];
    /* The last remark and its sender. A remark says why a handle was poisoned; it gives up no
     * session. */
    bool is_remarked;
    int32_t remarked_by;
    uint8_t remark[SM_IPC_NOTE_BYTES];
} sm_ipc_notes;
enum { SM_IPC_REMARK = 7 }; /* the kind of its tag */
/* Tries once and makes no record. False: the note was not sent. */
bool sm_ipc_send_note(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                      const sm_ipc_tag *tag, const uint8_t note[SM_IPC_NOTE_BYTES]);
/* Drops the last remark. */
void sm_ipc_forget_remark(sm_ipc *ipc);
/* Sets the nonce of the notes to come and forgets the earlier ones. */
void sm_ipc_expect_notes(sm_ipc *ipc, const uint8_t nonce[16]);
/* Reads the notes that have come by now. `members` is a tag of the session that no message has, or
 * NULL before there is a session. Never waits and leaves the record alone. */
const sm_ipc_notes *sm_ipc_notes_of(sm_ipc *ipc, const sm_ipc_tag *members);
/* Returns the notes read so far, without a look at the socket. */
const sm_ipc_notes *sm_ipc_notes_heard(const sm_ipc *ipc);

#endif
