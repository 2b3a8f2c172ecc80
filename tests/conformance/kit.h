/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a conformance test is written with.
 *
 * tests/conformance/test_<area>.c holds the cases of one area; adding such a file is all that it
 * takes to add tests. A body runs on every rank of its case. Ranks are processes, or threads of one
 * process: keep no static state, take everything from `t`, the struct tk that each body gets.
 *
 *     TK_TEST(onesided, put_then_get, "SM-ONESIDED-01", .min_ranks = 2) {
 *         symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
 *         tk_fill(t, handle, t->next, 0, 4096, (uint8_t)(t->rank + 1));
 *         tk_group_barrier(t, tk_world_group(t));
 *         ...
 *         TK_FAILS(t, OUT_OF_RANGE, symmem_put(handle, -1, 0, bytes, 1, NULL));
 *     }
 *
 * Verdicts. A case passes if some rank made a check, no check failed, every rank came to its end in
 * time and nothing leaked. What fails by time alone on a machine that was late is run again, see
 * TK_WITHIN. Skips are decided by capabilities alone, before the body runs; a body
 * cannot skip. What the machine lacks (memory, devices) is tk_unresolved.
 */
#ifndef SYMMEM_CONFORMANCE_KIT_H
#define SYMMEM_CONFORMANCE_KIT_H

/* What nearly every file here needs. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <symmem/backend.h> /* SYMMEM_CAP_ */
#include <symmem/symmem.h>

/* Callbacks, and the entries of fakes, are given more than they use. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* --- cases and suites --------------------------------------------------------------- */

struct tk;
typedef void (*tk_body_fn)(struct tk *t);

/* Flags of a case. */
#define TK_PROCESS_ONLY (1u << 0)     /* not planned with --rank-mode thread */
#define TK_THREAD_ONLY (1u << 1)      /* not planned with --rank-mode process */
#define TK_LARGE (1u << 2)            /* needs much memory; --no-large leaves it out */
#define TK_MAY_DIE (1u << 3)          /* ranks announced by tk_expect_death may end by SIGKILL */
#define TK_NO_BACKEND (1u << 4)       /* t->context has no backend set */
#define TK_NO_CONTEXT (1u << 5)       /* t->context is NULL; the body makes its own, or none */
#define TK_MAY_LEAK (1u << 6)         /* names and keys may stay, e.g. because ranks are killed */
#define TK_SETS_ENVIRONMENT (1u << 7) /* the body leaves the environment changed */
#define TK_WRITES_PADS (1u << 8)      /* the user's signal pads are not zero at the end */
#define TK_PLAIN_MEMORY (1u << 9)     /* a tk_handle's block is the buffer: offset 0, no guards */
#define TK_GROWS_FAST (1u << 10) /* runs on the first 3 ranks, on all with SYMMEM_SUITE_LONG=1 */
/* The children use the rank's device. Drivers of devices do not work in the child of a process that
 * has used one: the rank does not before its body, which must not either. With TK_NO_CONTEXT. */
#define TK_FORKS (1u << 11)
#define TK_NOT_JOINED                                                                              \
    (1u << 12)              /* the body itself calls symmem_join, or sees what happens without */
#define TK_UNMET (1u << 13) /* about ranks that have not met: skipped where all have to join */

/* What many a case is about, in place of fields of its own. */
#define TK_ON_FAKES .max_ranks = 1, .flags = TK_NO_BACKEND
#define TK_OWN_ENVIRONMENT                                                                         \
    .max_ranks = 1, .flags = TK_NO_CONTEXT | TK_PROCESS_ONLY | TK_SETS_ENVIRONMENT

struct tk_case {
    const char *name;         /* "area.what_it_shows", unique; one word: no blank, no comma */
    const char *requirements; /* "SM-A-01,SM-B-02" */
    uint64_t needs;           /* SYMMEM_CAP_ bits, all of them; else skipped */
    union {
        int ranks[2]; /* at least, at most */
        struct {
            int min_ranks; /* 0 counts as 1 */
            int max_ranks; /* 0: no limit. With more ranks the case runs on the first max_ranks */
        };
    };
    unsigned flags;
    unsigned timeout_s; /* 0: 20 */
    tk_body_fn body;
};

