/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the core share. Nothing here is installed.
 *
 * Locking order: group->lock, then context->lock, then channel locks, then link->lock. No lock but
 * group->lock is held while waiting for another rank.
 */
#ifndef SYMMEM_CORE_INTERNAL_H
#define SYMMEM_CORE_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <symmem/backend.h>
#include <symmem/symmem.h>

/* --- small helpers (util.c) --------------------------------------------------------- */

/* Some context has had a clock of its own: until then nobody pays for looking it up. */
extern atomic_bool sm_clocks_are_used;
void sm_clock_set(const symmem_clock *clock);
/* The thread goes by that clock from here on; NULL: the machine's, CLOCK_MONOTONIC. */
static inline void sm_clock_use(const symmem_clock *clock) {
    if (__builtin_expect(clock != NULL ||
                             atomic_load_explicit(&sm_clocks_are_used, memory_order_relaxed),
                         false))
        sm_clock_set(clock);
}
/* Something that others wait for, by their clocks. After each change that wakes somebody. */
void sm_clock_changed(void);
uint64_t sm_now_ns(void);
/* A deadline `timeout_ms` from now on; 0 (none) for 0. */
uint64_t sm_deadline_ns(uint32_t timeout_ms);
bool sm_expired(uint64_t deadline_ns);
/* Milliseconds left, at least 1, at most `cap_ms`; `cap_ms` if there is no deadline. 0: expired. */
uint32_t sm_remaining_ms(uint64_t deadline_ns, uint32_t cap_ms);
void sm_sleep_ns(uint64_t ns);
int sm_cond_init(pthread_cond_t *condition);
/* Until the condition is signaled, or for no reason. False: the deadline (0: none) has passed. */
bool sm_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t deadline_ns);
/* While *word is `seen`, at most `ns`, or for no reason. */
void sm_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns);
/* Until there is something to read, at most `ms`, or for no reason. As poll. */
int sm_poll(int fd, uint32_t ms);
/* Fills bytes from the kernel's random source. */
symmem_status sm_random(void *bytes, size_t count);
/* a * b and a + b, false on overflow. */
bool sm_mul(size_t a, size_t b, size_t *product_p);
bool sm_add(size_t a, size_t b, size_t *sum_p);
/* Rounds up to a power of two, false on overflow. */
bool sm_round_up(size_t value, size_t align, size_t *rounded_p);
/* FNV-1a 64. */
uint64_t sm_hash(const void *bytes, size_t count, uint64_t seed);
#define SM_HASH_SEED 14695981039346656037ull
/* Copies a string, cut to fit, always terminated. */
void sm_copy_text(char *to, size_t capacity, const char *from);

/* --- errors (status.c) -------------------------------------------------------------- */

/* Fills the calling thread's record and returns `status`. `operation` is the public call's name
 * without prefix, `stage` the step in it or "". */
symmem_status sm_fail(symmem_status status, const char *operation, const char *stage,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));
symmem_status sm_vfail(symmem_status status, const char *operation, const char *stage,
                       const char *format, va_list args);
/* The same from a system call: SYSTEM unless errno has a status of its own (EMFILE LIMIT, ENOSPC
 * NO_SPACE, ENOMEM OUT_OF_MEMORY, EACCES and EPERM PERMISSION, ENAMETOOLONG PATH_TOO_LONG). */
symmem_status sm_fail_errno(int system_errno, const char *operation, const char *stage,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));
/* limits.c. Adds to the message of the record; of an errno, which limit it stands for. */
void sm_explain_text(const char *text);
void sm_explain_errno(int system_errno);
/* One line for people. No signal comes of it, whatever the standard error is. */
void sm_tell_stderr(const char *text);
/* RLIMIT_FSIZE, beyond which a write ends the process. False: there is none. */
bool sm_file_limit(uint64_t *bytes_p);
/* The calling thread's record, to add fields to after sm_fail. */
symmem_error_record *sm_record(void);
/* Whether a number that came from elsewhere is one of the statuses. */
bool sm_status_known(int32_t value);
/* Makes *record the calling thread's record and returns its status. */
symmem_status sm_fail_record(const symmem_error_record *record);

/* --- the public call (status.c) ------------------------------------------------------- */

/* The outermost public call that the thread is in, and the calling rank once it is known: they
 * stand in every record that is made meanwhile. What was called inside is the record's stage. */
