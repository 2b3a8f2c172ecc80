/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a backend fills in. Users of symmetric memory do not need this header.
 *
 * A backend is a shared object that exports one symbol, symmem_backend_entry, which returns a
 * constant table. It supplies primitives: memory that can be shared, signals, streams, copies. The
 * core does the rest once for all backends: pointer lookup, caching, argument checks, agreement
 * between ranks, error records, persistent ids, pools. [SM-BACKEND]
 *
 * Conventions that hold for every entry
 *   Arguments  The core has checked them: ranks, channels and devices are in range, pointers and
 *              sizes fit. An entry need not check again what its comment does not mention.
 *   Outputs    Written on success only, unless the comment says otherwise.
 *   Errors     Return a status and describe it with host->fail first. It reaches the user as it is.
 *              An entry's comment names those that have a meaning of their own there; SYSTEM,
 *              OUT_OF_MEMORY, LIMIT (descriptors and the like) and BACKEND are allowed everywhere.
 *   Locks      The core holds the call lock of the operation's group, channel or graph, and no
 *              other lock unless the comment says so (Locks in core/README.md of the source).
 *              "Serialized": the core never runs two calls of this entry at once for the same
 *              object named there.
 *              Everything else may be called from any number of threads.
 *   Waiting    Only entries with a timeout or deadline may wait for anything; entries that use the
 *              device may wait for it, too, see host->deadline_ns. Timeouts are in milliseconds, 0
 *              = no limit. A wait must also end with PEER_LOST or POISONED within a second of
 *              host->peer_state saying so.
 *   Caller     "Local": no other rank need call. "Collective": every rank of the group calls at
 *              the same step, and the core makes all ranks agree on the outcome afterwards.
 *   Device     An entry leaves the calling thread's current device, context and stream as they
 *              were.
 *   State      What an entry keeps belongs to the instance, and there may be several in a process.
 *              Only what ranks that are threads must find of one another (their memory, by what a
 *              share holds) may be the process's, under a lock of its own.
 *   Process    It is the program's. Threads of a backend's own block all signals but those of a
 *              fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS) and end with close;
 *              descriptors are close-on-exec; nothing else of the process changes. [SM-LIFE-07 to
 *              SM-LIFE-12]
 *   NULL       An optional entry or group is NULL where the backend has none. A table that lacks a
 *              mandatory one is refused at registration.
 *   Points     An entry should offer failpoints at its steps, see symmem_host.point.
 *   Reading    Objects that an entry fills (memory, share, info) come in zeroed, share->fd as -1.
 */
#ifndef SYMMEM_BACKEND_H
#define SYMMEM_BACKEND_H

#include <symmem/context.h> /* symmem_clock */
#include <symmem/handle.h>
#include <symmem/matmul.h>
#include <symmem/memory.h> /* SYMMEM_ALIGNMENT */
#include <symmem/status.h>
#include <symmem/window.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SYMMEM_BACKEND_ABI 2u

/* --- capabilities ------------------------------------------------------------------- */

/* What a backend can do, as symmem_backend_capabilities answers. A group or an optional entry that
 * is there says most of it; the rest, SYMMEM_CAP_FLAGS, the table's flags say. */
#define SYMMEM_CAP_STREAMS (1ull << 0)     /* the group stream */
#define SYMMEM_CAP_CAPTURE (1ull << 1)     /* the group graph */
#define SYMMEM_CAP_MULTICAST (1ull << 2)   /* the group multicast */
#define SYMMEM_CAP_HOST_ACCESS (1ull << 3) /* flag: the CPU may dereference every pointer */
#define SYMMEM_CAP_OVERLAP (1ull << 4) /* flag: ranks may share a device if the user allows it */
#define SYMMEM_CAP_THREAD_RANKS                                                                    \
    (1ull << 5) /* flag: ranks may be threads; this or the next is needed */
#define SYMMEM_CAP_PROCESS_RANKS (1ull << 6) /* flag: ranks may be processes */
#define SYMMEM_CAP_HOST_FN (1ull << 7)       /* stream->host_fn */
#define SYMMEM_CAP_DIRECT_ACCESS (1ull << 8) /* flag: on one host no peer pointer is ever NULL */
#define SYMMEM_CAP_CROSS_HOST (1ull << 9)    /* flag: ranks may be on different hosts */
#define SYMMEM_CAP_POOL (1ull << 10)         /* flag: pools work; the core cuts the blocks */
#define SYMMEM_CAP_WRAP_STREAM (1ull << 11)  /* stream->wrap */
#define SYMMEM_CAP_COLLECTIVES (1ull << 12)  /* the group collective */
#define SYMMEM_CAP_MATMUL (1ull << 13)       /* the group matmul */
#define SYMMEM_CAP_CONNECTIVITY (1ull << 14) /* the group topology */
#define SYMMEM_CAP_COLLECTIVES_APART (1ull << 15) /* collective->run_apart */
#define SYMMEM_CAP_WORLD (1ull << 16)             /* the group world: symmem_join comes first */
#define SYMMEM_CAP_REACH (1ull << 17) /* the group reach: peers' memory without pointers to it */
/* Flag: a peer's memory is reached also while that peer is stopped or makes no call. Without the
 * group reach it always is, and the flag need not be set. */
#define SYMMEM_CAP_PASSIVE (1ull << 18)
#define SYMMEM_CAP_SPLITS (1ull << 19) /* collective->run_splits */
#define SYMMEM_CAP_VALUES (1ull << 20) /* signal->wait_value and copy->write_value64, both */
#define SYMMEM_CAP_WINDOW (1ull << 21) /* signal->count and signal->wait_counts, both */
#define SYMMEM_CAP_ALL ((1ull << 22) - 1)
#define SYMMEM_CAP_FLAGS                                                                           \
    (SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_OVERLAP | SYMMEM_CAP_THREAD_RANKS |                       \
     SYMMEM_CAP_PROCESS_RANKS | SYMMEM_CAP_DIRECT_ACCESS | SYMMEM_CAP_CROSS_HOST |                 \
     SYMMEM_CAP_POOL | SYMMEM_CAP_PASSIVE)

/* --- what the core offers to a backend ---------------------------------------------- */

typedef struct symmem_host symmem_host;
typedef struct symmem_peers symmem_peers;

/* A reference the core hands out so that memory outlives pending and captured work, and with it the
 * instance: each operation on a stream has one at least (events and host functions are none; a
 * launch counts on those of its graph). release may run the backend's own memory->release and
 * peers_close: where the driver forbids that (host callbacks), queue it for a thread of the
 * backend's own. Not for the next entry: there may be none, for close comes only after the last
 * release. */
typedef struct symmem_ref {
    void (*retain)(void *object); /* any thread, never waits */
    void (*release)(void *object);
    void *object;
} symmem_ref;

/* What a call that all ranks make together is. */
typedef enum symmem_call_kind {
    SYMMEM_CALL_NONE = 0, /* in a symmem_call_id: not to be compared */
    SYMMEM_CALL_BARRIER,  /* in a symmem_call_id only */
    SYMMEM_CALL_ONE_SHOT_ALL_REDUCE,
    SYMMEM_CALL_TWO_SHOT_ALL_REDUCE,
    SYMMEM_CALL_REDUCE_SCATTER,
    SYMMEM_CALL_ALL_GATHER,
    SYMMEM_CALL_BROADCAST,
    SYMMEM_CALL_ALL_TO_ALL,
    SYMMEM_CALL_MULTIMEM_ALL_REDUCE,
    SYMMEM_CALL_MULTIMEM_ONE_SHOT_ALL_REDUCE,
    SYMMEM_CALL_MULTIMEM_ONE_SHOT_REDUCE,
    SYMMEM_CALL_MULTIMEM_ALL_GATHER,
    SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER,
    /* Made of other entries, so in a symmem_call_id only. */
    SYMMEM_CALL_LOW_CONTENTION_ALL_GATHER,
    SYMMEM_CALL_LOW_CONTENTION_ALL_GATHER_CE_MULTICAST,
    SYMMEM_CALL_FUSED_ALL_GATHER_MATMUL,
    SYMMEM_CALL_FUSED_MATMUL_REDUCE_SCATTER,
    SYMMEM_CALL_ALL_TO_ALL_V, /* of run_splits */
    SYMMEM_CALL_WAIT_VALUE,   /* in a symmem_fault only */
    SYMMEM_CALL_KIND_COUNT
} symmem_call_kind;

