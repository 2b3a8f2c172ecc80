/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver/step_names.h"

#include <string.h>

#define PREFIX "cuda."

static const char *const ours[] = {CUDA_STEP_NAMES("cuda")};

/* A step that was added since has none. */
static const char *name_of(const cuda_named_host *own, const char *name) {
    for (size_t i = 0; i < CUDA_STEPS; i++)
        if (strcmp(ours[i], name) == 0)
            return own->names[i];
    return strncmp(name, PREFIX, strlen(PREFIX)) != 0 ? name
           : name[strlen(name) - 1] == '*'            ? own->names[CUDA_STEPS + 1]
                                                      : own->names[CUDA_STEPS];
}

static symmem_status point(const symmem_host *host, const char *name) {
    const cuda_named_host *own = (const cuda_named_host *)host;
    return own->cores->point(own->cores, name_of(own, name));
}

void cuda_named_host_init(cuda_named_host *own, const symmem_host *cores,
                          const char *const *names) {
    const size_t size = cores->size < sizeof own->host ? cores->size : sizeof own->host;
    memset(&own->host, 0, sizeof own->host);
    memcpy(&own->host, cores, size); /* an older core's is shorter */
    own->host.size = size;
    own->host.point = point;
    own->cores = cores;
    own->names = names;
}