bool sm_call_begin(const char *function);
void sm_call_end(const bool *is_outermost);
/* In a group's numbers rather than in the context's. */
void sm_call_is_of(int32_t rank, int32_t world_size, bool in_group);
#define SM_PUBLIC                                                                                  \
    __attribute__((cleanup(sm_call_end), unused)) const bool is_outermost_ = sm_call_begin(__func__)

/* What a thread has of its own, as a public call finds and leaves it. */
typedef struct sm_caller {
    int cancel_state, error_number;
} sm_caller;

static inline sm_caller sm_caller_hold(void) {
    sm_caller caller = {.cancel_state = PTHREAD_CANCEL_ENABLE, .error_number = errno};
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &caller.cancel_state);
    return caller;
}

static inline void sm_caller_restore(const sm_caller *caller) {
    int ignored;
    (void)pthread_setcancelstate(caller->cancel_state, &ignored);
    errno = caller->error_number;
}

/* First in a public call that may wait, or that calls the system or a backend: none is a
 * cancellation point, for a thread that ended in one would leave its locks and half of its work;
 * and none changes errno. */
#define SM_PUBLIC_CALL                                                                             \
    SM_PUBLIC;                                                                                     \
    __attribute__((cleanup(sm_caller_restore), unused)) const sm_caller caller_ = sm_caller_hold()

/* --- children of fork (fork.c) -------------------------------------------------------- */

/* Of this process, for an object that is made. Sees to it that a fork is noticed. */
uint32_t sm_fork_generation(void);
/* Whether an object of that generation was made by the parent of this process, or by its parent. */
bool sm_fork_is_parents(uint32_t made_in);
/* NOT_INITIALISED, with a record. */
symmem_status sm_fork_refuse(const char *operation);

/* --- processes (process.c) ------------------------------------------------------------ */

typedef struct sm_process {
    uint64_t start_time; /* in clock ticks since boot */
    long thread_count;
    char state;      /* of its first thread, as proc(5) has it */
    bool is_exiting; /* its first thread is */
} sm_process;

/* The beginning of a small file, as a string. False with errno if it cannot be read or is empty. */
bool sm_read_text(const char *path, char *text, size_t capacity);
/* False if that cannot be read, which alone proves nothing. `pid` 0: of this process. */
bool sm_process_read(int32_t pid, sm_process *process_p);
/* Whether /proc numbers processes as getpid() does: it may be another namespace's, or not there. */
bool sm_process_numbers_are_ours(void);
/* All threads of that very process have begun to end, so none of its code runs any more. False if
 * that is not known. */
bool sm_process_is_ending(int32_t pid, uint64_t start_time);

/* --- a process's life, for others to see (life.c) --------------------------------------- */

#define SM_LIFE_ID_BYTES 16
#define SM_IPC_ADDRESS_MAX 112 /* bytes of sockaddr_un that travel */
typedef struct sm_life_file sm_life_file;

/* A random number of this process's, also after a fork. */
symmem_status sm_life_id(uint8_t id[SM_LIFE_ID_BYTES]);
/* From here on others can see it by its name, until each such call that was OK is ended. */
symmem_status sm_life_begin(void);
void sm_life_end(void);
/* The same by a file in a directory, till that is taken back. NULL, without a record: not there. */
sm_life_file *sm_life_file_begin(const char *directory);
const char *sm_life_file_path(const sm_life_file *file);
void sm_life_file_end(sm_life_file *file);
/* Lets go of those that have looked. Now and then. */
void sm_life_serve(void);
/* Around a fork, and in the child, as those of sockets below. */
void sm_life_lock_all(void);
void sm_life_unlock_all(void);
void sm_life_forget_all(void);

/* --- identity (identity.c) --------------------------------------------------------- */

/* Who a process is, in a form that two processes can compare. Sent between ranks as is. All but
 * `life` and the files depends on who looks. */
typedef struct sm_identity {
    uint8_t life[SM_LIFE_ID_BYTES]; /* see life.c */
    uint64_t boot_id;               /* hash of the kernel's boot id, 0 if unknown */
    uint64_t pid_namespace;         /* inodes of the namespaces, 0 if unknown */
    uint64_t net_namespace;
    uint64_t mount_namespace;
    uint64_t time_namespace;
    uint64_t start_time; /* of the process, in clock ticks since boot, 0 if unknown */
    int32_t pid;
    int32_t listens; /* 1: its life can be seen by name, and by the file if there is one */
    char life_file[SM_IPC_ADDRESS_MAX];
    char host[SYMMEM_NAME_MAX];
} sm_identity;

