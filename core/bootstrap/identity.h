/* SPDX-License-Identifier: BSD-3-Clause */
/* The identity of a process and of the places where it runs. */
#ifndef SYMMEM_CORE_IDENTITY_H
#define SYMMEM_CORE_IDENTITY_H

#include "bootstrap/life.h"

/* A process's identity, in a form that two processes can compare. Ranks send it to each other as
 * is. Only `life` and the names of files mean the same in every namespace. */
struct sm_identity {
    uint8_t life[SM_LIFE_ID_BYTES]; /* see life.c */
    uint64_t boot_id;               /* hash of the kernel's boot id, 0 if unknown */
    uint64_t pid_namespace;         /* inodes of the namespaces, 0 if unknown */
    uint64_t net_namespace;
    uint64_t mount_namespace;
    uint64_t time_namespace;
    uint64_t start_time; /* of the process, in clock ticks since boot, 0 if unknown */
    int32_t pid;
    int32_t listens; /* 1: peers can see by name that it lives, and by the file if it has one */
    char life_file[SM_IPC_ADDRESS_MAX];
    char host[SYMMEM_NAME_MAX];
};

symmem_status sm_identity_self(sm_identity *identity_p);
/* Lets other processes see that this one lives, also through a file if `directory` is not NULL. */
symmem_status sm_identity_listen(sm_identity *identity, const char *directory, int32_t rank,
                                 sm_life_file **file_p);
/* Undoes sm_identity_listen. To be called once. */
void sm_identity_unlisten(const sm_identity *identity, sm_life_file *file);
/* Compares what the two processes report. Reports that differ do not prove two hosts: see
 * sm_session_same_host. */
bool sm_identity_same_host(const sm_identity *a, const sm_identity *b);
bool sm_identity_same_process(const sm_identity *a, const sm_identity *b);
/* Writes the key of global rank r's identity: "<world_prefix>/id/<r>". */
void sm_identity_key(const char *world_prefix, int32_t rank, char *key, size_t capacity);

#endif