/* By what ranks see that they make the same call. Fixed size, no padding. */
typedef struct symmem_call_id {
    uint32_t kind; /* symmem_call_kind */
    uint16_t dtype;
    uint16_t op;     /* symmem_reduce_op */
    uint64_t count;  /* elements */
    uint64_t detail; /* a hash of all else that has to agree: offset, root, shape */
} symmem_call_id;

/* What became of a signal operation. Plain data, so that a device can fill in its own form. */
typedef struct symmem_fault {
    const char *operation; /* "barrier", "put_signal", "wait_signal" and so on; static string */
    symmem_status status;  /* TIMEOUT, PEER_LOST, POISONED, CORRUPT, MISMATCH, or a failpoint's */
    int32_t channel;
    int32_t failed_rank; /* group rank of the one peer concerned, -1 if several. POISONED: the peer
                            whose state says so, this rank if is_poisoned does */
    uint64_t actual;     /* CORRUPT: the value found; of a wait for a value the one last seen */
    uint64_t elapsed_ns; /* since the operation began to run */
    /* Bit r: group rank r did not come in time. TIMEOUT and PEER_LOST; else 0. */
    uint64_t missing[SYMMEM_MAX_WORLD_SIZE / 64];
    const char *stage; /* the failpoint that failed, static string; NULL: none did */
    /* MISMATCH: this rank's call and failed_rank's. INVALID_ARGUMENT or OUT_OF_RANGE: own.kind is
     * ALL_TO_ALL_V, the counts are the number allowed and the number found, and `stage` names the
     * argument of failed_rank's that is wrong. A wait for a value says in `own` what it wanted:
     * kind WAIT_VALUE, dtype, op (the symmem_compare) and count (the value). */
    symmem_call_id own, other;
} symmem_fault;

typedef enum symmem_peer_state {
    SYMMEM_PEER_ALIVE = 0, /* or stopped, or unknown: not proved dead */
    SYMMEM_PEER_GONE = 1   /* its process has ended, and the system has taken back what it had */
} symmem_peer_state;

/* Services. One table per context; valid from open to close. All entries: any thread. Append only:
 * what an older core lacks lies beyond `size`. */
struct symmem_host {
    size_t size;
    void *self;
    /* Fills the calling thread's error record and returns `status`. The core puts the public call
     * in place of `operation` where it knows it. */
    symmem_status (*fail)(const symmem_host *host, symmem_status status, int system_errno,
                          const char *operation, const char *format, ...)
#if defined(__GNUC__)
        __attribute__((format(printf, 5, 6)))
#endif
        ;
    /* Like fail, with both sizes of a shortage. */
    symmem_status (*fail_sizes)(const symmem_host *host, symmem_status status, int system_errno,
                                const char *operation, uint64_t expected, uint64_t actual);
    /* Tells the user once per context and text. */
    void (*notice)(const symmem_host *host, const char *text);
    /*
     * A failpoint: a step at which the conformance suite may delay, fail or end this rank. The
     * suite runs each entry once and notes the points that are passed. Then, point by point and
     * rank by rank, it checks that all ranks agree on the outcome, nothing is left behind and the
     * next attempt works. So a backend is tested at exactly the steps that it offers. Optional, and
     * worth having before and after every call that takes something from the system or the driver,
     * between the halves of a synchronization, around each piece of a stream's work, and before
     * whatever is given back.
     *   name    "<backend>.<step>", at most 31 characters, a static string. It ends in '*' where
     *           the step can no longer fail, or must not (giving back, and what peers may have seen
     *           already): there the status means nothing and is ignored.
     *   status  other than OK: this step's own failure. Undo what the entry did and return it; the
     *           thread's record is filled, so do not call fail. A signal operation passes it to
     *           signal_failed with the name in fault->stage. Work of a stream keeps it as the
     *           stream's failure: a record with that status, this rank's number, channel and
     *           failed_rank -1, and the name as its stage.
     *   where   any thread, with no lock that another rank may need: a delay must hold up only
     *           ranks that wait for this one anyway.
     * has_points false: point does nothing; asking that first makes a step cost one branch.
     */
    symmem_status (*point)(const symmem_host *host, const char *name);
    /*
     * Called when a signal operation, a collective or a part of one on `peers` failed. Poisons the
     * shared state, but not where calls differ (MISMATCH, with fault->own). Builds the full record
     * (group, ranks, text) into *record_p, unless that is NULL. Does not touch the thread's record.
     * For asynchronous work the backend keeps the first record of a stream until
     * stream->synchronize. An operation without stream calls it in the thread it was called in and
     * returns fault->status; the core then reports the record. May call signal->poison for the same
     * peers before it returns, so no lock that signal->poison takes may be held.
     */
    void (*signal_failed)(const symmem_peers *peers, const symmem_fault *fault,
                          symmem_error_record *record_p);
    /* Non-blocking; costs a system call at most. Ask it every 10 to 250 ms of a wait. This and
     * is_poisoned may be called from any thread, a watcher's too, until peers_close returns. */
    symmem_peer_state (*peer_state)(const symmem_peers *peers, int32_t rank);
    /* True once the shared state is poisoned in this context, or the context was finalized: work
     * that waits must give up with POISONED, and so must a signal operation of a stream that begins
     * only then, before it touches a slot or arrives. The core itself refuses calls made later, but
     * for those that a poisoned handle still has (its data and its reset): an entry that finds the
     * state poisoned when it begins, and is no signal operation, does its work. */
    bool (*is_poisoned)(const symmem_peers *peers);
    bool has_points; /* constant from open to close */
    /* True while rank's process is on its way to GONE: it runs no more, but the system has not yet
     * taken back what it had, and its device may still write. A backend that has seen another sign
     * of the end, such as a closed connection, goes on waiting then. False if that is not known.
     * Makes some system calls, so do not call it in every pass of a wait loop. Any thread, as
     * peer_state. */
    bool (*peer_is_ending)(const symmem_peers *peers, int32_t rank);
    /* Returns the deadline, by CLOCK_MONOTONIC or `clock`, of the public call that this thread
     * serves, or 0 for none. memory->alloc, peers_open and signal->reset may need the device and
     * wait for it. In a rendezvous or reset they return TIMEOUT a little before the deadline, so
     * that the core still has time to tell the other ranks. In an allocation each call returns a
     * new deadline for memory->alloc, counted from then, so ask once, when the wait for the device
     * begins. group->close and memory->release also come within such calls. They wait until the
     * deadline at most, a few seconds where there is none, and leave what takes longer to end by
     * itself. */
    uint64_t (*deadline_ns)(const symmem_host *host);
    /* In place of CLOCK_MONOTONIC for all deadlines and elapsed times, see symmem_clock; NULL:
     * none. For tests of who waits on the CPU: a backend that cannot go by it need not. */
    const symmem_clock *clock;
    /* Adds to the message of the failure that this thread has just described: which limit it was,
     * with its figures. What stands for a limit of the process by system_errno (RLIMIT_NOFILE for
     * EMFILE) the core has named already. */
    void (*explain)(const symmem_host *host, const char *format, ...)
#if defined(__GNUC__)
        __attribute__((format(printf, 2, 3)))
#endif
        ;
};

/* The exchange that collective entries may use. Valid during that call only. Append only, as
 * symmem_host. */
typedef struct symmem_exchange {
    size_t size;
    void *self;
    int32_t rank;
    int32_t world_size;
    const char *group_name;
    uint64_t group_id;    /* the same on all members, different for each group brought up */
    uint64_t deadline_ns; /* CLOCK_MONOTONIC or the host's clock, 0 = none */
    const int32_t *global_ranks;
    /* Collective. As symmem_group_all_gather, until the deadline. */
    symmem_status (*all_gather)(const struct symmem_exchange *exchange, const void *in,
                                size_t bytes, void *out);
    symmem_status (*barrier)(const struct symmem_exchange *exchange);
    /* Collective. Returns OK everywhere, or the lowest failing rank's status everywhere. */
    symmem_status (*agree)(const struct symmem_exchange *exchange, symmem_status own,
                           const char *stage);
    /* Local, never waits: whether group rank `rank` is known to have ended. For waits that are the
     * backend's own (a library's set-up call that is polled). */
    symmem_peer_state (*peer_state)(const struct symmem_exchange *exchange, int32_t rank);
    /* group->open: what the user handed in for this group, see group->communicator_check; NULL:
     * nothing. */
    void *communicator;
    uint64_t group_uid; /* of this group in this context alone, from its creation to its end;
                           group_id is another each time it is brought up */
    /* Local, never waits. As symmem_host.peer_is_ending. */
    bool (*peer_is_ending)(const struct symmem_exchange *exchange, int32_t rank);
    /* Local. For waits that are the backend's own, where agree comes next on every rank (the core's
     * after the entry is one): whether a peer is there already and has failed, so that it does not
     * come any more, or this rank's group was destroyed or its context finalized meanwhile. Not OK:
     * why, which the thread's record has too; stop waiting and return it. Asks the store, for at
     * most 64 peers and 20 ms, and goes on from there the next time: not more often than twenty
     * times a second, four in large worlds. */
    symmem_status (*peer_failure)(const struct symmem_exchange *exchange);
} symmem_exchange;

