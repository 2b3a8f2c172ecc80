/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joining: the start of an engine that a process has once and that begins on all ranks together,
 * such as MPI, OpenSHMEM or NVSHMEM. Other backends need none, and answer at once. Programs for
 * every backend join after symmem_init. [SM-WORLD]
 */
#ifndef SYMMEM_WORLD_H
#define SYMMEM_WORLD_H

#include <symmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SYMMEM_JOIN_HEAP_BYTES ((size_t)64 << 20) /* where none are asked for */

typedef struct symmem_join_options {
    size_t size; /* sizeof; INVALID_ARGUMENT for one that does not hold heap_bytes */
    /* Bytes of this rank's heap, the same on all ranks; 0: SYMMEM_JOIN_HEAP_BYTES. Rounded up to
     * SYMMEM_ALIGNMENT. All symmetric memory of this rank comes from it: allocations, pools, and
     * for each rendezvous the pad, the signal state and a few words. */
    size_t heap_bytes;
} symmem_join_options;

/*
 * Collective over all ranks of the context's world, if the active backend declares
 * SYMMEM_CAP_WORLD; else local, with nothing done: OK. Opens the backend. options NULL: all 0; they
 * are copied. Blocks until all ranks are there and the engine is up, for `timeout_ms` at most (0:
 * no limit). Before it, memory of such a backend is NOT_INITIALIZED; but a world of one rank joins
 * by itself, at its first allocation and with the limit of that.
 *
 * A second call on the context is local and OK at once, if it asks for the heap that there is or
 * for 0 bytes, and EXISTS otherwise, with both sizes. Two calls at once: BUSY for one of them.
 * After a failure nothing is left of it, and it may be called again, unless the engine cannot start
 * twice.
 *
 * The engine is the process's. What another context with it gets, the engine's limits decide: a
 * heap of its own, or BUSY or BACKEND with nothing changed for the first one.
 *
 * Any thread. Errors: NOT_FOUND (no backend is set), MISMATCH (backends or sizes differ between
 * ranks; the record names a rank and both sizes), OVERFLOW, NO_SPACE (the heap does not fit),
 * TIMEOUT and PEER_LOST (with the ranks that did not come), BUSY, BACKEND.
 * [SM-WORLD-01 to SM-WORLD-09]
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_join(symmem_context *context,
                                                    const symmem_join_options *options,
                                                    uint32_t timeout_ms);

/*
 * Lets an engine work that moves bytes only inside calls (SYMMEM_CAP_REACH without
 * SYMMEM_CAP_PASSIVE): what peers put to this rank and ask of it. Calls that wait do so all the
 * while. A rank that makes none for a time and does not want to hold up its peers calls this.
 *
 * Local, never waits. Any thread. OK at once with other backends and before symmem_join. Errors:
 * NOT_INITIALIZED. [SM-REACH-09]
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_progress(symmem_context *context);

#ifdef __cplusplus
}
#endif
#endif
