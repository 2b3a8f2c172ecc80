/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts: one rank's world. There is no process-global state, so the ranks of a job may be
 * processes, or threads of one process each with a context of its own. [SM-CONTEXT]
 */
#ifndef SYMMEM_CONTEXT_H
#define SYMMEM_CONTEXT_H

#include <symmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call needs at most of the calling thread's stack on the CPU emulation, the C library's
 * part included: besides this a thread's stack holds what the thread itself and the C library keep
 * there, see PTHREAD_STACK_MIN. A device's driver may need more. [SM-THREAD-08] */
#define SYMMEM_CALL_STACK_BYTES 16384

/*
 * A failpoint. The library calls it at named steps ("rendezvous.metadata.before" and so on, all
 * listed in SPEC.md). It may delay, end the process, or return a failure, which is then treated as
 * that step's own failure. NULL costs one predictable branch. [SM-CONTEXT]
 */
typedef symmem_status (*symmem_point_fn)(void *arg, const char *point);

/* Receives one line of text without newline, on a thread that is in a call of the library: it must
 * not call symmem. NULL prints to standard error. */
typedef void (*symmem_log_fn)(void *arg, const char *line);

/*
 * A clock of the program's in place of the machine's, so that a test need not wait for what it
 * waits for: a limit of ten seconds passes when the test says so. Deadlines and elapsed times of
 * the context's calls and of the work on its streams go by it, and none of these waits sleeps
 * otherwise than in `wait`. [SM-TIMEOUT-15] Not on devices, whose waits go by their own clocks, nor
 * in stores over TCP or of the program's own. A store of the library's that the program calls
 * itself goes by the clock of the context that the calling thread called last.
 *
 * All entries: any thread, several at a time, under locks of the library; they must not call
 * symmem. The clock is borrowed: it must outlive the context, the threads that `threads` has told
 * of (work that outlives its context has some), and the last call to a store of a thread that
 * called with the context. NULL as the option costs one predictable branch where time is asked for.
 */
typedef struct symmem_clock {
    size_t size; /* sizeof(symmem_clock) */
    void *arg;
    uint64_t (*now_ns)(void *arg); /* above 0, never goes back */
    /* Blocks until the clock shows until_ns (UINT64_MAX: never), or earlier for any reason. The
     * caller checks its condition and calls again. It must not miss a `changed` that came after it
     * returned last in this thread. */
    void (*wait)(void *arg, uint64_t until_ns);
    /* Other threads may wait for what the caller has just done. */
    void (*changed)(void *arg);
    /* 1: a thread of the library's that waits by this clock is about to be started. -1: one has
     * come to its end. */
    void (*threads)(void *arg, int change);
} symmem_clock;

typedef struct symmem_context_options {
    size_t size; /* set by symmem_context_options_init */
    /* -1: from the variables of one launcher, the first of these that has all that is asked for
       (PMIx has no size); local_rank is the rank if it has none. Variables of another launcher that
       contradict the rank or size are INVALID_ARGUMENT, for that one may count other processes.
       SYMMEM_LAUNCHER names the one that counts:
         env    RANK, WORLD_SIZE, LOCAL_RANK
         pmix   PMIX_RANK, PMIX_LOCAL_RANK
         ompi   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
         pmi    PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
         slurm  SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID  [SM-CONTEXT-13] */
    int32_t rank;
    int32_t world_size;
    int32_t local_rank;
    uint32_t default_timeout_ms; /* for SYMMEM_TIMEOUT_DEFAULT; 0 = 30,000 */
    symmem_store *store;    /* borrowed, must outlive the context. NULL: what SYMMEM_STORE names,
                               else PMIx's, else torchrun's, see symmem_store_open; a world of one
                               needs none [SM-STORE-14] */
    const char *backend;    /* name or path for set_backend; NULL: SYMMEM_BACKEND, else none yet */
    const char *socket_dir; /* directory for path sockets; NULL: SYMMEM_SOCKET_DIR, else sockets
                               without a file name (abstract), which do not reach beyond a network
                               namespace, as a container has one. Those of killed ranks are removed
                               by others that end a group with sockets there. In a world of more
                               than one a process has a socket by which the others see that it
                               lives: one descriptor for the process, and with a directory one more
                               for each context */
    int32_t allow_overlapping_devices; /* -1: the environment, read at each rendezvous */
    int32_t multicast;                 /* -1: the environment, read at each query; 0 off; 1 on */
    int32_t check_collectives; /* 1: barriers and collective operations compare what the ranks
                                  call and answer MISMATCH if they differ; all ranks alike, which
                                  rendezvous sees to. 0: off. -1: SYMMEM_CHECK_COLLECTIVES=1, else
                                  off. On the CPU, two ranks on two processors, a barrier takes
                                  about 0.15 us longer with it and a collective 0.1 to 0.25 us,
                                  whatever its size; 0.2 to 0.45 us where it needs one more barrier
                                  before it writes (between private memory, all-to-all) */
    symmem_point_fn point;
    void *point_arg;
    symmem_log_fn log;
    void *log_arg;
    const symmem_clock *clock; /* NULL: the machine's, CLOCK_MONOTONIC */
} symmem_context_options;

/* Local. Fills in the defaults named above. */
SYMMEM_API void symmem_context_options_init(symmem_context_options *options);

