/* SPDX-License-Identifier: BSD-3-Clause */
/* A process's identity. */
#include "bootstrap/bootstrap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t namespace_of(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 ? about.st_ino : 0;
}

symmem_status sm_identity_self(sm_identity *identity_p) {
    sm_identity identity;
    memset(&identity, 0, sizeof(identity)); /* sent as bytes, padding included */
    symmem_status status = sm_life_id(identity.life);
    if (status != SYMMEM_OK)
        return status;
    identity.boot_id = sm_boot_id(); /* without it, host names are compared instead */
    identity.pid_namespace = namespace_of("/proc/self/ns/pid");
    identity.net_namespace = namespace_of("/proc/self/ns/net");
    identity.mount_namespace = namespace_of("/proc/self/ns/mnt");
    identity.time_namespace = namespace_of("/proc/self/ns/time");
    identity.pid = (int32_t)getpid();
    sm_process state;
    if (sm_process_read(0, &state))
        identity.start_time = state.start_time;
    if (gethostname(identity.host, sizeof(identity.host)) != 0 && errno != ENAMETOOLONG)
        return sm_fail_errno(errno, "identity", "", "cannot read the host name");
    identity.host[sizeof(identity.host) - 1] = '\0';
    *identity_p = identity;
    return SYMMEM_OK;
}

symmem_status sm_identity_listen(sm_identity *identity, const char *directory, int32_t rank,
                                 sm_life_file **file_p) {
    symmem_status status = sm_life_begin();
    if (status != SYMMEM_OK)
        return status;
    identity->listens = 1;
    *file_p = directory == NULL ? NULL : sm_life_file_begin(directory, rank);
    if (*file_p != NULL) {
        const char *path = sm_life_file_path(*file_p); /* of a sockaddr_un, so it fits */
        memcpy(identity->life_file, path, strlen(path) + 1);
    }
    return SYMMEM_OK;
}

void sm_identity_unlisten(const sm_identity *identity, sm_life_file *file) {
    if (!identity->listens)
        return;
    sm_life_file_end(file);
    sm_life_end();
}

bool sm_identity_same_host(const sm_identity *a, const sm_identity *b) {
    if (a->boot_id != 0 && b->boot_id != 0)
        return a->boot_id == b->boot_id;
    return strncmp(a->host, b->host, sizeof(a->host)) == 0; /* one boot id could not be read */
}

bool sm_identity_same_process(const sm_identity *a, const sm_identity *b) {
    return memcmp(a->life, b->life, sizeof(a->life)) == 0 && sm_identity_same_host(a, b) &&
           a->pid_namespace == b->pid_namespace && a->pid == b->pid &&
           a->start_time == b->start_time;
}

void sm_identity_key(const char *world_prefix, int32_t rank, char *key, size_t capacity) {
    snprintf(key, capacity, "%s/id/%d", world_prefix, rank);
}