/* --- objects shared between core and backend ------------------------------------------------- */

/* A piece of memory that is mapped in this process: own, or a peer's. The backend fills in all; the
 * core reads ptr and hands the whole back. ptr and priv both NULL: there is nothing to release. */
typedef struct symmem_memory {
    void *ptr;    /* aligned to SYMMEM_ALIGNMENT; NULL, a peer's only: no direct access */
    size_t bytes; /* as requested */
    int32_t device;
    int32_t imported; /* not 0: a peer's */
    void *priv;       /* the backend's */
} symmem_memory;

/* How memory is shared: the bit says that this alone leads to the memory (`bytes` travel in any
 * case, an id for one). One at least is needed, or the rendezvous is BACKEND. An exporter may offer
 * both, the importer takes the one that suits it. Where a group spans hosts every rank has to offer
 * bytes (or rendezvous is UNREACHABLE, naming one that does not), and `fd` is -1 at the importer.
 */
typedef enum symmem_share_kind {
    SYMMEM_SHARE_NONE = 0,
    SYMMEM_SHARE_FD = 1,   /* `fd` travels as a descriptor; the receiver's number is in `fd` */
    SYMMEM_SHARE_BYTES = 2 /* `bytes` travels through the store */
} symmem_share_kind;

/* What lets a peer map memory. */
typedef struct symmem_share {
    int32_t kind;          /* symmem_share_kind */
    int32_t fd;            /* -1 if none */
    uint64_t mapped_bytes; /* the backend's own rounded size, for the importer */
    uint8_t bytes[64];
    int32_t same_process; /* set by the core at the importer: the exporter is this process */
    int32_t reserved;
    uint8_t more_bytes[64]; /* travels as `bytes` does. At the end, so that older plug-ins run with
                               this core; one that writes it needs a core that has it */
} symmem_share;

/*
 * All that a signal or collective operation needs to know of the peers: made by the core for each
 * (allocation or pool block, group), complete before the first operation, constant afterwards.
 */
struct symmem_peers {
    size_t size;
    const symmem_host *host;
    void *self; /* the core's */
    void *priv; /* the backend's, set in peers_open */
    int32_t rank;
    int32_t world_size;
    int32_t device;
    int32_t channel_count;
    void *const *buffers; /* base of each rank's allocation; [rank] is this rank's. This and the two
                             below: NULL for a peer without direct access */
    size_t buffer_bytes;
    void *const *pads; /* the user's signal pads */
    size_t pad_bytes;
    void *const *signals; /* each rank's signal state, signal_bytes() long, zero at the start,
                             aligned to SYMMEM_ALIGNMENT; behind the pad in one memory->alloc */
    size_t signal_bytes;
    const int32_t *global_ranks;
    int32_t local_rank_count; /* ranks of this group on this host; compare with the cores */
    int32_t reserved;
    /* With the group world: where each rank's allocation, pad and signal state begin, in bytes from
     * the start of that rank's heap. NULL without. */
    const size_t *buffer_offsets;
    const size_t *pad_offsets;
    const size_t *signal_offsets;
};

/*
 * An operation that the core composes of several entries, on one stream or on two that it orders by
 * events. STREAMS alone bring such operations: a low-contention all-gather is barriers and copies,
 * with COLLECTIVES or without. The core makes one of these for each channel, whose composed
 * operations follow each other, and it lives as long as the peers: so a device may keep a word of
 * its own for each address. [SM-COLL-15]
 *   Part 0, in each launch of a graph too, begins anew: no part has failed.
 *   A part that fails is noted, in `failed` or elsewhere, and its failure goes through
 *   host->signal_failed, whatever the entry: a copy's too, which is otherwise the stream's alone.
 *   What is known before the entry returns, of a product that the user enqueues, the entry may
 *   return instead; the core then gives up the rest.
 *   A part that begins after one has failed does nothing. It counts as a success on the stream that
 *   tells of the failure, and on any other too unless host->is_poisoned: then it is POISONED there,
 *   for both streams' synchronizations have to tell.
 */
typedef struct symmem_composite {
    const symmem_peers *peers;
    /* The backend's to write, by atomic accesses: the stream on which a part has failed, and whose
     * synchronization tells of that; NULL: no part has failed. */
    void *failed;
    int32_t channel; /* the operation's, or the first of its two */
    int32_t reserved;
} symmem_composite;

/* How and where an operation runs. Signal operations and collectives that fail once a part of their
 * work is on the stream leave it there: the core takes it for what the channel did last. */
typedef struct symmem_exec {
    void *stream;           /* the backend's; NULL: run to completion before returning */
    const symmem_ref *refs; /* retain before enqueueing or capturing, release when done for good */
    int32_t ref_count;      /* at most 3; of run_splits at most 4, of the group matmul at most 6 */
    uint32_t timeout_ms;    /* signal operations and collectives, matmul with signals: from the
                               moment it begins to run; 0 = no limit */
    symmem_call_id call;    /* barrier and collective: see there */
    const char *operation;  /* the public call that an entry is a part of (barrier, copy,
                                multicast->store, those of matmul), for fault and record; static
                                string; NULL: the entry's own name */
    /* On a stream, of barrier, copy, multicast->store and the group matmul. Not NULL: this
     * is a part of that operation; step counts them from 0. */
    symmem_composite *composite;
    uint32_t step;
    /* Of such a part. loose: it may as well run when another one has failed, for what it writes is
     * undefined then, and so may all others of its operation but the barriers. All failures of one
     * with loose parts poison: so no part of it clears `failed`, but the core does in a reset.
     * first: the first barrier of the operation, which runs whatever has failed, so that its stream
     * tells of a poisoned state. */
    bool loose, first;
    /* On a stream. capture_known: capture_id has just said that of it, and need not be asked. */
    bool capture_known;
    uint64_t capture;
    /* On a stream that does not capture, of signal operations and collectives that are no part of
     * another one; may be NULL. A backend that has an event behind the operation's work anyway may
     * store it there on success. The core then records none of its own. It gives that event to
     * wait_event, event_query, event_synchronize and, once, to event_destroy. */
    void **end_p;
} symmem_exec;

/* Splits that lie in memory of the device's and are read when the operation runs. Numbers count
 * rows. A rank has `experts` parts for each rank, so `parts` is world_size * experts. */
typedef struct symmem_splits {
    const int64_t *in;         /* [parts]: how many rows each part of the input has */
    const int64_t *in_offsets; /* [parts]: where it begins; NULL: the parts follow each other */
    int64_t *out;              /* [2][parts]: gets the same of the parts that came to this rank */
    size_t experts;
    size_t in_rows; /* of the input */
    size_t out_rows;
    size_t align;    /* of each expert's first row in out; 0: parts follow each other */
    bool by_experts; /* input: expert 0's part for each rank, then expert 1's. out: the other way */
} symmem_splits;

/*
 * One collective operation. It belongs to the core: an entry that enqueues keeps a copy. Its
 * contract is the header symmem/kernels/<kind in small letters>.h (multimem_one_shot_reduce shares
 * that of multimem_one_shot_all_reduce). That header says what a kind does, which fields it uses
 * and what they mean there, where its ranks synchronize, what may overlap, and whether ranks and
 * runs get the same bits. Fields that it does not name are 0. symmem/kernels/reference/reduce.h
 * says what reductions compute. In the source these headers lie in kernels/.
 *
 * All kinds have this in common. Every pointer is a multiple of the element's size and of no more,
 * so code with wider loads handles the ends separately. `offset` is the same on all ranks, unless
 * the contract says otherwise, and bytes are in bounds. count may be 0: then in is NULL, out NULL
 * or anything, nothing is moved, and the ranks synchronize all the same. Forms of a kind are told
 * apart by which of in and out are NULL, which is the same on every rank.
 */