/* A hash of the running kernel's boot id, 0 if that cannot be read. */
uint64_t sm_boot_id(void);
symmem_status sm_identity_self(sm_identity *identity_p);
/* Makes this process's life seen by others, in the directory, too, if there is one. */
symmem_status sm_identity_listen(sm_identity *identity, const char *directory,
                                 sm_life_file **file_p);
/* Once. */
void sm_identity_unlisten(const sm_identity *identity, sm_life_file *file);
/* By what they say. That they say otherwise does not tell hosts apart: see sm_session_same_host. */
bool sm_identity_same_host(const sm_identity *a, const sm_identity *b);
bool sm_identity_same_process(const sm_identity *a, const sm_identity *b);

/* --- liveness (liveness.c) ---------------------------------------------------------- */

/* Watches the processes of a context's world. Thread-safe. One per context. A descriptor (pidfd)
 * per watched process, made on first question; without descriptors left it reads /proc. */
typedef struct sm_liveness sm_liveness;
symmem_status sm_liveness_create(int32_t world_size, sm_liveness **liveness_p);
void sm_liveness_destroy(sm_liveness *liveness);
/* Where identities stand, to be taken back in good order. Both outlive it. */
void sm_liveness_read(sm_liveness *liveness, symmem_store *store, const char *world_prefix);
/* Tells who global rank `rank` is. Later calls with the same identity are free; a new identity
 * (the rank was restarted) replaces the old. */
void sm_liveness_learn(sm_liveness *liveness, int32_t rank, const sm_identity *identity);
bool sm_liveness_knows(sm_liveness *liveness, int32_t rank);
/* SYMMEM_PEER_GONE only if that very process has ended, or is another program by now. Never waits.
 */
symmem_peer_state sm_liveness_ask(sm_liveness *liveness, int32_t rank);
/* The same of the process that the rank was then, whoever is known in its place by now. */
symmem_peer_state sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                     const sm_identity *identity);
/* Whether it is on its way there, see symmem_host.peer_is_ending. Once it is GONE, either answer.
 */
bool sm_liveness_is_ending(sm_liveness *liveness, const sm_identity *identity);
/* Whether the end of the process that is known would be seen from here. Looks once. */
bool sm_liveness_sees(sm_liveness *liveness, int32_t rank);
/* Whether that process was seen on this kernel, whatever it says. Looks once. */
bool sm_liveness_is_near(sm_liveness *liveness, const sm_identity *identity);

/* --- store (store.c) ---------------------------------------------------------------- */

/* Removes what was set under the key, unless another has set something else there since. Never
 * fails a call, and leaves its record alone. */
void sm_store_take_back(symmem_store *store, const char *key, const void *value, size_t bytes,
                        uint32_t timeout_ms);

/* --- members (member.c) ------------------------------------------------------------- */

/* What stands in a rank's key. Sent between ranks as is. */
typedef struct sm_member {
    sm_identity identity; /* first: some keys hold nothing else */
    uint32_t magic;
    int32_t rank;
    int32_t world_size;
    uint32_t took_over;    /* the key was that of a process which has ended */
    uint64_t published_ns; /* since boot */
    uint8_t token[16];     /* of the context */
} sm_member;
/* Whether another one is that rank, or has found that this one cannot be in its world: MISMATCH.
 * `own` NULL: nothing is known. */
symmem_status sm_member_check(symmem_store *store, const char *world_prefix, const sm_member *own,
                              const char *operation, uint32_t limit_ms);
/* MISMATCH if it is of a world of another size, which it is told. */
symmem_status sm_member_judge(symmem_store *store, const char *world_prefix, const sm_member *own,
                              const sm_member *found);
/* It was there before this rank, which has taken an ended process's place. */
bool sm_member_is_older(const sm_member *own, const sm_member *found);

/* --- exchange (exchange.c, session.c)
 * ------------------------------------------------------------- A group's link to its peers: one
 * "session" from the bring-up on. See SPEC.md, SM-EXCHANGE.       */

typedef struct sm_session sm_session;

