/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failpoints carry their backend's name, and the suite relies on that. So the host that the CUDA
 * backend's code gets here translates the names of its failpoints. Everything else is the core's
 * own.
 */
#include <string.h>

#include "host_shim.h"

#define STEP(step)                                                                                 \
    { "cuda." step, "nccl." step }

static const struct {
    const char *theirs, *ours;
} names[] = {
    STEP("open"),         STEP("close*"),        STEP("stream.create"), STEP("alloc.create"),
    STEP("alloc.done"),   STEP("release*"),      STEP("peers.open"),    STEP("peers.close*"),
    STEP("reset.before"), STEP("reset.done"),    STEP("poison*"),       STEP("collective*"),
    STEP("event.create"), STEP("capture.begin"),
};

/* A step that the CUDA backend gained since has no name here. */
static const char *name_of(const char *name) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].theirs, name) == 0)
            return names[i].ours;
    return strncmp(name, "cuda.", 5) != 0  ? name
           : name[strlen(name) - 1] == '*' ? "nccl.step*"
                                           : "nccl.step";
}

static symmem_status point(const symmem_host *host, const char *name) {
    const nccl_host *own = (const nccl_host *)host;
    return own->cores->point(own->cores, name_of(name));
}

void nccl_host_init(nccl_host *own, const symmem_host *cores) {
    const size_t size = cores->size < sizeof own->host ? cores->size : sizeof own->host;
    memset(&own->host, 0, sizeof own->host);
    memcpy(&own->host, cores, size); /* an older core's is shorter */
    own->host.size = size;
    own->host.point = point;
    own->cores = cores;
}
