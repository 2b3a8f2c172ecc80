/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Heap blocks that the library or a backend asked for and has not given back. The runner's
 * allocation functions stand before the C library's for the whole process; they remember the blocks
 * asked for by code that is neither the runner's nor the C library's, which keep caches for life,
 * and count those of the library and of backends: what a driver or another library that a backend
 * loads keeps is not the backend's to give back. A sanitizer has functions of its own and finds
 * leaks itself, at the end of each rank's process, which has one case: there nothing is remembered.
 */
#include "kit_internal.h"

#include <dlfcn.h>
#include <link.h>
#include <malloc.h>

#if KIT_OWNS_ALLOCATION

#define SLOTS 524288u /* blocks alive at once, drivers' among them; a power of two */
#define PROBES 64u
#define MAX_FOREIGN 16
#define MAX_PARTS 1024 /* of code; what is beyond is looked up for each block */
#define EXPORTED __attribute__((visibility("default")))

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *block);

struct block {
    void *at;
    size_t bytes;
    const void *caller;
};

struct range {
    uintptr_t low, high;
};

/* A process-wide thing by nature: the heap is one. */
static struct {
    pthread_mutex_t lock;
    _Atomic int on;
    bool at_fork; /* the functions below are registered, which is for good */
    int range_count;
    struct range others[MAX_FOREIGN]; /* code whose blocks do not count */
    int live;
    int missed; /* there was no slot for them */
    struct block blocks[SLOTS];
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t slot_of(const void *at) {
    uint64_t mixed = (uint64_t)(uintptr_t)at >> 4;
    mixed *= UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(mixed >> 40) & (SLOTS - 1);
}

bool kit_heap_is_others(const void *caller) {
    for (int i = 0; i < heap.range_count; i++)
        if ((uintptr_t)caller >= heap.others[i].low && (uintptr_t)caller < heap.others[i].high)
            return true;
    return false;
}

void kit_heap_remember(void *at, size_t bytes, const void *caller) {
    if (at == NULL || atomic_load_explicit(&heap.on, memory_order_acquire) == 0 ||
        kit_heap_is_others(caller))
        return;
    pthread_mutex_lock(&heap.lock);
    uint32_t i = 0, slot = slot_of(at);
    for (; i < PROBES && heap.blocks[slot].at != NULL; i++)
        slot = (slot + 1) & (SLOTS - 1);
    if (i < PROBES) {
        heap.blocks[slot] = (struct block){at, bytes, caller};
        heap.live++;
    } else {
        heap.missed++;
    }
    pthread_mutex_unlock(&heap.lock);
}

void *kit_heap_take(size_t alignment, size_t bytes) {
    return alignment == 0 ? __libc_malloc(bytes) : __libc_memalign(alignment, bytes);
}

static void forget(void *at) {
    if (at == NULL || atomic_load_explicit(&heap.on, memory_order_acquire) == 0)
        return;
    pthread_mutex_lock(&heap.lock);
    for (uint32_t i = 0, slot = slot_of(at); i < PROBES; i++, slot = (slot + 1) & (SLOTS - 1))
        if (heap.blocks[slot].at == at) {
            heap.blocks[slot].at = NULL;
            heap.live--;
            break;
        }
    pthread_mutex_unlock(&heap.lock);
}

static struct {
    atomic_int left;
    atomic_bool hit;
} shortage;

bool tk_fail_allocation(int nth) {
    bool hit = atomic_exchange(&shortage.hit, false);
    atomic_store(&shortage.left, nth);
    return hit;
}

bool kit_is_short(const void *caller) {
    if (atomic_load_explicit(&shortage.left, memory_order_relaxed) <= 0 ||
        kit_heap_is_others(caller) || !kit_is_judged(caller) ||
        atomic_fetch_sub(&shortage.left, 1) != 1)
        return false;
    atomic_store(&shortage.hit, true);
    errno = ENOMEM;
    return true;
}

#define SHORT(failure)                                                                             \
    if (kit_is_short(__builtin_return_address(0)))                                                 \
    return failure

#define ALLOCATES(name, parameters, bytes_, ...)                                                   \
    EXPORTED void *name parameters {                                                               \
        SHORT(NULL);                                                                               \
        void *at = __VA_ARGS__;                                                                    \
        kit_heap_remember(at, bytes_, __builtin_return_address(0));                                \
        return at;                                                                                 \
    }
ALLOCATES(malloc, (size_t bytes), bytes, __libc_malloc(bytes))
ALLOCATES(calloc, (size_t count, size_t bytes), count *bytes, __libc_calloc(count, bytes))
ALLOCATES(memalign, (size_t alignment, size_t bytes), bytes, __libc_memalign(alignment, bytes))
ALLOCATES(aligned_alloc, (size_t alignment, size_t bytes), bytes, __libc_memalign(alignment, bytes))

EXPORTED void *realloc(void *block, size_t bytes) {
    SHORT(NULL);
    forget(block);
    void *at = __libc_realloc(block, bytes);
    if (at != NULL || bytes == 0)
        kit_heap_remember(at, bytes, __builtin_return_address(0));
    return at;
}

EXPORTED int posix_memalign(void **at_p, size_t alignment, size_t bytes) {
    int saved = errno;
    SHORT(ENOMEM);
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0)
        return EINVAL;
    void *at = __libc_memalign(alignment, bytes);
    errno = saved;
    if (at == NULL)
        return ENOMEM;
    kit_heap_remember(at, bytes, __builtin_return_address(0));
    *at_p = at;
    return 0;
}

