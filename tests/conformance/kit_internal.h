/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the kit share. */
#ifndef SYMMEM_KIT_INTERNAL_H
#define SYMMEM_KIT_INTERNAL_H

#include <setjmp.h>
#include <stdarg.h>

#include "runner/runner.h"

#define KIT_POINT_MAX 16

#if defined(__has_feature)
#define KIT_HAS(sanitizer) __has_feature(sanitizer)
#else
#define KIT_HAS(sanitizer) 0
#endif
#if defined(__SANITIZE_THREAD__) || KIT_HAS(thread_sanitizer)
#define KIT_THREAD_SANITIZER 1
#else
#define KIT_THREAD_SANITIZER 0
#endif
#if defined(__SANITIZE_ADDRESS__) || KIT_HAS(address_sanitizer)
#define KIT_ADDRESS_SANITIZER 1
#else
#define KIT_ADDRESS_SANITIZER 0
#endif
/* gcc has none. */
#define KIT_MEMORY_SANITIZER KIT_HAS(memory_sanitizer)
/* Whether the runner's allocation functions stand before the C library's. Sanitizers have some. */
#if KIT_ADDRESS_SANITIZER || KIT_THREAD_SANITIZER || KIT_MEMORY_SANITIZER || !defined(__GLIBC__)
#define KIT_OWNS_ALLOCATION 0
#else
#define KIT_OWNS_ALLOCATION 1
#endif

/* In the order in which the epilogue gives them back. */
enum kit_kind {
    KIT_GRAPH,
    KIT_EVENT,
    KIT_STREAM,
    KIT_HANDLE,
    KIT_MEMORY,
    KIT_GROUP,
    KIT_SCRATCH,
    KIT_KIND_COUNT
};

struct kit_object {
    enum kit_kind kind;
    void *object;
    symmem_context *context;
};

struct kit_point {
    char name[64];
    int nth;
    struct tk_action action;
    _Atomic int passed;
};

#define KIT_RECORD_MAX 256

/* The points passed while recording, by whatever threads. */
struct kit_points {
    int count;
    struct {
        char name[64];
        int count;
    } at[KIT_RECORD_MAX];
};
struct kit_record {
    pthread_mutex_t lock;
    _Atomic bool on;
    struct kit_points points;
};

struct tk_rank {
    const struct kit_setup *setup;
    struct arena_rank *slot;
    jmp_buf leave; /* out of the body */
    uint64_t random_state;
    _Atomic(const char *) requirement;
    symmem_context *target; /* of tk_alloc and so on */
    const char *file;       /* where the body called the kit, for failures inside it */
    int line;
    struct kit_guard *guards;
    symmem_group *world; /* of the target, NULL before its first use */
    int shape_round;     /* makes group names unique */
    struct kit_object *objects;
    int object_count;
    int object_capacity;
    _Atomic int point_count;
    struct kit_point points[KIT_POINT_MAX];
    struct kit_record record;
    bool is_child; /* of the rank: see tk_run_child */
};

/* Findings, separated by commas; what does not fit is cut. */
struct kit_text {
    char *at;
    size_t capacity;
};
void kit_add(struct kit_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parts of the leak ledger (kit_state.c, kit_heap.c, kit_new.c, kit_map.c, kit_asker.c). */
struct kit_state;
/* Of this process. 0: they cannot be counted. */
int kit_threads(void);
struct kit_state *kit_state_take(void);
/* Adds what has changed and frees. `device`: one was opened since, which starts threads of its
 * driver. */
void kit_state_compare(struct kit_state *before, unsigned case_flags, bool device,
                       struct kit_text *text);
void kit_heap_begin(void);
void kit_heap_end(struct kit_text *text);
/* Memory of the C library's; alignment 0 is malloc's. NULL: there is none. */
void *kit_heap_take(size_t alignment, size_t bytes);
/* Remembers that `caller` asked for it. */
void kit_heap_remember(void *at, size_t bytes, const void *caller);
/* Whether code at that address is the program's or the C library's, which keep what they like. */
bool kit_heap_is_others(const void *caller);
/* Whether `caller` gets none now, see tk_fail_allocation; errno is set. */
bool kit_is_short(const void *caller);
/* Whether it is the library's, a backend's, or unloaded by now. */
bool kit_is_judged(const void *caller);
void kit_map_begin(void);
void kit_map_end(struct kit_text *text);
/* Return addresses, the innermost first (kit_asker.c). */
#define KIT_STACK_FRAMES 48
struct kit_stack {
    int count; /* at least 1 */
    const void *callers[KIT_STACK_FRAMES];
};
/* Before any is taken. */
void kit_stack_prepare(void);
/* From `caller` outwards, which called the runner's function. */
void kit_stack_take(struct kit_stack *stack, const void *caller);
/* Whether a library beneath the backend had its driver make that mapping for itself. */
bool kit_stack_is_librarys(const struct kit_stack *stack);
/* "asked for by libx.so". */
void kit_stack_describe(const struct kit_stack *stack, struct kit_text *text);
/* Who asked for a shared mapping; false: that is not known. */
bool kit_map_asked(uintptr_t low, uintptr_t high, struct kit_stack *asked);
/* "2 heap blocks of 96 bytes together, asked for in libx.so at 0x1234 in f". */
void kit_describe_asked(struct kit_text *text, const char *what, int count, size_t bytes,
                        const void *caller);

/* Records a failure without counting a check. */
void kit_fail_at(struct tk *t, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same of one that time explains. */
void kit_fail_late_at(struct tk *t, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "what: status and its record" */
void kit_fail_status_at(struct tk *t, const char *file, int line, const char *what,
                        symmem_status status);
/* Counts a check that compared two values, named by format, and returns `same`; if they differ both
 * are reported. */
bool kit_compared_at(struct tk *t, bool same, const char *file, int line, const char *expected,
                     const char *got, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
/* "NAME: message (operation, stage ...)" of the thread's error record. */
void kit_describe_status(symmem_status status, char *text, size_t capacity);
/* A step inside the kit that must succeed: a failure is the caller's and leaves the body. */
#define KIT_OK(t, call)                                                                            \
    do {                                                                                           \
        if (!tk_status_at((t), SYMMEM_OK, (call), #call, (t)->own->file, (t)->own->line))          \
            tk_leave(t);                                                                           \
    } while (0)
/* Remembers an object; on failure leaves the body. */
void kit_track(struct tk *t, enum kit_kind kind, void *object);
/* True if it was tracked. */
bool kit_untrack(struct tk *t, enum kit_kind kind, const void *object);
/* Gives back all objects of `context`; NULL: of all contexts. */
void kit_release_objects(struct tk *t, const symmem_context *context);
/* Canaries round a handle's memory (kit_guard.c). How much to allocate, and how much of it before
 * the buffer: 0 in a case without. */
size_t kit_guarded_size(const struct tk *t, size_t bytes, size_t *before_p);
void kit_guard(struct tk *t, symmem_handle *handle, void *buffer, size_t bytes, size_t before);
/* Looks whether all is as it was; before the handle is given back. */
void kit_guard_end(struct tk *t, const symmem_handle *handle);
/* Ends and frees t->context, if there is one. */
void kit_end_context(struct tk *t);
/* The point function of the contexts' options. */
symmem_status kit_point(void *arg, const char *point);
void kit_record_point(struct kit_record *record, const char *point);

#endif