/* What a session needs of its owner. Strings and arrays must outlive it. */
typedef struct sm_session_config {
    symmem_store *store;
    const char *prefix;       /* store key prefix, unique to (group name, members) */
    const char *name_prefix;  /* of all groups of that name; NULL: the same */
    const sm_member *member;  /* own; NULL: none was published */
    const char *world_prefix; /* prefix under which identities are published */
    const char *group_name;
    const char *socket_dir; /* NULL: abstract */
    int32_t rank;
    int32_t world_size;
    const int32_t *global_ranks;
    sm_liveness *liveness;
    const sm_identity *identity; /* own */
    symmem_point_fn point;
    void *point_arg;
    /* Asked during waits: a failure, with its record, ends the call. NULL: always wanted. */
    symmem_status (*wanted)(const void *owner, const char *operation);
    const void *owner;
} sm_session_config;

symmem_status sm_session_create(const sm_session_config *config, sm_session **session_p);
/* Local; removes what this rank left in the store. */
void sm_session_destroy(sm_session *session);
/* Collective unless the session is up already and no peer asks for a new one: brings it up. All
 * functions below do this first themselves. */
symmem_status sm_session_ensure(sm_session *session, const char *operation, uint64_t deadline_ns);
/* The agreed random id of the present bring-up (0 if down), and who the peers are. */
uint64_t sm_session_id(const sm_session *session);
/* While the session is up: a number that all ranks have between the same two exchanges, and at no
 * other time. Not 0. */
uint64_t sm_session_stamp(const sm_session *session);
const sm_identity *sm_session_peer(const sm_session *session, int32_t rank);
/* Since the bring-up, and the same on all ranks: whether two of them are on one host. */
bool sm_session_same_host(const sm_session *session, int32_t one, int32_t other);
/* While the session is up, of the process that it was brought up with. */
symmem_peer_state sm_session_peer_state(const sm_session *session, int32_t rank);
bool sm_session_peer_is_ending(const sm_session *session, int32_t rank);
/* Collective. One store phase. A failure other than an agreed one takes the session down: the next
 * collective call brings it up anew. Failure records: operation, stage, missing ranks, elapsed.
 * `restart` true allows joining a peer's new bring-up from here (the first exchange of an
 * operation); false makes that a failure. */
symmem_status sm_session_all_gather(sm_session *session, const char *operation, const char *stage,
                                    const void *in, size_t bytes, void *out, bool restart,
                                    uint64_t deadline_ns);
/* Collective. `own` is this rank's status, described by its thread's record if not OK. Returns OK
 * if all are; else the lowest failing rank's status, with its record as every rank's record
 * (failed_rank set). One store phase. */
symmem_status sm_session_agree(sm_session *session, const char *operation, const char *stage,
                               symmem_status own, uint64_t deadline_ns);
/* Local, 20 ms at the most. For a rank whose next exchange is an agreement: what a peer that is in
 * there already has failed with, or that it gave up; the thread's record then. OK: none is known
 * of, out of some of the peers; another call goes on from there. */
symmem_status sm_session_peer_failure(sm_session *session, const char *operation,
                                      uint64_t deadline_ns);
/* Collective. Every rank gives `count` descriptors (-1 allowed, 1 <= count <= 4); fds_p has
 * world_size * count entries, all owned by the caller, own ones duplicated; -1 on failure. */
symmem_status sm_session_all_gather_fds(sm_session *session, const char *operation, const int *fds,
                                        int count, int *fds_p, uint64_t deadline_ns);
symmem_status sm_session_broadcast_fd(sm_session *session, const char *operation, int root, int fd,
                                      int *fd_p, uint64_t deadline_ns);
symmem_status sm_session_send_fd(sm_session *session, int32_t dst, int fd, uint64_t deadline_ns);
symmem_status sm_session_recv_fd(sm_session *session, int32_t src, int *fd_p, uint64_t deadline_ns);
/* The context ends: what this thread failed with last may be why others wait in vain. Local. */
void sm_session_farewell(sm_session *session);
/* Behind the message of a record that names ranks: what they said they had failed with. Local. */
void sm_session_explain(sm_session *session, symmem_error_record *record);
/* Key under which global rank r's identity stands: "<world_prefix>/id/<r>". */
void sm_identity_key(const char *world_prefix, int32_t rank, char *key, size_t capacity);

/* --- IPC channel (ipc.c, ipc_socket.c): authenticated messages with descriptors --- */

typedef struct sm_ipc sm_ipc;
#define SM_IPC_MAX_FDS 250 /* in one message */

