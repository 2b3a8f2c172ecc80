/* SPDX-License-Identifier: BSD-3-Clause */
/* All of this is to be found first. */
#pragma GCC visibility push(default)

#include "calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* glibc's own, which can be called before anything is looked up. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void __libc_free(void *ptr);

/* --- whose call it is ------------------------------------------------------------------------- */

enum { OBJECTS = 4 };
static struct object {
    uintptr_t from, to, base;
    char name[64];
} objects[OBJECTS];
static atomic_int object_count;

static int note_object(struct dl_phdr_info *info, size_t bytes, void *arg) {
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : info->dlpi_name;
    const int count = atomic_load(&object_count);
    (void)bytes, (void)arg;
    if (strncmp(name, "libsymmem.so", 12) != 0 && strncmp(name, "libsymmem_backend_", 18) != 0 &&
        strncmp(name, "reach", 5) != 0)
        return 0;
    for (int i = 0; i < count; i++)
        if (objects[i].base == info->dlpi_addr)
            return 0;
    for (int i = 0; i < info->dlpi_phnum && count < OBJECTS; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0)
            continue;
        objects[count] = (struct object){.from = info->dlpi_addr + part->p_vaddr,
                                         .to = info->dlpi_addr + part->p_vaddr + part->p_memsz,
                                         .base = info->dlpi_addr};
        (void)snprintf(objects[count].name, sizeof(objects[count].name), "%s", name);
        atomic_store(&object_count, count + 1);
        break;
    }
    return 0;
}

static const struct object *owner_of(const void *caller) {
    const int count = atomic_load(&object_count);
    for (int i = 0; i < count; i++)
        if ((uintptr_t)caller >= objects[i].from && (uintptr_t)caller < objects[i].to)
            return &objects[i];
    return NULL;
}

/* --- which call fails ----------------------------------------------------------------------- */

static atomic_bool armed;
static faults_class armed_class;
static int fail_at;
static atomic_int calls;
static char hit[128];

void faults_arm(faults_class of, int nth) {
    (void)dl_iterate_phdr(note_object, NULL);
    armed_class = of;
    fail_at = nth;
    atomic_store(&calls, 0);
    atomic_store(&armed, true);
}

int faults_disarm(void) {
    atomic_store(&armed, false);
    return atomic_load(&calls);
}

const char *faults_hit(void) {
    return hit;
}

static bool fails(faults_class class, const char *name, const void *caller) {
    if (!atomic_load(&armed) || class != armed_class)
        return false;
    const struct object *owner = owner_of(caller);
    if (owner == NULL || atomic_fetch_add(&calls, 1) + 1 != fail_at)
        return false;
    (void)snprintf(hit, sizeof(hit), "%s %s+%lx", name, owner->name,
                   (unsigned long)((uintptr_t)caller - owner->base));
    return true;
}

#define CALLER __builtin_return_address(0)

/* --- what lives ----------------------------------------------------------------------------- */

enum { SLOTS = 1 << 16 };
static struct live {
    const void *what; /* NULL: free */
    const void *maker;
    size_t bytes;
    char kind;   /* 'b' block, 'm' mapping, 'c' condition */
} * slots;       /* one mapping, so that this itself makes no blocks */
static int used; /* slots below it */
static atomic_flag lock = ATOMIC_FLAG_INIT;

static void take_lock(void) {
    while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
        (void)sched_yield();
}

static void give_lock(void) {
    atomic_flag_clear_explicit(&lock, memory_order_release);
}