typedef struct symmem_collective {
    size_t size;
    const char *name; /* for fault->operation; static string */
    symmem_call_kind kind;
    symmem_dtype dtype;
    symmem_reduce_op op;
    int32_t root;
    size_t count;   /* elements, of which tensor: see the contract */
    size_t offset;  /* of the symmetric argument, bytes from each rank's peers->buffers entry */
    const void *in; /* other input, anywhere this rank's device can reach; NULL: none */
    void *out;      /* other output, anywhere this rank's device can reach; NULL: none */
    size_t in_row;  /* elements: of a row, or of the room in the buffers; see the contracts */
    size_t out_row;
    void *multicast; /* address of the symmetric argument; NULL: not a multimem kind */
    /* all_to_all: world_size numbers of elements each, in host memory, kept by exec->refs. */
    const size_t *in_splits;
    const size_t *out_splits;
    symmem_splits splits; /* all_to_all_v */
} symmem_collective;

/* A copy between any two layouts: `element` bytes at each of the shape's places. Strides are in
 * elements. */
#define SYMMEM_COPY_MAX_NDIM 8
typedef struct symmem_strided_copy {
    size_t size;
    size_t element; /* 1, 2, 4 or 8 */
    int32_t ndim;
    int64_t shape[SYMMEM_COPY_MAX_NDIM];
    const void *src;
    int64_t src_strides[SYMMEM_COPY_MAX_NDIM];
    void *dst;
    int64_t dst_strides[SYMMEM_COPY_MAX_NDIM];
} symmem_strided_copy;

/* dst[i] = src_0[i] op src_1[i] op ..., in that order, where src_s is `count` elements at
 * src + s * src_stride bytes. */
typedef struct symmem_local_reduce {
    size_t size;
    symmem_dtype dtype;
    symmem_reduce_op op;
    int32_t src_count;
    size_t count;
    const void *src;
    size_t src_stride;
    void *dst;
} symmem_local_reduce;

/* What a wait for a value waits for. It belongs to the core: an entry that enqueues keeps a copy.
 */
typedef struct symmem_value_wait {
    size_t size;
    const void *word; /* in a buffer of the peers', aligned to `bytes` */
    uint64_t value;
    int32_t bytes; /* 4 or 8 */
    symmem_compare compare;
    int32_t source; /* the group rank that writes it, perhaps this one */
    int32_t reserved;
} symmem_value_wait;

/* Whether a word that holds `found` is what the wait is for. */
static inline bool symmem_value_holds(const symmem_value_wait *wait, uint64_t found) {
    switch (wait->compare) {
    case SYMMEM_EQ:
        return found == wait->value;
    case SYMMEM_NE:
        return found != wait->value;
    case SYMMEM_GT:
        return found > wait->value;
    case SYMMEM_GE:
        return found >= wait->value;
    case SYMMEM_LT:
        return found < wait->value;
    default:
        return found <= wait->value;
    }
}

typedef struct symmem_device_info {
    int32_t device_type; /* DLPack's: kDLCPU 1, kDLCUDA 2, kDLROCM 10; never 0 */
    int32_t multicast;   /* not 0: this device can do multicast now */
    size_t granularity;  /* of memory, informative */
    char name[64];
    uint8_t unique_id[16]; /* the same device has the same id in every process of the host; all
                              zero: its number tells it apart. Decides what overlapping means */
} symmem_device_info;

typedef struct symmem_backend_config {
    size_t size;
    int32_t rank;
    int32_t world_size;
    int32_t local_rank;
    int32_t
        multicast_allowed; /* at open; device_info and multicast->create are gated by the core */
} symmem_backend_config;

/* --- the table ----------------------------------------------------------------------------------
 *
 * A table has a head and groups of entries. The groups instance, memory, signal and copy are
 * mandatory, but memory is not where the group world is there, and signal is not where the group
 * reach is there, no stream, and the flag HOST_ACCESS: then the core makes signals and barriers of
 * words in the ranks' heaps. Every other group is optional: a NULL group means that the backend
 * cannot do that, and the core refuses the calls that need it (SM-BACKEND-09). An entry is
 * mandatory in its group unless its comment begins with "Optional". [SM-BACKEND-06, SM-BACKEND-07]
 *
 * Every struct below is append only, and its `size` is the implementer's sizeof. The core takes an
 * entry or a group beyond `size` for NULL, so an older plug-in runs with a newer core.
 *
 * The comments of entries have one form: what the entry does, then
 *   args     arguments, units and outputs, where their names do not say it
 *   blocks   what it may wait for; an entry without this line waits for nothing
 *   called   local or collective, by whom, and what the core holds or serializes; an entry without
 *            this line is local and may be called from any thread
 *   errors   statuses with a meaning of their own
 */

/* The backend, its instances and their devices. Mandatory. */
typedef struct symmem_instance_ops {
    size_t size;
    /* Tells whether this machine can run the backend. Has no lasting effect.
     *   args     reason is one line, which comes in empty and ends in 0 within `capacity`. With OK
     *            it tells what the backend runs on, such as "libx 2.1", and may stay empty. With
     *            another status it tells why the backend cannot run.
     *   called   local, before open, perhaps often
     *   errors   UNSUPPORTED */
    symmem_status (*probe)(char *reason, size_t capacity);
    /* Makes an instance, which every entry but these two gets as its first argument.
     *   args     host stays valid until close
     *   called   local, once a context, when the context first uses the backend; serialized
     *   errors   UNSUPPORTED, LIMIT */
    symmem_status (*open)(const symmem_host *host, const symmem_backend_config *config,
                          void **instance_p);
    /* Ends an instance. All memory, streams, peers and graphs were released before, and all work
     * that has references has ended. Events, host functions and launches of graphs without
     * references may be left of a stream that was destroyed too early.
     *   blocks   for such leftovers a while; then it leaves them alone and never uses `host` again
     *   called   local, last. Never within a symmem_ref's release, but perhaps in another thread
     *            before the last release has returned: join the thread that released. If the
     *            process ends meanwhile, the core waits five seconds at most for a close that has
     *            begun, so that the libraries which open has loaded are still there. A close that
     *            has not begun by then is left out. */
    void (*close)(void *instance);
    /*   args     at least 1 */
    symmem_status (*device_count)(void *instance, int32_t *count_p);
    /* Describes a device. Cheap: the core asks for every query of capabilities. */
    symmem_status (*device_info)(void *instance, int32_t device, symmem_device_info *info_p);
} symmem_instance_ops;

/* Memory that peers can reach. Mandatory; share, unshare and map may be left out together if
 * exchange is there. */