/*
 * Above a body in braces, that is a case: TK_TEST(area, what_it_shows, "SM-A-01", .min_ranks = 2) {
 * is "area.what_it_shows". What stands behind the requirements are fields that are not 0.
 */
#define TK_TEST(area_, name_, requirements_, ...)                                                  \
    TK_NAMED(#area_ "." #name_, name_, requirements_, __VA_ARGS__)
/* The same for a test of PyTorch's, which keeps its name. */
#define TK_PORTED(name_, requirements_, ...) TK_NAMED(#name_, name_, requirements_, __VA_ARGS__)

#define TK_NAMED(text_, name_, requirements_, ...)                                                 \
    static void tk_body_##name_(struct tk *t);                                                     \
    static const struct tk_case tk_case_##name_ = {                                                \
        .name = text_, .requirements = requirements_, .body = tk_body_##name_, __VA_ARGS__};       \
    __attribute__((constructor)) static void tk_add_##name_(void) {                                \
        tk_add_case(&tk_case_##name_, __FILE__, __LINE__);                                         \
    }                                                                                              \
    static void tk_body_##name_(struct tk *t)

/* Several cases of one body, and names that are no word of C: a table of rows, and TK_SUITE. */
#define TK_CASE(name_, body_, requirements_, ...)                                                  \
    { .name = name_, .requirements = requirements_, .body = body_, __VA_ARGS__ }
#define TK_SUITE(area_, cases_)                                                                    \
    __attribute__((constructor)) static void tk_add_all_##area_(void) {                            \
        tk_add_cases(cases_, (int)(sizeof(cases_) / sizeof((cases_)[0])), __FILE__, __LINE__);     \
    }                                                                                              \
    struct tk_case

void tk_add_case(const struct tk_case *test, const char *file, int line);
void tk_add_cases(const struct tk_case *tests, int count, const char *file, int line);

#define TK_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* --- what a body gets --------------------------------------------------------------- */

enum tk_mode { TK_MODE_PROCESS = 0, TK_MODE_THREAD = 1 };

struct tk_rank; /* the kit's own */

struct tk {
    int32_t rank, world_size;
    int32_t next, previous; /* ranks of a ring */
    int32_t last;           /* world_size - 1 */
    enum tk_mode mode;
    uint64_t seed;           /* the same on all ranks; differs by case and by repeat */
    symmem_context *context; /* made by the prologue with the backend set, ended by the epilogue */
    symmem_store *store;     /* shared by the case's ranks; borrowed */
    const char *backend;     /* as given by --backend: a name or a path */
    uint64_t capabilities;   /* that it declares */
    int32_t device_type;     /* DLPack; 1 (kDLCPU): the CPU may dereference the memory */
    const char *scratch_dir; /* a directory of the case's own, shared by its ranks, removed later */
    struct tk_rank *own;
};

/* --- checks -------------------------------------------------------------------------------------
 * Each counts as one check and returns whether it held; the first failure of each rank is kept and
 * reported. Any thread of the rank may check. The REQUIRE forms leave the body at once if they
 * fail (the epilogue still runs) and may be used in the rank's own thread only, at any depth. */