typedef struct sm_ipc_tag {
    uint8_t nonce[16]; /* secret of the session */
    uint64_t group;    /* session id */
    uint64_t sequence;
    int32_t source; /* group rank of the sender */
    uint32_t kind;
} sm_ipc_tag;

/* Creates and binds. `directory` NULL: an abstract name. Otherwise a file of mode 0600 with a
 * random name there; PATH_TOO_LONG, PERMISSION, EXISTS (someone else's file). `name` NULL: random;
 * not NULL: that file name, for tests. */
symmem_status sm_ipc_create(const char *directory, const char *name, sm_ipc **ipc_p);
void sm_ipc_destroy(sm_ipc *ipc); /* unlinks a file of its own */
/* Unlinks what killed processes of this user and host left in the directory. Never fails.
 * (ipc_sweep.c) */
void sm_ipc_sweep(const char *directory);
/* The same of those that take the host to have that boot id, as in a container. */
void sm_ipc_sweep_of(const char *directory, uint64_t boot_id);
/* What names begin with. A directory may be shared by hosts, and only a socket's own knows whether
 * it is in use. */
#define SM_IPC_PREFIX_BYTES 16 /* the zero included */
void sm_ipc_prefix(char prefix[SM_IPC_PREFIX_BYTES]);
/* The address for the peers, *bytes_p of it. */
void sm_ipc_address(const sm_ipc *ipc, uint8_t address[SM_IPC_ADDRESS_MAX], uint32_t *bytes_p);
int sm_ipc_descriptor(const sm_ipc *ipc); /* for poll */
/* Around a fork: nobody opens or closes a socket meanwhile. */
void sm_ipc_lock_all(void);
void sm_ipc_unlock_all(void);
/* In the child: closes the parent's sockets, which otherwise would seem to live as long as it. */
void sm_ipc_forget_all(void);
/* One message with `count` descriptors (-1 entries allowed). Retries a full queue until the
 * deadline or `step_ms` (0: none): TIMEOUT. A vanished peer socket: PEER_LOST. A socket of another
 * user under its name: PERMISSION. */
symmem_status sm_ipc_send(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                          const sm_ipc_tag *tag, const int *fds, int count, uint32_t step_ms);
/* The next authentic message whose nonce, group, sequence and kind are those of *want; source -1
 * in *want: any. Others are dropped, their descriptors closed (a later sequence is kept for later).
 * *source_p, *count_p filled; fds_p has room for SM_IPC_MAX_FDS. TIMEOUT after step_ms. LIMIT: no
 * descriptors are left to take a message's; *source_p tells whose, if it was a wanted one. */
symmem_status sm_ipc_recv(sm_ipc *ipc, const sm_ipc_tag *want, int32_t *source_p, int *fds_p,
                          int *count_p, uint32_t step_ms);

/* Why a peer has given a session up. Waits in the socket until somebody looks, and goes with it. */
#define SM_IPC_NOTE_BYTES 576
typedef struct sm_ipc_notes {
    uint8_t nonce[16]; /* of those that are for this socket */
    bool any;
    int32_t first; /* whose came first, and what it says */
    uint8_t bytes[SM_IPC_NOTE_BYTES];
    uint64_t sources[SYMMEM_MAX_WORLD_SIZE / 64];
} sm_ipc_notes;
/* One try, no record. False: it did not go off. */
bool sm_ipc_send_note(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                      const sm_ipc_tag *tag, const uint8_t note[SM_IPC_NOTE_BYTES]);
/* Forgets those that came before. */
void sm_ipc_expect_notes(sm_ipc *ipc, const uint8_t nonce[16]);
/* What has come by now. `members`: a tag of the session's that no message has; NULL before there is
 * one. Never waits, leaves the record alone. */
const sm_ipc_notes *sm_ipc_notes_of(sm_ipc *ipc, const sm_ipc_tag *members);

/* --- environment (env.c) ------------------------------------------------------------ */

/* First variable of the NULL-terminated list that is set; malformed or out of range is
 * INVALID_ARGUMENT naming it; none set leaves *value_p alone and is NOT_FOUND without a record. */
symmem_status sm_env_int(const char *const *names, int64_t low, int64_t high, int64_t *value_p);
/* "1" true, "0" false, unset or anything else -> fallback. */
bool sm_env_flag(const char *name, bool fallback);

#endif
