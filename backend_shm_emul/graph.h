/* SPDX-License-Identifier: BSD-3-Clause */
/* Graphs: the branches of a capture. */
#ifndef SYMMEM_BACKEND_SHM_GRAPH_H
#define SYMMEM_BACKEND_SHM_GRAPH_H

#include "shm.h"

/* Takes ownership of the capture's branches. On failure the capture keeps them. */
symmem_status shm_graph_create(shm_instance *instance, int32_t device, shm_capture *capture,
                               void **graph_p);
symmem_status shm_graph_launch(void *instance, void *graph, void *stream);
void shm_graph_destroy(void *instance, void *graph);

#endif
