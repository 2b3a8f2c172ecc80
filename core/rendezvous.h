/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of a rendezvous, and what the link's users share. Private to mapping.c, link.c,
 * rendezvous*.c and the files of operations on handles.
 *
 *   prepare      own signal memory and exports; a failure travels in the record
 *   metadata     one record from every rank; all ranks judge the same records the same way
 *   descriptors  of the ranks' memory, over sockets
 *   map          peers' memory into this process
 *   multicast    if every rank can; failing it is not failing the rendezvous
 *   commit       all ranks keep the result, or none
 */
#ifndef SYMMEM_CORE_RENDEZVOUS_H
#define SYMMEM_CORE_RENDEZVOUS_H

#include "objects.h"

#define SM_RECORD_MAGIC 0x73796d75u /* another one when the record changes */

#define SM_RECORD_MULTICAST (1u << 1) /* this rank could do multicast */
#define SM_RECORD_OVERLAP (1u << 2)   /* this rank accepts overlapping devices, and can */
#define SM_RECORD_CHECKING (1u << 3)  /* this rank compares what the ranks call */

/* symmem_share as it travels: without the descriptor, which goes over a socket. */
typedef struct sm_record_share {
    int32_t kind;
    int32_t reserved;
    uint64_t mapped_bytes;
    uint8_t bytes[64], more_bytes[64];
} sm_record_share;

/* What each rank tells all others. No padding, so that every byte is set. */
typedef struct sm_rendezvous_record {
    uint32_t magic, abi;
    int32_t status, system_errno;
    uint64_t expected, actual;
    char stage[32], message[256];
    uint64_t backend; /* hash of the name */
    char backend_name[32];
    uint64_t ordinal, alloc_id;
    uint64_t mapping; /* stamp of this rank's mapping of the allocation for the group; 0: none */
    uint64_t opening; /* of its backend's group; 0: closed */
    uint64_t allocation_bytes, block_offset, block_bytes, signal_pad_size;
    int32_t device;
    uint32_t flags;
    uint8_t device_id[16]; /* of symmem_device_info */
    sm_record_share data, signals, multicast;
} sm_rendezvous_record;
_Static_assert(sizeof(sm_rendezvous_record) < 1024, "a record is a small store value");

/* One rank's rendezvous under way. */
typedef struct sm_rendezvous {
    symmem_context *context;
    symmem_group *group; /* counted once it is known */
    uint64_t begin_ns, deadline_ns;

    sm_block *block;           /* pinned; NULL: the pointer is not symmetric */
    sm_allocation *allocation; /* the block's */
    uint64_t block_ordinal;
    size_t block_offset, block_bytes, signal_pad_size, pointer_offset;

    /* This rank's first failure. It is carried to the next step that all ranks judge together. */
    symmem_status status;
    symmem_error_record failure;

    symmem_share data, signals, multicast; /* own exports, open until the end */
    sm_rendezvous_record own;
    sm_rendezvous_record *records; /* world_size of them, after metadata */
    int *descriptors;              /* descriptor_count of each rank; room for 3 */
    int descriptor_count;          /* 0 before the descriptors phase */
    uint64_t stamp;                /* of this one, after metadata; on all ranks the same */
    bool exchange_data;            /* the ranks have no mapping of one rendezvous */
    bool open_anew;                /* nor the backend's group open from one */
    bool overlap;                  /* some ranks share a device */
    bool cross_host;               /* some ranks are on different hosts */
    bool incomplete;               /* a peer sent no descriptors, and reports that itself */
    bool attempt_multicast;        /* the same on all ranks */

    sm_mapping *mapping; /* counted */
    bool mapping_is_new;
    sm_link *link; /* counted; filled step by step */
} sm_rendezvous;

#define SM_RENDEZVOUS "rendezvous"

/* rendezvous_record.c */
/* Fills rendezvous->own from the rest. */
void sm_record_fill(sm_rendezvous *rendezvous);
/* Judges all records; the same answer on every rank. Sets exchange_data, overlap, cross_host. */
symmem_status sm_record_judge(sm_rendezvous *rendezvous);
/* An export as it travels, and rank r's of that name as this rank may use it. */
sm_record_share sm_record_share_from(const symmem_share *share);
symmem_share sm_record_share_of(const sm_rendezvous *rendezvous, int32_t rank,
                                const sm_record_share *share, int fd);