typedef struct symmem_memory_ops {
    size_t size;
    /* Allocates memory of at least `bytes` bytes, zeroed before any peer can see it and truly
     * backed. The core calls it for users' allocations, and at each first rendezvous for pad and
     * signal state together.
     *   args     fills *memory
     *   blocks   for the device, until host->deadline_ns; the backend then gives back what is late
     *   errors   NO_SPACE through host->fail_sizes for any shortage, also of a memory control group
     *            and for a size that overflows when it is rounded; never a fault later. TIMEOUT */
    symmem_status (*alloc)(void *instance, int32_t device, size_t bytes, symmem_memory *memory);
    /* Unmaps own or imported memory, to which nothing enqueued or captured refers any more. Peers'
     * mappings of own memory stay usable. A backend may keep some of it, of bounded size, until
     * close.
     *   called   local, perhaps from a stream's own thread by the last symmem_ref release, and with
     *            the call lock of a group, channel or graph held; within event_query, also with the
     *            core's lock of its list of graphs. It waits for no lock that the backend holds
     *            while it gives references back */
    void (*release)(void *instance, symmem_memory *memory);
    /* Optional with the next two. Describes own memory to any number of peers; a group of one calls
     * it too.
     *   args     fills *share; a descriptor in it is one that unshare may close */
    symmem_status (*share)(void *instance, symmem_memory *memory, symmem_share *share);
    /* Optional with share. Gives back what `share` took, such as the descriptor. The memory stays
     * shared. */
    void (*unshare)(void *instance, symmem_share *share);
    /* Optional with share. Maps a peer's memory of `bytes` bytes for use by `device`.
     *   args     share as received; the core closes share->fd afterwards. With share->same_process
     *            the memory's pointer is one of this rank's own, and with HOST_ACCESS the
     *            exporter's address, so that both see one mapping (SM-HANDLE-13). Find the memory
     *            by what the share holds, such as a file's number or an id. Never go by an address
     *            in it: the exporter may fail and release its memory at any moment.
     *   errors   NO_SPACE, LIMIT, UNREACHABLE, MISMATCH */
    symmem_status (*map)(void *instance, int32_t device, const symmem_share *share, size_t bytes,
                         symmem_memory *memory);
    /* Optional. Registers memory collectively, in place of share and map, which are not used where
     * this entry is there. A first rendezvous calls it for the data, unless all ranks have mappings
     * of that from one rendezvous, and then for pad and signal state.
     *   args     own is always a whole allocation. Fills peers[0..world_size); peers[rank].ptr is
     *            own->ptr. The core gives each of them to release, peers[rank] too: that undoes the
     *            registration and leaves the memory, which `own` is, and which is released after
     *            them. So priv or imported has to tell peers[rank] from `own`. `group` is NULL
     *            without the group `group`.
     *   blocks   until exchange->deadline_ns
     *   called   collective, with the group's lock held. On failure it has released all it made,
     *            and the core calls group->close; the next rendezvous opens the group anew.
     *   errors   PEER_LOST if a peer has ended, and the core names the peer: ask
     *            exchange->peer_state, and while peer_is_ending says so ask again */
    symmem_status (*exchange)(void *instance, void *group, symmem_memory *own,
                              const symmem_exchange *exchange, symmem_memory *peers);
} symmem_memory_ops;

/* Shared state of a block in a group, and the operations on it. Mandatory.
 *
 * For barrier, put and wait: with a stream they return once the work is enqueued, and without one
 * they return the operation's own status. Either way a failure of the operation goes through
 * host->signal_failed in place of host->fail, before anybody can see the operation as complete. A
 * wait looks for what it waits for, for exec->timeout_ms, host->is_poisoned and host->peer_state,
 * and for what the peer's poison left (POISONED). Orderings are system-wide. A slot with another
 * value than 0 and 1 is CORRUPT, for a put at once as for a wait, with the rank that the entry was
 * given as failed_rank and the value found in `actual`. A failed put leaves the slot as it was; a
 * failed barrier may have told some peers. Without a stream too they retain exec->refs for what
 * they leave under way. They may leave work after a failure where a device has not begun all of it,
 * if it touches nothing but signal state any more; the handle is poisoned then. [SM-SIGNAL,
 * SM-BARRIER] */
typedef struct symmem_signal_ops {
    size_t size;
    /* Bytes of signal state for each rank of a group, for a block of block_bytes. The core
     * allocates them with memory->alloc, zeroed.
     *   args     the same result for the same arguments on every rank */
    size_t (*bytes)(void *instance, int32_t world_size, int32_t channel_count, size_t block_bytes);
    /* Prepares operations on `peers`, all pointers of which are valid.
     *   args     may set peers->priv. *buffers_dev_p and *pads_dev_p get arrays of world_size
     *            pointers that the device reads, alive until peers_close: where the device is the
     *            CPU, peers->buffers and peers->pads themselves will do. */
    symmem_status (*peers_open)(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                void **pads_dev_p);
    /*   called   local, when no operation on `peers` is pending or captured */
    void (*peers_close)(void *instance, symmem_peers *peers);
    /* Release, then acquire: all ranks' earlier writes are visible after it. It keeps state of its
     * own; a pending signal is never an arrival.
     *   args     exec->call, if its kind is not NONE, is published with the arrival and compared,
     *            as bytes, with each peer's that is not NONE either. If one differs the outcome is
     *            MISMATCH on every rank, with both in the fault, and the barrier counts as passed
     *            otherwise. A backend without the group collective may ignore exec->call.
     *   blocks   for all ranks, until exec->timeout_ms
     *   called   collective; serialized with put and wait for each channel of one `peers`, in issue
     *            order, by events across streams
     *   errors   TIMEOUT, PEER_LOST, POISONED, CORRUPT, MISMATCH */
    symmem_status (*barrier)(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_exec *exec);
    /* Waits until slot (channel, own rank) at dst_rank is 0 and makes it 1, with release order.
     *   blocks, called, errors   as barrier, but local */
    symmem_status (*put)(void *instance, const symmem_peers *peers, int32_t dst_rank,
                         int32_t channel, const symmem_exec *exec);
    /* Waits until slot (channel, src_rank) at this rank is 1 and makes it 0, with acquire order.
     *   blocks, called, errors   as barrier, but local */
    symmem_status (*wait)(void *instance, const symmem_peers *peers, int32_t src_rank,
                          int32_t channel, const symmem_exec *exec);
    /* Resets this rank's signal state, traces of poison included.
     *   blocks   for the device, until host->deadline_ns
     *   called   local, on every rank between two host barriers, with no operation pending. Other
     *            ranks may have reset theirs when this fails, so the core then poisons every rank.
     *   errors   BUSY while something is under way that an entry has left behind; TIMEOUT */
    symmem_status (*reset)(void *instance, const symmem_peers *peers);
    /* Optional, but only where peers learn of a failure otherwise. Tells peers that the state was
     * poisoned in this process, so that their waits on this rank end with POISONED. [SM-TIMEOUT-05]
     *   called   once a poisoning, within host->signal_failed, when the core gives up an operation
     *            made of several, or after a reset that failed */
    void (*poison)(void *instance, const symmem_peers *peers);
    /* Optional. Passes to host->signal_failed what a device without a host thread has left in
     * memory.
     *   called   before each signal operation and each query of a handle's state */
    void (*check)(void *instance, const symmem_peers *peers);
    /* Optional. Gives up what belongs to collective->run_apart here, because a rank may have given
     * it up that this one does not know of.
     *   called   by all ranks of a reset if the state is poisoned on one of them, before `reset`,
     *            and also where `reset` is not come to */
    void (*lost)(void *instance, const symmem_peers *peers);
    /* Optional. Waits until the word compares as asked, with acquire order. The word may be written
     * by any means, a store of the program's included, so it has to be polled. Takes and changes
     * nothing. The missing rank of a failure is the source, fault->channel is -1.
     *   blocks   for the word, until exec->timeout_ms
     *   called   local; several at once
     *   errors   TIMEOUT, PEER_LOST, POISONED */
    symmem_status (*wait_value)(void *instance, const symmem_peers *peers,
                                const symmem_value_wait *wait, const symmem_exec *exec);
    /* Optional. Copies bytes as copy->copy does, and then does what put does: who has waited for
     * the signal sees the bytes, and where the copy fails there is no signal. Without this entry
     * the core makes a copy and a put of it.
     *   args     dst is in dst_rank's buffer; at least one byte
     *   blocks, called, errors   as put */
    symmem_status (*put_with)(void *instance, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, void *dst, const void *src, size_t bytes,
                              const symmem_exec *exec);
    /* Optional with wait_counts. Counted signals are apart from those of put. Each rank has a count
     * of this rank's signals on each channel. Adds to that of dst_rank, with release order, and
     * never waits for it. Counts wrap at 2^32.
     *   args     count is 1 to INT32_MAX
     *   called   as put
     *   errors   POISONED */
    symmem_status (*count)(void *instance, const symmem_peers *peers, int32_t dst_rank,
                           int32_t channel, uint32_t count, const symmem_exec *exec);
    /* Optional with count. Waits until this rank has, of each rank in the list, as many signals on
     * the channel as it says, with acquire order. Then takes so many of each; else none. More than
     * INT32_MAX signals of a rank that are not taken are CORRUPT, with the number in `actual`.
     *   args     no rank twice, 1 to SYMMEM_WINDOW_PEERS entries. The list is the core's: an entry
     *            that enqueues keeps a copy
     *   blocks   for those ranks, until exec->timeout_ms
     *   called   as wait
     *   errors   TIMEOUT, PEER_LOST, POISONED, CORRUPT */
    symmem_status (*wait_counts)(void *instance, const symmem_peers *peers, int32_t channel,
                                 const symmem_window_wait *counts, int32_t count_count,
                                 const symmem_exec *exec);
} symmem_signal_ops;

