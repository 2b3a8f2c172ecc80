/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank of backend_cuda without a device: see cuda_fake_device.c. */
#ifndef UNIT_CUDA_FAKE_DEVICE_H
#define UNIT_CUDA_FAKE_DEVICE_H

#include "cuda_internal.h"

#define FAKE_MOST_NODES 300
#define FAKE_MOST_ARGS 4096 /* what the driver takes */

/* A launch of a graph. */
typedef struct fake_node {
    CUfunction function;
    unsigned int blocks, threads;
    char args[FAKE_MOST_ARGS];
} fake_node;

typedef struct fake_device {
    cuda_instance instance;
    cuda_peers own;
    symmem_cuda_control control;
    symmem_peers peers;
    symmem_fault fault; /* the last one */
    int launches;
    int fail_launch; /* the number of the launch that fails; -1: none */
    int pieces;      /* not given back */
    bool capturing;  /* launches on a stream are kept in `nodes` */
    int node_count;
    fake_node *nodes;
    cuda_signal_op held; /* what the graph holds */
} fake_device;

extern fake_device fake;

/* tables: buffers, pads and signals, world_size pointers each, constant from then on. Channel state
 * is the caller's to clear. */
void fake_open(void **tables, int32_t rank, int32_t world_size, int32_t channel_count);

/* Launches the graph; the status of what it did. */
symmem_status fake_replay(void);
void fake_drop_graph(void);

#endif