EXPORTED void free(void *block) {
    forget(block);
    __libc_free(block);
}

/* What takes memory of the system's. */
static void *next_of(const char *name, void *_Atomic *kept) {
    void *next = atomic_load_explicit(kept, memory_order_relaxed);
    if (next == NULL)
        atomic_store_explicit(kept, next = dlsym(RTLD_NEXT, name), memory_order_relaxed);
    return next;
}

#define INSTEAD_OF(name, failure, parameters, ...)                                                 \
    EXPORTED int name parameters {                                                                 \
        static void *_Atomic kept;                                                                 \
        int(*real) parameters;                                                                     \
        SHORT(failure);                                                                            \
        void *next = next_of(#name, &kept);                                                        \
        memcpy(&real, &next, sizeof(real));                                                        \
        return real(__VA_ARGS__);                                                                  \
    }
INSTEAD_OF(pthread_mutex_init, ENOMEM,
           (pthread_mutex_t * lock, const pthread_mutexattr_t *attributes), lock, attributes)
INSTEAD_OF(pthread_cond_init, ENOMEM, (pthread_cond_t * cond, const pthread_condattr_t *attributes),
           cond, attributes)
INSTEAD_OF(pthread_create, EAGAIN,
           (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),
           thread, attributes, run, arg)

/* What was there before a library or backend of ours: the program and the C library's parts. */
static int note_range(struct dl_phdr_info *info, size_t size, void *arg) {
    const char *name = info->dlpi_name;
    const char *base = strrchr(name, '/');
    (void)size, (void)arg;
    base = base == NULL ? name : base + 1;
    if (name[0] != '\0' && strncmp(base, "libc.", 5) != 0 && strncmp(base, "ld-", 3) != 0 &&
        strncmp(base, "libpthread", 10) != 0 && strncmp(base, "libdl.", 6) != 0 &&
        strncmp(base, "librt.", 6) != 0 && strncmp(base, "libcunit", 8) != 0 &&
        strncmp(base, "linux-", 6) != 0 && strncmp(base, "libgcc", 6) != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum && heap.range_count < MAX_FOREIGN; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t low = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0)
            heap.others[heap.range_count++] = (struct range){low, low + part->p_memsz};
    }
    return 0;
}

/* A child of fork must not find the lock taken by a thread that it does not have. */
static void lock_heap(void) {
    pthread_mutex_lock(&heap.lock);
}

static void unlock_heap(void) {
    pthread_mutex_unlock(&heap.lock);
}

/* Never twice at once: a process has one case at a time. */
void kit_heap_begin(void) {
    if (!heap.at_fork && pthread_atfork(lock_heap, unlock_heap, unlock_heap) != 0)
        return;
    heap.at_fork = true;
    heap.range_count = 0;
    heap.missed = 0;
    dl_iterate_phdr(note_range, NULL);
    atomic_store_explicit(&heap.on, 1, memory_order_release);
}

static bool is_in(const void *symbol, const Dl_info *object) {
    Dl_info info;
    return symbol != NULL && dladdr(symbol, &info) != 0 && info.dli_fbase == object->dli_fbase;
}

/* Whether the object that code lies in is the library or a backend: either exports what makes it
 * one, by itself and not by what it depends on. Unloaded code was, for drivers stay. */