/* Stream operations on bytes. Mandatory. bytes and count may be 0. Without a stream they return
 * when they are done; with one when they are enqueued. */
typedef struct symmem_copy_ops {
    size_t size;
    /*   args     either end, or both, may be ordinary host memory (malloc), also without
     *            HOST_ACCESS (SM-ONESIDED-06). The entry stages what the device cannot reach, in a
     *            graph at each launch. The user leaves that memory in place until then, and the
     *            entry must not make the call wait for the stream (SM-STREAM-01). */
    symmem_status (*copy)(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                          const symmem_exec *exec);
    /*   args     dst is in the device's reach; count in words of 4 bytes */
    symmem_status (*memset32)(void *instance, int32_t device, void *dst, uint32_t value,
                              size_t count, const symmem_exec *exec);
    /* Makes all earlier work of the stream visible system-wide, then writes a word as by one store:
     * others poll it (symmem_async_input_mm, programs of their own).
     *   args     dst is in the device's reach and a multiple of 4 */
    symmem_status (*write_value32)(void *instance, int32_t device, void *dst, uint32_t value,
                                   const symmem_exec *exec);
    /* Optional. The same for a word of 8 bytes.
     *   args     dst is in the device's reach and a multiple of 8 */
    symmem_status (*write_value64)(void *instance, int32_t device, void *dst, uint64_t value,
                                   const symmem_exec *exec);
} symmem_copy_ops;

/* Streams and events. [SM-STREAM] */
typedef struct symmem_stream_ops {
    size_t size;
    symmem_status (*create)(void *instance, int32_t device, void **stream_p);
    /* Ends a stream that the core has synchronized. After a TIMEOUT an operation may still be
     * running: then it and what is enqueued behind it run to their end, but for a product that
     * waits for signals, which gives up; resources are given back after that. */
    void (*destroy)(void *instance, void *stream);
    /* Waits for all work enqueued before. Returns and forgets the first failure.
     *   args     *record_p comes in as OK and gets the failure's record
     *   blocks   until timeout_ms
     *   errors   TIMEOUT by host->fail, with *record_p as it was and nothing forgotten */
    symmem_status (*synchronize)(void *instance, void *stream, uint32_t timeout_ms,
                                 symmem_error_record *record_p);
    symmem_status (*query)(void *instance, void *stream, bool *idle_p);
    /* Waits for all streams of the device that the instance made or wrapped, and takes no failures.
     *   blocks   until timeout_ms
     *   called   by symmem_free */
    symmem_status (*device_synchronize)(void *instance, int32_t device, uint32_t timeout_ms);
    symmem_status (*event_create)(void *instance, int32_t device, void **event_p);
    /* Streams may still wait for the event. */
    void (*event_destroy)(void *instance, void *event);
    /* Also a capture operation. The core records its own events again and again. */
    symmem_status (*event_record)(void *instance, void *event, void *stream);
    /* Also a capture operation. Makes the stream wait for what the event marks at the call, which a
     * later record does not move. An event that was never recorded counts as reached. */
    symmem_status (*wait_event)(void *instance, void *stream, void *event);
    /*   blocks   until timeout_ms */
    symmem_status (*event_synchronize)(void *instance, void *event, uint32_t timeout_ms);
    symmem_status (*event_query)(void *instance, void *event, bool *reached_p);
    /* Optional. Calls fn(arg) in the stream's order, on a thread of the backend's. */
    symmem_status (*host_fn)(void *instance, void *stream, void (*fn)(void *arg), void *arg);
    /* Optional. Wraps a stream of the program's, for symmem_stream_wrap; destroy leaves that alone.
     * The program may capture it by itself. Then capture_begin and capture_end are not called,
     * capture_id gives a value that is not 0, also for a capture that can only be given up, and
     * operations become part of the program's graph. Their refs are kept until that graph and all
     * that was instantiated of it are gone, which may be when the core has nothing else of this
     * instance any more; their failures go through host->signal_failed once they can be seen. Where
     * that cannot be had, or the capture is broken (CAPTURE), the operation is refused before
     * anything of it is captured. synchronize is called during such a capture too, when the wrapper
     * ends: it waits for what came before the capture, and tells of that. */
    symmem_status (*wrap)(void *instance, int32_t device, void *native, void **stream_p);
} symmem_stream_ops;

/* Capture and graphs. Needs the group stream. While a stream captures, every stream operation on it
 * is recorded and its refs are retained until destroy. */
typedef struct symmem_graph_ops {
    size_t size;
    symmem_status (*capture_begin)(void *instance, void *stream);
    /* Ends the capture in any case.
     *   errors   CAPTURE if it was malformed */
    symmem_status (*capture_end)(void *instance, void *stream, void **graph_p);
    /*   args     0 when not capturing; streams of one capture share it */
    symmem_status (*capture_id)(void *instance, void *stream, uint64_t *id_p);
    /* Enqueues a launch and returns.
     *   called   serialized for each graph */
    symmem_status (*launch)(void *instance, void *graph, void *stream);
    /* Ends a graph. The core has waited for its launches, but one may still be under way after a
     * TIMEOUT; it goes on, and what it needs of the graph, the refs among it, is given back when it
     * ends. */
    void (*destroy)(void *instance, void *graph);
} symmem_graph_ops;

/* Multicast. Order: group rank 0 calls create; the share reaches all; every rank calls attach,
 * which adds its device; all agree; every rank calls bind with its own buffer; all agree. A failure
 * at any step makes the group go without multicast, so release can undo each step. */
typedef struct symmem_multicast_ops {
    size_t size;
    /* Makes the object for world_size devices and `bytes`.
     *   args     *share for the peers, given back by memory->unshare; where there is none the core
     *            closes its descriptor
     *   errors   LIMIT (no slot), UNSUPPORTED; those of attach and bind too */
    symmem_status (*create)(void *instance, int32_t device, int32_t world_size, size_t bytes,
                            void **object_p, symmem_share *share);
    /* Adds this rank's device; rank 0 calls it too.
     *   args     *multicast_p is this rank's view */
    symmem_status (*attach)(void *instance, int32_t device, const symmem_share *share, size_t bytes,
                            void **multicast_p);
    /* Binds own memory and gives the address that only store and ld_reduce may use.
     *   args     peers is complete, priv not yet set */
    symmem_status (*bind)(void *instance, void *multicast, symmem_memory *own,
                          const symmem_peers *peers, void **address_p);
    /* Undoes any of the steps and gives the slot back. */
    void (*release)(void *instance, void *multicast_or_object);
    symmem_status (*store)(void *instance, const symmem_peers *peers, void *address,
                           const void *src, size_t bytes, const symmem_exec *exec);
    /*   errors   UNSUPPORTED for a dtype or op that it cannot do, before anything is written */
    symmem_status (*ld_reduce)(void *instance, const symmem_peers *peers, const void *address,
                               void *dst, size_t count, symmem_dtype dtype, symmem_reduce_op op,
                               const symmem_exec *exec);
} symmem_multicast_ops;

/* Collectives of the backend's own. */
typedef struct symmem_collective_ops {
    size_t size;
    /* Runs one collective operation, in which every rank has direct access to every other. It does
     * every kind but the multimem ones, which need the group multicast too, in every pair of dtype
     * and op that symmem_reduce_supported names, every size, and groups of one rank too. For memory
     * that the CPU reaches libsymmem_kernels_cpu.a has all kinds; see the guide.
     *   args     exec->timeout_ms is for the whole operation and not for each synchronization.
     *            exec->call is compared as a barrier's is, in the operation's first
     *            synchronization. That comes before anything is written, this rank's buffer
     *            included, and may be with a peer's barrier. exec->refs are retained for what stays
     *            under way, as by a barrier.
     *   blocks   as signal->barrier
     *   called   as signal->barrier, put and wait, with which it is serialized
     *   errors   as signal->barrier, through host->signal_failed with call->name as the fault's
     *            operation. UNSUPPORTED by host->fail, only for what every rank refuses alike,
     *            before anything is written and without synchronizing: kinds that it does not know
     *            (a later core may have more), and pairs that multicast hardware cannot reduce */
    symmem_status (*run)(void *instance, const symmem_peers *peers, int32_t channel,
                         const symmem_collective *call, const symmem_exec *exec);
    /* Optional. As run, for `peers` in which some pointers are NULL on every rank: the backend's
     * own way of moving data, for the kinds ONE_SHOT_ALL_REDUCE, TWO_SHOT_ALL_REDUCE,
     * REDUCE_SCATTER, ALL_GATHER, BROADCAST and ALL_TO_ALL. SM-COLL-16 says what may be different
     * there. Without it the core answers UNREACHABLE, as it does for all other kinds.
     *   errors   UNSUPPORTED also for what it cannot do on any rank */
    symmem_status (*run_apart)(void *instance, const symmem_peers *peers, int32_t channel,
                               const symmem_collective *call, const symmem_exec *exec);
    /* Optional. As run, for the kind ALL_TO_ALL_V, whose splits lie in the device's memory and are
     * read when the operation runs. libsymmem_kernels_cpu.a has it.
     *   errors   as run; INVALID_ARGUMENT and OUT_OF_RANGE of splits that every rank has found
     *            wrong, through host->signal_failed, see symmem_fault */
    symmem_status (*run_splits)(void *instance, const symmem_peers *peers, int32_t channel,
                                const symmem_collective *call, const symmem_exec *exec);
} symmem_collective_ops;