/* rendezvous_multicast.c */
/* Before metadata: whether this rank could, and on rank 0 the object. Never fails. */
void sm_multicast_offer(sm_rendezvous *rendezvous);
/* Collective. Not OK only if the exchange itself broke. */
symmem_status sm_multicast_join(sm_rendezvous *rendezvous, int fd);
void sm_multicast_release(sm_link *link);

/* rendezvous_map.c */
/* Own signal memory and exports. */
void sm_rendezvous_prepare(sm_rendezvous *rendezvous);
/* Collective. Not OK only if the exchange itself broke. */
symmem_status sm_rendezvous_descriptors(sm_rendezvous *rendezvous);
symmem_status sm_rendezvous_map(sm_rendezvous *rendezvous);
void sm_rendezvous_close_exports(sm_rendezvous *rendezvous);

/* rendezvous.c */
/* Keeps `status` and the thread's record as this rank's failure unless there is one already. */
void sm_rendezvous_note(sm_rendezvous *rendezvous, symmem_status status);
/* The caller's test point; its failure is this rank's. */
void sm_rendezvous_point(sm_rendezvous *rendezvous, const char *name);
/* Collective; `own` as for sm_session_agree, its record in rendezvous->failure if it is that. */
symmem_status sm_rendezvous_agree(sm_rendezvous *rendezvous, const char *stage, symmem_status own);
/* After a failed collective call: the exchange broke, rather than a rank reporting a failure. */
bool sm_rendezvous_broke(const sm_rendezvous *rendezvous);

/* mapping.c */
symmem_status sm_mapping_create(sm_allocation *allocation, const symmem_group *group,
                                sm_mapping **mapping_p);
void sm_mapping_retain(sm_mapping *mapping);
/* The pointers that peers has got by now. */
void sm_mapping_fill(sm_mapping *mapping);
/* Whether a backend filled it in. */
bool sm_memory_exists(const symmem_memory *memory);

/* link.c */
symmem_status sm_link_create(const sm_rendezvous *rendezvous, sm_link **link_p);
/* Takes over a reference of mapping; own_signals and peer_signals are there. */
void sm_link_fill_peers(sm_link *link, sm_mapping *mapping);
symmem_status sm_link_open_peers(sm_link *link);
/* Bytes between the user's pad and the signal state, and all of both. */
size_t sm_link_signal_offset(const sm_link *link);
size_t sm_link_signal_total(const sm_link *link, size_t signal_bytes);
/* OUT_OF_MEMORY with a record. */
symmem_status sm_link_channel(sm_link *link, int32_t channel, sm_channel **channel_p);
/* Of a channel that was made. */
symmem_whole *sm_link_whole(const sm_link *link, int32_t channel);
/* Adds group, rank and world size to the thread's record. Returns its status. */
symmem_status sm_link_describe(const sm_link *link, symmem_error_record *record);
/* POISONED with the reason in the record, or OK. */
symmem_status sm_link_refuse_poisoned(sm_link *link, const char *operation);
/* Lets a backend whose faults lie in device memory report them. */
void sm_link_check_device(const sm_link *link);
void sm_link_clear_poison(sm_link *link);
void sm_link_ref(sm_link *link, symmem_ref *ref_p);

/* link_poison.c. What symmem_host promises of the entries of these names. */
void sm_link_signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                           symmem_error_record *record_p);
symmem_peer_state sm_link_peer_state(const symmem_peers *peers, int32_t rank);
bool sm_link_peer_is_ending(const symmem_peers *peers, int32_t rank);
bool sm_link_is_poisoned(const symmem_peers *peers);
/* While a call without stream is at the backend: where signal_failed in this thread, for that link
 * and channel, leaves the record. NULL: nowhere. */
void sm_link_set_caller(const sm_link *link, int32_t channel, symmem_error_record *record);

/* handle.c */
/* Takes over a reference of link on success. */
symmem_status sm_handle_create(sm_link *link, size_t offset, symmem_handle **handle_p);
/* OUT_OF_RANGE unless 0 <= rank < world_size. */
symmem_status sm_handle_rank_check(const symmem_handle *handle, const char *operation,
                                   int32_t rank);

