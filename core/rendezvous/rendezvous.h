/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of a rendezvous.
 *
 *   prepare      makes this rank's signal memory and exports; a failure is sent in the record
 *   metadata     exchanges one record per rank; all ranks check the same records the same way
 *   descriptors  exchanges the descriptors of the ranks' memory over sockets
 *   map          maps the peers' memory into this process
 *   multicast    makes a multicast object if every rank can; its failure fails no rendezvous
 *   commit       all ranks keep the result, or none does; multicast if all have bound their memory
 */
#ifndef SYMMEM_CORE_RENDEZVOUS_H
#define SYMMEM_CORE_RENDEZVOUS_H

#include "rendezvous/link.h"

#define SM_RDV_MAGIC 0x73796d75u /* changes with the record */

#define SM_RDV_MULTICAST (1u << 1) /* this rank could do multicast */
#define SM_RDV_OVERLAP (1u << 2)   /* this rank accepts overlapping devices, and can */
#define SM_RDV_CHECKING (1u << 3)  /* this rank compares what the ranks call */

/* symmem_share as ranks send it. The descriptor goes over a socket instead. */
typedef struct sm_rdv_share {
    int32_t kind;
    int32_t reserved;
    uint64_t mapped_bytes;
    uint8_t bytes[64], more_bytes[64];
} sm_rdv_share;

/* The record that each rank sends to all others. It has no padding, so that every byte is set. */
typedef struct sm_rendezvous_record {
    uint32_t magic, abi;
    int32_t status, system_errno;
    uint64_t expected, actual;
    char stage[32], message[256];
    uint64_t backend; /* hash of the name */
    char backend_name[32];
    uint64_t ordinal, alloc_id;
    uint64_t mapping_generation; /* generation of this rank's mapping of the allocation for the
                                    group; 0: none */
    uint64_t group_generation;   /* of the rendezvous that opened its backend's group; 0: closed */
    uint64_t allocation_bytes, block_offset, block_bytes, signal_pad_size;
    int32_t device;
    uint32_t flags;
    uint8_t device_id[16]; /* of symmem_device_info */
    sm_rdv_share data, signals, multicast;
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

    /* This rank's first failure. The next step in which the ranks agree sends it to the peers. */
    symmem_status status;
    symmem_error_record failure;

    symmem_share data, signals, multicast; /* this rank's exports, open until the end */
    sm_rendezvous_record own;
    sm_rendezvous_record *records; /* world_size of them, after metadata */
    int *descriptors;              /* descriptor_count for each rank; room for 3 */
    int descriptor_count;          /* 0 before the descriptors phase */
    uint64_t generation;           /* of this rendezvous; set after metadata, equal on all ranks */
    bool exchange_data;            /* the ranks' mappings, if any, are not of one rendezvous */
    bool open_anew;                /* nor are their backend's groups, if open */
    bool overlap;                  /* some ranks share a device */
    bool cross_host;               /* some ranks are on different hosts */
    bool incomplete;               /* a peer sent no descriptors, and reports its failure itself */
    bool attempt_multicast;        /* the same on all ranks */
    int32_t bound;                 /* the status of this rank's last step of multicast */
    int32_t *all_bound;            /* world_size of them, after that step's exchange */

    sm_mapping *mapping; /* counted */
    bool mapping_is_new;
    sm_link *link; /* counted; filled step by step */
} sm_rendezvous;

/* rendezvous.c */
/* Keeps `status` and the thread's record as this rank's failure, unless it has one already. */
void sm_rendezvous_set_failure(sm_rendezvous *rendezvous, symmem_status status);
/* Passes the caller's failpoint, whose failure is this rank's failure. */
void sm_rendezvous_point(sm_rendezvous *rendezvous, const char *name);
/* Agrees on a status. Collective. `own` is that of sm_session_agree, with its record in
 * rendezvous->failure if it is rendezvous->status. */
symmem_status sm_rendezvous_agree(sm_rendezvous *rendezvous, const char *stage, symmem_status own);
/* Agrees on this rank's status so far, and gathers `bound` of all ranks. Collective. */
symmem_status sm_rendezvous_gather_bound(sm_rendezvous *rendezvous, const char *stage);
/* Whether a collective call failed because the exchange failed, and not because a rank reported a
 * failure. */
bool sm_rendezvous_broke(const sm_rendezvous *rendezvous);

/* Makes a link that has no peers yet. */
symmem_status sm_link_create(const sm_rendezvous *rendezvous, sm_link **link_p);

#endif