/* Local products and reductions, as stream operations on memory that the device reaches, with any
 * alignment of whole elements. A failure when the work runs is the stream's, like a copy's, or the
 * call's without a stream. */
typedef struct symmem_matmul_ops {
    size_t size;
    /* See symmem/matmul.h. product->fn, if any, stands in place of the backend's own.
     *   blocks   with signals the operation waits for them: TIMEOUT, with the chunk in the message,
     *            and the rows of that chunk and later ones are left alone. product->fn is then
     *            called for each chunk, in order. Where a chunk's product fails, no other is made
     *            and no chunk waited for any more (SM-FUSED-15). */
    symmem_status (*multiply)(void *instance, int32_t device, const symmem_matmul *product,
                              const symmem_exec *exec);
    /*   args     src and dst do not overlap */
    symmem_status (*copy_strided)(void *instance, int32_t device, const symmem_strided_copy *copy,
                                  const symmem_exec *exec);
    /* Does every pair that symmem_reduce_supported names, with the same bits as a collective that
     * reduces in that order. Contract: symmem/kernels/reference/reduce.h. */
    symmem_status (*reduce_local)(void *instance, int32_t device, const symmem_local_reduce *reduce,
                                  const symmem_exec *exec);
} symmem_matmul_ops;

/* State that the backend keeps for a group of ranks, such as a communicator. */
typedef struct symmem_group_ops {
    size_t size;
    /* Opens a group at its first rendezvous, and at a later one if some rank has no longer open
     * what all opened together (its context or process began anew, say): then all close first.
     *   blocks   until exchange->deadline_ns
     *   called   collective; serialized for each group
     *   errors   PEER_LOST, as memory->exchange */
    symmem_status (*open)(void *instance, const symmem_exchange *exchange, int32_t device,
                          void **group_p);
    /* Never waits for peers. */
    void (*close)(void *instance, void *group);
    /* Optional. Tells whether a communicator of the user's can serve a group in which the caller is
     * `rank` of `world_size`. open then finds it in the exchange, on the ranks that handed one in.
     * It is the user's: used, never ended. Without this entry the core answers UNSUPPORTED.
     *   errors   INVALID_ARGUMENT if the communicator's own numbers are others */
    symmem_status (*communicator_check)(void *instance, void *communicator, int32_t rank,
                                        int32_t world_size);
} symmem_group_ops;

/* How devices are joined. */
typedef struct symmem_topology_ops {
    size_t size;
    /*   args     matrix gets, row by row, how many links of the kind `connection` ("nvlink") join
     *            each two of the instance's `device_count` devices. The core checks that it is the
     *            same both ways.
     *   errors   NOT_FOUND by host->fail for a kind that it does not know, UNSUPPORTED where this
     *            machine does not tell */
    symmem_status (*connectivity)(void *instance, const char *connection, int32_t device_count,
                                  int32_t *matrix);
} symmem_topology_ops;

/* What all ranks have agreed on before world->open. */
typedef struct symmem_world_config {
    size_t size;
    uint64_t job; /* the same on all ranks, another for each joining; for an engine's own job id */
    int32_t rank; /* of the context, as in the exchange */
    int32_t world_size;
    int32_t local_rank;
    int32_t device;    /* whose memory the heap shall be, own number */
    size_t heap_bytes; /* of each rank: the same on all, a multiple of SYMMEM_ALIGNMENT */
} symmem_world_config;

/* An engine that exists once in a process and starts on all ranks together, such as MPI or
 * OpenSHMEM. symmem_join starts it. Each rank has one heap of the engine's, from which the core
 * cuts all memory, user's and signal state alike: so allocation stays local, and the core does in
 * place of the group memory what that does. The group memory is not used, and may be NULL.
 * [SM-WORLD] */
typedef struct symmem_world_ops {
    size_t size;
    /* Starts the engine, or takes part in the one that an earlier context has started, and makes
     * the heap.
     *   args     fills *heap: ptr, the start of this rank's heap, aligned to SYMMEM_ALIGNMENT;
     *            bytes, at least those asked for, of which the core uses no more than these;
     *            device, or -1 if its memory serves every device; priv. The memory is truly backed;
     *            the core zeroes what it cuts. `exchange` is of all ranks of the context
     *   blocks   until exchange->deadline_ns
     *   called   collective, at most once for each instance that it succeeds for. On failure it has
     *            released all it made; if another rank failed the core calls close
     *   errors   PEER_LOST as memory->exchange; NO_SPACE for a heap that does not fit; BUSY where
     *            the process has a context with this engine already and the engine serves only one;
     *            BACKEND where the engine cannot be started a second time */
    symmem_status (*open)(void *instance, const symmem_exchange *exchange,
                          const symmem_world_config *config, symmem_memory *heap);
    /* Gives the heap up. Peers may still write to it for a while, until they have given up their
     * handles: that must reach nothing else.
     *   called   local, once, when all memory was released, before instance->close */
    void (*close)(void *instance, symmem_memory *heap);
    /* Optional. The address in this process of the heap of `rank`, a rank of the context; NULL: no
     * direct access. Then the group reach is needed. */
    void *(*address)(void *instance, const symmem_memory *heap, int32_t rank);
} symmem_world_ops;

/* A place in the heap of another rank. */
typedef struct symmem_place {
    const symmem_peers *peers; /* for host->peer_state and is_poisoned; NULL: not known */
    int32_t peer;              /* the rank in `peers` */
    int32_t rank;              /* the same rank in the context, and in the engine */
    size_t offset;             /* bytes from the start of its heap */
} symmem_place;

/* Access to peers' memory by rank and offset, for peers without a pointer. Needs the group world.
 * The core reaches this rank's memory by its pointer. With exec->stream an entry enqueues, and
 * without one it waits for what its comment says, for exec->timeout_ms at most: TIMEOUT by
 * host->fail; 0 is no limit. PEER_LOST within a second of host->peer_state saying so. An entry must
 * not need that the target makes a call, unless the flag PASSIVE is missing. [SM-REACH] */
typedef struct symmem_reach_ops {
    size_t size;
    /* Copies `bytes` bytes to a peer. Returns when src may be written again; when the bytes have
     * arrived quiet says. Bytes of several calls may arrive in any order.
     *   args     src is anywhere that copy->copy reads
     *   errors   TIMEOUT, PEER_LOST */
    symmem_status (*put)(void *instance, const symmem_place *to, const void *src, size_t bytes,
                         const symmem_exec *exec);
    /* Copies from a peer. Returns when the bytes are there.
     *   errors   TIMEOUT, PEER_LOST */
    symmem_status (*get)(void *instance, const symmem_place *from, void *dst, size_t bytes,
                         const symmem_exec *exec);
    /* Writes one word as by one store: the peer's CPU or device polls it. Never waits for the peer:
     * what has not left yet goes on by itself, or while `progress` is called, also after the call
     * has returned. Words that one rank writes to one place arrive in the order of the calls. */
    symmem_status (*write_value32)(void *instance, const symmem_place *to, uint32_t value,
                                   const symmem_exec *exec);
    /* Returns when all that this instance has put and written before is at its place, for every
     * rank to see. What was for a rank that has ended does not count.
     *   args     peers: whose call it is, for host->is_poisoned; NULL: not known
     *   errors   TIMEOUT */
    symmem_status (*quiet)(void *instance, const symmem_peers *peers, const symmem_exec *exec);
    /* Optional. Lets the engine work, and makes what has arrived visible to this rank's CPU. The
     * core calls it again and again while a rank waits. Never waits. */
    void (*progress)(void *instance);
    /* Optional. As matmul->reduce_local, without a stream; libsymmem_kernels_cpu.a has the loops.
     * With it, where the core makes the signals and there is no group collective, the core makes
     * the collectives that collective->run_apart names, too. */
    symmem_status (*reduce_local)(void *instance, int32_t device, const symmem_local_reduce *reduce,
                                  const symmem_exec *exec);
} symmem_reach_ops;