static bool room_for_slots(void) {
    if (slots == NULL) {
        void *made = (void *)syscall(SYS_mmap, NULL, SLOTS * sizeof(*slots), PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        slots = made == MAP_FAILED ? NULL : made;
    }
    return slots != NULL;
}

static void remember(char kind, const void *what, size_t bytes, const void *maker) {
    if (what == NULL || !atomic_load(&armed) || owner_of(maker) == NULL)
        return;
    take_lock();
    int at = 0;
    while (room_for_slots() && at < used && slots[at].what != NULL)
        at++;
    if (slots != NULL && at < SLOTS) {
        slots[at] = (struct live){.what = what, .maker = maker, .bytes = bytes, .kind = kind};
        used = at == used ? used + 1 : used;
    }
    give_lock();
}

/* Forgets all objects of that kind in these bytes. Returns the maker of one. */
static const void *forget(char kind, const void *what, size_t bytes) {
    const void *maker = NULL;
    if (what == NULL || used == 0)
        return NULL;
    take_lock();
    for (int at = 0; at < used; at++) {
        const uintptr_t from = (uintptr_t)slots[at].what;
        if (slots[at].what == NULL || slots[at].kind != kind || from < (uintptr_t)what ||
            from - (uintptr_t)what >= bytes)
            continue;
        maker = slots[at].maker;
        slots[at].what = NULL;
    }
    while (used > 0 && slots[used - 1].what == NULL)
        used--;
    give_lock();
    return maker;
}

int faults_live(int told) {
    int count = 0;
    take_lock();
    for (int at = 0; at < used; at++) {
        const struct object *owner = owner_of(slots[at].maker);
        if (slots[at].what == NULL || owner == NULL)
            continue;
        count++;
        if (told)
            printf("LEAK %c %zu %s+%lx\n", slots[at].kind, slots[at].bytes, owner->name,
                   (unsigned long)((uintptr_t)slots[at].maker - owner->base));
    }
    give_lock();
    return count;
}

/* --- the calls ------------------------------------------------------------------------------ */

#define NAME(name) name
#define REAL(name) ((__typeof__(&name))real_of(#name, &real_##name))
#define FAILS(class, waits, name) fails(FAULTS_##class, #name, CALLER)

static void *real_of(const char *name, void **kept) {
    if (*kept == NULL)
        *kept = dlsym(RTLD_NEXT, name);
    return *kept;
}

static void *real_open, *real_openat, *real_fcntl;

#define CALL(class, waits, type, name, parameters, arguments, error, result)                       \
    static void *real_##name;                                                                      \
    type name parameters {                                                                         \
        if (fails(FAULTS_##class, #name, CALLER)) {                                                \
            errno = (error);                                                                       \
            return result;                                                                         \
        }                                                                                          \
        return REAL(name) arguments;                                                               \
    }
#define CALL_RETURNS(class, waits, name, parameters, arguments, error)                             \
    static void *real_##name;                                                                      \
    int name parameters {                                                                          \
        if (fails(FAULTS_##class, #name, CALLER))                                                  \
            return (error);                                                                        \
        return REAL(name) arguments;                                                               \
    }

#include "walks/calls.h"

void *malloc(size_t bytes) {
    if (FAILS(MEMORY, false, malloc)) {
        errno = ENOMEM;
        return NULL;
    }
    void *made = __libc_malloc(bytes);
    remember('b', made, bytes, CALLER);
    return made;
}

void *calloc(size_t count, size_t bytes) {
    if (FAILS(MEMORY, false, calloc)) {
        errno = ENOMEM;
        return NULL;
    }
    void *made = __libc_calloc(count, bytes);
    remember('b', made, count * bytes, CALLER);
    return made;
}

void *realloc(void *old, size_t bytes) {
    if (FAILS(MEMORY, false, realloc)) {
        errno = ENOMEM;
        return NULL;
    }
    const void *maker = forget('b', old, 1);
    void *made = __libc_realloc(old, bytes);
    remember('b', made != NULL ? made : old, bytes, made != NULL ? CALLER : maker);
    return made;
}

char *strdup(const char *text) {
    const size_t bytes = strlen(text) + 1;
    if (FAILS(MEMORY, false, strdup)) {
        errno = ENOMEM;
        return NULL;
    }
    char *made = __libc_malloc(bytes);
    if (made != NULL)
        memcpy(made, text, bytes);
    remember('b', made, bytes, CALLER);
    return made;
}

int asprintf(char **text_p, const char *format, ...) {
    va_list args;
    if (FAILS(MEMORY, false, asprintf)) {
        errno = ENOMEM;
        return -1;
    }
    va_start(args, format);
    int bytes = vasprintf(text_p, format, args);
    va_end(args);
    if (bytes >= 0)
        remember('b', *text_p, (size_t)bytes + 1, CALLER);
    return bytes;
}

void free(void *ptr) {
    const int kept = errno;
    (void)forget('b', ptr, 1);
    __libc_free(ptr);
    errno = kept;
}

static void *real_mmap, *real_munmap;

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset) {
    if (FAILS(MAPPINGS, false, mmap)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *made = REAL(mmap)(at, bytes, prot, flags, fd, offset);
    if (made != MAP_FAILED && (flags & MAP_FIXED) == 0)
        remember('m', made, bytes, CALLER);
    return made;
}

int munmap(void *at, size_t bytes) {
    int result = REAL(munmap)(at, bytes);
    if (result == 0)
        (void)forget('m', at, bytes);
    return result;
}

static void *real_pthread_cond_init, *real_pthread_cond_destroy;

int pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes) {
    if (FAILS(THREADS, false, pthread_cond_init))
        return ENOMEM;
    int result = REAL(pthread_cond_init)(condition, attributes);
    if (result == 0)
        remember('c', condition, 1, CALLER);
    return result;
}

int pthread_cond_destroy(pthread_cond_t *condition) {
    (void)forget('c', condition, 1);
    return REAL(pthread_cond_destroy)(condition);
}

/* --- those of the C library's that the unit tests' walks do without --------------------------- */

CALL(SOCKETS, false, int, listen, (int fd, int backlog), (fd, backlog), EADDRINUSE, -1)
CALL(SOCKETS, true, int, connect, (int fd, const struct sockaddr *address, socklen_t bytes),
     (fd, address, bytes), EAGAIN, -1)
CALL(SOCKETS, true, int, accept4, (int fd, struct sockaddr *address, socklen_t *bytes, int flags),
     (fd, address, bytes, flags), EMFILE, -1)
CALL(SOCKETS, false, int, getsockopt,
     (int fd, int level, int option, void *value, socklen_t *bytes),
     (fd, level, option, value, bytes), ENOBUFS, -1)
CALL(SOCKETS, true, ssize_t, recv, (int fd, void *data, size_t bytes, int flags),
     (fd, data, bytes, flags), ENOMEM, -1)

CALL(FILES, false, int, dup3, (int fd, int to, int flags), (fd, to, flags), EMFILE, -1)
CALL(FILES, false, FILE *, fopen, (const char *path, const char *mode), (path, mode), EMFILE, NULL)
CALL(FILES, false, DIR *, opendir, (const char *path), (path), EMFILE, NULL)
CALL(FILES, false, int, unlink, (const char *path), (path), EIO, -1)
CALL(FILES, false, int, access, (const char *path, int mode), (path, mode), EACCES, -1)
CALL(FILES, false, int, lstat, (const char *path, struct stat *out), (path, out), EACCES, -1)
CALL(FILES, false, ssize_t, readlink, (const char *path, char *target, size_t bytes),
     (path, target, bytes), EACCES, -1)
CALL(FILES, false, char *, realpath, (const char *path, char *resolved), (path, resolved), EACCES,
     NULL)
CALL(FILES, false, char *, getcwd, (char *path, size_t bytes), (path, bytes), ENOENT, NULL)

CALL_RETURNS(THREADS, false, pthread_condattr_setclock,
             (pthread_condattr_t * attributes, clockid_t clock), (attributes, clock), EINVAL)

CALL(SYSTEM, false, int, getrlimit, (__rlimit_resource_t resource, struct rlimit *limit),
     (resource, limit), EINVAL, -1)

static void *real_dlopen, *real_syscall;

void *dlopen(const char *path, int mode) {
    if (FAILS(LIBRARIES, false, dlopen))
        return NULL;
    /* It looks beside its caller, so without symmem's own this would look elsewhere; symmem names
     * paths, or libraries of the system. */
    void *library = REAL(dlopen)(path, mode);
    (void)dl_iterate_phdr(note_object, NULL);
    return library;
}

long syscall(long number, ...) {
    long values[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        values[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_pidfd_open && fails(FAULTS_PIDFDS, "pidfd_open", CALLER)) {
        errno = EMFILE;
        return -1;
    }
    return REAL(syscall)(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