#define TK_CHECK(t, cond) tk_check_at((t), (cond), __FILE__, __LINE__, "%s", #cond)
#define TK_CHECK_MSG(t, cond, ...) tk_check_at((t), (cond), __FILE__, __LINE__, __VA_ARGS__)
/* TK_STATUS(t, SYMMEM_OK, symmem_x(...)): on a mismatch quotes both names and the error record. */
#define TK_STATUS(t, expected, call)                                                               \
    tk_status_at((t), (expected), (call), #call, __FILE__, __LINE__)
/* By #call of its own: handed on it would be shown with NULL and the like expanded. */
#define TK_OK(t, call) tk_status_at((t), SYMMEM_OK, (call), #call, __FILE__, __LINE__)
/* TK_FAILS(t, TIMEOUT, symmem_x(...)): it answers SYMMEM_TIMEOUT. */
#define TK_FAILS(t, expected, call)                                                                \
    tk_status_at((t), SYMMEM_##expected, (call), #call, __FILE__, __LINE__)
/* One of two statuses. */
#define TK_STATUS_EITHER(t, expected, other, call)                                                 \
    tk_status_either_at((t), (expected), (other), (call), #call, __FILE__, __LINE__)
#define TK_EQ_INT(t, expected, actual)                                                             \
    tk_eq_int_at((t), (int64_t)(expected), (int64_t)(actual), #actual, __FILE__, __LINE__)
#define TK_EQ_SIZE(t, expected, actual)                                                            \
    tk_eq_size_at((t), (uint64_t)(expected), (uint64_t)(actual), #actual, __FILE__, __LINE__)
/* Numbers with a bound: a failure shows what came. */
#define TK_AT_LEAST(t, least, actual)                                                              \
    tk_bound_at((t), true, (uint64_t)(least), (uint64_t)(actual), #actual, __FILE__, __LINE__)
#define TK_BELOW(t, bound, actual)                                                                 \
    tk_bound_at((t), false, (uint64_t)(bound), (uint64_t)(actual), #actual, __FILE__, __LINE__)
/* What began at since_ms, by tk_now_ms, is over in no more than most_ms. The bound is what it takes
 * at most on a quiet machine and with a usual build: the kit adds what the machine was late in that
 * time. A case that fails by this or TK_TIMELY alone is run again if the machine was late. */
#define TK_WITHIN(t, most_ms, since_ms)                                                            \
    tk_within_at((t), (most_ms), (since_ms), tk_now_ms(), #most_ms, __FILE__, __LINE__)
/* The same of what was over at until_ms. */
#define TK_TOOK(t, most_ms, since_ms, until_ms)                                                    \
    tk_within_at((t), (most_ms), (since_ms), (until_ms), #most_ms, __FILE__, __LINE__)
/* A condition that does not hold if a rank was kept from running for too long. */
#define TK_TIMELY(t, cond, ...) tk_timely_at((t), (cond), __FILE__, __LINE__, __VA_ARGS__)
/* The calling thread's error record has that text in its message. */
#define TK_SAYS(t, text) tk_says_at((t), (text), __FILE__, __LINE__)
#define TK_EQ_PTR(t, expected, actual)                                                             \
    tk_eq_ptr_at((t), (expected), (actual), #actual, __FILE__, __LINE__)
#define TK_EQ_STR(t, expected, actual)                                                             \
    tk_eq_str_at((t), (expected), (actual), #actual, __FILE__, __LINE__)

#define TK_REQUIRE(t, cond)                                                                        \
    do {                                                                                           \
        if (!tk_check_at((t), (cond), __FILE__, __LINE__, "%s", #cond))                            \
            tk_leave(t);                                                                           \
    } while (0)
#define TK_REQUIRE_STATUS(t, expected, call)                                                       \
    do {                                                                                           \
        if (!tk_status_at((t), (expected), (call), #call, __FILE__, __LINE__))                     \
            tk_leave(t);                                                                           \
    } while (0)
#define TK_REQUIRE_OK(t, call)                                                                     \
    do {                                                                                           \
        if (!tk_status_at((t), SYMMEM_OK, (call), #call, __FILE__, __LINE__))                      \
            tk_leave(t);                                                                           \
    } while (0)

/* The requirement in focus from here on: a failure quotes its sentence. NULL: none. The string must
 * be constant. A case of one requirement begins with that one; without a focus a failure names all
 * requirements of the case. */
#define TK_REQ(t, id) tk_requirement((t), (id))

bool tk_check_at(struct tk *t, bool held, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
bool tk_timely_at(struct tk *t, bool held, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
bool tk_within_at(struct tk *t, uint64_t most_ms, uint64_t since_ms, uint64_t until_ms,
                  const char *text, const char *file, int line);
bool tk_status_at(struct tk *t, symmem_status expected, symmem_status actual, const char *text,
                  const char *file, int line);
bool tk_status_either_at(struct tk *t, symmem_status expected, symmem_status other,
                         symmem_status actual, const char *text, const char *file, int line);
bool tk_eq_int_at(struct tk *t, int64_t expected, int64_t actual, const char *text,
                  const char *file, int line);
bool tk_eq_size_at(struct tk *t, uint64_t expected, uint64_t actual, const char *text,
                   const char *file, int line);
bool tk_bound_at(struct tk *t, bool least, uint64_t bound, uint64_t actual, const char *text,
                 const char *file, int line);
bool tk_eq_ptr_at(struct tk *t, const void *expected, const void *actual, const char *text,
                  const char *file, int line);
bool tk_says_at(struct tk *t, const char *text, const char *file, int line);
bool tk_eq_str_at(struct tk *t, const char *expected, const char *actual, const char *text,
                  const char *file, int line);
void tk_requirement(struct tk *t, const char *id);
/* Leaves the body; the epilogue runs. Rank's own thread only. */
void tk_leave(struct tk *t) __attribute__((noreturn));

/* Where this rank is now; shown for every rank when a case fails or hangs. */
void tk_checkpoint(struct tk *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The machine lacks something (memory, devices): the case is unresolved whatever else it found
 * short of a failure. Does not leave the body. */
void tk_unresolved(struct tk *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* True if this rank has failed a check so far. */
bool tk_failed(const struct tk *t);

/* The calling thread's error record. */
static inline symmem_error_record last_record(void) {
    symmem_error_record record;
    symmem_last_error(&record);
    return record;
}

/* --- the case's ranks, without symmem -----------------------------------------------------------
 * They order memory between the ranks, so do not put them between the two accesses whose ordering a
 * test is about: ThreadSanitizer would be satisfied by the kit instead of the library. */

/* Waits for all ranks of the case, at most 30 s. Ranks announced by tk_expect_death that have died
 * are not waited for. If a rank has ended otherwise, or time is up: a failed check, and the body is
 * left. */
void tk_out_of_band_barrier(struct tk *t);
/* The same with a limit of its own; false instead of failing. After a false the barrier is out of
 * step: use it no more in this case. */
bool tk_try_out_of_band_barrier(struct tk *t, uint32_t timeout_ms);

/* Values that ranks show each other, zero at the start: publish, out-of-band barrier, read. */
#define TK_SHARED_SLOTS 64
void tk_share_u64(struct tk *t, int slot, uint64_t value);
uint64_t tk_read_u64(struct tk *t, int32_t rank, int slot);
/* True if `own` is true on every rank of the case; all of them call it. Takes the slot. */
bool tk_all_agree(struct tk *t, int slot, bool own);

/* --- random numbers, time ----------------------------------------------------------- */

uint64_t tk_random(struct tk *t);                       /* differs by rank; replayed by --seed */
uint64_t tk_random_below(struct tk *t, uint64_t bound); /* [0, bound), bound > 0 */
uint64_t tk_now_ms(void);                               /* CLOCK_MONOTONIC */
void tk_sleep_ms(uint32_t ms);
/* How much longer than on a quiet machine that may take which began at since_ms. */
uint32_t tk_late_ms(struct tk *t, uint64_t since_ms);
/* A thread that a check by time is about, and that is no rank's, calls this before it ends: how
 * long it was kept from running is not known later. */
void tk_note_delay(struct tk *t);
/* A limit that should pass, or within which ranks that begin together arrive: `ms` where the
 * machine is quiet, more where it was late just before the case or in a try of it. The same on all
 * ranks. */
uint32_t tk_limit_ms(struct tk *t, uint32_t ms);
/* Times `ms` by SYMMEM_TIMEOUT_SCALE: for upper bounds on how long something may take. */
uint32_t tk_scaled_ms(uint32_t ms);
/* SYMMEM_SUITE_LONG=1: what takes minutes is not cut to a sample. */
bool tk_suite_is_long(void);
/* Bytes that the library and backends have asked for in this case and not given back; what a driver
 * keeps is not theirs, and what the C library has asked for on their behalf is not seen. 0 under a
 * sanitizer, which looks for leaks itself; UINT64_MAX: there were too many to follow. */
uint64_t tk_heap_bytes(void);
/* The nth time from here on that the library or a backend asks for heap memory, addresses, a lock
 * or condition or a thread it gets none, once; 0: never. True if that has come since the last call.
 * Nothing fails under a sanitizer. */
bool tk_fail_allocation(int nth);
/* A socket that other code than the runner's, the library's and backends' has made: a library's
 * beneath a backend. False where that is not known, as under a sanitizer. */
bool tk_is_foreign_socket(int fd);
/* Shared mappings of this process, those apart that a library beneath a backend had its driver make
 * for itself (none where that is not known, as under a sanitizer). False: not to be counted. */
struct tk_mappings {
    int own, librarys;
    uint64_t bytes; /* of all */
};
bool tk_shared_mappings(struct tk_mappings *found);

/* Runs fn on each of `count` arguments of `bytes` bytes, in a thread of its own, and waits. */
void tk_in_threads(struct tk *t, void *(*fn)(void *arg), void *args, size_t bytes, int count);

/* --- symmem objects that the epilogue gives back ------------------------------------------------
 * All are made in t->context, or the context given last to tk_use_context. A failure to make one
 * is a failed check and leaves the body. */

/* The group of all ranks, made at the first call. */
symmem_group *tk_world_group(struct tk *t);
/* A group of world ranks; this rank must be among them. Every member passes the same. */
symmem_group *tk_group(struct tk *t, const char *name, const int32_t *ranks, int32_t count);
/* Host barrier over a group; required to succeed. */
void tk_group_barrier(struct tk *t, symmem_group *group);
void *tk_alloc(struct tk *t, size_t bytes);
/* tk_alloc and rendezvous on `group` with the default timeout. Collective. In half of the cases,
 * which depends on the seed, the buffer lies inside a larger block, with canaries before and behind
 * it: a body that looks at the block's base, size or end has the flag TK_PLAIN_MEMORY. */
symmem_handle *tk_handle(struct tk *t, size_t bytes, symmem_group *group);
/* Rendezvous of memory that is there already; the handle is tracked. Collective. */
symmem_handle *tk_rendezvous(struct tk *t, void *ptr, symmem_group *group);
/* A stream and an event on the rank's own device. */
symmem_stream *tk_stream(struct tk *t);
symmem_event *tk_event(struct tk *t);
/* What the stream has captured. */
symmem_graph *tk_end_capture(struct tk *t, symmem_stream *stream);
/* Memory of the host's alone, zero at first; for what a body compares with. */
void *tk_scratch(struct tk *t, size_t bytes);
/* Waits for the stream, if it is not NULL; required to succeed. */
void tk_synchronize(struct tk *t, symmem_stream *stream);
/* Gives one tracked object back early; required to succeed. */
void tk_free(struct tk *t, void *ptr);
void tk_release(struct tk *t, symmem_handle *handle);
void tk_group_destroy(struct tk *t, symmem_group *group);
void tk_stream_destroy(struct tk *t, symmem_stream *stream);

/* --- data, on any backend: by symmem_put and symmem_get with the NULL stream --------------------
 * `rank` is the handle's (group) rank. Required to succeed. */

void tk_write(struct tk *t, symmem_handle *handle, int32_t rank, size_t offset, const void *data,
              size_t bytes);
void tk_read(struct tk *t, symmem_handle *handle, int32_t rank, size_t offset, void *data,
             size_t bytes);
void tk_fill(struct tk *t, symmem_handle *handle, int32_t rank, size_t offset, size_t bytes,
             uint8_t byte);
/* Checks that all bytes are `byte`; names the first that is not. One check. */
bool tk_expect_bytes(struct tk *t, symmem_handle *handle, int32_t rank, size_t offset, size_t bytes,
                     uint8_t byte);
/* Checks the bytes against `expected`. One check. */
bool tk_expect_data(struct tk *t, symmem_handle *handle, int32_t rank, size_t offset,
                    const void *expected, size_t bytes);

/* --- group shapes ------------------------------------------------------------------- */

struct tk_shape {
    const char *name; /* "world", "subset", "reversed", "overlap_low", "overlap_high", "single" */
    const int32_t *ranks; /* world ranks in group order */
    int32_t count;
    int32_t rank; /* this rank's group rank */
};
typedef void (*tk_shape_fn)(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                            void *arg);
/*
 * Calls fn on the world, a strict subset without rank 0, a reversed subset, two subsets that share
 * a rank and are both alive, and a group of one, as far as the rank count allows. Only members call
 * fn; all ranks of the case call tk_for_each_group_shape. All ranks wait for each other between two
 * shapes. fn must not use the out-of-band barrier. The checkpoint names the shape.
 */
void tk_for_each_group_shape(struct tk *t, tk_shape_fn fn, void *arg);

/* --- faults, own contexts ----------------------------------------------------------- */

/* Announces that `rank` will die by SIGKILL; needs TK_MAY_DIE. Any rank may announce, before it
 * happens; announcing a rank that then lives is no failure. */
void tk_expect_death(struct tk *t, int32_t rank);
/* Announces and raises SIGKILL in this rank (process mode only). */
void tk_kill_self(struct tk *t) __attribute__((noreturn));
/* Waits until the controller has seen rank's end, at most timeout_ms; false if it lives on. */
bool tk_wait_death(struct tk *t, int32_t rank, uint32_t timeout_ms);
/* When that was, by tk_now_ms; 0: not yet. */
uint64_t tk_death_ms(struct tk *t, int32_t rank);
/* Whether the system has ended rank's process and taken back what it had. Of one that is killed it
 * may take seconds, if a device is open there. Only when the ranks have met. */
bool tk_has_ended(struct tk *t, int32_t rank);
/* A check: a call that waited for `rank`, which dies, from begin_ms to end_ms (tk_now_ms) was over
 * in SM-TIMEOUT-08's time after that rank's end, or after its own beginning if that was later.
 * Waits till that end has been seen. */
void tk_expect_prompt(struct tk *t, int32_t rank, uint64_t begin_ms, uint64_t end_ms);
/* The process id of a rank, for SIGSTOP and the like. Process mode: never 0 or 1 once the ranks
 * have met; 0 before, and in thread mode. */
int32_t tk_process_id(struct tk *t, int32_t rank);

/* Options filled in as the prologue does: rank, world_size, local rank, store, backend, a default
 * timeout of 20 s or three quarters of the case's limit, the point function of tk_on_point. */
symmem_context_options tk_options(struct tk *t);
/* A path for a folder that no other case has, of this run or of another: short enough for a
 * socket's address, outside scratch_dir. `rank`: in the name, so that each rank has its own; -1:
 * one for all.
 */
void tk_short_path(const struct tk *t, const char *name, int32_t rank, char path[64]);
/* Opens the rank's device as a first context does, so that a case that has none to begin with can
 * compare what the process holds. The process must not fork afterwards. Nothing on the CPU. */
void tk_open_device(struct tk *t);
/* Does the same for the backend's engine, on all ranks together. `number` is another one for each
 * such start that uses this case's folder. */
void tk_open_engine(struct tk *t, int number);
/* Whether this rank can have memory of that device: an engine's heap may be one device's. */
bool tk_has_memory_of(struct tk *t, int32_t device);
/* Ends t->context (tracked objects first) and makes a new one with these options. A check. All
 * ranks of the case do it, where the backend's engine starts on all of them. */
void tk_reinit(struct tk *t, const symmem_context_options *options);
/* After a context of the body's own is made, or gets its backend: all ranks of its world join where
 * that backend has SYMMEM_CAP_WORLD. A check. */
void tk_join(struct tk *t, symmem_context *context);
/* The same with the usual options but for what is changed in `options`. */
#define TK_REINIT(t, ...)                                                                          \
    do {                                                                                           \
        symmem_context_options options = tk_options(t);                                            \
        __VA_ARGS__;                                                                               \
        tk_reinit((t), &options);                                                                  \
    } while (0)
/* Ends t->context and frees it; t->context is NULL afterwards. A check. */
void tk_end_context(struct tk *t);
/* Makes a context of the body's own the target of tk_alloc and so on; NULL: t->context again. The
 * body ends it after releasing what it made. */
void tk_use_context(struct tk *t, symmem_context *context);

struct tk_action {
    uint32_t delay_ms;    /* first */
    bool kill;            /* then, in process mode: SIGKILL to oneself (announced) */
    symmem_status status; /* then returned */
};
/* At the nth time (1 is the first, 0 every time) that this rank's context passes failpoint `point`.
 * At most 8 at once. Counting starts here. */
void tk_on_point(struct tk *t, const char *point, int nth, struct tk_action action);
/* How often `point` was passed since tk_on_point named it; 0 for points never named. */
int tk_point_count(struct tk *t, const char *point);
/* Forgets all of them. No call of this rank may be under way. */
void tk_forget_points(struct tk *t);
/* From here on notes each point that this rank's contexts pass, with the number of times; false:
 * no more. Turning it on forgets what was noted before. */
void tk_record_points(struct tk *t, bool on);
int tk_recorded_points(struct tk *t);
/* In the order in which they were passed first. */
const char *tk_recorded_point(struct tk *t, int index, int *count_p);

/* --- a process of a rank's own ------------------------------------------------------------------
 * For what ends the process that does it, many times in one case. The child is the rank for as
 * long as it runs: its checks count, it shows values and waits for the other ranks' children. It
 * has none of the parent's contexts. Process mode only. The case has TK_FORKS if they use devices.
 */

enum tk_child_end {
    TK_CHILD_DONE,   /* the body came to its end, or was left by a failed check */
    TK_CHILD_KILLED, /* by SIGKILL of its own, see tk_action; it shows when in slot TK_DEATH_SLOT */
    TK_CHILD_FAILED, /* any other end: a failed check */
    TK_CHILD_HUNG,   /* ended after limit_ms: a failed check */
};
#define TK_DEATH_SLOT (TK_SHARED_SLOTS - 1)
/* Here the rank shows, by tk_now_ms, when its child had ended. */
#define TK_ENDED_SLOT (TK_SHARED_SLOTS - 2)
enum tk_child_end tk_run_child(struct tk *t, void (*body)(struct tk *t, void *arg), void *arg,
                               uint32_t limit_ms);

/* One line that is shown beside the case's verdict if it passes; the last of all ranks stays. */
void tk_note(struct tk *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Where the body calls the kit: a failure inside the kit is reported there. */
void tk_at(struct tk *t, const char *file, int line);
#define TK_HERE(t, call) (tk_at((t), __FILE__, __LINE__), call)
#define tk_out_of_band_barrier(t) TK_HERE(t, (tk_out_of_band_barrier)(t))
#define tk_expect_prompt(t, rank, begin_ms, end_ms)                                                \
    TK_HERE(t, (tk_expect_prompt)(t, rank, begin_ms, end_ms))
#define tk_world_group(t) TK_HERE(t, (tk_world_group)(t))
#define tk_group(t, name, ranks, count) TK_HERE(t, (tk_group)(t, name, ranks, count))
#define tk_group_barrier(t, group) TK_HERE(t, (tk_group_barrier)(t, group))
#define tk_alloc(t, bytes) TK_HERE(t, (tk_alloc)(t, bytes))
#define tk_handle(t, bytes, group) TK_HERE(t, (tk_handle)(t, bytes, group))
#define tk_rendezvous(t, ptr, group) TK_HERE(t, (tk_rendezvous)(t, ptr, group))
#define tk_stream(t) TK_HERE(t, (tk_stream)(t))
#define tk_event(t) TK_HERE(t, (tk_event)(t))
#define tk_end_capture(t, stream) TK_HERE(t, (tk_end_capture)(t, stream))
#define tk_scratch(t, bytes) TK_HERE(t, (tk_scratch)(t, bytes))
#define tk_synchronize(t, stream) TK_HERE(t, (tk_synchronize)(t, stream))
#define tk_free(t, ptr) TK_HERE(t, (tk_free)(t, ptr))
#define tk_release(t, handle) TK_HERE(t, (tk_release)(t, handle))
#define tk_group_destroy(t, group) TK_HERE(t, (tk_group_destroy)(t, group))
#define tk_stream_destroy(t, stream) TK_HERE(t, (tk_stream_destroy)(t, stream))
#define tk_write(t, handle, rank, offset, data, bytes)                                             \
    TK_HERE(t, (tk_write)(t, handle, rank, offset, data, bytes))
#define tk_read(t, handle, rank, offset, data, bytes)                                              \
    TK_HERE(t, (tk_read)(t, handle, rank, offset, data, bytes))
#define tk_fill(t, handle, rank, offset, bytes, byte)                                              \
    TK_HERE(t, (tk_fill)(t, handle, rank, offset, bytes, byte))
#define tk_expect_bytes(t, handle, rank, offset, bytes, byte)                                      \
    TK_HERE(t, (tk_expect_bytes)(t, handle, rank, offset, bytes, byte))
#define tk_expect_data(t, handle, rank, offset, expected, bytes)                                   \
    TK_HERE(t, (tk_expect_data)(t, handle, rank, offset, expected, bytes))
#define tk_for_each_group_shape(t, fn, arg) TK_HERE(t, (tk_for_each_group_shape)(t, fn, arg))

#endif