/* onesided.c */
/* [offset, offset + bytes) from the handle's offset lies in the block; OVERFLOW, OUT_OF_RANGE. */
symmem_status sm_handle_bounds(const symmem_handle *handle, const char *operation, size_t offset,
                               size_t bytes);

/* The memory of one operation that must stay: at most a link and two allocations, or five of a
 * matrix product. */
typedef struct sm_refs {
    symmem_ref refs[6];
    int32_t count;
    sm_allocation *held[5]; /* this call's own references */
    int32_t held_count;
    int32_t device; /* of the first covering allocation, -1 without */
} sm_refs;
void sm_refs_init(sm_refs *refs, sm_link *link);
/* Adds the allocation that covers ptr, if any; OUT_OF_RANGE if the bytes run past its end. */
symmem_status sm_refs_cover(sm_refs *refs, symmem_context *context, const char *operation,
                            const void *ptr, size_t bytes);
/* INVALID_ARGUMENT if none of the allocations is of the stream's device. */
symmem_status sm_refs_stream(const sm_refs *refs, const symmem_context *context,
                             const char *operation, const symmem_stream *stream);
/* The device for work that reaches all of the allocations: `device`, or theirs if that is negative.
 * INVALID_ARGUMENT if one of them is of another. */
symmem_status sm_refs_device(const sm_refs *refs, symmem_context *context, const char *operation,
                             int32_t device, int32_t *device_p);
void sm_refs_finish(sm_refs *refs);
/* Work on a stream keeps the backend's instance at least. */
symmem_exec sm_refs_exec(sm_refs *refs, const symmem_stream *stream);

/* --- operations on a channel (signal_ops.c) ----------------------------------------- */

typedef enum sm_signal_kind {
    SM_BARRIER,
    SM_PUT_SIGNAL,
    SM_WAIT_SIGNAL,
    SM_COLLECTIVE,
    SM_COMPOSED /* of the backend's other entries */
} sm_signal_kind;

/* One call. */
typedef struct sm_signal_op sm_signal_op;
struct sm_signal_op {
    sm_signal_kind kind;
    const char *name; /* the public call */
    const char *begin_point;
    const char *done_point;
    sm_link *link;
    int32_t peer; /* of put and wait */
    int32_t channel;
    uint32_t timeout_ms;
    const symmem_ref *refs;
    int32_t ref_count;
    symmem_call_id id;
    const symmem_collective *collective;
    /* SM_COMPOSED: hands the parts to the backend, with the channel's turn. */
    symmem_status (*compose)(const sm_signal_op *op, const symmem_exec *exec, bool capturing);
    const void *plan; /* its own */
    /* SM_BARRIER: a part of an operation, see symmem_exec. A later one goes to its stream even if
     * one before has failed by now, so that the stream tells of that. */
    symmem_whole *whole;
    uint32_t part;
    bool loose, first; /* likewise */
    bool is_held;      /* the caller has the channel's turn, by sm_signal_hold */
};
/* OUT_OF_RANGE unless the link has the channel. */
symmem_status sm_signal_check_channel(const sm_link *link, int32_t channel, const char *operation);
/* Runs or enqueues an operation whose arguments are checked, in its channel's turn. */
symmem_status sm_signal_run(const sm_signal_op *op, const symmem_stream *stream);
/* Takes the channel's turn for several of them, one after the other, until sm_signal_let_go;
 * without a stream also waits for what is on streams of it. Not in time: TIMEOUT, with stage
 * "channel". */
symmem_status sm_signal_hold(const sm_signal_op *op, const symmem_stream *stream);
/* With the turn: what comes on the stream next comes after the channel's operations so far. */
symmem_status sm_signal_follow(const sm_signal_op *op, const symmem_stream *stream);
/* While the turn is taken: what comes next on the channel, a reset among it, comes behind what is
 * on the stream now. As far as the backend can; not in a capture. */
void sm_signal_mark(const sm_signal_op *op, const symmem_stream *stream);
void sm_signal_let_go(const sm_link *link, int32_t channel);

#endif
