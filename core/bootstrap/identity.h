/* SPDX-License-Identifier: BSD-3-Clause */
/* Who a process is, and where. */
#ifndef SYMMEM_CORE_IDENTITY_H
#define SYMMEM_CORE_IDENTITY_H

#include "bootstrap/life.h"

/* Who a process is, in a form that two processes can compare. Sent between ranks as is. All but
 * `life` and the files depends on who looks. */
struct sm_identity {
    uint8_t life[SM_LIFE_ID_BYTES]; /* see life.c */
    uint64_t boot_id;               /* hash of the kernel's boot id, 0 if unknown */
    uint64_t pid_namespace;         /* inodes of the namespaces, 0 if unknown */
    uint64_t net_namespace;
    uint64_t mount_namespace;
    uint64_t time_namespace;
    uint64_t start_time; /* of the process, in clock ticks since boot, 0 if unknown */
    int32_t pid;
    int32_t listens; /* 1: its life can be seen by name, and by the file if there is one */
    char life_file[SM_IPC_ADDRESS_MAX];
    char host[SYMMEM_NAME_MAX];
};

/* A hash of the running kernel's boot id, 0 if that cannot be read. */
uint64_t sm_boot_id(void);
symmem_status sm_identity_self(sm_identity *identity_p);
/* Makes this process's life seen by others, in the directory, too, if there is one. */
symmem_status sm_identity_listen(sm_identity *identity, const char *directory,
                                 sm_life_file **file_p);
/* Once. */
void sm_identity_unlisten(const sm_identity *identity, sm_life_file *file);
/* By what they say. That they say otherwise does not tell hosts apart: see sm_session_same_host. */
bool sm_identity_same_host(const sm_identity *a, const sm_identity *b);
bool sm_identity_same_process(const sm_identity *a, const sm_identity *b);
/* Key under which global rank r's identity stands: "<world_prefix>/id/<r>". */
void sm_identity_key(const char *world_prefix, int32_t rank, char *key, size_t capacity);

#endif
