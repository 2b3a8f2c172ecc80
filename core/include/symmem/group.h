/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups: an ordered list of ranks that rendezvous together, and the host-side exchange between
 * them (all_gather, barrier, descriptors). [SM-GROUP, SM-EXCHANGE]
 *
 * Locks: collective calls on one group are serialized inside a context, so two threads may call
 * them, but every rank must issue them in the same order. Different groups are independent.
 */
#ifndef SYMMEM_GROUP_H
#define SYMMEM_GROUP_H

#include <symmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Local. Creates a group of `count` distinct world ranks, `ranks[i]` being group rank i. The
 * calling rank must be among them, and every member must pass the same list and name. `ranks` NULL
 * with count 0 means the whole world in order. Name and ranks are copied. `store` NULL means the
 * context's store; another one has to outlive the group. No rank is contacted: the first collective
 * call brings the group up. A name may be used again once the group was destroyed, with the same or
 * other members; two live groups of one context with the same name are EXISTS. While symmem_join
 * runs it has a group named "symmem.join". Errors:
 * INVALID_ARGUMENT (own rank absent, duplicate, a name that is empty, too long or has control
 * characters), OUT_OF_RANGE (a rank outside the world).
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_create(symmem_context *context,
                                                            const char *name, const int32_t *ranks,
                                                            int32_t count, symmem_store *store,
                                                            symmem_group **group_p);
/*
 * Local. Ends the group. Handles made on it keep working, except that a collective reset is then
 * STALE. Later calls on the pointer are STALE until the context is finalized. NULL is allowed.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_destroy(symmem_group *group);

/* Local queries. The name's string lives until symmem_context_free. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_rank(const symmem_group *group,
                                                          int32_t *rank_p);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_world_size(const symmem_group *group,
                                                                int32_t *world_size_p);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_name(const symmem_group *group,
                                                          const char **name_p);
/* The context rank of group rank `rank`. OUT_OF_RANGE outside [0, world_size). */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_global_rank(const symmem_group *group,
                                                                 int32_t rank,
                                                                 int32_t *global_rank_p);
/* The live group of that name in this context; NOT_FOUND otherwise. Borrowed pointer. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_find(symmem_context *context, const char *name,
                                                          symmem_group **group_p);

/*
 * Local. Hands over a communicator of yours for this group, of the kind that the backend is built
 * on, which otherwise makes its own: for "nccl" an ncclComm_t over the group's ranks in their
 * order, made with blocking = 0 (with another one rendezvous may wait in NCCL beyond its limit), on
 * the device of the group's first allocation, by the same libnccl. Before the group's first
 * rendezvous, and on all ranks or none, else that answers MISMATCH. It stays yours and is never
 * ended here; it has to live until the group is destroyed and every handle made on it released.
 * The program must not use it during a rendezvous of the group. It should be idle when the group is
 * destroyed and when its last handle is released: while it works on a call of yours
 * (ncclInProgress), NCCL gives no memory back. The later of the two waits for that, three seconds
 * at the most; if it still works then, the memory that the group registered there stays until the
 * process ends. NULL takes the communicator back.
 * Errors: UNSUPPORTED (the backend takes none), INVALID_ARGUMENT (the communicator's rank or size
 * is not the group's), BUSY (the group has had its rendezvous, or a call is under way), NOT_FOUND
 * (no backend is set); the communicator of before stays then. [SM-GROUP]
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_set_communicator(symmem_group *group,
                                                                      void *communicator);

/*
 * Collective over the group. Gathers `bytes` bytes of every rank into `out`, in rank order
 * (world_size * bytes). All ranks pass the same size; a difference is MISMATCH on every rank.
 * bytes at most 64 KiB. TIMEOUT and PEER_LOST name the missing ranks. One store phase; the keys
 * are removed after use. After a TIMEOUT or PEER_LOST the group finds its footing again at the
 * next collective call of all members. [SM-EXCHANGE]
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_all_gather(symmem_group *group, const void *in,
                                                                size_t bytes, void *out,
                                                                uint32_t timeout_ms);
/* Collective over the group. Host barrier: returns when every rank has called it. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_barrier(symmem_group *group,
                                                             uint32_t timeout_ms);

/*
 * Descriptor passing over authenticated Unix sockets (peer credentials, nonce, group and sequence
 * tag). UNREACHABLE for ranks on different hosts or in namespaces that hide their sockets from one
 * another (see socket_dir in context.h). A descriptor -1 is legal and arrives as -1.
 * Received descriptors are close-on-exec and owned by the caller. A process out of descriptors
 * gets LIMIT, and in a collective call so does every rank: none keeps a descriptor then.
 */
/* Collective. fds_p[i] is rank i's descriptor, and fds_p[rank] a duplicate of this rank's. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_all_gather_fds(symmem_group *group, int fd,
                                                                    int *fds_p,
                                                                    uint32_t timeout_ms);
/* Collective. Every rank gets a duplicate of the descriptor that `root` passes. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_broadcast_fds(symmem_group *group, int root,
                                                                   int fd, int *fd_p,
                                                                   uint32_t timeout_ms);
/*
 * Pairwise: the peer calls recv_fd. The group must be up (any collective call before), which it is
 * no more after a collective call that failed with TIMEOUT or PEER_LOST: INVALID_ARGUMENT. Sending
 * waits only while the peer's socket is full; what is sent to a rank arrives in that order. Errors:
 * TIMEOUT, PEER_LOST, UNREACHABLE, OUT_OF_RANGE (rank), INVALID_ARGUMENT (fd below -1), SYSTEM (a
 * bad fd), LIMIT (no descriptor left to receive into; that one is lost).
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_send_fd(symmem_group *group, int32_t dst_rank,
                                                             int fd, uint32_t timeout_ms);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_group_recv_fd(symmem_group *group, int32_t src_rank,
                                                             int *fd_p, uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