/*
 * Local; where the context opens a store that rank 0 serves, waits for rank 0, at most
 * default_timeout_ms. Creates a context and publishes this process's identity (one set), so that
 * peers can tell a dead rank from a late one from here on. `options` NULL means all defaults.
 * Errors: INVALID_ARGUMENT (rank or world size missing, malformed or out of range; no store for a
 * world above one; a malformed SYMMEM_ALL_REDUCE_TABLE, see symmem_set_all_reduce_table; one that
 * is too long is OUT_OF_RANGE), MISMATCH (another living process is this rank in the store; it has
 * 0.3 s to end, in which the call waits), LIMIT (no descriptor for its socket, see socket_dir),
 * whatever the store or set_backend returns.
 * *context_p is NULL on failure.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_init(const symmem_context_options *options,
                                                    symmem_context **context_p);

/*
 * Local. Ends the context: frees its allocations, groups, pools and streams' threads, and closes
 * the backend. Objects that are still referenced (handles, views, streams) stay valid memory; each
 * call on them or on the context answers SYMMEM_NOT_INITIALIZED. Memory that a live handle maps is
 * unmapped when that handle is released. Peers keep their own mappings. A second call is
 * SYMMEM_NOT_INITIALIZED. Other threads' collective calls and signal operations that are under way
 * end within 1 s [SM-CONTEXT-10, -12], but no thread may be in a call with a stream, an event or a
 * graph. Never waits for a peer. Work of streams that does not end, all together, within 2 s goes
 * on, and so does that of streams whose destruction timed out before. A thread that is started for
 * it then closes the backend, after which nothing of the context is left. The program is not told
 * when that is, so what that work uses, the store, `point` and `log` have to stay as long as the
 * process. [SM-LIFE-13]
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_finalize(symmem_context *context);

/* Local. Finalizes if that was not done, and gives the context's own memory back. With a store that
 * the context has opened and this rank serves, waits until the others have closed it or ended, at
 * most 10 s. [SM-STORE-20] No other thread may be in a call with the context or come to one;
 * handles, views, streams, events and graphs keep what they need of it, groups and pools are gone.
 * NULL allowed. */
SYMMEM_API void symmem_context_free(symmem_context *context);

/* Local queries, any thread. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_context_rank(const symmem_context *context,
                                                            int32_t *rank_p);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_context_world_size(const symmem_context *context,
                                                                  int32_t *world_size_p);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_context_local_rank(const symmem_context *context,
                                                                  int32_t *local_rank_p);

/* --- backends ([SM-BACKEND]); all local, any thread ------------------------------------------ */

/* Adds a table to this context's registry. EXISTS if the name is taken, ABI if it is refused. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_register_backend(symmem_context *context,
                                                                const symmem_backend *backend);
/*
 * Opens a shared object, asks its one exported symbol symmem_backend_entry for a table and
 * registers that. LOAD if the file or symbol is missing, ABI if the table is refused.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_load_backend(symmem_context *context,
                                                            const char *path);
/*
 * *available_p: the named backend is registered or found on the search path (SYMMEM_BACKEND_PATH,
 * the library's own folder and its "symmem" sub-folder, as libsymmem_backend_<name>.so) and its
 * probe succeeds. Never fails for an unknown name: that is "no".
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_backend_available(symmem_context *context,
                                                                 const char *name,
                                                                 bool *available_p);
/*
 * Makes `name` (or the path of a shared object, if there is a '/' among its first 64 bytes) the
 * context's backend.
 * NOT_FOUND: unknown; UNSUPPORTED: its probe says no, with its reason; BUSY: another backend is in
 * use, which an allocation, a stream or a device query makes it. Setting the same again is OK.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_set_backend(symmem_context *context,
                                                           const char *name);
/* *name_p: the active backend's name, NULL if none is set. The string is the backend's table's: it
 * lives as long as the process. Does not count as use. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_get_backend(symmem_context *context,
                                                           const char **name_p);
/* The active backend's SYMMEM_CAP_ bits (backend.h). NOT_FOUND if none is set. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_backend_capabilities(symmem_context *context,
                                                                    uint64_t *capabilities_p);

/* --- devices; local, any thread; each but the last makes the backend in use ------------------- */

/* At least 1; devices are numbered from 0. NOT_FOUND if no backend is set. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_device_count(symmem_context *context,
                                                            int32_t *count_p);
/* The DLPack device type of the active backend's devices: kDLCPU 1, kDLCUDA 2, kDLROCM 10, and so
 * on. NOT_FOUND if no backend is set. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_device_type(symmem_context *context,
                                                           int32_t *device_type_p);
/*
 * Whether multicast can be used on a device now. A device type that the active backend does not
 * serve, or no backend, is "no", never an error. TORCH_SYMM_MEM_DISABLE_MULTICAST=1,
 * SYMMEM_MULTICAST=0 and the context option are looked at on every call. [SM-MCAST]
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_has_multicast_support(symmem_context *context,
                                                                     int32_t device_type,
                                                                     int32_t device,
                                                                     bool *supported_p);
/*
 * Fills matrix[i * device_count + j], device_count rows of as many, with the number of links of the
 * kind `connection` by which devices i and j reach each other's memory: 0 where there are none and
 * for a device and itself. "nvlink": direct links, and of links to switches as many as both have.
 * `device_count` is what symmem_device_count gives. Asks the machine each time. Nothing is written
 * on failure. Errors: OUT_OF_RANGE (another count), NOT_FOUND (a kind that the backend does not
 * know), UNSUPPORTED (the backend has no CONNECTIVITY, or this machine does not tell), BACKEND (the
 * backend's answer cannot be). [SM-BACKEND]
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_connectivity(symmem_context *context,
                                                            const char *connection,
                                                            int32_t device_count, int32_t *matrix);
/* Overrides the environment and the option from now on: 0 forbid, 1 allow, -1 environment, anything
 * else INVALID_ARGUMENT. */
SYMMEM_API SYMMEM_CHECKED symmem_status
symmem_set_allow_overlapping_devices(symmem_context *context, int32_t allow);

#ifdef __cplusplus
}
#endif
#endif