static bool is_judged(const Dl_info *info) {
    void *object = dlopen(info->dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (object == NULL)
        return true;
    bool judged = is_in(dlsym(object, SYMMEM_BACKEND_ENTRY), info) ||
                  is_in(dlsym(object, "symmem_init"), info);
    dlclose(object);
    return judged;
}

bool kit_is_judged(const void *caller) {
    Dl_info info;
    return dladdr(caller, &info) == 0 || info.dli_fname == NULL || is_judged(&info);
}

/* The blocks alive, by who asked for them: large libraries have thousands of places that do. */
struct census {
    int block_count, part_count;
    struct part {
        struct range range;
        enum { UNKNOWN, JUDGED, OTHERS } whose;
    } parts[MAX_PARTS]; /* of the code that is loaded */
    struct block blocks[SLOTS];
};

static int note_part(struct dl_phdr_info *info, size_t size, void *arg) {
    struct census *census = arg;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum && census->part_count < MAX_PARTS; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t low = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0)
            census->parts[census->part_count++] =
                (struct part){{low, low + part->p_memsz}, UNKNOWN};
    }
    return 0;
}

static int by_caller(const void *left, const void *right) {
    const struct block *a = left, *b = right;
    return (a->caller > b->caller) - (a->caller < b->caller);
}

static struct census *take_census(void) {
    struct census *census = __libc_malloc(sizeof(*census));
    if (census == NULL)
        return NULL;
    census->block_count = census->part_count = 0;
    pthread_mutex_lock(&heap.lock);
    for (uint32_t i = 0; i < SLOTS && census->block_count < heap.live; i++)
        if (heap.blocks[i].at != NULL)
            census->blocks[census->block_count++] = heap.blocks[i];
    pthread_mutex_unlock(&heap.lock);
    qsort(census->blocks, (size_t)census->block_count, sizeof(*census->blocks), by_caller);
    dl_iterate_phdr(note_part, census);
    return census;
}

static bool counts(struct census *census, const void *caller) {
    for (int i = 0; i < census->part_count; i++) {
        struct part *part = &census->parts[i];
        if ((uintptr_t)caller < part->range.low || (uintptr_t)caller >= part->range.high)
            continue;
        if (part->whose == UNKNOWN)
            part->whose = kit_is_judged(caller) ? JUDGED : OTHERS;
        return part->whose == JUDGED;
    }
    return kit_is_judged(caller);
}

/* What the caller of block i has altogether; `i` becomes the next caller's first. */
static struct block sum_up(const struct census *census, int *i_p, int *count_p) {
    struct block sum = {.caller = census->blocks[*i_p].caller};
    for (*count_p = 0; *i_p < census->block_count; (*count_p)++) {
        const struct block *block = &census->blocks[*i_p];
        if (block->caller != sum.caller)
            break;
        sum.bytes += block->bytes;
        (*i_p)++;
    }
    return sum;
}

uint64_t tk_heap_bytes(void) {
    struct census *census = take_census();
    uint64_t bytes = 0;
    if (census == NULL)
        return UINT64_MAX;
    for (int i = 0, count; i < census->block_count;) {
        struct block sum = sum_up(census, &i, &count);
        bytes += counts(census, sum.caller) ? sum.bytes : 0;
    }
    __libc_free(census);
    return heap.missed > 0 ? UINT64_MAX : bytes;
}

void kit_describe_asked(struct kit_text *text, const char *what, int count, size_t bytes,
                        const void *caller) {
    Dl_info info;
    const char *name = "unloaded code";
    if (!kit_is_judged(caller))
        return;
    if (dladdr(caller, &info) != 0 && info.dli_fname != NULL)
        name = strrchr(info.dli_fname, '/') == NULL ? info.dli_fname
                                                    : strrchr(info.dli_fname, '/') + 1;
    else
        info = (Dl_info){0};
    kit_add(text, "%d %s%s of %zu bytes together, asked for in %s at %p%s%s", count, what,
            count == 1 ? "" : "s", bytes, name,
            (void *)((uintptr_t)caller - (uintptr_t)info.dli_fbase),
            info.dli_sname == NULL ? "" : " in ", info.dli_sname == NULL ? "" : info.dli_sname);
}

/* One line for each place that asked. */
void kit_heap_end(struct kit_text *text) {
    atomic_store_explicit(&heap.on, 0, memory_order_release);
    struct census *census = heap.live > 0 ? take_census() : NULL;
    for (int i = 0, count; census != NULL && i < census->block_count;) {
        struct block sum = sum_up(census, &i, &count);
        if (counts(census, sum.caller))
            kit_describe_asked(text, "heap block", count, sum.bytes, sum.caller);
    }
    __libc_free(census);
    for (uint32_t i = 0; i < SLOTS && heap.live > 0; i++) {
        heap.live -= heap.blocks[i].at != NULL;
        heap.blocks[i].at = NULL;
    }
}

#else

uint64_t tk_heap_bytes(void) {
    return 0;
}

bool tk_fail_allocation(int nth) {
    (void)nth;
    return false;
}

void kit_heap_begin(void) {}

void kit_heap_end(struct kit_text *text) {
    (void)text;
}

#endif
