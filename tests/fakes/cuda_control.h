/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What tests tell the fake CUDA driver, and ask it. A program that has the driver linked in calls
 * these; others find them by name in the library that they load as libcuda.so.1.
 *
 * Environment, for programs that cannot call: FAKE_CUDA_DEVICES, FAKE_CUDA_FABRIC and
 * FAKE_CUDA_REFUSAL (fake_cuda.c), FAKE_CUDA_NO_ID (there is no cuCtxGetId), FAKE_CUDA_ALONE
 * (elsewhere.c, exit.c), FAKE_CUDA_TAKES_BACK (exit.c), FAKE_CUDA_NO_USER_OBJECTS
 * (user_objects.c), FAKE_CUDA_SLOW_OPEN (contexts.c), FAKE_CUDA_OTHERS, FAKE_CUDA_HIDES (memory.c),
 * FAKE_CUDA_JITTER (cuda_on_host.h).
 */
#ifndef FAKE_CUDA_CONTROL_H
#define FAKE_CUDA_CONTROL_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(default)

/* --- calls, by the names that the driver has for them -------------------------------- */

/* How many there were. */
int fake_calls(const char *name);
/* From now on `after` calls of that name are as ever, and `count` behind them fail. It replaces
 * what was asked for before; NULL: none fails any more. */
void fake_fail_calls(const char *name, int after, int count, CUresult result);
/* How many of those have failed. */
int fake_calls_failed(void);
/* Who records an event waits, as for a place in a stream that is full, and who makes a pool. */
void fake_hold_calls(bool held);
/* How many of them are held. */
int fake_calls_kept(void);

/* --- work ---------------------------------------------------------------------------- */

/* No stream goes on. */
void fake_hold_all(bool held);
/* From the next kernel on `after` begin, and then none; -1: all do. */
void fake_hold_kernels(int after);
/* How many have begun. */
int fake_kernels_begun(void);

/* Whether no stream has anything to do. */
bool fake_is_idle(void);

/* For programs that have the driver linked in. NULL: none. */
typedef struct fake_hooks {
    /* Work that need not wait is done in the call that enqueues it, and not by a thread, which a
     * busy machine may keep from running. */
    bool at_once;
    void (*loading)(void); /* while a module is loaded */
    /* Work that the driver does not know of is on the stream, which goes on behind it. */
    bool (*is_busy)(const void *stream);
    /* The stream's context is lost: questions fail, and what it has not begun never comes. */
    bool (*is_lost)(const void *stream);
} fake_hooks;

extern fake_hooks fake_cuda_hooks;

/* --- what there is ------------------------------------------------------------------- */

/* All that was made and not given back: references to contexts, modules, streams, events, graphs,
 * pools, handles of memory, reserved addresses, and memory that is mapped. */
int fake_live(void);
/* Contexts that were pushed and not popped. */
int fake_contexts_pushed(void);
int fake_streams_made(bool urgent);
int fake_streams_left(void);
int fake_handles_held(void);
/* How much memory was made with a handle for the fabric, and how often one was refused. */
int fake_shared_made(void);
int fake_fabric_refusals(void);
/* Modules that were unloaded, of which the device has not got back all. */
size_t fake_modules_kept(void);
/* For the fake management library: what this process uses, and what others do; 0: there are none.
 */
size_t fake_device_bytes(void);
size_t fake_others_bytes(void);
/* Not more memory than that is created in all, and not more filled at once: OUT_OF_MEMORY. */
void fake_run_short(size_t held_bytes, size_t fill_bytes);
/* Another process uses all devices from now on. */
void fake_use_devices(void);
/* Does what cuDevicePrimaryCtxReset does. A later use of an older stream aborts the process. */
void fake_reset_context(CUdevice device);

/* --- for fakes of other libraries ----------------------------------------------------- */

/* Memory that they map themselves; `bytes` of forget is not looked at. */
void fake_know(CUdeviceptr at, size_t bytes);
void fake_forget(CUdeviceptr at, size_t bytes);
/* A call of the driver that enqueues. */
CUresult fake_cuda_enqueue(CUstream stream, void (*run)(void *arg), const void *arg, size_t bytes);
/* Waits for all that runs in the calling thread's context, with its lock held. */
void fake_cuda_quiet(void);

#pragma GCC visibility pop

#endif