struct symmem_backend {
    size_t size;
    uint32_t abi;            /* SYMMEM_BACKEND_ABI */
    uint32_t reserved;       /* 0 */
    const char *name;        /* 1 to 31 of a-z 0-9 _; a short one leaves room for the steps in the
                                names of failpoints */
    const char *description; /* one line, versions included; not NULL */
    uint64_t flags;          /* of SYMMEM_CAP_FLAGS; all else the groups say */
    const symmem_instance_ops *instance;
    const symmem_memory_ops *memory;
    const symmem_signal_ops *signal;
    const symmem_copy_ops *copy;
    /* From here on NULL where the backend has none. */
    const symmem_stream_ops *stream;
    const symmem_graph_ops *graph;
    const symmem_multicast_ops *multicast;
    const symmem_collective_ops *collective;
    const symmem_matmul_ops *matmul;
    const symmem_group_ops *group;
    const symmem_topology_ops *topology;
    const symmem_world_ops *world;
    const symmem_reach_ops *reach;
};

/* A shorter head of ABI 2 is refused. */
#define SYMMEM_BACKEND_SIZE_ABI2 (offsetof(struct symmem_backend, topology) + sizeof(void *))

/*
 * All groups, X(group, NEED), and all entries, X(group, entry, name, NEED), where NEED is REQUIRED
 * or OPTIONAL and `name` is how messages call the entry. For programs that walk a table, such as a
 * backend that wraps another one.
 */
#define SYMMEM_BACKEND_GROUPS(X)                                                                   \
    X(instance, REQUIRED)                                                                          \
    X(memory, REQUIRED)                                                                            \
    X(signal, REQUIRED)                                                                            \
    X(copy, REQUIRED)                                                                              \
    X(stream, OPTIONAL)                                                                            \
    X(graph, OPTIONAL)                                                                             \
    X(multicast, OPTIONAL)                                                                         \
    X(collective, OPTIONAL)                                                                        \
    X(matmul, OPTIONAL)                                                                            \
    X(group, OPTIONAL)                                                                             \
    X(topology, OPTIONAL)                                                                          \
    X(world, OPTIONAL)                                                                             \
    X(reach, OPTIONAL)
#define SYMMEM_BACKEND_ENTRIES(X)                                                                  \
    X(instance, probe, probe, REQUIRED)                                                            \
    X(instance, open, open, REQUIRED)                                                              \
    X(instance, close, close, REQUIRED)                                                            \
    X(instance, device_count, device_count, REQUIRED)                                              \
    X(instance, device_info, device_info, REQUIRED)                                                \
    X(memory, alloc, memory_alloc, REQUIRED)                                                       \
    X(memory, release, memory_release, REQUIRED)                                                   \
    X(memory, share, memory_share, OPTIONAL)                                                       \
    X(memory, unshare, memory_unshare, OPTIONAL)                                                   \
    X(memory, map, memory_map, OPTIONAL)                                                           \
    X(memory, exchange, memory_exchange, OPTIONAL)                                                 \
    X(signal, bytes, signal_bytes, REQUIRED)                                                       \
    X(signal, peers_open, peers_open, REQUIRED)                                                    \
    X(signal, peers_close, peers_close, REQUIRED)                                                  \
    X(signal, barrier, barrier, REQUIRED)                                                          \
    X(signal, put, put_signal, REQUIRED)                                                           \
    X(signal, wait, wait_signal, REQUIRED)                                                         \
    X(signal, reset, signal_reset, REQUIRED)                                                       \
    X(signal, poison, signal_poison, OPTIONAL)                                                     \
    X(signal, check, signal_check, OPTIONAL)                                                       \
    X(signal, lost, signal_lost, OPTIONAL)                                                         \
    X(signal, wait_value, wait_value, OPTIONAL)                                                    \
    X(signal, put_with, put_with_signal, OPTIONAL)                                                 \
    X(signal, count, signal_count, OPTIONAL)                                                       \
    X(signal, wait_counts, wait_counts, OPTIONAL)                                                  \
    X(copy, copy, copy, REQUIRED)                                                                  \
    X(copy, memset32, memset32, REQUIRED)                                                          \
    X(copy, write_value32, write_value32, REQUIRED)                                                \
    X(copy, write_value64, write_value64, OPTIONAL)                                                \
    X(stream, create, stream_create, REQUIRED)                                                     \
    X(stream, destroy, stream_destroy, REQUIRED)                                                   \
    X(stream, synchronize, stream_synchronize, REQUIRED)                                           \
    X(stream, query, stream_query, REQUIRED)                                                       \
    X(stream, device_synchronize, device_synchronize, REQUIRED)                                    \
    X(stream, event_create, event_create, REQUIRED)                                                \
    X(stream, event_destroy, event_destroy, REQUIRED)                                              \
    X(stream, event_record, event_record, REQUIRED)                                                \
    X(stream, wait_event, stream_wait_event, REQUIRED)                                             \
    X(stream, event_synchronize, event_synchronize, REQUIRED)                                      \
    X(stream, event_query, event_query, REQUIRED)                                                  \
    X(stream, host_fn, host_fn, OPTIONAL)                                                          \
    X(stream, wrap, stream_wrap, OPTIONAL)                                                         \
    X(graph, capture_begin, capture_begin, REQUIRED)                                               \
    X(graph, capture_end, capture_end, REQUIRED)                                                   \
    X(graph, capture_id, capture_id, REQUIRED)                                                     \
    X(graph, launch, graph_launch, REQUIRED)                                                       \
    X(graph, destroy, graph_destroy, REQUIRED)                                                     \
    X(multicast, create, multicast_create, REQUIRED)                                               \
    X(multicast, attach, multicast_attach, REQUIRED)                                               \
    X(multicast, bind, multicast_bind, REQUIRED)                                                   \
    X(multicast, release, multicast_release, REQUIRED)                                             \
    X(multicast, store, multimem_store, REQUIRED)                                                  \
    X(multicast, ld_reduce, multimem_ld_reduce, REQUIRED)                                          \
    X(collective, run, collective, REQUIRED)                                                       \
    X(collective, run_apart, collective_apart, OPTIONAL)                                           \
    X(collective, run_splits, collective_splits, OPTIONAL)                                         \
    X(matmul, multiply, matmul, REQUIRED)                                                          \
    X(matmul, copy_strided, copy_strided, REQUIRED)                                                \
    X(matmul, reduce_local, reduce_local, REQUIRED)                                                \
    X(group, open, group_open, REQUIRED)                                                           \
    X(group, close, group_close, REQUIRED)                                                         \
    X(group, communicator_check, communicator_check, OPTIONAL)                                     \
    X(topology, connectivity, connectivity, REQUIRED)                                              \
    X(world, open, world_open, REQUIRED)                                                           \
    X(world, close, world_close, REQUIRED)                                                         \
    X(world, address, world_address, OPTIONAL)                                                     \
    X(reach, put, reach_put, REQUIRED)                                                             \
    X(reach, get, reach_get, REQUIRED)                                                             \
    X(reach, write_value32, reach_write_value32, REQUIRED)                                         \
    X(reach, quiet, reach_quiet, REQUIRED)                                                         \
    X(reach, progress, reach_progress, OPTIONAL)                                                   \
    X(reach, reduce_local, reach_reduce_local, OPTIONAL)

/*
 * The one symbol a backend's shared object exports. `abi` is the core's SYMMEM_BACKEND_ABI. Returns
 * NULL if the backend does not speak it. The table must stay valid for the life of the process.
 */
typedef const symmem_backend *(*symmem_backend_entry_fn)(uint32_t abi);
#define SYMMEM_BACKEND_ENTRY "symmem_backend_entry"
SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);

#ifdef __cplusplus
}
#endif
#endif
