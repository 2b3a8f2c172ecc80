/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What another backend on NVIDIA GPUs may use of this one: its instance and groups of operations,
 * the driver and its context, private streams, pinned memory, work in flight, and kernels on
 * pointers that the other backend supplies. The other headers of this folder are its own.
 *
 * Such a backend links this one's objects without entry.c. It opens an instance by
 * cuda_instance_ops and hangs its own state on cuda_instance.extension. Its table names the groups
 * that it takes as they are (backend.h), and groups of its own where it does something else, whose
 * entries may call the functions below. Examples are backend_nccl, and tests/plugins/nvshmem, which
 * is built out of the tree: the installed package has this as symmem::cuda_device.
 */
#ifndef SYMMEM_CUDA_DEVICE_H
#define SYMMEM_CUDA_DEVICE_H

#include "backend.h"
#include "cuda_internal.h"

/* The clock, the thread's context, errors and failpoints, modules, threads at exit. */
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "driver/exit.h"
#include "driver/module.h"
#include "driver/step_names.h"
/* Local memory of a device, pinned memory, what the driver knows of an address. */
#include "memory/memory.h"
#include "driver/pinned.h"
#include "driver/staging.h"
/* Events, waits for a stream, captures, work in flight. */
#include "inflight/inflight.h"
#include "stream/event.h"
#include "stream/graph.h"
#include "stream/stream.h"
/* Work that the other backend enqueues itself. */
#include "collective/work.h"
/* Kernels on given pointers; guard.h: where a peer may have none. */
#include "collective/collective.h"
#include "collective/splits.h"
#include "collective/tile.h"
#include "signal/guard.h"
#include "signal/peers.h"
#include "signal/signal.h"
#include "signal/window.h"

#endif
